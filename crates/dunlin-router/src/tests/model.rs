//! Random operations on the tree against a list of subscriptions.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

use dunlin_base::limits::TOPIC_LEVELS_MAX;
use dunlin_base::topic;

use super::{Rng, matched};
use crate::SubscriptionTree;

const SEEDS: u64 = 24;
const OPERATIONS: usize = 600;

#[derive(Default)]
struct Model {
    plain: BTreeMap<(String, u32), u64>,
    shared: BTreeMap<(String, String, u32), u64>,
}

impl Model {
    fn matched(&self, name: &str) -> (Vec<u32>, Vec<String>) {
        let plain = self.plain.keys();
        let keys = plain.filter(|(filter, _)| topic::matches(filter, name));
        let mut groups: Vec<String> = self
            .shared
            .keys()
            .filter(|(_, filter, _)| topic::matches(filter, name))
            .map(|(group, filter, _)| alloc::format!("{group} {filter}"))
            .collect();
        groups.sort();
        groups.dedup();
        let mut keys: Vec<u32> = keys.map(|(_, key)| *key).collect();
        keys.sort_unstable();
        (keys, groups)
    }

    fn filters(&self) -> Vec<&str> {
        let plain = self.plain.keys().map(|(filter, _)| filter.as_str());
        let shared = self.shared.keys().map(|(_, filter, _)| filter.as_str());
        let mut all: Vec<&str> = plain.chain(shared).collect();
        all.sort_unstable();
        all.dedup();
        all
    }
}

fn check_same(tree: &SubscriptionTree<u32, u64>, model: &Model, rng: &mut Rng) {
    let filters = model.filters();
    assert_eq!(tree.filter_count(), filters.len());
    let count = model.plain.len() + model.shared.len();
    assert_eq!(tree.subscription_count(), count);
    assert!(
        tree.node_count() <= 1 + 2 * filters.len(),
        "{} nodes for {} filters",
        tree.node_count(),
        filters.len()
    );
    let names: Vec<String> = (0..5).map(|_| rng.topic()).collect();
    for name in names {
        let (mut keys, mut groups) = matched(tree, &name);
        keys.sort_unstable();
        groups.sort();
        assert_eq!((keys, groups), model.matched(&name), "topic {name:?}");
        check_filters(tree, model, &name);
        let filter = rng.filter();
        let used = filters.contains(&filter.as_str());
        assert_eq!(tree.filter_id(&filter).is_some(), used, "filter {filter:?}");
    }
}

/// Filters that match have all their subscribers.
fn check_filters(tree: &SubscriptionTree<u32, u64>, model: &Model, name: &str) {
    let (mut keys, mut groups) = (Vec::new(), Vec::new());
    tree.matched_filters(name, |found| {
        let before = keys.len();
        for (key, _) in found.plain() {
            assert!(found.has_plain(key));
            keys.push(key);
        }
        assert_eq!(keys.len() - before, found.plain_len());
        assert!(!found.has_plain(u32::MAX));
        let shared = found.groups();
        groups.extend(shared.map(|it| alloc::format!("{} {}", it.group(), it.filter())));
        assert!(found.plain_len() > 0 || found.groups().next().is_some());
    });
    keys.sort_unstable();
    groups.sort();
    assert_eq!((keys, groups), model.matched(name), "topic {name:?}");
}

fn operate(tree: &mut SubscriptionTree<u32, u64>, model: &mut Model, rng: &mut Rng, value: u64) {
    // A phase that mostly adds, one that mostly removes.
    let adds = if value as usize % 300 < 200 { 8 } else { 2 };
    let key = rng.below(40) as u32;
    let group = rng.pick(&["g", "h", "é"]);
    match (rng.below(10) < adds, rng.below(3) == 0) {
        (true, false) => {
            let filter = rng.filter();
            let old = tree.insert(&filter, key, value);
            assert_eq!(tree.get(&filter, key), Some(&value));
            assert_eq!(old, model.plain.insert((filter, key), value));
        }
        (true, true) => {
            let filter = rng.filter();
            let weight = rng.below(4) as u32;
            let old = tree.insert_shared(group, &filter, key, value, weight);
            let entry = (String::from(group), filter, key);
            assert_eq!(old, model.shared.insert(entry, value));
        }
        (false, false) => {
            let nth = rng.below(model.plain.len() + 1);
            let known = model.plain.keys().nth(nth).cloned();
            let (filter, key) = known.unwrap_or_else(|| (rng.filter(), key));
            let old = tree.remove(&filter, key);
            assert_eq!(tree.get(&filter, key), None);
            assert_eq!(old, model.plain.remove(&(filter, key)));
        }
        (false, true) => {
            let nth = rng.below(model.shared.len() + 1);
            let known = model.shared.keys().nth(nth).cloned();
            let entry = known.unwrap_or_else(|| (group.into(), rng.filter(), key));
            let old = tree.remove_shared(&entry.0, &entry.1, entry.2);
            assert_eq!(old, model.shared.remove(&entry));
        }
    }
}

