//! Retained messages by topic, and the walk that finds those a new
//! subscription wants. What a retained message is, the caller chooses.
//!
//! One ordered map, not a tree of levels: a walk seeks from one candidate to
//! the next, any topic is a place to go on from, and depth costs nothing.

use alloc::collections::BTreeMap;
use alloc::string::String;
use core::ops::{Bound, ControlFlow};

use crate::label::level_end;
use crate::order::{Position, Probe, TopicKey};

/// Entries passed one by one before the walk seeks: a seek costs about as much.
const PASS_MAX: usize = 6;

/// Values by topic: about 35 bytes of resident memory for each besides the
/// topic's and the value's own (measured with a million of 41 and 8 bytes: 75).
#[derive(Clone, Debug)]
pub struct RetainedTree<V> {
    topics: BTreeMap<TopicKey, V>,
}

/// How a bounded walk ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Page {
    /// Nothing more matches.
    Done,
    /// The caller's function stopped it; go on after the topic that it saw.
    Stopped,
    /// The permitted steps are used up.
    Paused {
        /// Go on after this topic, which need not have matched.
        after: String,
    },
}

impl<V> Default for RetainedTree<V> {
    fn default() -> Self {
        Self::new()
    }
}

impl<V> RetainedTree<V> {
    /// An empty index.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            topics: BTreeMap::new(),
        }
    }

    /// Topics with a value.
    #[must_use]
    pub fn len(&self) -> usize {
        self.topics.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.topics.is_empty()
    }

    /// Sets the value of a topic, returning the old one.
    pub fn set(&mut self, topic: &str, value: V) -> Option<V> {
        // Without a copy of the topic when it is there already, the usual case.
        if let Some(old) = self.get_mut(topic) {
            return Some(core::mem::replace(old, value));
        }
        self.topics.insert(TopicKey(topic.into()), value)
    }

    /// Removes the value of a topic.
    pub fn remove(&mut self, topic: &str) -> Option<V> {
        let probe: &dyn Position = &Probe::at(topic.as_bytes());
        self.topics.remove(probe)
    }

    /// The value of a topic.
    #[must_use]
    pub fn get(&self, topic: &str) -> Option<&V> {
        let probe: &dyn Position = &Probe::at(topic.as_bytes());
        self.topics.get(probe)
    }

    /// The value of a topic, to change it.
    pub fn get_mut(&mut self, topic: &str) -> Option<&mut V> {
        let probe: &dyn Position = &Probe::at(topic.as_bytes());
        self.topics.get_mut(probe)
    }

    /// Calls `f` with each topic that `filter` matches, in topic order: level
    /// by level, a topic before those below it. `after` skips everything up to
    /// and including that topic, whether it still is there or not, so a walk
    /// that `f` broke off can go on later. Leading wildcards do not match
    /// topics that begin with `$`.
    pub fn visit(
        &self,
        filter: &str,
        after: Option<&str>,
        f: impl FnMut(&str, &V) -> ControlFlow<()>,
    ) -> Page {
        self.visit_steps(filter, after, usize::MAX, f)
    }

    /// As [`RetainedTree::visit`], but looks at no more than `steps_max` topics.
    /// With `+` in the middle of a filter a walk can pass many that do not
    /// match, and `f` alone cannot bound that.
    pub fn visit_steps(
        &self,
        filter: &str,
        after: Option<&str>,
        steps_max: usize,
        mut f: impl FnMut(&str, &V) -> ControlFlow<()>,
    ) -> Page {
        if !filter.contains(['+', '#']) {
            return self.visit_one(filter, after, f);
        }
        let filter = filter.as_bytes();
        let mut topics = match after {
            Some(after) => self.starting(Probe::at(after.as_bytes()), true),
            None => self.starting(Probe::at(b""), false),
        };
        let mut seek_text = String::new();
        // The first obstacle is worth a seek: a page may be too short for more.
        let mut passed = PASS_MAX;
        let mut steps = 0;
        while let Some((topic, value)) = topics.next() {
            let topic = topic.0.as_ref();
            steps += 1;
            match judge(filter, topic.as_bytes()) {
                Verdict::Done => return Page::Done,
                Verdict::Match => {
                    passed = 0;
                    if f(topic, value).is_break() {
                        return Page::Stopped;
                    }
                }
                Verdict::Next => {}
                _ if passed < PASS_MAX => passed += 1,
                Verdict::Below { keep, level } => {
                    passed = 0;
                    seek_text.clear();
                    seek_text.push_str(topic.get(..keep).unwrap_or_default());
                    seek_text.push_str(core::str::from_utf8(level).unwrap_or_default());
                    topics = self.starting(Probe::at(seek_text.as_bytes()), false);
                    continue;
                }
                Verdict::Past(end) => {
                    passed = 0;
                    let head = topic.as_bytes().get(..end).unwrap_or_default();
                    topics = self.starting(Probe::past(head), false);
                    continue;
                }
                Verdict::PastDollar => {
                    passed = 0;
                    topics = self.starting(Probe::at(&[b'$' + 1]), false);
                    continue;
                }
            }
            // Never between a seek and what it found: a walk in short pages
            // must get on, too.
            if steps >= steps_max {
                let after = topic.into();
                return Page::Paused { after };
            }
        }
        Page::Done
    }

    /// All topics behind `after`, whether that is there or not, with their values.
    pub fn iter_after(&self, after: Option<&str>) -> impl Iterator<Item = (&str, &V)> {
        let topics = match after {
            Some(after) => self.starting(Probe::at(after.as_bytes()), true),
            None => self.starting(Probe::at(b""), false),
        };
        topics.map(|(topic, value)| (&*topic.0, value))
    }

    fn visit_one(
        &self,
        topic: &str,
        after: Option<&str>,
        mut f: impl FnMut(&str, &V) -> ControlFlow<()>,
    ) -> Page {
        let probe: &dyn Position = &Probe::at(topic.as_bytes());
        let is_behind = after.is_none_or(|after| {
            let after: &dyn Position = &Probe::at(after.as_bytes());
            probe > after
        });
        match self.topics.get_key_value(probe) {
            Some((topic, value)) if is_behind && f(&topic.0, value).is_break() => Page::Stopped,
            _ => Page::Done,
        }
    }

    /// All topics from `probe` on, without the one at it when `excluded`.
    fn starting(
        &self,
        probe: Probe<'_>,
        excluded: bool,
    ) -> alloc::collections::btree_map::Range<'_, TopicKey, V> {
        let probe: &dyn Position = &probe;
        let start = match excluded {
            true => Bound::Excluded(probe),
            false => Bound::Included(probe),
        };
        self.topics
            .range::<dyn Position + '_, _>((start, Bound::Unbounded))
    }
}

