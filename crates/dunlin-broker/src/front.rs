//! Where what happens to a connection enters the front of its protocol. Shard
//! and bus call these functions and know no protocol.

use dunlin_amqp::codec::condition;
use dunlin_base::transport::{NetEventKind, Peer, Transport};
use dunlin_base::{ConnId, StreamId, Text};
use dunlin_mqtt::codec::ReasonCode;

use crate::amqp::{carried, events, links, sasl, streams};
use crate::auth::AuthAnswer;
use crate::fault::Fault;
use crate::ids::{ConnIdx, SessionRef};
use crate::mqtt::{authenticate, data_streams, ending, packets, send};
use crate::owners::Owners;
use crate::owners::conn::{Conn, Phase};
use crate::owners::session::Session;
use crate::owners::timers::Timer;

/// What both sides agree on for AMQP 1.0: its ALPN name and WebSocket subprotocol.
const AMQP: &str = "amqp";

/// Likewise for MQTT.
const MQTT: &str = "mqtt";

/// A connection was opened.
pub(crate) fn handle_opened(own: &mut Owners, conn: ConnId, peer: Peer) {
    match (*peer.protocol == *AMQP, peer.transport) {
        (true, Transport::Quic) => streams::handle_opened(own, conn, peer),
        (true, _) => events::handle_opened(own, conn, peer),
        (false, _) => packets::handle_opened(own, conn, peer),
    }
}

/// Something happened on a connection whose session is here.
pub(crate) fn handle_event<B: AsRef<[u8]>>(own: &mut Owners, c: ConnIdx, event: NetEventKind<B>) {
    if let NetEventKind::Bytes { data, .. } = &event {
        choose(own, c, data.as_ref());
    }
    match own.conns.get(c) {
        Some(Conn::Mqtt(_)) => packets::handle_event(own, c, event),
        Some(Conn::Amqp(_)) => events::handle_event(own, c, event),
        Some(Conn::Carrier(_)) => streams::handle_event(own, c, event),
        None => {}
    }
}

/// Where nothing was agreed on, the first byte of a connection says what it
/// speaks: the header of AMQP begins with its name, which no CONNECT does.
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
    handle_opened(own, id, peer);
}

/// The authenticator answered.
pub(crate) fn handle_auth_answer(own: &mut Owners, c: ConnIdx, answer: AuthAnswer) {
    match own.conns.get(c) {
        Some(Conn::Mqtt(_)) => authenticate::handle_auth_answer(own, c, answer),
        Some(Conn::Amqp(_)) => {
            sasl::handle_answer(own, c, answer);
            events::drive(own, c, &[]);
        }
        Some(Conn::Carrier(_)) | None => {}
    }
}

/// A deadline of the connection may have passed.
pub(crate) fn check_silence(own: &mut Owners, c: ConnIdx) {
    match own.conns.get(c) {
        Some(Conn::Mqtt(_)) => ending::check_silence(own, c),
        Some(Conn::Amqp(_)) => events::check_deadline(own, c),
        Some(Conn::Carrier(_)) => carried::check_idle(own, c),
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
        Some(Session::Mqtt(session)) => {
            if let Some(c) = session.conn {
                fail(own, c, TEXT);
            }
        }
        Some(Session::Amqp(_)) => links::detach(own, session, TEXT),
        // No client is at the other end of it.
        Some(Session::Node(_)) | None => {}
    }
}

/// A publish of a client cannot be kept, and it cannot be said.
pub(crate) fn cut_off(own: &mut Owners, c: ConnIdx) {
    fail(own, c, "the publish cannot be kept");
}

/// Ends a connection of MQTT, unless it has ended meanwhile.
fn fail(own: &mut Owners, c: ConnIdx, text: &'static str) {
    let conn = own.conns.peek_mqtt(c);
    if conn.is_some_and(|conn| conn.session().is_some()) {
        ending::fail(own, c, Fault::new(ReasonCode::QuotaExceeded, text));
    }
}

/// Handles what came before the client was accepted.
pub(crate) fn unpark(own: &mut Owners, c: ConnIdx) {
    match own.conns.peek(c) {
        Some(Conn::Mqtt(_)) => packets::unpark(own, c),
        Some(Conn::Amqp(_)) => events::drive(own, c, &[]),
        Some(Conn::Carrier(_)) | None => {}
    }
}

/// Connections that wait for an identity that they inherit may know it now.
pub(crate) fn inherit(own: &mut Owners, c: ConnIdx) {
    streams::go_on(own, c);
}

/// Ends a data stream if nothing is due on it any more.
pub(crate) fn end_stream(own: &mut Owners, c: ConnIdx, stream: StreamId) {
    data_streams::end_if_answered(own, c, stream);
}

/// Hands the bytes of a connection to its transport.
pub(crate) fn flush(own: &mut Owners, c: ConnIdx) {
    // It may have gone since it was marked.
    match own.conns.peek(c) {
        Some(Conn::Mqtt(_)) => send::flush(own, c),
        Some(Conn::Amqp(_)) => events::flush(own, c),
        Some(Conn::Carrier(_)) | None => {}
    }
}

/// The server stops.
pub(crate) fn shut_down(own: &mut Owners, c: ConnIdx) {
    match own.conns.get(c) {
        Some(Conn::Mqtt(_)) => ending::disconnect(own, c, ReasonCode::ServerShuttingDown),
        Some(Conn::Amqp(_)) => {
            let text = "the server shuts down";
            events::close(own, c, condition::CONNECTION_FORCED, text);
        }
        Some(Conn::Carrier(_)) => carried::remind(own, c),
        None => {}
    }
}
