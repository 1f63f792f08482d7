//! Application properties as User Properties, and back. A type that is not
//! string has a User Property of its own.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::vec::Vec;

use dunlin_amqp_codec::{Map, Value};
use dunlin_base::Text;

use super::fields::{Pairs, push};
use super::names;
use super::typed::{from_text, to_text};

/// Adds the application properties that MQTT can say.
pub(super) fn to_pairs(properties: &Map<'_>, pairs: &mut Pairs) {
    let mut types = Pairs::new();
    for (key, value) in properties.iter() {
        let (Value::String(name), Some((kind, text))) = (key, to_text(&value)) else {
            continue;
        };
        push(pairs, name, text);
        if let Some(kind) = kind {
            push(&mut types, names::TYPE, format!("{kind} {name}").into());
        }
    }
    pairs.append(&mut types);
}

/// Types that User Properties give to others: by name, with their own place.
#[derive(Debug, Default)]
pub(super) struct Types<'a>(BTreeMap<&'a str, (&'a str, usize)>);

impl<'a> Types<'a> {
    /// Finds them.
    pub(super) fn of(pairs: &'a [(Text, Text)]) -> Self {
        let mut types = BTreeMap::new();
        for (at, (name, value)) in pairs.iter().enumerate() {
            if name.as_str() == names::TYPE
                && let Some((kind, of)) = value.split_once(' ')
            {
                types.entry(of).or_insert((kind, at));
            }
        }
        Self(types)
    }

    /// Whether the User Property `name` is bytes.
    pub(super) fn is_binary(&self, name: &str) -> bool {
        self.0.get(name).is_some_and(|(kind, _)| *kind == "binary")
    }
}

/// Application properties as they are gathered from User Properties.
#[derive(Debug, Default)]
pub(super) struct Gathered<'a> {
    pub(super) entries: Vec<(Value<'a>, Value<'a>)>,
    seen: BTreeSet<&'a str>,
    /// Places of the types that were used.
    used: BTreeSet<usize>,
}

impl<'a> Gathered<'a> {
    /// Takes a User Property; of several with one name the first.
    pub(super) fn take(
        &mut self,
        name: &'a str,
        value: &'a str,
        bytes: &'a [u8],
        types: &Types<'a>,
    ) {
        if !self.seen.insert(name) {
            return;
        }
        let typed = types.0.get(name).and_then(|(kind, at)| {
            let typed = from_text(kind, value, Some(bytes))?;
            // Only if that is how it would be said.
            (to_text(&typed)?.1 == value).then_some((typed, *at))
        });
        let typed = typed.map(|(typed, at)| {
            self.used.insert(at);
            typed
        });
        self.entries
            .push((Value::String(name), typed.unwrap_or(Value::String(value))));
    }

    /// Takes the User Properties that are types of no other.
    pub(super) fn take_unused_types(&mut self, pairs: &'a [(Text, Text)]) {
        for (at, (name, value)) in pairs.iter().enumerate() {
            if name.as_str() == names::TYPE && !self.used.contains(&at) && self.seen.insert(name) {
                self.entries
                    .push((Value::String(name), Value::String(value)));
            }
        }
    }
}
