//! Where what happens enters the front of a protocol: on a connection, from another
//! shard, from the store. The rest of the shard calls these functions and knows no
//! protocol.

#[cfg(feature = "amqp")]
use dunlin_amqp::codec::condition;
use dunlin_base::transport::{NetCommand, NetCommandKind, NetEventKind, Peer, Transport};
use dunlin_base::{ConnId, ShardId, StreamId, Text};
#[cfg(feature = "mqtt")]
use dunlin_mqtt::codec::ReasonCode;
use dunlin_store::RecoveredSession;

#[cfg(feature = "amqp")]
use crate::amqp::state::AmqpPhase;
#[cfg(feature = "amqp")]
use crate::amqp::{
    carried, events, links, nodes as amqp_nodes, requests, sasl, streams, transactions,
};
use crate::auth::AuthAnswer;
use crate::control::values::{Ending, EndingKind};
use crate::fault::NoRoom;
use crate::ids::{ConnIdx, SessionIdx, SessionRef};
use crate::io::{BusMessage, Event};
#[cfg(feature = "mqtt")]
use crate::mqtt::conn::Phase;
#[cfg(feature = "mqtt")]
use crate::mqtt::{
    authenticate, claims, data_streams, ending, gathered, lifetime, packets, restore, send,
    stored as mqtt_stored,
};
use crate::owners::Owners;
use crate::owners::conn::Conn;
use crate::owners::pending::FrontPending;
use crate::owners::session::Session;
use crate::owners::timers::Timer;
use crate::queues::calls::Call;
use crate::queues::nodes;

/// What both sides agree on for AMQP 1.0: its ALPN name and WebSocket subprotocol.
const AMQP: &str = "amqp";

/// Likewise for MQTT.
const MQTT: &str = "mqtt";

/// A connection was opened.
pub(crate) fn handle_opened(own: &mut Owners, conn: ConnId, peer: Peer) {
    let alone = cfg!(not(feature = "mqtt"));
    match (alone || *peer.protocol == *AMQP, peer.transport) {
        #[cfg(feature = "amqp")]
        (true, Transport::Quic) => streams::handle_opened(own, conn, peer),
        #[cfg(feature = "amqp")]
        (true, _) => events::handle_opened(own, conn, peer),
        #[cfg(feature = "mqtt")]
        _ => packets::handle_opened(own, conn, peer),
        #[cfg(not(feature = "mqtt"))]
        _ => {}
    }
}

/// Something happened on a connection whose session is here.
pub(crate) fn handle_event<B: AsRef<[u8]>>(own: &mut Owners, c: ConnIdx, event: NetEventKind<B>) {
    #[cfg(all(feature = "mqtt", feature = "amqp"))]
    if let NetEventKind::Bytes { data, .. } = &event {
        choose(own, c, data.as_ref());
    }
    match own.conns.get(c) {
        #[cfg(feature = "mqtt")]
        Some(Conn::Mqtt(_)) => packets::handle_event(own, c, event),
        #[cfg(feature = "amqp")]
        Some(Conn::Amqp(_)) => events::handle_event(own, c, event),
        #[cfg(feature = "amqp")]
        Some(Conn::Carrier(_)) => streams::handle_event(own, c, event),
        None => {}
    }
}

/// Where nothing was agreed on, the first byte of a connection says what it
/// speaks: the header of AMQP begins with its name, which no CONNECT does.
#[cfg(all(feature = "mqtt", feature = "amqp"))]
fn choose(own: &mut Owners, c: ConnIdx, data: &[u8]) {
    let Some(Conn::Mqtt(conn)) = own.conns.get_mut(c) else {
        return;
    };
    // One that is on its way out stays what it is.
    let is_new = conn.peer.protocol.is_empty() && matches!(conn.phase, Phase::ExpectConnect);
    let Some(first) = data.first().filter(|_| is_new) else {
        return;
    };
    if *first != b'A' {
        conn.peer.protocol = Text::from_static(MQTT);
        return;
    }
    let mut peer = conn.peer.clone();
    peer.protocol = Text::from_static(AMQP);
    let (id, weight, charge) = (conn.id, conn.weight, conn.charge.take());
    own.timers.cancel(Timer::Conn(id), &mut conn.alarm);
    own.count_out_conn(weight, charge);
    own.conns.remove(c);
    own.stats.connections -= 1;
    events::handle_chosen(own, id, peer);
}

