//! AMQP over QUIC: each bidirectional stream that the client opens is a connection
//! of its own.

use alloc::boxed::Box;

use dunlin_base::transport::{CloseCause, NetCommandKind, NetEventKind, Peer};
use dunlin_base::{ConnId, StreamId};

use crate::amqp::carried::{self, streams_of};
use crate::amqp::carrier::{Carried, Carrier};
use crate::amqp::state::{AmqpConn, AmqpPhase};
use crate::amqp::{access, events, sasl};
use crate::ids::ConnIdx;
use crate::io::Event;
use crate::owners::Owners;
use crate::owners::conn::Conn;
use crate::owners::timers::Timer;

/// A QUIC connection was opened.
pub(crate) fn handle_opened(own: &mut Owners, id: ConnId, peer: Peer) {
    own.stats.connections += 1;
    let is_over = own.conns.len() >= own.config.clients.connections_max || own.shutting_down;
    let entry = Carrier::new(id, peer);
    let c = own.conns.insert(Conn::Carrier(Box::new(entry)));
    match is_over {
        true => carried::close(own, c, carried::OVERLOADED),
        false => carried::remind(own, c),
    }
}

/// Something happened on it.
pub(crate) fn handle_event<B: AsRef<[u8]>>(own: &mut Owners, c: ConnIdx, event: NetEventKind<B>) {
    let Some(carrier) = own.conns.carrier_mut(c) else {
        return;
    };
    let of = |stream: StreamId| carrier.streams.get(&stream).copied();
    match event {
        NetEventKind::Bytes { stream, data } => {
            let known = of(stream);
            let Some(at) = known.or_else(|| begin(own, c, stream)) else {
                return;
            };
            let data = data.as_ref();
            own.stats.bytes_received += data.len() as u64;
            events::drive(own, at, data);
            events::pace(own, at, data.len());
        }
        NetEventKind::Sent { stream, bytes } => {
            if let Some(at) = of(stream) {
                events::handle_sent(own, at, bytes);
            }
        }
        NetEventKind::StreamFinished { stream } => {
            if let Some(at) = of(stream) {
                events::end(own, at);
                events::close_transport(own, at, carried::NO_ERROR);
                events::forget(own, at);
            }
        }
        NetEventKind::StreamReset { stream, .. } => {
            if let Some(at) = of(stream) {
                events::end(own, at);
                events::reset(own, at);
            }
        }
        NetEventKind::ChannelBinding { data } => {
            for at in streams_of(carrier) {
                sasl::handle_binding(own, at, data.clone());
            }
        }
        NetEventKind::Closed { cause } => handle_closed(own, c, &cause),
        NetEventKind::Migrated { addr } => {
            carrier.peer.addr = addr;
            let (conn, streams) = (carrier.id, streams_of(carrier));
            for at in streams {
                if let Some(conn) = own.conns.get_mut(at) {
                    conn.peer.addr = addr;
                }
            }
            own.stats.migrations += 1;
            own.outbox.event(Event::Migrated { conn, addr });
        }
        // Early data needs nothing: the ticket that it came with is struck off
        // before, so that there is no second time.
        _ => {}
    }
}

/// The client has opened a stream: a connection.
fn begin(own: &mut Owners, by: ConnIdx, stream: StreamId) -> Option<ConnIdx> {
    let is_full = own.conns.len() >= own.config.clients.connections_max || own.shutting_down;
    let carrier = own.conns.carrier_mut(by)?;
    let (conn, peer) = (carrier.id, carrier.peer.clone());
    let (inherits, closing) = (!carrier.is_first(stream), carrier.closing);
    if !carrier.begin(stream) || is_full || closing {
        let code = carried::OVERLOADED;
        own.outbox
            .command(conn, NetCommandKind::ResetStream { stream, code });
        return None;
    }
    let id = own.conns.next_carried(conn);
    let carried = Carried { by, conn, stream };
    let policy = own.policy(peer.listener);
    let engine = access::engine(&own.config, policy, &peer, inherits, own.now);
    let entry = AmqpConn::new(id, peer, engine, Some(carried));
    let c = own.conns.insert(Conn::Amqp(Box::new(entry)));
    if let Some(carrier) = own.conns.carrier_mut(by) {
        carrier.streams.insert(stream, c);
    }
    Some(c)
}

/// The QUIC connection is gone, and all streams with it.
fn handle_closed(own: &mut Owners, c: ConnIdx, cause: &CloseCause) {
    let Some(mut carrier) = own.conns.remove(c) else {
        return own.outbox.note_missing();
    };
    own.timers
        .cancel(Timer::Conn(carrier.id), &mut carrier.alarm);
    for at in carrier.carrier().map(streams_of).unwrap_or_default() {
        events::handle_closed(own, at, cause);
    }
}

/// Streams that wait may know more now, and the token of others may be gone.
pub(crate) fn go_on(own: &mut Owners, by: ConnIdx) {
    let now = own.now;
    let carrier = own.conns.peek(by).and_then(Conn::carrier);
    for at in carrier.map(streams_of).unwrap_or_default() {
        let Some(conn) = own.conns.peek_amqp_mut(at) else {
            continue;
        };
        if conn.identity.expires.is_some_and(|until| until <= now) {
            events::drive(own, at, &[]);
            continue;
        }
        if conn.phase != AmqpPhase::Waiting {
            continue;
        }
        conn.phase = AmqpPhase::Opening;
        own.pause(at, false);
        match own.conns.amqp_mut(at).and_then(|conn| conn.sasl.take()) {
            Some(sasl) => sasl::resume(own, at, *sasl),
            None => access::decide(own, at),
        }
        events::drive(own, at, &[]);
    }
}
