//! What all links have in common when they are attached: a session, an answer, or
//! the reason why not.

use alloc::boxed::Box;

use dunlin_amqp::LinkId;
use dunlin_amqp::codec::{Attach, Symbol, condition};
use dunlin_base::ShardId;

use crate::amqp::state::{AmqpLink, End};
use crate::amqp::{carried, quota};
use crate::ids::{ConnIdx, SessionIdx};
use crate::memory::Part;
use crate::owners::Owners;
use crate::owners::common::SessionCore;
use crate::owners::conn::Conn;

/// In front of an address that is a topic in any case.
const TOPICS: &str = "/topics/";

/// The topic or filter of an address.
pub(super) fn topic_of(address: &str) -> &str {
    address.strip_prefix(TOPICS).unwrap_or(address)
}

/// Why a link is refused.
#[derive(Clone, Copy, Debug)]
pub(super) struct Refusal {
    pub(super) condition: Symbol<'static>,
    pub(super) text: &'static str,
}

pub(super) const fn refusal(condition: Symbol<'static>, text: &'static str) -> Refusal {
    Refusal { condition, text }
}

/// What a client hears of what only a home can do that is away.
pub(super) const AWAY: &str = "the part of the server that has this is away";

/// Refuses a link that needs this home, if that is away.
pub(super) fn check_there(own: &Owners, home: ShardId) -> Result<(), Refusal> {
    match own.members.has(home) {
        true => Ok(()),
        false => Err(refusal(condition::INTERNAL_ERROR, AWAY)),
    }
}

/// What both kinds of answers have in common.
pub(super) fn answer<'a>(attach: &Attach<'a>) -> Attach<'a> {
    Attach {
        unsettled: None,
        incomplete_unsettled: false,
        initial_delivery_count: None,
        max_message_size: None,
        offered_capabilities: None,
        desired_capabilities: None,
        properties: None,
        ..*attach
    }
}

/// A session for a link.
pub(super) fn create(
    own: &mut Owners,
    c: ConnIdx,
    link: LinkId,
    end: End,
) -> Result<SessionIdx, Refusal> {
    own.budget.look();
    if !own.budget.has_room_for_session() || !carried::has_room_for_link(own, c) {
        own.note_refused(Part::Sessions, 1);
        let text = "no room for another link";
        return Err(refusal(condition::RESOURCE_LIMIT_EXCEEDED, text));
    }
    if !quota::has_room_for_link(own, c) {
        own.note_refused(Part::Sessions, 1);
        let text = "the user has all the sessions, links and queues that it may have";
        return Err(refusal(condition::RESOURCE_LIMIT_EXCEEDED, text));
    }
    let user = own.conns.peek(c).and_then(Conn::user);
    if let Some(holder) = own.full_client(c, user.as_ref()) {
        own.note_full_holder(holder, 1);
        let text = "no memory for another link of this user or address";
        return Err(refusal(condition::RESOURCE_LIMIT_EXCEEDED, text));
    }
    let Some(conn) = own.conns.amqp(c) else {
        return Err(refusal(condition::INTERNAL_ERROR, "no connection"));
    };
    let container = conn.who.as_ref().map(|who| who.client_id.clone());
    let key = own.sessions.next_key();
    let mut core = SessionCore::new(key, container.unwrap_or_default());
    core.user = conn.identity.user.clone();
    core.standing = conn.identity.standing;
    core.rules = conn.identity.rules.clone();
    core.conn = Some(c);
    own.budget.holders.moved(None, core.user.as_ref());
    let s = own
        .sessions
        .insert_link(Box::new(AmqpLink::new(core, link, end)));
    own.count_in(s);
    Ok(s)
}
