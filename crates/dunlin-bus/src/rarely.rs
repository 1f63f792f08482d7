//! Lines of the log at a bounded rate: one of a kind in a span of time, with how many were
//! left out before it.

use core::time::Duration;
use std::collections::BTreeMap;

use dunlin_base::Instant;

/// When a line of a kind was written last, and how many were not since then.
pub(crate) struct Rarely<K> {
    every: Duration,
    said: BTreeMap<K, (Instant, u64)>,
}

impl<K: Ord> Rarely<K> {
    pub(crate) const fn new(every: Duration) -> Self {
        Self {
            every,
            said: BTreeMap::new(),
        }
    }

    /// How many were left out before this line; `None`: it is to be left out itself.
    pub(crate) fn ask(&mut self, now: Instant, kind: K) -> Option<u64> {
        let Some((at, left_out)) = self.said.get_mut(&kind) else {
            self.said.insert(kind, (now, 0));
            return Some(0);
        };
        if now < *at + self.every {
            *left_out += 1;
            return None;
        }
        *at = now;
        Some(core::mem::take(left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_rare_for_each_kind() {
        let at = |seconds: u64| Instant::from_micros(seconds * 1_000_000);
        let mut rarely = Rarely::new(Duration::from_secs(10));
        assert_eq!(rarely.ask(at(0), 'a'), Some(0));
        assert_eq!(rarely.ask(at(1), 'a'), None);
        assert_eq!(rarely.ask(at(1), 'b'), Some(0));
        assert_eq!(rarely.ask(at(9), 'a'), None);
        assert_eq!(rarely.ask(at(10), 'a'), Some(2));
        assert_eq!(rarely.ask(at(19), 'a'), None);
    }
}