/// A connection is gone whose session is on another shard.
pub(crate) fn handle_gone(own: &mut Owners, c: ConnIdx) {
    #[cfg(feature = "mqtt")]
    ending::remove_conn(own, c);
}

/// The authenticator answered.
pub(crate) fn handle_auth_answer(own: &mut Owners, c: ConnIdx, answer: AuthAnswer) {
    match own.conns.get(c) {
        #[cfg(feature = "mqtt")]
        Some(Conn::Mqtt(_)) => authenticate::handle_auth_answer(own, c, answer),
        #[cfg(feature = "amqp")]
        Some(Conn::Amqp(_)) => {
            let phase = own.conns.peek_amqp(c).map(|conn| conn.phase);
            match phase == Some(AmqpPhase::Authenticating) {
                true => sasl::handle_answer(own, c, answer),
                false => requests::handle_verified(own, c, answer),
            }
            events::drive(own, c, &[]);
        }
        _ => {}
    }
}

/// A deadline of the connection may have passed.
pub(crate) fn check_silence(own: &mut Owners, c: ConnIdx) {
    match own.conns.get(c) {
        #[cfg(feature = "mqtt")]
        Some(Conn::Mqtt(_)) => ending::check_silence(own, c),
        #[cfg(feature = "amqp")]
        Some(Conn::Amqp(_)) => events::check_deadline(own, c),
        #[cfg(feature = "amqp")]
        Some(Conn::Carrier(_)) => carried::check_idle(own, c),
        None => {}
    }
}

/// A deadline of the session may have passed.
pub(crate) fn check_session(own: &mut Owners, s: SessionIdx) {
    match own.sessions.get(s) {
        #[cfg(feature = "mqtt")]
        Some(Session::Mqtt(_)) => lifetime::check_session(own, s),
        Some(Session::Node(_)) => nodes::check_time(own, s),
        #[cfg(feature = "amqp")]
        Some(Session::Amqp(_)) => transactions::check_expiry(own, s),
        None => {}
    }
}

/// Ends what a session that does not keep up hangs on, unless it has ended
/// meanwhile: a connection of MQTT, one link of AMQP.
pub(crate) fn fall_behind(own: &mut Owners, session: SessionRef) {
    const TEXT: &str = "the client does not keep up";
    match own
        .sessions
        .resolve(session)
        .and_then(|s| own.sessions.get(s))
    {
        #[cfg(feature = "mqtt")]
        Some(Session::Mqtt(session)) => {
            if let Some(c) = session.conn {
                fail(own, c, TEXT);
            }
        }
        #[cfg(feature = "amqp")]
        Some(Session::Amqp(_)) => links::detach(own, session, TEXT),
        // No client is at the other end of it.
        Some(Session::Node(_)) | None => {}
    }
}

/// A publish of a client cannot be kept, and it cannot be said.
pub(crate) fn cut_off(own: &mut Owners, c: ConnIdx) {
    #[cfg(feature = "mqtt")]
    fail(own, c, "the publish cannot be kept");
}

/// Ends a connection of MQTT, unless it has ended meanwhile.
#[cfg(feature = "mqtt")]
fn fail(own: &mut Owners, c: ConnIdx, text: &'static str) {
    let conn = own.conns.peek_mqtt(c);
    if conn.is_some_and(|conn| conn.session().is_some()) {
        ending::fail(own, c, NoRoom { text }.into());
    }
}

