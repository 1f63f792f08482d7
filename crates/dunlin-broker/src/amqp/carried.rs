//! What the connections on the streams of one QUIC connection have in common: the
//! identity that later ones inherit, what all of them together may take, and the
//! end of the QUIC connection after the last.

use alloc::vec::Vec;
use core::time::Duration;

use dunlin_amqp::SessionId;
use dunlin_amqp::codec::{Error, condition};
use dunlin_base::transport::NetCommandKind;

use crate::amqp::carrier::{Carried, Carrier, Proved};
use crate::amqp::state::{AmqpConn, AmqpPhase};
use crate::ids::ConnIdx;
use crate::io::AccessKind;
use crate::owners::common::Standing;
use crate::owners::conn::Conn;
use crate::owners::timers::{Timer, Timers};
use crate::owners::{Later, Owners};
use crate::reports::audit;

/// QUIC application error code of a connection or stream that ends as it should.
pub(super) const NO_ERROR: u64 = 0;

/// QUIC application error code where the server has no room.
pub(super) const OVERLOADED: u64 = 2;

/// Links of all connections of one QUIC connection.
const LINKS_MAX: usize = 1024;

/// Sessions of all connections of one QUIC connection.
const SESSIONS_MAX: usize = 256;

/// Exchanges of SASL on the streams of one QUIC connection whose client has proved
/// nothing: as many questions to the authenticator.
const EXCHANGES_MAX: u32 = 16;

/// Time for the client to end its side of a stream whose connection is closed;
/// the stream is reset.
pub(super) const CLOSE_TIME_OUT: Duration = Duration::from_secs(5);

/// Time that a QUIC connection without a stream stands.
const IDLE_MAX: Duration = Duration::from_secs(10);

/// What an earlier stream says of who the client is.
#[derive(Debug)]
pub(super) enum Inherited {
    /// This.
    Proved(Proved),
    /// One is being asked.
    Undecided,
    /// There is none, or it came to nothing.
    Nothing,
}

/// The connections of a QUIC connection.
pub(super) fn streams_of(carrier: &Carrier) -> Vec<ConnIdx> {
    carrier.streams.values().copied().collect()
}

/// What earlier streams say of the client of this one.
pub(super) fn inherited(own: &Owners, c: ConnIdx) -> Inherited {
    let carried = own.conns.amqp(c).and_then(|conn| conn.carried);
    let Some(carried) = carried else {
        return Inherited::Nothing;
    };
    let carrier = own.conns.peek(carried.by).and_then(Conn::carrier);
    let Some(carrier) = own.conns.checked(carrier) else {
        return Inherited::Nothing;
    };
    if let Some(proved) = &carrier.proved {
        return match proved.is_over(own.now) {
            true => Inherited::Nothing,
            false => Inherited::Proved(proved.clone()),
        };
    }
    let mut earlier = carrier.streams.range(..carried.stream);
    let is_open = |at: ConnIdx| own.conns.amqp(at).is_some_and(is_undecided);
    match earlier.any(|(_, at)| is_open(*at)) {
        true => Inherited::Undecided,
        false => Inherited::Nothing,
    }
}

fn is_undecided(conn: &AmqpConn) -> bool {
    match conn.phase {
        AmqpPhase::Opening | AmqpPhase::Authenticating | AmqpPhase::Waiting => true,
        AmqpPhase::Authenticated(_) | AmqpPhase::Open => {
            conn.identity.standing == Standing::Unproved
        }
        AmqpPhase::Closing => false,
    }
}

/// A stream waits until an earlier one says who the client is.
pub(super) fn wait(own: &mut Owners, c: ConnIdx) {
    own.pause(c, true);
    if let Some(conn) = own.conns.amqp_mut(c) {
        conn.phase = AmqpPhase::Waiting;
    }
}

/// A client has proved who it is, on a stream or not: later streams inherit it.
pub(super) fn note_proved(own: &mut Owners, c: ConnIdx) {
    let Some(conn) = own.conns.amqp(c) else {
        return;
    };
    let (carried, proved) = (conn.carried, Proved::from(&conn.identity));
    let now = own.now;
    if let Some(carried) = carried.filter(|_| proved.standing != Standing::Unproved)
        && let Some(carrier) = own.conns.carrier_mut(carried.by)
        && carrier.proved.as_ref().is_none_or(|it| it.is_over(now))
    {
        carrier.proved = Some(proved);
        carrier.exchanges = 0;
        own.later.push_back(Later::Inherit(carried.by));
    }
}

