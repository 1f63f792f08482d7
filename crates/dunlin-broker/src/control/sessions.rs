//! Sessions and their subscriptions, for operators: listed, ended; and who would get a
//! message.

use alloc::vec::Vec;

use dunlin_base::{QoS, Text, topic};

use crate::access::{Action, Grounds};
use crate::control::values::{
    ClientView, Ending, Page, Place, ReceiverView, Reply, RightView, SessionFilter,
    SubscriptionView,
};
use crate::front;
use crate::ids::SessionIdx;
use crate::owners::Owners;
use crate::owners::elsewhere::Free;
use crate::owners::routing::{NO_LOCAL, RETAIN_AS_PUBLISHED, Subscribed};
use crate::owners::session::Session;
use crate::reports::clients;
use crate::sessions::records;

/// Sessions of client identifiers that match.
pub(super) fn list(
    own: &Owners,
    filter: &SessionFilter,
    at: Place,
    limit: usize,
) -> Page<ClientView> {
    clients::page(own.sessions.from(at), limit, |_, session| {
        let view = matches(filter, session).then(|| clients::view(own, session));
        (0, view)
    })
}

fn matches(filter: &SessionFilter, session: &Session) -> bool {
    session.is_named()
        && session.client_id.starts_with(&*filter.client_id)
        && filter
            .user
            .as_ref()
            .is_none_or(|it| session.user.as_ref() == Some(it))
        && filter
            .connected
            .is_none_or(|it| it == session.conn.is_some())
        && filter
            .persistent
            .is_none_or(|it| it == session.is_persistent())
        && filter
            .subscribed
            .as_deref()
            .is_none_or(|it| session.subscription(it).is_some())
}

/// Ends a session and its connection; answered when the store has forgotten it.
pub(super) fn end(
    own: &mut Owners,
    number: u64,
    client_id: &Text,
    ending: &Ending,
) -> Option<Reply> {
    let Some(s) = own.sessions.find(client_id) else {
        return Some(Reply::Client(None));
    };
    if let Some(c) = own.sessions.get(s).and_then(|session| session.conn) {
        front::end(own, c, ending);
    }
    // The disconnection may have ended the session.
    if let Some(s) = own.sessions.find(client_id) {
        front::end_session(own, s);
    }
    records::when_forgotten(own, client_id, Free::Operator(number));
    None
}

/// Subscriptions of a client after a filter.
pub(super) fn subscriptions(own: &Owners, client_id: &str, after: &str, limit: usize) -> Reply {
    let limit = limit.min(clients::EXAMINED_MAX);
    let session = own
        .sessions
        .find(client_id)
        .and_then(|s| own.sessions.get(s));
    Reply::Subscriptions(session.map(|session| {
        let found = session.subscriptions_after(after, limit);
        let next = found.last().filter(|_| found.len() == limit);
        let next = next.map(|(filter, _)| filter.clone());
        let rows = found.into_iter().map(|(filter, it)| shown(filter, &it));
        (rows.collect(), next)
    }))
}

fn shown(filter: Text, it: &Subscribed) -> SubscriptionView {
    SubscriptionView {
        filter,
        qos: qos(it),
        no_local: it.options & NO_LOCAL != 0,
        retain_as_published: it.options & RETAIN_AS_PUBLISHED != 0,
        identifier: Some(it.identifier).filter(|number| *number != 0),
    }
}

fn qos(it: &Subscribed) -> QoS {
    QoS::from_u8(it.options & 3).unwrap_or_default()
}

/// What a session may do with a topic, or filter.
pub(super) fn rights(own: &Owners, client_id: &str, name: &str) -> Reply {
    let session = own.sessions.find(client_id);
    let session = session.and_then(|s| own.sessions.get(s));
    let is_filter = topic::validate_name(name).is_err();
    let right = |session: &Session, action: Action| {
        let (allowed, grounds) = match action == Action::Publish && own.is_reserved(name) {
            true => (false, Grounds::Reserved),
            false => session.explain(&own.access, action, name),
        };
        let is_filtered = || {
            let conn = session.conn.and_then(|c| own.conns.peek(c));
            conn.is_some_and(|conn| own.is_filtered(conn.peer.listener, name))
        };
        let (allowed, grounds) = match action {
            Action::Subscribe
                if !allowed && is_filtered() && session.may_in_part(&own.access, name) =>
            {
                (true, Grounds::Part)
            }
            _ => (allowed, grounds),
        };
        RightView {
            action,
            allowed,
            grounds,
        }
    };
    Reply::Rights(session.map(|session| {
        let actions = [Action::Subscribe, Action::Publish, Action::Receive];
        let actions = actions.into_iter();
        let asked = actions.filter(|action| !is_filter || *action == Action::Subscribe);
        asked.map(|action| right(session, action)).collect()
    }))
}

/// Sessions of this shard that would get a message; the members of a shared
/// subscription of which one gets it.
pub(super) fn receivers(own: &Owners, topic: &str, limit: usize) -> Reply {
    let limit = limit.min(clients::EXAMINED_MAX);
    let mut rows = Vec::new();
    let seen = own.routing.visit(topic, limit, |s, it, share| {
        rows.extend(receiver(own, s as SessionIdx, it, share, topic));
    });
    Reply::Receivers {
        rows,
        count: seen.count,
        groups_left_out: seen.groups_left_out,
    }
}

fn receiver(
    own: &Owners,
    s: SessionIdx,
    it: &Subscribed,
    share: Option<&Text>,
    topic: &str,
) -> Option<ReceiverView> {
    let session = own.sessions.get(s)?;
    let node = session.node();
    Some(ReceiverView {
        client_id: node
            .map_or(&session.client_id, |node| &node.address)
            .clone(),
        qos: qos(it),
        share: share.cloned(),
        allowed: !it.restricted || session.may(&own.access, Action::Receive, topic),
        connected: session.conn.is_some(),
    })
}
