//! Rules about topics, and what they make of topics of clients.

use alloc::string::ToString;
use alloc::vec;

use dunlin_base::QoS;

use super::*;

const CLIENT: Client<'_> = Client {
    id: "dev",
    user: Some("alice"),
};

fn topics(rules: &[(RewriteOf, &str, &str)]) -> Topics {
    let rules = rules.iter();
    Topics {
        rewrites: rules
            .map(|(of, from, to)| Rewrite::new(*of, from, to).expect("a rule"))
            .collect(),
        mounts: vec![Text::new(), Text::from("site7/")],
        delays: Delays {
            messages_max: 1,
            ..Delays::default()
        },
        ..Topics::default()
    }
}

/// The topic of a message, at a listener.
fn published(topics: &Topics, topic: &str, listener: u16) -> Result<String, Wrong> {
    let meant = topics.published(topic, listener, CLIENT)?;
    Ok(meant.topic.unwrap_or_else(|| topic.to_string()))
}

fn filtered(topics: &Topics, filter: &str, listener: u16) -> Result<String, Wrong> {
    let meant = topics.filtered(filter, listener, CLIENT)?;
    Ok(meant.unwrap_or_else(|| filter.to_string()))
}

#[test]
fn the_first_rule_that_matches_counts_and_is_final() {
    use RewriteOf::{All, Publish, Subscribe};
    let topics = topics(&[
        (All, "a/+/b/#", "z/$2/$1"),
        (Publish, "p/#", "q/$1"),
        (Publish, "q/#", "p/$1"),
        (Subscribe, "s/+", "%u/%c/$1"),
        (All, "x/#", "y"),
        (All, "+/cost", "$1/$$1/5%"),
    ]);
    for (topic, want) in [
        ("a/1/b/2/3", "z/2/3/1"),
        ("a/1/b", "z/1"),
        ("a/1/c", "a/1/c"),
        ("p/1", "q/1"),
        ("p", "q"),
        ("q/1", "p/1"),
        ("s/1", "s/1"),
        ("x/1/2", "y"),
        ("x", "y"),
        ("t/cost", "t/$t/5%"),
        ("$t/cost", "$t/cost"),
        ("xx", "xx"),
    ] {
        assert_eq!(published(&topics, topic, 0).as_deref(), Ok(want), "{topic}");
    }
    for (filter, want) in [
        ("a/+/b/#", "z/#/+"),
        ("a/+/b/c", "z/c/+"),
        ("p/1", "p/1"),
        ("s/+", "alice/dev/+"),
        ("s/#", "s/#"),
        ("$share/g/s/1", "$share/g/alice/dev/1"),
        ("#", "#"),
        ("x/#", "y"),
    ] {
        let got = filtered(&topics, filter, 0);
        // `z/#/+` is no filter: the rule is passed over.
        let want = if want == "z/#/+" { filter } else { want };
        assert_eq!(got.as_deref(), Ok(want), "{filter}");
    }
}

#[test]
fn names_of_clients_are_part_of_one_level() {
    let rule = Rewrite::new(RewriteOf::All, "t/#", "%c/%u/$1").expect("a rule");
    for (id, user, want) in [
        ("d", Some("u"), Some("d/u/x")),
        ("d", None, None),
        ("d/e", Some("u"), None),
        ("+", Some("u"), None),
        ("d", Some("#"), None),
        ("", Some("u"), None),
        ("$share", Some("u"), None),
        ("d", Some("$SYS"), None),
    ] {
        let got = rule.apply("t/x", Client { id, user });
        assert_eq!(got.as_deref(), want, "{id} {user:?}");
    }
}

#[test]
fn wrong_rules_are_refused() {
    use TopicRuleError as E;
    let wrong = |from: &str, to: &str| Rewrite::new(RewriteOf::All, from, to).map(|_| ());
    assert!(matches!(wrong("a/#/b", "x"), Err(E::Filter(_))));
    assert!(matches!(wrong("a", ""), Err(E::Result(_))));
    assert!(matches!(wrong("a", "b/+"), Err(E::Result(_))));
    assert_eq!(wrong("a/+", "b/$2"), Err(E::Capture(2)));
    assert_eq!(wrong("a", "$share/g/b"), Err(E::Share));
    assert_eq!(wrong("$share/g/b", "a"), Err(E::Share));
    assert_eq!(wrong("+/+/+/+/+/+/+/+/+/+", "a"), Err(E::Captures));
    let filter = Automatic::new("a/#/b", QoS::AtMostOnce).map(|_| ());
    assert!(matches!(filter, Err(E::Filter(_))));
    for (mount, good) in [
        ("site7/", true),
        ("a/b/", true),
        ("/", false),
        ("site7", false),
        ("", false),
        ("$SYS/", false),
        ("a/+/", false),
        ("#/", false),
        ("../", true),
    ] {
        assert_eq!(validate_mount(mount).is_ok(), good, "{mount}");
    }
}