/// Whether the authenticator may be asked about an exchange of SASL. A QUIC
/// connection whose client tries too often ends.
pub(super) fn admit_exchange(own: &mut Owners, c: ConnIdx) -> bool {
    let now = own.now;
    let Some(carried) = own.conns.amqp(c).and_then(|conn| conn.carried) else {
        return true;
    };
    let carrier = own.conns.carrier_mut(carried.by);
    let Some(carrier) = carrier.filter(|it| it.proved.as_ref().is_none_or(|it| it.is_over(now)))
    else {
        return true;
    };
    if carrier.exchanges < EXCHANGES_MAX {
        carrier.exchanges += 1;
        return true;
    }
    own.stats.clients_refused += 1;
    audit::note(own, c, AccessKind::Refused, "too many attempts");
    close(own, carried.by, OVERLOADED);
    false
}

/// Whether the transport of a connection may have one link more.
pub(super) fn has_room_for_link(own: &Owners, c: ConnIdx) -> bool {
    sum(own, c, |conn| conn.links.len()) < LINKS_MAX
}

/// The client has begun a session: ends it where its transport has too many.
pub(super) fn handle_begun(own: &mut Owners, c: ConnIdx, session: SessionId) {
    if sum(own, c, |conn| conn.engine.sessions()) <= SESSIONS_MAX {
        return;
    }
    if let Some(conn) = own.conns.amqp_mut(c) {
        let text = "too many sessions of the QUIC connection";
        let error = Error::new(condition::RESOURCE_LIMIT_EXCEEDED, text);
        let _ = conn.engine.end(session, Some(&error));
        own.conns.touch(c);
    }
}

/// Whether what has not come whole is more than one connection may have, for
/// all of its transport together.
pub(super) fn is_over_bytes(own: &Owners, c: ConnIdx) -> bool {
    let max = own.config.clients.packet_bytes_max as usize;
    let mine = own.conns.peek_amqp(c);
    let mine = mine.map_or(0, |conn| conn.engine.unfinished_bytes());
    // The frames of one connection come on top, as they do on TCP.
    mine > 0 && sum(own, c, |conn| conn.engine.unfinished_bytes()) > max + FRAMES_BYTES
}

/// Bytes of frames that have not come whole, of all streams together.
const FRAMES_BYTES: usize = 1 << 20;

/// The sum over all connections of the transport of this one; 0 where it is the
/// only one, whose engine has bounds.
fn sum(own: &Owners, c: ConnIdx, of: impl Fn(&AmqpConn) -> usize) -> usize {
    let carried = own.conns.peek_amqp(c).and_then(|conn| conn.carried);
    let carrier = carried.and_then(|at| own.conns.peek(at.by).and_then(Conn::carrier));
    let streams = carrier.into_iter().flat_map(|it| it.streams.values());
    let conns = streams.filter_map(|at| own.conns.peek_amqp(*at));
    conns.map(of).sum()
}

/// A stream is over. After the last one the QUIC connection stands for a while.
pub(super) fn leave(own: &mut Owners, carried: Carried) {
    let Carried { by, stream, .. } = carried;
    // It may be gone itself.
    let carrier = own.conns.peek_mut(by).and_then(Conn::carrier_mut);
    if let Some(carrier) = carrier {
        carrier.streams.remove(&stream);
        remind(own, by);
        own.later.push_back(Later::Inherit(by));
    }
}

/// Ends the QUIC connection, and what streams it has.
pub(crate) fn close(own: &mut Owners, c: ConnIdx, code: u64) {
    let Some(carrier) = own.conns.carrier_mut(c) else {
        return;
    };
    if !core::mem::replace(&mut carrier.closing, true) {
        let (conn, promptly) = (carrier.id, false);
        own.outbox
            .command(conn, NetCommandKind::Close { code, promptly });
    }
}

/// What was proved holds no longer, for streams to come.
pub(crate) fn forget_proved(own: &mut Owners, c: ConnIdx) {
    close(own, c, NO_ERROR);
}

/// A QUIC connection without streams stands for a while, unless the server stops.
pub(crate) fn remind(own: &mut Owners, c: ConnIdx) {
    let (now, shutting_down) = (own.now, own.shutting_down);
    let Some(carrier) = own.conns.carrier_mut(c) else {
        return;
    };
    if !carrier.streams.is_empty() || carrier.closing {
        return;
    }
    if shutting_down {
        return close(own, c, NO_ERROR);
    }
    carrier.idle_until = now + IDLE_MAX;
    let (due, timer) = (carrier.idle_until, Timer::Conn(carrier.id));
    own.timers.remind(due, timer, &mut carrier.alarm);
}

/// It may have been without a stream for long enough.
pub(crate) fn check_idle(own: &mut Owners, c: ConnIdx) {
    let now = own.now;
    let Some(carrier) = own.conns.carrier_mut(c) else {
        return;
    };
    Timers::came(&mut carrier.alarm);
    if !carrier.streams.is_empty() || carrier.closing {
        return;
    }
    match carrier.idle_until <= now {
        true => close(own, c, NO_ERROR),
        false => {
            let (due, timer) = (carrier.idle_until, Timer::Conn(carrier.id));
            own.timers.remind(due, timer, &mut carrier.alarm);
        }
    }
}
