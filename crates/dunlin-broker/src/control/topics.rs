//! Messages of operators: what is retained, shown and removed, and publishing.

use alloc::sync::Arc;
use alloc::vec::Vec;

use dunlin_base::{Message, Text};

use crate::control::values::Reply;
use crate::messages::source::Source;
use crate::messages::{publish, retained, settle};
use crate::owners::Owners;
use crate::owners::pending::{Pending, PendingPublish};

/// Retained messages after a topic. Those that have expired are left out.
pub(super) fn retained(own: &Owners, filter: &str, after: Option<&str>, limit: usize) -> Reply {
    let (mut rows, next) = own.routing.retained.page(filter, after, limit);
    rows.retain(|message| !message.is_expired(own.now));
    Reply::Retained(rows, next)
}

/// Removes retained messages that this shard owns; answered when they are gone from the
/// store.
pub(super) fn forget(own: &mut Owners, number: u64, topics: Vec<Text>) {
    for topic in topics {
        let message = Arc::new(Message {
            topic,
            ..Message::default()
        });
        // Nothing waits for it: it is written at once, and what is removed has room.
        let (mut ops, mut change) = (Vec::new(), None);
        retained::own_retained(own, &message, false, &mut ops, &mut change);
    }
    let token = own.commits.token();
    own.commits.when_stored(token, Pending::Operator(number));
}

/// Publishes a message; answered when its receivers that keep it have it.
pub(super) fn publish(own: &mut Owners, number: u64, message: &Arc<Message>) {
    let mut source = Source::of(message, own.now).answered();
    let token = own.commits.token();
    let mut publish = PendingPublish::new(None, false);
    publish::place(own, None, token, &mut source, &mut publish);
    publish.rest_mut().operator = Some(number);
    settle::line_up(own, token, publish);
}
