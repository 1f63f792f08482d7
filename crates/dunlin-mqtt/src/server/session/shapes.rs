//! How many subscriptions of a session one message can match.
//!
//! The shape of a filter is the filter without the words of its levels:
//! `a/+/b/#` and `c/+/d/#` have the shape `/+//#`. A topic decides the words,
//! so a message matches at most one filter of each shape, and one of all
//! filters without a wildcard. Groups of shared subscriptions count one by one,
//! because each gives a copy of its own.

use alloc::collections::BTreeMap;
use alloc::string::String;

use dunlin_base::topic::Filter;

/// How many filters there are of each shape.
#[derive(Debug, Default)]
pub(super) struct Shapes {
    filters: BTreeMap<String, usize>,
}

impl Shapes {
    pub(super) fn of<'a>(filters: impl Iterator<Item = &'a str>) -> Self {
        let mut shapes = Self::default();
        filters.for_each(|filter| shapes.add(filter));
        shapes
    }

    pub(super) fn add(&mut self, filter: &str) {
        *self.filters.entry(shape(filter)).or_default() += 1;
    }

    pub(super) fn remove(&mut self, filter: &str) {
        let shape = shape(filter);
        if let Some(count) = self.filters.get_mut(&shape) {
            *count -= 1;
            if *count == 0 {
                self.filters.remove(&shape);
            }
        }
    }

    /// How many filters a message can match if this one is added.
    pub(super) fn with(&self, filter: &str) -> usize {
        self.filters.len() + usize::from(!self.filters.contains_key(&shape(filter)))
    }
}

fn shape(text: &str) -> String {
    let filter = Filter::parse(text);
    let (share, filter) = filter.map_or((None, text), |f| (f.share, f.filter));
    let mut shape = String::from(share.unwrap_or_default());
    if filter.contains(['+', '#']) {
        for level in filter.split('/') {
            shape.push('/');
            shape.push_str(if matches!(level, "+" | "#") {
                level
            } else {
                ""
            });
        }
    }
    shape
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_that_no_message_matches_together_count_once() {
        let cases: [(&[&str], usize); 6] = [
            (&["a", "b/c", "d/e/f"], 1),
            (&["a/+", "b/+", "+/a"], 2),
            (&["a/#", "b/#", "#", "+/#", "a/b/#"], 4),
            (&["$share/g/a", "$share/g/b", "a"], 2),
            (&["$share/g/a", "$share/h/a", "$share/h/+"], 3),
            (&["a/+", "a/+"], 1),
        ];
        for (filters, want) in cases {
            let (last, rest) = filters.split_last().expect("filters");
            let mut shapes = Shapes::of(rest.iter().copied());
            assert_eq!(shapes.with(last), want, "{filters:?}");
            rest.iter().for_each(|filter| shapes.remove(filter));
            assert_eq!(shapes.with(last), 1, "{filters:?}");
        }
    }
}
