//! Tests of the public behaviour: examples from the specification, and random
//! operations against lists that are too simple to be wrong.

mod model;
mod retained;
mod shared;
mod spec;

use alloc::string::String;
use alloc::vec::Vec;

use crate::{Match, SubscriptionTree};

/// A small generator of random numbers (xorshift64*), so that a failing seed
/// repeats.
pub(crate) struct Rng(u64);

impl Rng {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(crate) fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let value = self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33;
        value as usize % n
    }

    pub(crate) fn pick<'a>(&mut self, from: &[&'a str]) -> &'a str {
        from[self.below(from.len())]
    }

    /// A valid topic name; few distinct levels, so that names meet.
    pub(crate) fn topic(&mut self) -> String {
        const LEVELS: [&str; 12] = [
            "a",
            "b",
            "ab",
            "",
            "é",
            "水",
            "$x",
            "a!",
            "a-rather-long-level-name-here",
            "a ",
            "0",
            "A",
        ];
        loop {
            let mut topic = String::new();
            if self.below(8) == 0 {
                topic.push_str("$SYS/");
            }
            let spread = if self.below(2) == 0 { 3 } else { LEVELS.len() };
            for level in 0..=self.below(5) {
                if level > 0 {
                    topic.push('/');
                }
                topic.push_str(self.pick(&LEVELS[..spread]));
            }
            if !topic.is_empty() {
                return topic;
            }
        }
    }

    /// A valid filter: a topic with some levels replaced.
    pub(crate) fn filter(&mut self) -> String {
        let topic = self.topic();
        let mut levels: Vec<&str> = topic.split('/').collect();
        let wild = self.below(4);
        for level in &mut levels {
            if self.below(4) < wild {
                *level = "+";
            }
        }
        match self.below(6) {
            0 => levels.push("#"),
            1 => {
                if let Some(last) = levels.last_mut() {
                    *last = "#";
                }
            }
            _ => {}
        }
        let filter = levels.join("/");
        assert_eq!(dunlin_base::topic::validate_filter(&filter), Ok(()));
        filter
    }
}

/// Who gets `topic`: plain subscribers, and `group filter` of shared ones.
pub(crate) fn matched<V>(tree: &SubscriptionTree<u32, V>, topic: &str) -> (Vec<u32>, Vec<String>) {
    let (mut keys, mut groups) = (Vec::new(), Vec::new());
    tree.matches(topic, |found| match found {
        Match::Subscriber { key, .. } => keys.push(key),
        Match::Shared(shared) => {
            groups.push(alloc::format!("{} {}", shared.group(), shared.filter()));
        }
    });
    (keys, groups)
}
