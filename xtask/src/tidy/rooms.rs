//! The rooms of the broker: what belongs to one protocol is in the folder of its
//! front, which does not know the other's. The rest of the broker names neither,
//! but for the doors: where things enter and leave a front, and the closed enums
//! whose variants are the fronts.

use crate::finding::Finding;
use crate::packages::{CodeFile, packages};
use crate::tree::Tree;

/// The broker's source.
const SOURCE: &str = "crates/dunlin-broker/src/";

/// Rooms, and what names their protocol.
const ROOMS: [(&str, [&str; 3]); 2] = [
    ("mqtt/", ["dunlin_mqtt", "crate::mqtt", "::Mqtt"]),
    ("amqp/", ["dunlin_amqp", "crate::amqp", "::Amqp"]),
];

/// Files outside the rooms that may name both.
const DOORS: [&str; 8] = [
    "front.rs",
    "messages/written.rs",
    "owners/conn.rs",
    "owners/pending.rs",
    "owners/session.rs",
    "receivers.rs",
    "translate.rs",
    "wants.rs",
];

/// Holds the rule.
pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let packages = packages(tree);
    let files = packages.iter().flat_map(|package| &package.code);
    let files = files.filter_map(|file| Some((file.path.strip_prefix(SOURCE)?, file)));
    let mut doors = DOORS.to_vec();
    let mut findings = Vec::new();
    for (path, file) in files {
        doors.retain(|door| *door != path);
        if DOORS.contains(&path) || path.starts_with("tests/") {
            continue;
        }
        for (room, names) in ROOMS.iter().filter(|(room, _)| !path.starts_with(room)) {
            if let Some((line, name)) = first_name(file, names) {
                let advice = format!("`{name}`: move what is this protocol's to `{room}`");
                findings.push(Finding::new(file.path, line, "room", advice));
            }
        }
    }
    if tree.rust().any(|(path, _)| path.starts_with(SOURCE)) {
        findings.extend(doors.into_iter().map(|door| {
            let path = format!("{SOURCE}{door}");
            Finding::new(&path, 1, "room", "a door that is not there: strike it")
        }));
    }
    findings
}

/// The first of these names in the code of a file, without its tests.
fn first_name<'a>(file: &CodeFile<'_>, names: &[&'a str]) -> Option<(usize, &'a str)> {
    let code = file.source.code();
    let found = names.iter().flat_map(|name| {
        let places = code.match_indices(name).map(|(at, _)| at);
        let code = places.filter(|at| !file.source.is_test(*at));
        code.map(|at| (file.source.line_of(at), *name))
    });
    found.min()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(files: &[(&str, &str)]) -> Vec<String> {
        let manifest = (
            "crates/dunlin-broker/Cargo.toml",
            "[package]\nname = \"dunlin-broker\"\n",
        );
        let doors = DOORS.map(|door| format!("{SOURCE}{door}"));
        let mut all = vec![manifest];
        let text = "use dunlin_mqtt::A;\nuse dunlin_amqp::B;\n";
        all.extend(doors.iter().map(|door| (door.as_str(), text)));
        all.extend(files);
        let findings = check(&Tree::of(&all));
        findings.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn each_protocol_is_named_in_its_room_and_at_the_doors() {
        let file = |name: &str| format!("{SOURCE}{name}");
        let (own, other) = (file("mqtt/a.rs"), file("amqp/a.rs"));
        let core = file("messages/a.rs");
        let mqtt = "//! dunlin_mqtt\nuse dunlin_mqtt::A;\nfn f() { Conn::Mqtt(_) }\n";
        assert!(found(&[(&own, mqtt)]).is_empty());
        for (path, line) in [(&other, 2), (&core, 2)] {
            let found = found(&[(path, mqtt)]);
            assert_eq!(found.len(), 1, "{found:?}");
            let start = format!("{path}:{line}: room: `dunlin_mqtt`");
            assert!(found[0].starts_with(&start), "{found:?}");
        }
        for text in [
            "use crate::amqp::x;\n",
            "fn f(x: Session) { Session::Amqp(x) }\n",
        ] {
            assert_eq!(found(&[(&core, text)]).len(), 1);
            assert_eq!(found(&[(&own, text)]).len(), 1);
            assert!(found(&[(&other, text)]).is_empty());
        }
        let harmless = "//! x\n// crate::mqtt\nfn f() { g(\"dunlin_amqp\") }\n\
            #[cfg(test)]\nmod tests {\n    use dunlin_mqtt::A;\n}\n";
        assert!(found(&[(&core, harmless)]).is_empty());
    }

    #[test]
    fn a_door_is_there() {
        let lib = (format!("{SOURCE}lib.rs"), "//! x\n");
        let findings = check(&Tree::of(&[
            (
                "crates/dunlin-broker/Cargo.toml",
                "[package]\nname = \"dunlin-broker\"\n",
            ),
            (&lib.0, lib.1),
        ]));
        assert_eq!(findings.len(), DOORS.len());
    }
}
