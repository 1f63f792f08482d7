//! The access list, by tables.

use alloc::format;
use alloc::string::ToString;

use super::*;

const LIST: &str = "
# The house.
topic read public/#
topic public/hello

user alice
topic readwrite home/alice/#
topic deny home/alice/vault/#
topic read home/+/lamp
topic write two words/of topic

client pump-7
topic write plant/pump-7/+
topic deny public/secret

user bob
topic #

pattern write devices/%c/state
pattern read users/%u-x/%c/#
pattern deny users/+/%c/hidden
pattern deny users/%u/attic
";

fn check(acl: &Acl, cases: &[(Option<&str>, &str, Action, &str, bool)]) {
    for (user, client_id, action, topic, want) in cases {
        let got = acl.allows(*user, client_id, *action, topic);
        assert_eq!(got, *want, "{user:?} {client_id} {action:?} {topic}");
    }
}

#[test]
fn what_no_line_allows_is_forbidden() {
    use Action::{Publish, Receive, Subscribe};
    let acl = Acl::parse(LIST).expect("valid");
    let (alice, bob, eve) = (Some("alice"), Some("bob"), Some("eve"));
    check(
        &acl,
        &[
            (None, "c", Receive, "public/a", true),
            (None, "c", Publish, "public/a", false),
            (None, "c", Publish, "public/hello", true),
            (None, "c", Subscribe, "public/#", true),
            (None, "c", Subscribe, "public", true),
            (None, "c", Subscribe, "#", false),
            (None, "c", Publish, "home/alice/lamp", false),
            // Lines before the first user are for those without a name only.
            (alice, "c", Receive, "public/a", false),
            (alice, "c", Publish, "home/alice/lamp", true),
            (alice, "c", Publish, "home/bob/lamp", false),
            (alice, "c", Receive, "home/bob/lamp", true),
            (alice, "c", Publish, "two words/of topic", true),
            (alice, "c", Receive, "two words/of topic", false),
            // What is denied stays so inside of what is allowed.
            (alice, "c", Publish, "home/alice/vault/gold", false),
            (alice, "c", Receive, "home/alice/vault", false),
            (alice, "c", Subscribe, "home/alice/vault/#", false),
            (alice, "c", Subscribe, "home/alice/#", false),
            (alice, "c", Subscribe, "home/alice/+/x", false),
            (alice, "c", Subscribe, "home/alice/lamp", true),
            (alice, "c", Subscribe, "home/alice/lamp/#", true),
            (eve, "c", Publish, "home/alice/lamp", false),
            (bob, "c", Publish, "any/thing", true),
            (bob, "c", Subscribe, "#", false),
            (bob, "c", Receive, "$SYS/broker", false),
        ],
    );
}

#[test]
fn client_sections_add_to_users() {
    use Action::{Publish, Receive, Subscribe};
    let acl = Acl::parse(LIST).expect("valid");
    check(
        &acl,
        &[
            (None, "pump-7", Publish, "plant/pump-7/rpm", true),
            (Some("eve"), "pump-7", Publish, "plant/pump-7/rpm", true),
            (Some("eve"), "pump-8", Publish, "plant/pump-7/rpm", false),
            (None, "pump-7", Receive, "public/a", true),
            (None, "pump-7", Receive, "public/secret", false),
            (None, "pump-7", Subscribe, "public/+", false),
        ],
    );
}

#[test]
fn patterns_never_match_more_than_one_level() {
    use Action::{Publish, Receive, Subscribe};
    let acl = Acl::parse(LIST).expect("valid");
    check(
        &acl,
        &[
            (None, "c1", Publish, "devices/c1/state", true),
            (None, "c1", Publish, "devices/c2/state", false),
            (Some("eve"), "c1", Receive, "users/eve-x/c1/a", true),
            (Some("eve"), "c1", Subscribe, "users/eve-x/c1/a/#", true),
            (Some("eve"), "c1", Receive, "users/bob-x/c1/a", false),
            // Without a user there is nothing to put for %u.
            (None, "c1", Receive, "users/-x/c1/a", false),
            (Some(""), "c1", Receive, "users/-x/c1/a", false),
            (Some("eve"), "c1", Receive, "users/eve-x/c1/hidden", false),
            (Some("eve"), "c1", Subscribe, "users/eve-x/c1/+", false),
            (Some("bob"), "c", Publish, "users/bob/attic", false),
            (Some("bob"), "c", Publish, "users/eve/attic", true),
            // Names that are filters or paths gain nothing, and lose what a
            // denying pattern could not be applied to.
            (Some("+"), "c1", Subscribe, "users/+-x/c1/a", false),
            (Some("eve"), "+", Subscribe, "users/eve-x/+/a", false),
            (None, "+", Publish, "devices/c1/state", false),
            (None, "#", Publish, "devices/c1/state", false),
            (None, "a/b", Publish, "devices/a/b/state", false),
            (None, "$SYS", Publish, "devices/$SYS/state", false),
            (Some("a$"), "c1", Receive, "users/a$-x/c1/a", false),
            (Some("bob"), "a/b", Publish, "any/thing", false),
            (Some("bob"), "ab", Publish, "any/thing", true),
        ],
    );
}