/// The client of a connection may not be here any longer.
pub(crate) fn revoke(own: &mut Owners, c: ConnIdx, cause: &'static str) {
    match own.conns.get(c) {
        #[cfg(feature = "mqtt")]
        Some(Conn::Mqtt(_)) => ending::disconnect(own, c, ReasonCode::NotAuthorized),
        #[cfg(feature = "amqp")]
        Some(Conn::Amqp(_)) => events::close(own, c, condition::UNAUTHORIZED_ACCESS, cause),
        #[cfg(feature = "amqp")]
        Some(Conn::Carrier(_)) => carried::forget_proved(own, c),
        None => {}
    }
}

/// An operator ends a session.
pub(crate) fn end_session(own: &mut Owners, s: SessionIdx) {
    #[cfg(feature = "mqtt")]
    lifetime::end_session(own, s);
}

/// An operator ends a connection.
pub(crate) fn end(own: &mut Owners, c: ConnIdx, ending: &Ending) {
    let Some(conn) = own.conns.get(c) else {
        return;
    };
    let who = conn.session().and_then(|s| own.sessions.peek(s));
    let who = who.map(|session| session.client_id.clone());
    let who = who.or_else(|| conn.who().map(|who| who.client_id.clone()));
    let event = Event::Ended {
        conn: conn.id,
        client_id: who.unwrap_or_default(),
        why: ending.why.clone(),
    };
    own.outbox.event(event);
    own.stats.connections_ended += 1;
    force(own, c, ending);
}

/// Ends a connection and says why.
pub(crate) fn force(own: &mut Owners, c: ConnIdx, ending: &Ending) {
    match own.conns.peek(c) {
        #[cfg(feature = "mqtt")]
        Some(Conn::Mqtt(_)) => ending::end(own, c, ending),
        #[cfg(feature = "amqp")]
        Some(Conn::Amqp(_)) => {
            let condition = match ending.kind {
                EndingKind::Banned => condition::UNAUTHORIZED_ACCESS,
                _ => condition::CONNECTION_FORCED,
            };
            events::close(own, c, condition, &ending.why);
        }
        // Its streams are ended one by one.
        #[cfg(feature = "amqp")]
        Some(Conn::Carrier(_)) => {}
        None => {}
    }
}

/// The rules have changed for a session, whose subscriptions follow them already.
pub(crate) fn recheck(own: &mut Owners, s: SessionIdx) {
    #[cfg(feature = "amqp")]
    if let Some(Session::Amqp(_)) = own.sessions.peek(s) {
        amqp_nodes::recheck(own, s);
    }
}

/// Handles what came before the client was accepted.
pub(crate) fn unpark(own: &mut Owners, c: ConnIdx) {
    match own.conns.peek(c) {
        #[cfg(feature = "mqtt")]
        Some(Conn::Mqtt(_)) => packets::unpark(own, c),
        #[cfg(feature = "amqp")]
        Some(Conn::Amqp(_)) => events::drive(own, c, &[]),
        _ => {}
    }
}

/// Connections that wait for an identity that they inherit may know it now.
pub(crate) fn inherit(own: &mut Owners, c: ConnIdx) {
    #[cfg(feature = "amqp")]
    streams::go_on(own, c);
}

/// Ends a data stream if nothing is due on it any more.
pub(crate) fn end_stream(own: &mut Owners, c: ConnIdx, stream: StreamId) {
    #[cfg(feature = "mqtt")]
    data_streams::end_if_answered(own, c, stream);
}

/// Hands the bytes of a connection to its transport.
pub(crate) fn flush(own: &mut Owners, c: ConnIdx) {
    // It may have gone since it was marked.
    match own.conns.peek(c) {
        #[cfg(feature = "mqtt")]
        Some(Conn::Mqtt(_)) => send::flush(own, c),
        #[cfg(feature = "amqp")]
        Some(Conn::Amqp(_)) => events::flush(own, c),
        _ => {}
    }
}

/// The server stops.
pub(crate) fn shut_down(own: &mut Owners, c: ConnIdx) {
    match own.conns.get(c) {
        #[cfg(feature = "mqtt")]
        Some(Conn::Mqtt(_)) => ending::disconnect(own, c, ReasonCode::ServerShuttingDown),
        #[cfg(feature = "amqp")]
        Some(Conn::Amqp(_)) => {
            let text = "the server shuts down";
            events::close(own, c, condition::CONNECTION_FORCED, text);
        }
        #[cfg(feature = "amqp")]
        Some(Conn::Carrier(_)) => carried::remind(own, c),
        None => {}
    }
}

