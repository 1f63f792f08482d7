//! Filters of a source: which messages a receiver wants.
//!
//! | filter | value |
//! |---|---|
//! | `apache.org:selector-filter:string` | a selector of JMS 2.0 section 3.8.1 |
//! | `apache.org:no-local-filter:list` | not what the same container sent; the caller knows who sent it |
//! | `amqp:sql-filter` | the same grammar, with names such as `properties.subject` |
//! | `amqp:properties-filter`, `amqp:application-properties-filter` | a map; strings may begin with `&p:` (prefix), `&s:` (suffix), `&&` (an ampersand) |
//!
//! A filter is parsed once and evaluated against a [`Subject`], which is made
//! once for a message. Both have limits in [`limits`].

mod error;
mod eval;
mod lexer;
mod like;
pub mod limits;
mod map;
mod node;
mod parser;
mod selector;
mod subject;
mod term;

use alloc::vec::Vec;

use dunlin_amqp_codec::{Described, Map, Symbol, Value, capability};
use dunlin_base::{Instant, Message};

pub use error::SelectorError;
use map::MapFilter;
pub use selector::Selector;
pub use subject::Subject;

/// Numeric descriptors of the filters.
mod descriptor {
    pub(super) const NO_LOCAL: u64 = 0x0000_468c_0000_0003;
    pub(super) const SELECTOR: u64 = 0x0000_468c_0000_0004;
    pub(super) const SQL: u64 = 0x120;
    pub(super) const PROPERTIES: u64 = 0x173;
    pub(super) const APPLICATION_PROPERTIES: u64 = 0x174;
}

/// The filters of a receiver; a message must pass all.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Filters {
    /// Not what the same container sent.
    pub no_local: bool,
    selectors: Vec<Selector>,
    maps: Vec<MapFilter>,
}

/// Why a filter is refused; the answer is `amqp:invalid-field`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FilterError {
    /// A selector is invalid or too long.
    #[error(transparent)]
    Selector(#[from] SelectorError),
    /// More filters or entries than [`limits::FILTERS_MAX`].
    #[error("too many filters")]
    TooMany,
    /// The value of a filter has the wrong type.
    #[error("a filter with a value of the wrong type")]
    Value,
}

impl Filters {
    /// The filters that `filter` of a source asks for, and the entries that are
    /// known, which the answer to `attach` repeats.
    ///
    /// # Errors
    /// A filter that is known is invalid.
    pub fn of<'a>(filter: &Map<'a>) -> Result<(Self, Vec<(Value<'a>, Value<'a>)>), FilterError> {
        let mut filters = Self::default();
        let mut known = Vec::new();
        for (at, (name, value)) in filter.iter().enumerate() {
            if at >= limits::FILTERS_MAX {
                return Err(FilterError::TooMany);
            }
            if let Value::Described(described) = &value
                && filters.add(described)?
            {
                known.push((name, value));
            }
        }
        Ok((filters, known))
    }

    /// Adds a filter; false if it is not known.
    fn add(&mut self, described: &Described<'_>) -> Result<bool, FilterError> {
        let is = |code, symbol: Symbol<'_>| described.descriptor.is(code, symbol.as_str());
        let value = described.value();
        if is(descriptor::SELECTOR, capability::SELECTOR_FILTER) {
            let text = value.as_str().ok_or(FilterError::Value)?;
            self.selectors.push(Selector::parse(text)?);
        } else if is(descriptor::SQL, capability::SQL_FILTER) {
            let text = value.as_str().ok_or(FilterError::Value)?;
            self.selectors.push(Selector::parse_sql(text)?);
        } else if is(descriptor::NO_LOCAL, capability::NO_LOCAL_FILTER) {
            self.no_local = true;
        } else if is(descriptor::PROPERTIES, capability::PROPERTIES_FILTER) {
            self.maps.push(MapFilter::properties(&value)?);
        } else if is(
            descriptor::APPLICATION_PROPERTIES,
            capability::APPLICATION_PROPERTIES_FILTER,
        ) {
            self.maps.push(MapFilter::application(&value)?);
        } else {
            return Ok(false);
        }
        Ok(true)
    }

    /// Whether there is no filter.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        !self.no_local && self.selectors.is_empty() && self.maps.is_empty()
    }

    /// What they take in memory, about.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let selectors = self.selectors.iter().map(Selector::bytes);
        let maps = self.maps.iter().map(MapFilter::bytes);
        size_of::<Self>() + selectors.chain(maps).sum::<usize>()
    }

    /// Whether a look at the message is needed.
    #[must_use]
    pub const fn needs_subject(&self) -> bool {
        !self.selectors.is_empty() || !self.maps.is_empty()
    }

    /// Whether a message passes; `no_local` is the caller's to check. All
    /// filters together have [`limits::EVALUATION_STEPS_MAX`].
    #[must_use]
    pub fn matches(&self, subject: &Subject<'_>) -> bool {
        self.matches_within(subject, &mut { limits::EVALUATION_STEPS_MAX })
    }

    fn matches_within(&self, subject: &Subject<'_>, steps: &mut usize) -> bool {
        let (maps, selectors) = (&self.maps, &self.selectors);
        maps.iter().all(|map| map.matches(subject, steps))
            && selectors.iter().all(|it| it.matches_within(subject, steps))
    }

    /// As [`Filters::matches`], for who has no subject of the message, with the steps
    /// that it took. One that is no valid message of AMQP passes no filter.
    #[must_use]
    pub fn look(&self, message: &Message, now: Instant) -> (bool, usize) {
        if !self.needs_subject() {
            return (true, 0);
        }
        let bytes = Subject::bytes(message, now);
        let mut left = limits::EVALUATION_STEPS_MAX;
        let passes = Subject::of(message, &bytes)
            .is_ok_and(|subject| self.matches_within(&subject, &mut left));
        (passes, limits::EVALUATION_STEPS_MAX.saturating_sub(left))
    }
}

/// Whether an entry of a filter set is the filter no-local.
#[must_use]
pub fn is_no_local(value: &Value<'_>) -> bool {
    let symbol = capability::NO_LOCAL_FILTER.as_str();
    matches!(value, Value::Described(it) if it.descriptor.is(descriptor::NO_LOCAL, symbol))
}