#[test]
fn all_of_a_client_is_below_its_mount_point() {
    let topics = topics(&[
        (RewriteOf::All, "in/#", "out/$1"),
        (RewriteOf::All, "up", "$SYS/x"),
    ]);
    for (topic, want) in [
        ("t", Ok("site7/t")),
        ("../t", Ok("site7/../t")),
        ("/t", Ok("site7//t")),
        ("in/1", Ok("site7/out/1")),
        ("site7/t", Ok("site7/site7/t")),
        ("$SYS/x", Err(Wrong::Reserved)),
        ("$x", Err(Wrong::Reserved)),
        ("up", Err(Wrong::Reserved)),
        ("$delayed/5/t", Ok("site7/t")),
        ("$delayed/5/$SYS/t", Err(Wrong::Reserved)),
    ] {
        assert_eq!(
            published(&topics, topic, 1).as_deref(),
            want.as_ref().copied(),
            "{topic}"
        );
    }
    for (filter, want) in [
        ("#", Ok("site7/#")),
        ("+/a", Ok("site7/+/a")),
        ("../#", Ok("site7/../#")),
        ("$share/g/in/#", Ok("$share/g/site7/out/#")),
        ("$SYS/#", Err(Wrong::Reserved)),
        ("$share/g/$SYS/#", Err(Wrong::Reserved)),
    ] {
        assert_eq!(
            filtered(&topics, filter, 1).as_deref(),
            want.as_ref().copied(),
            "{filter}"
        );
    }
    let long = "x".repeat(65_535);
    assert_eq!(published(&topics, &long, 1), Err(Wrong::Name));
    assert_eq!(
        published(&topics, &long, 0).map(|topic| topic.len()),
        Ok(65_535)
    );
    for (topic, want) in [
        ("site7/t", Some("t")),
        ("site7/", None),
        ("site7", None),
        ("site8/t", None),
        ("site7/$x", None),
    ] {
        assert_eq!(below("site7/", topic), want);
    }
}

#[test]
fn delays_are_bounded() {
    let topics = topics(&[(RewriteOf::Publish, "in/#", "out/$1")]);
    let meant = |topic| topics.published(topic, 0, CLIENT);
    let late = |secs, topic: &str| {
        Ok(Meant {
            topic: Some(topic.into()),
            delay: Some(Duration::from_secs(secs)),
        })
    };
    assert_eq!(meant("$delayed/5/t"), late(5, "t"));
    assert_eq!(meant("$delayed/5/in/a"), late(5, "out/a"));
    assert_eq!(meant("$delayed/2592000/t"), late(2_592_000, "t"));
    let rewritten = Topics {
        rewrites: vec![Rewrite::new(RewriteOf::All, "slow/#", "$delayed/9/$1").expect("a rule")],
        ..topics.clone()
    };
    let slow = rewritten.published("slow/t", 1, CLIENT);
    assert_eq!(slow, late(9, "site7/t"));
    let slow = rewritten.published("$delayed/5/slow/t", 0, CLIENT);
    assert_eq!(slow, late(5, "$delayed/9/t"), "one delay counts");
    let at_once = Meant {
        topic: Some("t".into()),
        delay: None,
    };
    assert_eq!(meant("$delayed/0/t"), Ok(at_once));
    for topic in ["$delayed/2592001/t", "$delayed/99999999999/t"] {
        assert_eq!(meant(topic), Err(Wrong::Late), "{topic}");
    }
    let number = "9".repeat(100);
    let number = alloc::format!("$delayed/{number}/t");
    assert_eq!(meant(&number), Err(Wrong::Late));
    for topic in [
        "$delayed/",
        "$delayed/5",
        "$delayed/5/",
        "$delayed//t",
        "$delayed/-5/t",
        "$delayed/5s/t",
        "$delayed/5/$delayed/5/t",
    ] {
        assert_eq!(meant(topic), Err(Wrong::Name), "{topic}");
    }
    let off = Topics::default();
    assert!(!off.alters());
    let same = off.published("$delayed/5/t", 0, CLIENT).expect("a topic");
    assert_eq!((same.topic, same.delay), (None, None));
}

#[test]
fn rules_give_new_sessions_filters() {
    let rule = |filter, qos| Automatic::new(filter, qos).expect("a rule");
    let topics = Topics {
        automatic: vec![
            rule("to/%c/#", QoS::AtLeastOnce).no_local(),
            rule("of/%u", QoS::AtMostOnce).of(None, Some("al*".into())),
            rule("x", QoS::AtMostOnce).of(Some("pump-*".into()), None),
            rule("$share/g/%c", QoS::ExactlyOnce).without_retained(),
            rule("$SYS/#", QoS::AtMostOnce).retain_as_published(),
        ],
        mounts: vec![Text::new(), Text::from("m/")],
        ..Topics::default()
    };
    let all = |listener, client| {
        let all = topics.automatic(listener, client).into_iter();
        all.map(|(filter, options)| alloc::format!("{filter}:{options} "))
            .collect::<String>()
    };
    assert_eq!(
        all(0, CLIENT),
        "to/dev/#:5 of/alice:0 $share/g/dev:34 $SYS/#:8 "
    );
    assert_eq!(
        all(1, CLIENT),
        "m/to/dev/#:5 m/of/alice:0 $share/g/m/dev:34 "
    );
    let pump = Client {
        id: "pump-7",
        user: None,
    };
    assert_eq!(
        all(0, pump),
        "to/pump-7/#:5 x:0 $share/g/pump-7:34 $SYS/#:8 "
    );
    let hostile = Client {
        id: "#",
        user: None,
    };
    assert_eq!(all(0, hostile), "$SYS/#:8 ");
}
