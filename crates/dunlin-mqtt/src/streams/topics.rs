//! The table of topics that a planner knows: where each goes, and when it was
//! used last.

use dunlin_base::Text;
use hashbrown::HashMap;

/// Topics with their place `P`. `T` is the planner's clock.
#[derive(Debug)]
pub(super) struct Topics<P, T> {
    entries: HashMap<Text, Entry<P, T>>,
}

#[derive(Debug)]
struct Entry<P, T> {
    place: P,
    used: T,
}

impl<P, T> Default for Topics<P, T> {
    fn default() -> Self {
        Self {
            entries: HashMap::new(),
        }
    }
}

impl<P, T: Copy + Ord> Topics<P, T> {
    /// The place of a topic that is used now.
    pub(super) fn use_now(&mut self, topic: &str, now: T) -> Option<&mut P> {
        let entry = self.entries.get_mut(topic.as_bytes())?;
        entry.used = now;
        Some(&mut entry.place)
    }

    pub(super) fn get(&self, topic: &str) -> Option<&P> {
        self.entries.get(topic.as_bytes()).map(|entry| &entry.place)
    }

    pub(super) fn get_mut(&mut self, topic: &str) -> Option<&mut P> {
        let entry = self.entries.get_mut(topic.as_bytes())?;
        Some(&mut entry.place)
    }

    pub(super) fn insert(&mut self, topic: Text, place: P, now: T) {
        self.entries.insert(topic, Entry { place, used: now });
    }

    pub(super) fn remove(&mut self, topic: &str) -> Option<P> {
        let entry = self.entries.remove(topic.as_bytes())?;
        Some(entry.place)
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Keeps what `keep` says, from the place and the last use.
    pub(super) fn retain(&mut self, keep: impl Fn(&P, T) -> bool) {
        self.entries
            .retain(|_, entry| keep(&entry.place, entry.used));
    }

    /// Of what `candidate` gives for the places whose last use was long enough
    /// ago, that of the least recent use.
    pub(super) fn least_recent<C: Ord>(
        &self,
        has_rested: impl Fn(T) -> bool,
        candidate: impl Fn(&P) -> Option<C>,
    ) -> Option<C> {
        let rested = self.entries.values().filter(|entry| has_rested(entry.used));
        let candidates = rested.filter_map(|entry| Some((entry.used, candidate(&entry.place)?)));
        candidates.min().map(|(_, candidate)| candidate)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_recently_used_candidate_is_found() {
        let mut topics = Topics::default();
        for (topic, place, at) in [("a", 1, 10), ("b", 2, 5), ("c", 3, 7), ("d", 4, 20)] {
            topics.insert(Text::from(topic), place, at);
        }
        let odd = |place: &i32| (place % 2 == 1).then_some(*place);
        assert_eq!(topics.least_recent(|_| true, odd), Some(3));
        assert_eq!(topics.use_now("c", 30), Some(&mut 3));
        assert_eq!(topics.least_recent(|used| used <= 20, odd), Some(1));
        assert_eq!(topics.least_recent(|used| used <= 6, odd), None);
        topics.retain(|_, used| used >= 10);
        assert_eq!((topics.len(), topics.remove("b")), (3, None));
        assert_eq!(topics.remove("a"), Some(1));
    }
}