#[test]
fn random_operations_equal_a_list() {
    for seed in 0..SEEDS {
        let mut rng = Rng::new(seed);
        let mut tree = SubscriptionTree::new(seed);
        let mut model = Model::default();
        for value in 0..OPERATIONS as u64 {
            operate(&mut tree, &mut model, &mut rng, value);
            check_same(&tree, &model, &mut rng);
        }
        for (filter, key) in model.plain.keys() {
            assert!(tree.remove(filter, *key).is_some(), "seed {seed}");
        }
        for (group, filter, key) in model.shared.keys() {
            assert!(tree.remove_shared(group, filter, *key).is_some());
        }
        assert_eq!(tree.node_count(), 1, "only the root is left, seed {seed}");
        assert_eq!(tree.edges.len(), 0);
        assert_eq!((tree.filter_count(), tree.subscription_count()), (0, 0));
    }
}

#[test]
fn invalid_filters_and_topics_do_no_harm() {
    const PIECES: [&str; 9] = ["a", "/", "+", "#", "$", "\0", "é", "//", "+/#/"];
    for seed in 0..50 {
        let mut rng = Rng::new(seed);
        let mut text = || {
            let count = rng.below(7);
            (0..count).map(|_| rng.pick(&PIECES)).collect::<String>()
        };
        let mut tree = SubscriptionTree::new(seed);
        let filters: Vec<String> = (0..100).map(|_| text()).collect();
        for filter in &filters {
            tree.insert(filter, 1, ());
            tree.insert_shared(filter, filter, 2, (), 0);
            assert!(tree.get(filter, 1).is_some(), "{filter:?}");
        }
        for _ in 0..100 {
            let name = text();
            matched(&tree, &name);
        }
        for filter in &filters {
            tree.remove(filter, 1);
            tree.remove_shared(filter, filter, 2);
            assert!(tree.filter_id(filter).is_none(), "{filter:?}");
        }
        assert_eq!((tree.node_count(), tree.edges.len()), (1, 0));
    }
}

#[test]
fn the_order_of_visits_does_not_depend_on_the_seed() {
    let mut rng = Rng::new(99);
    let filters: Vec<String> = (0..300).map(|_| rng.filter()).collect();
    let topics: Vec<String> = (0..300).map(|_| rng.topic()).collect();
    let visits = |seed| {
        let mut tree = SubscriptionTree::new(seed);
        for (filter, key) in filters.iter().zip(0..) {
            tree.insert(filter, key, ());
        }
        let topics = topics.iter();
        topics.map(|t| matched(&tree, t).0).collect::<Vec<_>>()
    };
    assert_eq!(visits(1), visits(2));
}

#[test]
fn many_siblings_are_found_and_leave_nothing() {
    let mut tree = SubscriptionTree::new(5);
    let filter = |n: u32| alloc::format!("fleet/{}/device-{n}/+", n % 10);
    for n in 0..20_000 {
        tree.insert(&filter(n), n, ());
    }
    assert_eq!(tree.node_count(), 1 + 1 + 10 + 20_000);
    for n in (0..20_000).step_by(97) {
        let name = alloc::format!("fleet/{}/device-{n}/state", n % 10);
        assert_eq!(matched(&tree, &name).0, [n]);
    }
    for n in (0..20_000).rev() {
        assert_eq!(tree.remove(&filter(n), n), Some(()));
    }
    assert_eq!((tree.node_count(), tree.edges.len()), (1, 0));
}

#[test]
fn the_deepest_topics_match_without_recursion() {
    // Every level has a literal and a wildcard branch.
    let mut tree = SubscriptionTree::new(1);
    let deep = alloc::vec!["a"; TOPIC_LEVELS_MAX].join("/");
    tree.insert(&deep, 0, ());
    for level in 1..TOPIC_LEVELS_MAX {
        let mut levels = alloc::vec!["a"; level];
        levels.push("+");
        tree.insert(&levels.join("/"), level as u32, ());
        levels.push("#");
        tree.insert(&levels.join("/"), 1000 + level as u32, ());
    }
    let (keys, _) = matched(&tree, &deep);
    assert_eq!(keys.len(), 1 + 1 + (TOPIC_LEVELS_MAX - 1));
    let longest = "x".repeat(65_535);
    assert!(matched(&tree, &longest).0.is_empty());
    tree.insert(&longest, 7, ());
    assert_eq!(matched(&tree, &longest).0, [7]);
    let separators = "/".repeat(65_535);
    tree.insert(&separators, 8, ());
    assert_eq!(matched(&tree, &separators).0, [8]);
}

#[test]
fn a_filter_keeps_its_number_while_it_is_used() {
    let mut tree = SubscriptionTree::new(1);
    tree.insert("a/b/c", 1, ());
    let id = tree.filter_id("a/b/c");
    tree.insert("a/b", 1, ());
    tree.insert("a/x", 1, ());
    tree.insert("a/b/c/d", 1, ());
    assert_eq!(tree.filter_id("a/b/c"), id);
    for filter in ["a/b", "a/x", "a/b/c/d"] {
        tree.remove(filter, 1);
    }
    assert_eq!(tree.filter_id("a/b/c"), id);
    assert_eq!(tree.filter_id("a/b"), None);
    assert_eq!(tree.filter_id(""), None);
}