#[test]
fn shared_subscriptions_are_judged_by_their_filter() {
    let acl = Acl::parse("topic read a/#\ntopic read $share/x").expect("valid");
    let allows = |filter| acl.allows(None, "c", Action::Subscribe, filter);
    assert!(allows("$share/g/a/b"));
    assert!(!allows("$share/g/b"));
    assert!(!allows("$share/a/#"));
}

#[test]
fn covering_and_touching() {
    // Allowed or denied filter, subscription, covers, touches.
    let cases = [
        ("a/b", "a/b", true, true),
        ("a/b", "a/+", false, true),
        ("a/+", "a/b", true, true),
        ("a/+", "a/+", true, true),
        ("a/+", "a/#", false, true),
        ("a/#", "a", true, true),
        ("a/#", "a/+/c", true, true),
        ("a", "a/#", false, true),
        ("a/b", "a/b/#", false, true),
        ("a/b/c", "a/b", false, false),
        ("a/+/c", "a/b/+", false, true),
        ("a/+/c", "+/b/d", false, false),
        ("+", "a/b", false, false),
        ("+/#", "a", true, true),
        ("#", "a/b/#", true, true),
        ("#", "$SYS/#", false, false),
        ("+/x", "$SYS/x", false, false),
        ("$SYS/#", "#", false, false),
        ("$SYS/#", "$SYS/a", true, true),
        ("$SYS/a", "+/a", false, false),
        ("a//c", "a/+/c", false, true),
        ("/a", "+/a", false, true),
        ("é/+", "é/#", false, true),
    ];
    for (rule, filter, covers, touches) in cases {
        let allow = Acl::parse(&format!("topic read {rule}")).expect(rule);
        let got = allow.allows(None, "c", Action::Subscribe, filter);
        assert_eq!(got, covers, "{rule} covers {filter}");
        let deny = format!("topic read {filter}\ntopic deny {rule}");
        let deny = Acl::parse(&deny).expect(rule);
        let got = !deny.allows(None, "c", Action::Subscribe, filter);
        assert_eq!(got, touches, "{rule} touches {filter}");
    }
}

#[test]
fn matching_agrees_with_section_4_7() {
    let rules = [
        "#", "+", "a/#", "a/+", "+/b", "a/b", "+/+", "/+", "$SYS/#", "+/b/#", "a//",
    ];
    let names = [
        "a", "a/b", "/b", "a/b/c", "$SYS", "$SYS/b", "b", "a/", "a//", "/", "é/b",
    ];
    for rule in rules {
        let acl = Acl::parse(&format!("topic read {rule}")).expect(rule);
        for name in names {
            let got = acl.allows(None, "c", Action::Receive, name);
            assert_eq!(got, topic::matches(rule, name), "{rule} {name}");
        }
    }
}

#[test]
fn percent_signs_are_only_special_in_patterns() {
    let text = "topic write a/%u\npattern write b/%%u%x%c%/%";
    let acl = Acl::parse(text).expect("valid");
    let allows = |topic| acl.allows(Some("eve"), "c", Action::Publish, topic);
    assert!(!allows("a/%u") && acl.allows(None, "c", Action::Publish, "a/%u"));
    assert!(allows("b/%eve%xc%/%"), "{acl:?}");
    assert!(!allows("b/%u%xc%/%"));
}

#[test]
fn mistakes_name_their_line() {
    let cases = [
        (
            "\n\ntopik a",
            "line 3: `topik` is not `user`, `group`, `client`, `topic` or `pattern`",
        ),
        ("user", "line 1: `user` needs something after it"),
        ("topic  ", "line 1: `topic` needs something after it"),
        (
            "topic read a/#/b",
            "line 1: `a/#/b` is not a topic filter: '#' must be the last level and alone in it",
        ),
        (
            "pattern +%u",
            "line 1: `+%u` is not a topic filter: '+' must be alone in its level",
        ),
    ];
    for (text, sentence) in cases {
        let error = Acl::parse(text).expect_err(text);
        assert_eq!(error.to_string(), sentence);
    }
    for text in [
        "",
        "#x\n",
        "\u{feff}topic read",
        "user a b\r\ntopic\tread\tx\r\n",
    ] {
        Acl::parse(text).expect(text);
    }
    let acl = Acl::parse("user a b\r\ntopic\tread\tx\r\n").expect("valid");
    assert!(acl.allows(Some("a b"), "c", Action::Receive, "x"));
}

