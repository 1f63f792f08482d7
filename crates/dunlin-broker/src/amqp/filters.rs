//! Filters of receivers: which of them a message passes, before it is queued.

use alloc::vec::Vec;

use dunlin_amqp::codec::{Map, Value};
use dunlin_amqp::filter::{FilterError, Filters, SelectorError, Subject};

use crate::amqp::state::AmqpLink;
use crate::messages::source::Source;
use crate::owners::Owners;
use crate::owners::routing::Hit;

/// Entries of a map.
pub(super) type Entries<'a> = Vec<(Value<'a>, Value<'a>)>;

/// The filters that a source asks for, and those of its entries that are known; or
/// why they are refused.
pub(super) fn parse<'a>(filter: Option<Map<'a>>) -> Result<(Filters, Entries<'a>), &'static str> {
    let parsed = Filters::of(&filter.unwrap_or_default());
    parsed.map_err(|error| match error {
        FilterError::Selector(SelectorError::TooLong) => "the selector is too long",
        FilterError::Selector(_) => "the selector is not valid",
        FilterError::TooMany => "too many filters",
        _ => "a filter with a value of the wrong type",
    })
}

/// Takes receivers out whose filters a message does not pass.
pub(crate) fn leave_out(own: &Owners, source: &mut Source<'_>, hits: &mut Vec<Hit>) {
    let message = source.message();
    let bytes = Subject::bytes(&message, own.now);
    let subject = Subject::of(&message, &bytes).ok();
    let publisher = source.publisher();
    hits.retain(|hit| {
        let filters = match own.sessions.get(hit.session) {
            Some(session) if hit.is_filtered() => session.amqp().and_then(AmqpLink::filters),
            _ => None,
        };
        let conn = own.sessions.get(hit.session).and_then(|it| it.conn);
        filters.is_none_or(|filters| {
            let is_local = filters.no_local && conn.is_some() && conn == publisher;
            let passes =
                !filters.needs_subject() || subject.as_ref().is_some_and(|it| filters.matches(it));
            passes && !is_local
        })
    });
}
