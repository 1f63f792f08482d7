//! The choice within a shared group: fair, weighted, around those who cannot.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::Rng;
use crate::SubscriptionTree;

fn group_of(members: &[(u32, u32)]) -> SubscriptionTree<u32, ()> {
    let mut tree = SubscriptionTree::new(1);
    for (key, weight) in members {
        tree.insert_shared("g", "t", *key, (), *weight);
    }
    tree
}

fn choices(
    tree: &SubscriptionTree<u32, ()>,
    count: usize,
    mut is_available: impl FnMut(&u32) -> bool,
) -> Vec<Option<u32>> {
    let group = tree.shared_group("g", "t").expect("has members");
    (0..count)
        .map(|_| group.select(|k, ()| is_available(k)).map(|(k, ())| k))
        .collect()
}

fn shares(chosen: &[Option<u32>]) -> BTreeMap<Option<u32>, usize> {
    let mut shares = BTreeMap::new();
    for key in chosen {
        *shares.entry(*key).or_default() += 1;
    }
    shares
}

#[test]
fn members_take_turns() {
    let tree = group_of(&[(5, 1), (3, 1), (9, 1)]);
    let chosen = choices(&tree, 7, |_| true);
    let want = [5, 3, 9, 5, 3, 9, 5].map(Some);
    assert_eq!(chosen, want);
}

#[test]
fn every_member_gets_exactly_its_weight_per_round() {
    let cases: [&[(u32, u32)]; 4] = [
        &[(1, 1), (2, 1), (3, 5)],
        &[(1, 7), (2, 3)],
        &[(1, 1), (2, 1), (3, 1), (4, 1), (5, 2), (6, 4)],
        &[(1, 0), (2, 2)],
    ];
    for members in cases {
        let tree = group_of(members);
        let sum: u32 = members.iter().map(|(_, w)| w.max(&1)).sum();
        for _ in 0..3 {
            let chosen = choices(&tree, sum as usize, |_| true);
            for (key, weight) in members {
                let share = shares(&chosen).get(&Some(*key)).copied();
                assert_eq!(share, Some(*weight.max(&1) as usize), "{members:?}");
            }
        }
    }
}

#[test]
fn a_heavy_member_is_interleaved_with_the_others() {
    let mut members: Vec<(u32, u32)> = (0..10).map(|k| (k, 1)).collect();
    members.push((99, 10));
    let chosen = choices(&group_of(&members), 20, |_| true);
    for pair in chosen.chunks(2) {
        let heavy = pair.iter().filter(|k| **k == Some(99)).count();
        assert_eq!(heavy, 1, "{chosen:?}");
    }
}

#[test]
fn members_that_cannot_take_a_message_are_passed_over() {
    let tree = group_of(&[(1, 1), (2, 1), (3, 1), (4, 1)]);
    let chosen = choices(&tree, 6, |k| *k != 2 && *k != 3);
    assert_eq!(chosen, [1, 4, 1, 4, 1, 4].map(Some));
    assert_eq!(choices(&tree, 1, |_| false), [None]);
    let group = tree.shared_group("g", "t").expect("has members");
    assert!(group.select_any().is_some());

    let tree = group_of(&[(1, 1), (2, 1), (7, 3), (8, 3)]);
    let chosen = shares(&choices(&tree, 50, |k| *k != 7));
    assert_eq!(chosen.get(&Some(7)), None);
    assert_eq!(chosen.get(&Some(8)), Some(&30));
    assert_eq!(chosen.get(&Some(1)), Some(&10));
    let chosen = choices(&tree, 3, |k| *k == 7);
    assert_eq!(chosen, [Some(7); 3]);
    let chosen = choices(&tree, 4, |k| *k < 3);
    assert_eq!(shares(&chosen).get(&Some(2)), Some(&2));
    assert_eq!(choices(&tree, 1, |_| false), [None]);
}

#[test]
fn members_change_weight_and_leave_without_losing_turns() {
    let mut tree = group_of(&[(1, 1), (2, 1), (3, 1)]);
    assert_eq!(choices(&tree, 2, |_| true), [Some(1), Some(2)]);
    assert_eq!(tree.remove_shared("g", "t", 1), Some(()));
    assert_eq!(choices(&tree, 2, |_| true), [Some(3), Some(2)]);
    assert_eq!(tree.insert_shared("g", "t", 2, (), 3), Some(()));
    assert_eq!(tree.insert_shared("g", "t", 2, (), 2), Some(()));
    let group = tree.shared_group("g", "t").expect("has members");
    let members: Vec<_> = group.members().map(|m| (m.key, m.weight)).collect();
    assert_eq!(members, [(3, 1), (2, 2)]);
    assert_eq!((group.get(2), group.get(1)), (Some(&()), None));
    assert_eq!(tree.insert_shared("g", "t", 2, (), 1), Some(()));
    assert_eq!(tree.subscription_count(), 2);
    assert_eq!(tree.remove_shared("g", "t", 2), Some(()));
    assert_eq!(tree.remove_shared("g", "t", 3), Some(()));
    assert_eq!(tree.remove_shared("g", "t", 3), None);
    assert_eq!(tree.node_count(), 1);
}

#[test]
fn random_groups_stay_fair() {
    for seed in 0..40 {
        let mut rng = Rng::new(seed);
        let count = 1 + rng.below(60) as u32;
        let members: Vec<(u32, u32)> = (0..count)
            .map(|key| match rng.below(10) {
                0 => (key, 2 + rng.below(20) as u32),
                _ => (key, 1),
            })
            .collect();
        let mut tree = group_of(&members);
        // Disturb the credits, then let some leave.
        choices(&tree, 100, |_| rng.below(3) > 0);
        let gone: Vec<u32> = (0..count / 3)
            .map(|_| rng.below(count as usize) as u32)
            .collect();
        for key in &gone {
            tree.remove_shared("g", "t", *key);
        }
        let left = || members.iter().filter(|(k, _)| !gone.contains(k));
        let sum: u32 = left().map(|(_, w)| w).sum();
        if sum == 0 {
            continue;
        }
        let rounds = 20;
        let shares = shares(&choices(&tree, sum as usize * rounds, |_| true));
        for (key, weight) in left() {
            let share = shares.get(&Some(*key)).copied().unwrap_or_default();
            let want = *weight as usize * rounds;
            let slack = sum as usize;
            assert!(share.abs_diff(want) <= slack.min(want), "seed {seed} {key}");
        }
    }
}
