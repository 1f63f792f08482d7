//! The part of a filter that one tree node stands for, and how it is matched
//! and split by levels. Knows nothing of the tree.

use alloc::boxed::Box;
use alloc::vec::Vec;

/// Labels of up to this many bytes live in their node: a label has 40 bytes.
const INLINE_BYTES_MAX: usize = 38;

/// One or more levels of a filter, joined by `/`.
#[derive(Clone, Debug)]
pub(crate) enum Label {
    Inline {
        len: u8,
        wild: bool,
        bytes: [u8; INLINE_BYTES_MAX],
    },
    Heap {
        wild: bool,
        bytes: Box<[u8]>,
    },
}

const _: () = assert!(size_of::<Label>() == 40 || size_of::<usize>() != 8);

/// Where matching a label against a topic leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// The label does not match.
    Miss,
    /// The label ends in `#` and matches all that follows.
    Through,
    /// The label matches; the next level starts at this byte of the topic, one
    /// past its end when the topic is used up.
    To(usize),
}

impl Label {
    pub(crate) const EMPTY: Self = Self::Inline {
        len: 0,
        wild: false,
        bytes: [0; INLINE_BYTES_MAX],
    };

    pub(crate) fn new(text: &[u8]) -> Self {
        let wild = text.split(|b| *b == b'/').any(is_wild);
        let mut bytes = [0; INLINE_BYTES_MAX];
        match bytes.get_mut(..text.len()) {
            Some(room) => {
                room.copy_from_slice(text);
                Self::Inline {
                    len: text.len() as u8,
                    wild,
                    bytes,
                }
            }
            None => Self::Heap {
                wild,
                bytes: text.into(),
            },
        }
    }

    /// `head/tail`.
    pub(crate) fn join(head: &[u8], tail: &[u8]) -> Self {
        let mut text = Vec::with_capacity(head.len() + 1 + tail.len());
        text.extend_from_slice(head);
        text.push(b'/');
        text.extend_from_slice(tail);
        Self::new(&text)
    }

    #[inline]
    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Self::Inline { len, bytes, .. } => bytes.get(..usize::from(*len)).unwrap_or_default(),
            Self::Heap { bytes, .. } => bytes,
        }
    }

    pub(crate) fn first_level(&self) -> &[u8] {
        first_level(self.bytes())
    }

    /// Matches the label against the levels of `topic` that start at `at`.
    #[inline]
    pub(crate) fn step(&self, topic: &[u8], at: usize) -> Step {
        let (Self::Inline { wild, .. } | Self::Heap { wild, .. }) = self;
        let label = self.bytes();
        if *wild {
            return step_wild(label, topic, at);
        }
        step_literal(label, topic, at)
    }
}

#[inline]
fn is_wild(level: &[u8]) -> bool {
    matches!(level, b"+" | b"#")
}

/// Literal text matches when it is followed by a separator or by nothing.
#[inline]
fn step_literal(text: &[u8], topic: &[u8], at: usize) -> Step {
    match topic.get(at..).and_then(|rest| rest.strip_prefix(text)) {
        Some([] | [b'/', ..]) => Step::To(at + text.len() + 1),
        _ => Step::Miss,
    }
}

fn step_wild(label: &[u8], topic: &[u8], mut at: usize) -> Step {
    for level in label.split(|b| *b == b'/') {
        match level {
            b"#" => return Step::Through,
            b"+" if at <= topic.len() => at = level_end(topic, at) + 1,
            _ => match step_literal(level, topic, at) {
                Step::To(next) => at = next,
                miss => return miss,
            },
        }
    }
    Step::To(at)
}

/// The first level of `text`.
#[inline]
pub(crate) fn first_level(text: &[u8]) -> &[u8] {
    text.get(..level_end(text, 0)).unwrap_or(text)
}

/// Where the level of `text` that starts at `at` ends: at a separator or at the
/// end of the text.
#[inline]
pub(crate) fn level_end(text: &[u8], at: usize) -> usize {
    const ONES: u64 = u64::from_ne_bytes([1; 8]);
    const SEPARATORS: u64 = u64::from_ne_bytes([b'/'; 8]);
    let mut end = at;
    let mut rest = text.get(at..).unwrap_or_default();
    // Eight bytes at a time; a zero byte of `x` is a separator.
    while let Some((chunk, tail)) = rest.split_first_chunk::<8>() {
        let x = u64::from_le_bytes(*chunk) ^ SEPARATORS;
        let zeros = x.wrapping_sub(ONES) & !x & (ONES << 7);
        if zeros != 0 {
            return end + (zeros.trailing_zeros() / 8) as usize;
        }
        end += 8;
        rest = tail;
    }
    end + rest.iter().take_while(|b| **b != b'/').count()
}

/// How many bytes of `a` and `b` agree in whole levels, without a trailing
/// separator. Their first levels must be equal.
pub(crate) fn common_levels(a: &[u8], b: &[u8]) -> usize {
    let same = a.iter().zip(b).take_while(|(x, y)| x == y).count();
    match (a.get(same), b.get(same)) {
        (None | Some(b'/'), None | Some(b'/')) => same,
        _ => a
            .get(..same)
            .and_then(|head| head.iter().rposition(|b| *b == b'/'))
            .unwrap_or_default(),
    }
}

/// What follows the first `len` bytes of `text` and a separator.
#[inline]
pub(crate) fn rest_after(text: &[u8], len: usize) -> Option<&[u8]> {
    text.get(len + 1..)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_match_by_levels() {
        let cases: [(&str, &str, usize, Step); 14] = [
            ("a", "a", 0, Step::To(2)),
            ("a", "ab", 0, Step::Miss),
            ("a/b", "a/b/c", 0, Step::To(4)),
            ("a/b", "a", 0, Step::Miss),
            ("+", "a/b", 0, Step::To(2)),
            ("+", "a/b", 2, Step::To(4)),
            ("+", "a", 2, Step::Miss),
            ("", "/b", 0, Step::To(1)),
            ("", "a/", 2, Step::To(3)),
            ("", "a", 2, Step::Miss),
            ("a/#", "a", 0, Step::Through),
            ("a/+/#", "a", 0, Step::Miss),
            ("a/+/#", "a/", 0, Step::Through),
            ("+/b", "long-level-name/b", 0, Step::To(18)),
        ];
        for (label, topic, at, want) in cases {
            let got = Label::new(label.as_bytes()).step(topic.as_bytes(), at);
            assert_eq!(got, want, "{label} {topic} {at}");
        }
    }

    #[test]
    fn common_levels_end_at_separators() {
        let cases = [
            ("a/b", "a/b", 3),
            ("a/b", "a/bc", 1),
            ("a", "a/b", 1),
            ("a/b/c", "a/b", 3),
            ("/x", "/y", 0),
            ("", "/y", 0),
            ("a//b", "a//c", 2),
        ];
        for (a, b, want) in cases {
            assert_eq!(common_levels(a.as_bytes(), b.as_bytes()), want, "{a} {b}");
            assert_eq!(common_levels(b.as_bytes(), a.as_bytes()), want, "{b} {a}");
        }
    }

    #[test]
    fn long_labels_leave_the_node() {
        for len in [0, 1, 20, 21, 22, 300] {
            let text = alloc::vec![b'z'; len];
            let label = Label::new(&text);
            assert_eq!(label.bytes(), text);
            assert_eq!(matches!(label, Label::Heap { .. }), len > INLINE_BYTES_MAX);
            assert_eq!(level_end(&text, 0), len);
        }
    }
}
