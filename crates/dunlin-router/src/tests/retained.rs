//! The retained index against a sorted list.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use core::ops::ControlFlow;

use dunlin_base::topic;

use super::Rng;
use crate::{Page, RetainedTree};

fn levels(topic: &str) -> Vec<&str> {
    topic.split('/').collect()
}

fn naive<'a>(model: &'a BTreeMap<String, u64>, filter: &str) -> Vec<(&'a str, u64)> {
    let all = model.iter().map(|(topic, value)| (topic.as_str(), *value));
    let mut found: Vec<_> = all.filter(|(t, _)| topic::matches(filter, t)).collect();
    found.sort_by(|a, b| levels(a.0).cmp(&levels(b.0)));
    found
}

/// Reads all pages of at most `page` matches and `steps` steps.
fn paged(tree: &RetainedTree<u64>, filter: &str, page: usize, steps: usize) -> Vec<(String, u64)> {
    let mut found: Vec<(String, u64)> = Vec::new();
    let mut after: Option<String> = None;
    loop {
        let mut room = page;
        let ended = tree.visit_steps(filter, after.as_deref(), steps, |topic, value| {
            found.push((topic.into(), *value));
            room -= 1;
            match room {
                0 => ControlFlow::Break(()),
                _ => ControlFlow::Continue(()),
            }
        });
        after = match ended {
            Page::Done => return found,
            Page::Stopped => found.last().map(|(topic, _)| topic.clone()),
            Page::Paused { after } => Some(after),
        };
    }
}

#[track_caller]
fn check_pages(tree: &RetainedTree<u64>, model: &BTreeMap<String, u64>, filter: &str) {
    let want = naive(model, filter);
    for (page, steps) in [
        (usize::MAX, usize::MAX),
        (1, usize::MAX),
        (3, 5),
        (usize::MAX, 1),
    ] {
        let got = paged(tree, filter, page, steps);
        let got: Vec<_> = got.iter().map(|(t, v)| (t.as_str(), *v)).collect();
        assert_eq!(got, want, "filter {filter:?} page {page} steps {steps}");
    }
}

#[test]
fn random_operations_equal_a_sorted_list() {
    for seed in 0..25 {
        let mut rng = Rng::new(seed + 1000);
        let mut tree = RetainedTree::new();
        let mut model: BTreeMap<String, u64> = BTreeMap::new();
        for value in 0..800 {
            let topic = rng.topic();
            if rng.below(3) > 0 {
                let old = tree.set(&topic, value);
                assert_eq!(old, model.insert(topic.clone(), value));
            } else {
                assert_eq!(tree.remove(&topic), model.remove(&topic));
            }
            assert_eq!(tree.get(&topic), model.get(&topic));
            assert_eq!(tree.len(), model.len());
            if value % 8 == 0 {
                check_pages(&tree, &model, &rng.filter());
            }
        }
        for filter in ["#", "+/#", "/#", "$SYS/#", "+", "+/+", "a/#", "a", "+/a/#"] {
            check_pages(&tree, &model, filter);
        }
        for topic in model.keys() {
            assert!(tree.remove(topic).is_some());
        }
        assert!(tree.is_empty());
    }
}

#[test]
fn a_walk_goes_on_after_a_topic_that_is_gone() {
    let mut tree = RetainedTree::new();
    for topic in ["a", "a/b", "a/b/c", "a!", "b"] {
        tree.set(topic, 0u64);
    }
    tree.remove("a/b");
    let mut seen = Vec::new();
    let page = tree.visit("#", Some("a/b"), |topic, _| {
        seen.push(String::from(topic));
        ControlFlow::Continue(())
    });
    assert_eq!(
        (page, seen),
        (Page::Done, ["a/b/c", "a!", "b"].map(String::from).into())
    );
    let nothing = |_: &str, _: &u64| panic!("nothing is behind it");
    assert_eq!(tree.visit("b", Some("b"), nothing), Page::Done);
}

#[test]
fn a_walk_costs_what_it_finds() {
    let mut tree = RetainedTree::new();
    for region in 0..50 {
        for device in 0..200 {
            tree.set(&alloc::format!("fleet/{region}/{device}/state"), 0u64);
            tree.set(&alloc::format!("fleet/{region}/{device}/zone"), 0);
        }
    }
    let go_on = |_: &str, _: &u64| ControlFlow::Continue(());
    let all_steps: Vec<usize> = (0..10_000).collect();
    let steps_of = |filter: &str| {
        all_steps.partition_point(|n| tree.visit_steps(filter, None, *n, go_on) != Page::Done)
    };
    // One subtree, one device in each region, one level of each device.
    assert!(steps_of("fleet/7/#") < 420);
    assert!(steps_of("fleet/+/77/+") < 50 * 30);
    assert!(steps_of("fleet/3/+/state") < 2 * 200 + 20);
    assert!(steps_of("fleet/7/8/+/none") < 20);
    assert!(steps_of("nothing/#") < 20);
}

#[test]
fn depth_and_length_of_topics_cost_no_stack() {
    let mut tree = RetainedTree::new();
    let deep = "/".repeat(65_535);
    tree.set(&deep, 1u64);
    tree.set(&"x/".repeat(128), 2);
    let mut found = 0;
    tree.visit("#", None, |_, _| {
        found += 1;
        ControlFlow::Continue(())
    });
    assert_eq!(found, 2);
    let plus = alloc::vec!["+"; 129].join("/");
    tree.visit(&plus, None, |_, value| {
        assert_eq!(*value, 2);
        found += 1;
        ControlFlow::Continue(())
    });
    assert_eq!(found, 3);
}