/// Subscriptions that are allowed as a whole are not checked for each message.
#[test]
fn who_may_subscribe_may_receive_all_that_matches() {
    const LEVELS: [&str; 7] = ["a", "b", "$SYS", "+", "#", "%u", "%c"];
    let mut random = dunlin_base::Random::new(12);
    let mut draw = |choices: &[&'static str]| {
        let levels: Vec<&str> = (0..1 + random.below(3))
            .map(|_| choices[random.below(choices.len() as u64) as usize])
            .collect();
        levels.join("/")
    };
    let mut checked = 0;
    for _ in 0..20_000 {
        let mut list = String::from("user u\n");
        for line in ["topic read", "topic deny", "pattern read", "pattern deny"] {
            list += &format!("{line} {}\n", draw(&LEVELS));
        }
        let (Ok(acl), filter, topic) = (Acl::parse(&list), draw(&LEVELS[..5]), draw(&LEVELS[..3]))
        else {
            continue;
        };
        let valid = topic::validate_filter(&filter).is_ok();
        if valid
            && topic::matches(&filter, &topic)
            && acl.allows(Some("u"), "a", Action::Subscribe, &filter)
        {
            checked += 1;
            let may = acl.allows(Some("u"), "a", Action::Receive, &topic);
            assert!(may, "{list}{filter} {topic}");
        }
    }
    assert!(checked > 50, "{checked}");
}

#[test]
fn the_line_that_decides_is_known() {
    let acl = Acl::parse("# one\nuser ann\ntopic read a/#\ntopic deny a/b\npattern write c/%c\n");
    let acl = acl.expect("a list");
    let decide = |action, topic| acl.decide(Some("ann"), "x", action, topic);
    assert_eq!(decide(Action::Subscribe, "a/c"), Ok(3));
    assert_eq!(decide(Action::Receive, "a/b"), Err(Some(4)));
    assert_eq!(decide(Action::Subscribe, "a/#"), Err(Some(4)));
    assert_eq!(decide(Action::Publish, "c/x"), Ok(5));
    assert_eq!(decide(Action::Publish, "c/y"), Err(None));
}

#[test]
fn members_of_a_group_share_its_lines() {
    let list = "
        group operators = ann , bob
        group operators
        topic readwrite plant/#
        topic deny plant/vault
        group guests=bob,eve
        group guests
        topic read plant/vault
        topic read lobby
        user bob
        topic write own
    ";
    let acl = Acl::parse(list).expect("valid");
    check(
        &acl,
        &[
            (Some("ann"), "c", Action::Publish, "plant/x", true),
            (Some("bob"), "c", Action::Publish, "plant/x", true),
            (Some("eve"), "c", Action::Publish, "plant/x", false),
            // What one of them denies no other allows.
            (Some("bob"), "c", Action::Receive, "plant/vault", false),
            (Some("eve"), "c", Action::Receive, "plant/vault", true),
            (Some("bob"), "c", Action::Receive, "lobby", true),
            (Some("ann"), "c", Action::Receive, "lobby", false),
            (Some("bob"), "c", Action::Publish, "own", true),
            // It is no user, and those without a name are in none.
            (Some("operators"), "c", Action::Publish, "plant/x", false),
            (None, "c", Action::Publish, "plant/x", false),
        ],
    );
    for wrong in [
        "group",
        "group = a",
        "group g =",
        "group g = a,,b",
        "group g = a,",
    ] {
        let error = Acl::parse(wrong).expect_err(wrong);
        assert_eq!(error.kind, AclErrorKind::Missing("group"), "{wrong}");
    }
}

#[test]
fn a_filter_may_be_allowed_in_part() {
    let text = "user u\ntopic read plant/1/#\ntopic write plant/2/#\ntopic deny plant/1/vault/#\n\
                pattern deny of/%u/x";
    let acl = Acl::parse(text).expect("valid");
    for (filter, whole, part) in [
        ("plant/1/a", true, true),
        ("plant/1/#", false, true),
        ("plant/+/a", false, true),
        ("#", false, true),
        ("plant/2/#", false, false),
        ("plant/1/vault/+", false, false),
        ("$SYS/#", false, false),
        ("$share/g/#", false, true),
    ] {
        let allowed = acl.allows(Some("u"), "c", Action::Subscribe, filter);
        assert_eq!(allowed, whole, "{filter}");
        assert_eq!(acl.allows_part(Some("u"), "c", filter), part, "{filter}");
    }
    assert!(!acl.allows_part(Some("v"), "c", "#"));
    // Who hides behind a name that fits no topic gets nothing.
    let acl = Acl::parse("pattern read #\npattern deny of/%u/x").expect("valid");
    assert!(acl.allows_part(Some("u"), "c", "#"));
    assert!(!acl.allows_part(Some("u/v"), "c", "#"));
}