/// What a topic in the walk's way means for the walk.
enum Verdict<'f> {
    /// It matches.
    Match,
    /// The next one could match.
    Next,
    /// No match before this: the first `keep` bytes of the topic and `level`.
    Below { keep: usize, level: &'f [u8] },
    /// No match in what is below the first so many bytes of the topic.
    Past(usize),
    /// No match among topics that begin with `$`.
    PastDollar,
    /// No match in what follows.
    Done,
}

fn judge<'f>(filter: &'f [u8], topic: &[u8]) -> Verdict<'f> {
    if topic.first() == Some(&b'$') && matches!(filter.first(), Some(b'+' | b'#')) {
        return Verdict::PastDollar;
    }
    // Where the last level ends that `+` stands for: the only one that can
    // change when the levels after it have nothing more to offer.
    let mut plus_end = None;
    let behind = |plus_end: Option<usize>| plus_end.map_or(Verdict::Done, Verdict::Past);
    let mut at = 0;
    for level in filter.split(|b| *b == b'/') {
        if level == b"#" {
            return Verdict::Match;
        }
        if at > topic.len() {
            return Verdict::Next;
        }
        let end = level_end(topic, at);
        if level == b"+" {
            plus_end = Some(end);
        } else {
            let name = topic.get(at..end).unwrap_or_default();
            match name.cmp(level) {
                core::cmp::Ordering::Less => return Verdict::Below { keep: at, level },
                core::cmp::Ordering::Equal => {}
                core::cmp::Ordering::Greater => return behind(plus_end),
            }
        }
        at = end + 1;
    }
    if at > topic.len() {
        Verdict::Match
    } else {
        behind(plus_end)
    }
}