/// Takes over the sessions of clients that the store kept.
pub(crate) fn restore_sessions(own: &mut Owners, sessions: &[&RecoveredSession]) {
    #[cfg(feature = "mqtt")]
    restore::restore(own, sessions);
}

/// The store has what some work waited for, or has refused it.
pub(crate) fn handle_done(own: &mut Owners, token: u64, pending: FrontPending, stored: bool) {
    match pending {
        #[cfg(feature = "mqtt")]
        FrontPending::Mqtt(pending) => mqtt_stored::handle_done(own, token, pending, stored),
        // It waits for other shards only.
        #[cfg(feature = "amqp")]
        FrontPending::Amqp(_) => {}
    }
}

/// Asks the store again for what it has refused.
pub(crate) fn retry(own: &mut Owners, pending: FrontPending) {
    match pending {
        #[cfg(feature = "mqtt")]
        FrontPending::Mqtt(pending) => mqtt_stored::retry(own, pending),
        #[cfg(feature = "amqp")]
        FrontPending::Amqp(_) => {}
    }
}

/// Another shard knows what changed for it.
pub(crate) fn handle_noted(own: &mut Owners, token: u64, pending: FrontPending) {
    match pending {
        #[cfg(feature = "mqtt")]
        FrontPending::Mqtt(pending) => mqtt_stored::handle_noted(own, token, pending),
        #[cfg(feature = "amqp")]
        FrontPending::Amqp(pending) => links::advance_attach(own, token, pending),
    }
}

/// What another shard says of client identifiers.
pub(crate) fn handle_claims(own: &mut Owners, from: ShardId, message: BusMessage) {
    #[cfg(feature = "mqtt")]
    claims::handle_bus(own, from, message);
}

/// Another shard is gone, with the sessions there whose client identifiers are granted
/// here.
pub(crate) fn handle_shard_gone(own: &mut Owners, shard: ShardId) {
    #[cfg(feature = "mqtt")]
    claims::handle_gone(own, shard);
}

/// Whether a connection cannot go on without a home that has another store than this one.
pub(crate) fn depends_on(own: &Owners, c: ConnIdx, home: ShardId) -> bool {
    match own.conns.peek(c) {
        #[cfg(feature = "mqtt")]
        Some(Conn::Mqtt(_)) => claims::depends_on(own, c, home),
        // It may have links to nodes there.
        #[cfg(feature = "amqp")]
        Some(Conn::Amqp(_) | Conn::Carrier(_)) => true,
        None => false,
    }
}

/// Another shard has something done on a connection of this one.
pub(crate) fn note_command(own: &mut Owners, command: &NetCommand) {
    #[cfg(feature = "mqtt")]
    if matches!(command.kind, NetCommandKind::Send { .. })
        && let Some(c) = own.conns.find(command.conn)
        && let Some(Conn::Mqtt(conn)) = own.conns.get_mut(c)
    {
        conn.answered = true;
    }
}

/// Messages of another shard, gathered in the form of their protocol.
pub(crate) fn handle_messages(own: &mut Owners, from: ShardId, messages: &[u8]) {
    #[cfg(feature = "mqtt")]
    gathered::handle_messages(own, from, messages);
}

/// What a node says to a link of this shard.
pub(crate) fn handle_call(own: &mut Owners, from: ShardId, call: Call) {
    #[cfg(feature = "amqp")]
    match call {
        Call::Answered {
            link,
            number,
            answer,
        } => requests::answered(own, link, number, *answer),
        Call::Granted {
            link,
            serial,
            outcomes,
        } => links::granted(own, link, serial, &outcomes),
        Call::Stolen { link } => links::stolen(own, link),
        call => amqp_nodes::handle_call(own, from, call),
    }
}
