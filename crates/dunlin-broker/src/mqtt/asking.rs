//! Topics and filters that a server decides on: a packet waits until it has answered,
//! and what comes after it on the connection waits with it.

use alloc::boxed::Box;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use dunlin_base::topic::Filter;
use dunlin_base::{StreamId, Text};
use dunlin_mqtt::codec::{Publish, Subscribe};

use crate::access::{Action, Decision, WhenDown};
use crate::auth::{AuthRequest, Ruling, TopicRequest};
use crate::ids::{ConnIdx, SessionIdx};
use crate::io::Output;
use crate::mqtt::topics;
use crate::owners::session::Session;
use crate::owners::{Later, Owners};

/// Most questions of one connection at a time; a packet with more filters asks again.
const QUESTIONS_MAX: usize = 16;

/// Whether nothing has to be asked for a PUBLISH; otherwise it is asked, and the packet
/// is to be held.
pub(crate) fn may_publish(
    own: &mut Owners,
    (c, s): (ConnIdx, SessionIdx),
    arrived: StreamId,
    packet: &Publish<'_>,
) -> bool {
    if own.access.asks.is_none() {
        return true;
    }
    let topic = meant(own, (c, s), arrived, packet);
    let topic = topic.filter(|topic| own.is_open(s, Action::Publish, topic));
    topic.is_none_or(|topic| ask(own, (c, s), Action::Publish, [topic.as_str()].into_iter()))
}

/// The topic that a PUBLISH is for; `None`: it is refused for another reason.
fn meant(
    own: &mut Owners,
    (c, s): (ConnIdx, SessionIdx),
    arrived: StreamId,
    packet: &Publish<'_>,
) -> Option<String> {
    let maximum = own.config.clients.topic_alias_maximum;
    let conn = own.conns.mqtt_mut(c)?;
    let listener = conn.peer.listener;
    let mut packet = packet.clone();
    let known: Text;
    if let Some(alias) = packet
        .properties
        .topic_alias
        .filter(|_| packet.topic.is_empty())
    {
        known = conn.link.topic_of(arrived, alias, maximum)?;
        packet.topic = &known;
    }
    let altered = topics::publish(own, s, listener, &packet).ok()?;
    Some(altered.apply(&packet).topic.to_string())
}

/// Whether nothing has to be asked for a SUBSCRIBE; otherwise it is asked, and the
/// packet is to be held.
pub(crate) fn may_subscribe(
    own: &mut Owners,
    (c, s): (ConnIdx, SessionIdx),
    packet: &Subscribe<'_>,
) -> bool {
    if own.access.asks.is_none() {
        return true;
    }
    let filters: Vec<String> = match topics::subscribe(own, (c, s), packet) {
        None => packet.filters.iter().map(|it| it.filter.into()).collect(),
        Some(meant) => {
            let requests = packet.filters.iter().zip(&meant);
            let valid = requests.filter(|(_, meant)| meant.is_ok());
            valid
                .map(|it| topics::requested(it).filter.into())
                .collect()
        }
    };
    let Some(listener) = own.conns.mqtt(c).map(|conn| conn.peer.listener) else {
        return true;
    };
    let filters = filters.iter().map(String::as_str);
    let open = filters.filter(|it| own.is_open_to(s, listener, it));
    let open: Vec<&str> = open
        .filter_map(|it| Some(Filter::parse(it).ok()?.filter))
        .collect();
    ask(own, (c, s), Action::Subscribe, open.into_iter())
}

/// Asks about these, as far as no answer is known; `true`: all are known.
fn ask<'t>(
    own: &mut Owners,
    (c, s): (ConnIdx, SessionIdx),
    action: Action,
    topics: impl Iterator<Item = &'t str>,
) -> bool {
    let (Some(conn), Some(session)) = (own.conns.mqtt_mut(c), own.sessions.get(s)) else {
        return true;
    };
    let decided = session.decided.as_deref();
    let is_known = |topic| decided.is_some_and(|it| it.is_valid(action, topic, own.now));
    let mut unknown: Vec<&str> = Vec::new();
    for topic in topics {
        if unknown.len() < QUESTIONS_MAX && !unknown.contains(&topic) && !is_known(topic) {
            unknown.push(topic);
        }
    }
    for topic in &unknown {
        let request = TopicRequest {
            user: session.user.clone(),
            client_id: session.client_id.clone(),
            address: conn.peer.addr.ip(),
            listener: conn.peer.listener,
            action,
            topic: Text::from(*topic),
        };
        conn.asked += 1;
        own.outbox.push(Output::Auth {
            conn: conn.id,
            request: AuthRequest::Topic(Box::new(request)),
        });
    }
    own.stats.topics_asked += unknown.len() as u64;
    unknown.is_empty()
}

/// The server has answered, or has not: after the last of its answers the packet that
/// waited goes on.
pub(crate) fn handle_ruling(own: &mut Owners, c: ConnIdx, ruling: &Ruling) {
    let Some(conn) = own.conns.mqtt_mut(c) else {
        return;
    };
    conn.asked = conn.asked.saturating_sub(1);
    let is_last = conn.asked == 0;
    let Some(s) = conn.session() else {
        return;
    };
    let when_down = own.access.asks.unwrap_or_default();
    own.stats.topics_unanswered += u64::from(ruling.allowed.is_none());
    if let Some(session) = own.sessions.get_mut(s) {
        let Ruling { action, topic, .. } = ruling;
        let decided = session.decided.get_or_insert_default();
        let allowed = ruling.allowed.unwrap_or_else(|| match when_down {
            WhenDown::Deny => false,
            WhenDown::Allow => true,
            WhenDown::Last => decided.says(*action, topic).unwrap_or_default(),
        });
        decided.set(*action, topic, allowed, own.now + ruling.lifetime);
    }
    if !is_last {
        return;
    }
    own.later.push_back(Later::Unpark(c));
}

/// What waited for answers is handled, as far as no others are waited for.
pub(crate) fn settle(own: &mut Owners, c: ConnIdx) {
    let conn = own.conns.peek_mqtt(c).filter(|conn| conn.asked == 0);
    let Some(s) = conn.and_then(|conn| conn.session()) else {
        return;
    };
    let session = own.sessions.get_mut(s);
    if let Some(decided) = session.and_then(|session| session.decided.as_mut()) {
        decided.settle();
    }
}

impl Owners {
    /// Whether the server decides on this, because no rule does.
    fn is_open(&self, s: SessionIdx, action: Action, topic: &str) -> bool {
        let session = self.sessions.get(s);
        session.is_some_and(|it| it.decide(&self.access, action, topic) == Decision::Open)
    }

    /// Likewise, on a subscription through this listener.
    fn is_open_to(&self, s: SessionIdx, listener: u16, filter: &str) -> bool {
        let decide = |session: &Session| match self.is_filtered(listener, filter) {
            true => session.decide_part(&self.access, filter),
            false => session.decide(&self.access, Action::Subscribe, filter),
        };
        self.sessions.get(s).map(decide) == Some(Decision::Open)
    }
}
