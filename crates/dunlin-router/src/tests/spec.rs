//! Statements of MQTT 5.0 sections 4.7 and 4.8.2 that matching implements.

use alloc::vec::Vec;

use super::matched;
use crate::SubscriptionTree;

#[track_caller]
fn check(filter: &str, topic: &str, want: bool) {
    let mut tree = SubscriptionTree::new(3);
    tree.insert(filter, 1, ());
    // Company, so that labels are split and the edge table is used.
    for (other, key) in ["sport/tennis/player2", "sport", "é/b", "a", "$x/y"]
        .iter()
        .zip(2..)
    {
        tree.insert(other, key, ());
    }
    let found = matched(&tree, topic).0.contains(&1);
    assert_eq!(found, want, "{filter} {topic}");
    assert_eq!(dunlin_base::topic::matches(filter, topic), want);
}

#[test]
fn multi_level_wildcard_matches_parent_and_children() {
    //= mqtt5#[MQTT-4.7.1-1] type=test
    for topic in [
        "sport/tennis/player1",
        "sport/tennis/player1/ranking",
        "sport/tennis/player1/score/wimbledon",
    ] {
        check("sport/tennis/player1/#", topic, true);
    }
    check("sport/#", "sport", true);
    check("#", "sport/tennis", true);
    check("#", "/", true);
    check("sport/tennis/#", "sport/tennis", true);
    check("sport/tennis/#", "sport/tennisx", false);
}

#[test]
fn single_level_wildcard_matches_one_level() {
    //= mqtt5#[MQTT-4.7.1-2] type=test
    check("sport/tennis/+", "sport/tennis/player1", true);
    check("sport/tennis/+", "sport/tennis/player1/ranking", false);
    check("sport/+", "sport", false);
    check("sport/+", "sport/", true);
    check("+/+", "/finance", true);
    check("/+", "/finance", true);
    check("+", "/finance", false);
    check("+/tennis/#", "sport/tennis/player1", true);
    check("sport/+/player1", "sport/tennis/player1", true);
}

#[test]
fn leading_wildcards_do_not_match_dollar_topics() {
    //= mqtt5#[MQTT-4.7.2-1] type=test
    check("#", "$SYS/monitor/Clients", false);
    check("+/monitor/Clients", "$SYS/monitor/Clients", false);
    check("$SYS/#", "$SYS/monitor/Clients", true);
    check("$SYS/monitor/+", "$SYS/monitor/Clients", true);
    check("+", "$SYS", false);
    check("sport/+", "sport/$SYS", true);
    check("sport/#", "sport/$SYS", true);
    check("/+", "/$SYS", true);
}

#[test]
fn topics_are_compared_without_normalization() {
    //= mqtt5#[MQTT-4.7.3-4] type=test
    check("ACCOUNTS", "Accounts", false);
    check("Accounts payable", "Accounts payable", true);
    check("/finance", "finance", false);
    check("a//b", "a/b", false);
    check("a//b", "a//b", true);
    check("a/", "a", false);
    // e with acute accent, composed and decomposed.
    check("\u{e9}", "e\u{301}", false);
    check("\u{e9}/+", "\u{e9}/x", true);
    check("\u{feff}a", "a", false);
    check("+", "水", true);
}

#[test]
fn the_same_filter_is_another_subscription_in_each_group() {
    let mut tree = SubscriptionTree::new(3);
    tree.insert("a/+", 1, ());
    tree.insert_shared("g", "a/+", 1, (), 1);
    tree.insert_shared("g", "a/+", 2, (), 1);
    tree.insert_shared("h", "a/+", 2, (), 1);
    tree.insert_shared("g", "a/#", 3, (), 1);
    let (keys, groups) = matched(&tree, "a/b");
    assert_eq!(keys, [1]);
    assert_eq!(groups, ["g a/#", "g a/+", "h a/+"]);
    assert!(matched(&tree, "a").0.is_empty());
    assert_eq!(matched(&tree, "a").1, ["g a/#"]);
    let ids: Vec<_> = ["a/+", "a/#"].map(|f| tree.filter_id(f)).into();
    assert_ne!(ids[0], ids[1]);
    let group = tree.shared_group("g", "a/+").expect("has members");
    assert_eq!(Some(group.filter_id()), ids[0]);
    assert!(tree.shared_group("g", "a").is_none());
    assert!(tree.shared_group("x", "a/+").is_none());
}
