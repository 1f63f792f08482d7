//! Filters of receivers: which of them a message passes, before it is queued for them,
//! or before they take it from the queue of a node.

use alloc::boxed::Box;
use alloc::vec::Vec;

use dunlin_amqp::codec::{Map, Value};
use dunlin_amqp::filter::{FilterError, Filters, SelectorError, Subject, is_no_local};

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

/// Longest filter set of a node.
const NODE_FILTER_BYTES_MAX: usize = 32 * 1024;

/// The entries of a filter set that hold at a node. `has_number`: the client knows its
/// own messages again.
pub(super) fn parse_for_node(
    filter: Option<Map<'_>>,
    has_number: bool,
) -> Result<Entries<'_>, &'static str> {
    let (_, mut known) = parse(filter)?;
    known.retain(|(_, value)| has_number || !is_no_local(value));
    Ok(known)
}

/// A filter set as a node keeps it; nothing if it is empty.
pub(super) fn encode(entries: &Entries<'_>) -> Result<Box<[u8]>, &'static str> {
    if entries.is_empty() {
        return Ok(Box::default());
    }
    let bytes = Value::Map(Map::new(entries)).to_vec();
    let bytes = bytes.ok().filter(|it| it.len() <= NODE_FILTER_BYTES_MAX);
    bytes.map(Vec::into).ok_or("the filters are too long")
}

/// Takes receivers out whose filters a message does not pass.
pub(crate) fn leave_out(own: &Owners, source: &mut Source<'_>, hits: &mut Vec<Hit>) {
    let message = source.message();
    let bytes = Subject::bytes(&message, own.now);
    let subject = Subject::of(&message, &bytes).ok();
    let publisher = source.publisher();
    hits.retain(|hit| {
        let session = own.sessions.get(hit.session);
        let Some(session) = session.filter(|_| hit.is_filtered()) else {
            return true;
        };
        let (filters, is_local) = match session.node() {
            Some(node) => {
                let wants = node.wants.as_ref();
                let is_local = wants.is_some_and(|wants| wants.is_local(&message));
                (wants.map(|wants| &*wants.filters), is_local)
            }
            None => {
                let filters = session.amqp().and_then(AmqpLink::filters);
                let is_own = session.conn.is_some() && session.conn == publisher;
                (filters, is_own && filters.is_some_and(|it| it.no_local))
            }
        };
        filters.is_none_or(|filters| {
            let passes =
                !filters.needs_subject() || subject.as_ref().is_some_and(|it| filters.matches(it));
            passes && !is_local
        })
    });
}
