//! Filters that are maps: a value for each field.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::cmp::Ordering;

use dunlin_amqp_codec::{Map, Value};

use super::FilterError;
use super::limits::FILTERS_MAX;
use super::subject::{Field, Property, Subject, number_of};
use super::term::Number;

/// What each of several fields must be.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct MapFilter(Vec<(Field, Wanted)>);

/// What a field must be.
#[derive(Clone, Debug, PartialEq)]
enum Wanted {
    /// Not there, or null.
    Null,
    Bool(bool),
    Number(Number),
    Text(Box<str>),
    Prefix(Box<str>),
    Suffix(Box<str>),
    /// Anything else, in its shortest form.
    Encoded(Vec<u8>),
}

impl MapFilter {
    /// A filter of properties.
    pub(super) fn properties(value: &Value<'_>) -> Result<Self, FilterError> {
        Self::of(value, |name| Property::of(name).map(Field::Property))
    }

    /// A filter of application properties.
    pub(super) fn application(value: &Value<'_>) -> Result<Self, FilterError> {
        Self::of(value, |name| Some(Field::Application(name.into())))
    }

    fn of(value: &Value<'_>, field: impl Fn(&str) -> Option<Field>) -> Result<Self, FilterError> {
        let Value::Map(map) = value else {
            return Err(FilterError::Value);
        };
        if map.len() > FILTERS_MAX {
            return Err(FilterError::TooMany);
        }
        let entry = |(name, value): (Value<'_>, Value<'_>)| {
            let name = name.as_str().and_then(&field);
            Ok((name.ok_or(FilterError::Value)?, Wanted::of(&value)?))
        };
        Map::iter(map)
            .map(entry)
            .collect::<Result<_, _>>()
            .map(Self)
    }

    /// What it takes in memory, about.
    pub(super) fn bytes(&self) -> usize {
        let of = |(field, wanted): &(Field, Wanted)| {
            let text = match wanted {
                Wanted::Text(text) | Wanted::Prefix(text) | Wanted::Suffix(text) => text.len(),
                Wanted::Encoded(bytes) => bytes.len(),
                Wanted::Null | Wanted::Bool(_) | Wanted::Number(_) => 0,
            };
            size_of::<(Field, Wanted)>() + field.text_bytes() + text
        };
        self.0.iter().map(of).sum()
    }

    /// Whether all fields are what they must be. What it takes is taken from
    /// `steps`; without enough of them it does not match.
    pub(super) fn matches(&self, subject: &Subject<'_>, steps: &mut usize) -> bool {
        self.0.iter().all(|(field, wanted)| {
            let left = steps.checked_sub(subject.steps(field));
            *steps = left.unwrap_or(0);
            left.is_some() && wanted.is(&subject.value(field))
        })
    }
}

impl Wanted {
    fn of(value: &Value<'_>) -> Result<Self, FilterError> {
        if let Some(text) = value.as_str() {
            let Some(rest) = text.strip_prefix('&') else {
                return Ok(Self::Text(text.into()));
            };
            if rest.starts_with('&') {
                return Ok(Self::Text(rest.into()));
            }
            return match rest.split_once(':') {
                Some(("p", prefix)) => Ok(Self::Prefix(prefix.into())),
                Some(("s", suffix)) => Ok(Self::Suffix(suffix.into())),
                _ => Err(FilterError::Value),
            };
        }
        match value {
            Value::Null => Ok(Self::Null),
            Value::Bool(truth) => Ok(Self::Bool(*truth)),
            other => match number_of(other) {
                Some(number) => Ok(Self::Number(number)),
                None => other
                    .to_vec()
                    .map(Self::Encoded)
                    .map_err(|_| FilterError::Value),
            },
        }
    }

    fn is(&self, value: &Value<'_>) -> bool {
        let text = value.as_str();
        match self {
            Self::Null => *value == Value::Null,
            Self::Bool(truth) => *value == Value::Bool(*truth),
            Self::Number(number) => {
                number_of(value).is_some_and(|other| number.compare(other) == Some(Ordering::Equal))
            }
            Self::Text(wanted) => text == Some(wanted),
            Self::Prefix(prefix) => text.is_some_and(|text| text.starts_with(&**prefix)),
            Self::Suffix(suffix) => text.is_some_and(|text| text.ends_with(&**suffix)),
            Self::Encoded(bytes) => value.to_vec().is_ok_and(|other| other == *bytes),
        }
    }
}
