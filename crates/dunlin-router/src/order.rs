//! The order of topics in the retained index: level by level, so that a topic
//! is followed at once by everything below it. Byte order would put `a!`
//! between `a` and `a/b`.

use alloc::boxed::Box;
use core::borrow::Borrow;
use core::cmp::Ordering;

/// A place in the order: at a topic, or just behind all topics below it.
pub(crate) trait Position {
    fn text(&self) -> &[u8];
    fn is_past_subtree(&self) -> bool;
}

/// A topic as key of an ordered map.
#[derive(Clone, Debug)]
pub(crate) struct TopicKey(pub(crate) Box<str>);

/// A place to look for, which need not be a topic's.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Probe<'a> {
    pub(crate) text: &'a [u8],
    pub(crate) past_subtree: bool,
}

impl<'a> Probe<'a> {
    pub(crate) const fn at(text: &'a [u8]) -> Self {
        Self {
            text,
            past_subtree: false,
        }
    }

    pub(crate) const fn past(text: &'a [u8]) -> Self {
        Self {
            text,
            past_subtree: true,
        }
    }
}

impl Position for TopicKey {
    fn text(&self) -> &[u8] {
        self.0.as_bytes()
    }

    fn is_past_subtree(&self) -> bool {
        false
    }
}

impl Position for Probe<'_> {
    fn text(&self) -> &[u8] {
        self.text
    }

    fn is_past_subtree(&self) -> bool {
        self.past_subtree
    }
}

/// Lets a map of [`TopicKey`] be searched with a borrowed [`Probe`].
impl<'a> Borrow<dyn Position + 'a> for TopicKey {
    fn borrow(&self) -> &(dyn Position + 'a) {
        self
    }
}

impl Ord for dyn Position + '_ {
    fn cmp(&self, other: &Self) -> Ordering {
        let (a, b) = (self.text(), other.text());
        let same = common_prefix(a, b);
        let rank = |text: &[u8], past: bool| match text.get(same) {
            None if !past => 0,
            Some(b'/') => 1,
            None => 2,
            Some(byte) => 3 + u16::from(*byte),
        };
        rank(a, self.is_past_subtree()).cmp(&rank(b, other.is_past_subtree()))
    }
}

impl PartialOrd for dyn Position + '_ {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for dyn Position + '_ {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for dyn Position + '_ {}

impl Ord for TopicKey {
    fn cmp(&self, other: &Self) -> Ordering {
        let (a, b): (&dyn Position, &dyn Position) = (self, other);
        a.cmp(b)
    }
}

impl PartialOrd for TopicKey {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for TopicKey {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl Eq for TopicKey {}

/// How many leading bytes are the same, eight at a time.
fn common_prefix(a: &[u8], b: &[u8]) -> usize {
    let (mut x, mut y) = (a, b);
    let mut same = 0;
    while let (Some((p, x_rest)), Some((q, y_rest))) =
        (x.split_first_chunk::<8>(), y.split_first_chunk::<8>())
    {
        let differ = u64::from_le_bytes(*p) ^ u64::from_le_bytes(*q);
        if differ != 0 {
            return same + (differ.trailing_zeros() / 8) as usize;
        }
        same += 8;
        (x, y) = (x_rest, y_rest);
    }
    same + x.iter().zip(y).take_while(|(p, q)| p == q).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compare(a: &Probe<'_>, b: &Probe<'_>) -> Ordering {
        let (a, b): (&dyn Position, &dyn Position) = (a, b);
        a.cmp(b)
    }

    #[test]
    fn a_topic_is_followed_by_what_is_below_it() {
        let order = [
            Probe::at(b"/a"),
            Probe::at(b"$SYS"),
            Probe::at(b"a"),
            Probe::at(b"a/"),
            Probe::at(b"a//b"),
            Probe::at(b"a/b"),
            Probe::at(b"a/b/c"),
            Probe::past(b"a/b"),
            Probe::at(b"a/b!"),
            Probe::past(b"a"),
            Probe::at(b"a!"),
            Probe::at(b"a!/b"),
            Probe::at("é".as_bytes()),
        ];
        for (i, a) in order.iter().enumerate() {
            for (j, b) in order.iter().enumerate() {
                assert_eq!(compare(a, b), i.cmp(&j), "{a:?} {b:?}");
            }
        }
    }
}
