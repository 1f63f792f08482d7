//! From bytes to events of the engine, and from the engine's bytes to the
//! transport; the end of a connection.

use dunlin_amqp::codec::{Error, Symbol, condition};
use dunlin_amqp::{Event as EngineEvent, LinkId, SessionId};
use dunlin_base::transport::{CloseCause, NetCommandKind, NetEventKind, Peer};
use dunlin_base::{ConnId, SendBuf, Text};

use crate::amqp::carried::{self, NO_ERROR, OVERLOADED};
use crate::amqp::state::{AmqpConn, AmqpPhase};
use crate::amqp::{
    access, enlisting, incoming, links, outgoing, quota, resuming, sasl, taking, transactions,
};
use crate::ids::ConnIdx;
use crate::io::Event;
use crate::messages::throttle;
use crate::owners::common::Standing;
use crate::owners::conn::Conn;
use crate::owners::timers::{Timer, Timers};
use crate::owners::{Later, Owners};

/// A connection was opened whose protocol is AMQP.
pub(crate) fn handle_opened(own: &mut Owners, id: ConnId, peer: Peer) {
    let over = own.conns.len() >= own.config.clients.connections_max || own.shutting_down;
    let c = insert(own, id, peer);
    match over {
        true => close_transport(own, c, OVERLOADED),
        false => remind(own, c),
    }
}

/// A connection that was let in turns out to speak AMQP.
pub(crate) fn handle_chosen(own: &mut Owners, id: ConnId, peer: Peer) {
    let c = insert(own, id, peer);
    remind(own, c);
}

fn insert(own: &mut Owners, id: ConnId, peer: Peer) -> ConnIdx {
    own.stats.connections += 1;
    let policy = own.policy(peer.listener);
    let engine = access::engine(&own.config, policy, &peer, false, own.now);
    let entry = AmqpConn::new(id, peer, engine, None);
    let entry = alloc::boxed::Box::new(entry);
    own.conns.insert(Conn::Amqp(entry))
}

/// Something happened on the connection.
pub(crate) fn handle_event<B: AsRef<[u8]>>(own: &mut Owners, c: ConnIdx, event: NetEventKind<B>) {
    match event {
        NetEventKind::Bytes { data, .. } => {
            let data = data.as_ref();
            own.stats.bytes_received += data.len() as u64;
            drive(own, c, data);
            pace(own, c, data.len());
        }
        NetEventKind::Sent { bytes, .. } => handle_sent(own, c, bytes),
        NetEventKind::ChannelBinding { data } => sasl::handle_binding(own, c, data),
        NetEventKind::StreamFinished { .. } | NetEventKind::StreamReset { .. } => {
            end(own, c);
            close_transport(own, c, NO_ERROR);
        }
        NetEventKind::Closed { cause } => handle_closed(own, c, &cause),
        // The rest has no effect on a byte stream.
        _ => {}
    }
}

/// Gives bytes to the engine and does what its events say.
pub(crate) fn drive(own: &mut Owners, c: ConnIdx, mut data: &[u8]) {
    let now = own.now;
    let phase = own.conns.peek_amqp(c).map(|conn| conn.phase);
    if phase == Some(AmqpPhase::Closing) {
        data = &[];
    }
    loop {
        let Some(conn) = own.conns.peek_amqp_mut(c) else {
            return;
        };
        let Some(event) = conn.engine.poll_event(now, &mut data) else {
            break;
        };
        handle(own, c, event);
    }
    own.conns.touch(c);
    bound(own, c);
    remind(own, c);
}

/// Holds up a client that sends too fast, or closes it.
pub(super) fn pace(own: &mut Owners, c: ConnIdx, bytes: usize) {
    if let Some((text, ends)) = quota::check(own, c, bytes) {
        for c in ends {
            close(own, c, condition::RESOURCE_LIMIT_EXCEEDED, text);
        }
    }
}

/// Ends a connection that has begun more than there is room for.
fn bound(own: &mut Owners, c: ConnIdx) {
    let phase = own.conns.peek_amqp(c).map(|conn| conn.phase);
    if phase.is_none_or(|phase| phase == AmqpPhase::Closing) {
        return;
    }
    if own.weigh_input(c).is_ok() && !carried::is_over_bytes(own, c) {
        return;
    }
    let text = "no memory for what has not come whole, or is not taken";
    close(own, c, condition::RESOURCE_LIMIT_EXCEEDED, text);
}

fn handle(own: &mut Owners, c: ConnIdx, event: EngineEvent<'_>) {
    match event {
        EngineEvent::SaslInit {
            mechanism,
            response,
            ..
        } => sasl::handle_init(own, c, &mechanism, response.as_ref()),
        EngineEvent::SaslResponse(response) => sasl::handle_response(own, c, &response),
        EngineEvent::Opened(body) => access::handle_open(own, c, &body),
        EngineEvent::Begun { session, .. } => carried::handle_begun(own, c, session),
        EngineEvent::Attach {
            link,
            session,
            attach,
            steals,
        } => links::handle_attach(own, c, (link, session), attach, steals),
        EngineEvent::Ended { session, .. } => resuming::expire(own, c, Some(session)),
        EngineEvent::Detached {
            link,
            closed,
            error,
        } => {
            quota::note_detached(own, error.as_ref());
            links::handle_detached(own, c, link, closed);
        }
        EngineEvent::Credit { link, drain, .. } => match taking::find(own, c, link) {
            Some(s) => taking::handle_credit(own, s, drain),
            None => outgoing::handle_credit(own, c, link, drain),
        },
        EngineEvent::Message(message) => incoming::handle_message(own, c, message),
        EngineEvent::Aborted { link, tag } => incoming::handle_aborted(own, c, link, tag),
        EngineEvent::Void { link } => incoming::handle_void(own, c, link),
        EngineEvent::Demand { delivery, demand } => {
            transactions::handle_demand(own, c, delivery, &demand);
        }
        EngineEvent::Disposition {
            delivery,
            tag,
            state,
            settled,
        } => {
            let said = state.as_ref();
            if enlisting::handle_disposition(own, c, delivery, tag, said, settled) {
                return;
            }
            match taking::find(own, c, delivery.link) {
                Some(s) => taking::handle_disposition(own, s, delivery, tag, state, settled),
                None => outgoing::handle_disposition(own, c, delivery, tag, said, settled),
            }
        }
        EngineEvent::WindowOpen { session } => pump_window(own, c, session),
        EngineEvent::Closed { error, .. } => {
            let cause = error.as_ref().map(|error| error.get());
            let cause = cause.and_then(|error| error.description.map(Text::from));
            let cause = cause.unwrap_or(Text::from_static("closed"));
            report_end(own, c, cause);
            close_transport(own, c, NO_ERROR);
        }
        // What is left concerns the client's side, or the engine has answered it.
        _ => {}
    }
}

/// Sends what waits for the window of a session, until it is closed again.
fn pump_window(own: &mut Owners, c: ConnIdx, session: SessionId) {
    while let Some(conn) = own.conns.amqp_mut(c) {
        if conn.blocked {
            return conn.waiting.wait_on(session);
        }
        let Some(link) = conn.waiting.next_of_window(session) else {
            return;
        };
        pump_link(own, c, link);
        let conn = own.conns.peek_amqp(c);
        if conn.is_none_or(|conn| conn.waiting.waits_for_window(link)) {
            return;
        }
    }
}

/// Sends what waits for the transport, until that takes nothing again.
fn pump_transport(own: &mut Owners, c: ConnIdx) {
    while let Some(conn) = own.conns.amqp_mut(c).filter(|conn| !conn.blocked) {
        let Some(link) = conn.waiting.next_of_transport() else {
            return;
        };
        pump_link(own, c, link);
    }
}

fn pump_link(own: &mut Owners, c: ConnIdx, link: LinkId) {
    let conn = own.conns.amqp_mut(c);
    let Some(s) = conn.and_then(|conn| conn.links.get(&link).copied()) else {
        return own.outbox.note_missing();
    };
    #[cfg(test)]
    own.conns.note_search();
    match taking::is_taking(own, s) {
        true => taking::pump(own, s),
        false => outgoing::pump(own, s),
    }
}

/// Bytes left the transport: what waited for them may go on.
pub(super) fn handle_sent(own: &mut Owners, c: ConnIdx, bytes: usize) {
    let Some(conn) = own.conns.amqp_mut(c) else {
        return;
    };
    conn.given = conn.given.saturating_sub(bytes);
    let low = own
        .budget
        .unsent_limit(own.config.sending.send_backlog_bytes / 2);
    if conn.blocked && conn.backlog() <= low {
        conn.blocked = false;
        pump_transport(own, c);
    }
    own.weigh_conn(c);
    throttle::release_publishers(own, c);
}

/// Hands the engine's bytes to the transport.
pub(crate) fn flush(own: &mut Owners, c: ConnIdx) {
    let now = own.now;
    let Some(conn) = own.conns.peek_amqp_mut(c) else {
        return;
    };
    conn.dirty = false;
    conn.written = 0;
    let mut data = SendBuf::new();
    conn.engine.poll_output(now, &mut data);
    let (id, stream) = conn.place();
    if !data.is_empty() {
        conn.given += data.len();
        own.stats.bytes_sent += data.len() as u64;
        own.outbox
            .command(id, NetCommandKind::Send { stream, data });
    }
    own.weigh_conn(c);
    remind(own, c);
}

/// A deadline of the engine may have passed.
pub(crate) fn check_deadline(own: &mut Owners, c: ConnIdx) {
    let now = own.now;
    let Some(conn) = own.conns.amqp_mut(c) else {
        return;
    };
    Timers::came(&mut conn.alarm);
    if conn.phase == AmqpPhase::Closing && conn.carried.is_some() {
        return reset(own, c);
    }
    if conn.engine.deadline().is_some_and(|due| due <= now) {
        conn.engine.on_deadline(now);
    }
    if conn.identity.expires.take_if(|at| *at <= now).is_some() {
        let text = match conn.identity.standing {
            Standing::Unproved => access::refuse_silent(own, c),
            _ => "the token of the client has expired",
        };
        return close(own, c, condition::UNAUTHORIZED_ACCESS, text);
    }
    drive(own, c, &[]);
}

/// Sets the reminder of the next deadline.
fn remind(own: &mut Owners, c: ConnIdx) {
    let Some(conn) = own.conns.peek_amqp_mut(c) else {
        return;
    };
    let timer = Timer::Conn(conn.id);
    let dues = [conn.engine.deadline(), conn.identity.expires];
    if let Some(due) = dues.into_iter().flatten().min()
        && conn.phase != AmqpPhase::Closing
    {
        own.timers.remind(due, timer, &mut conn.alarm);
    }
}

/// Closes a connection with an error.
pub(crate) fn close(own: &mut Owners, c: ConnIdx, condition: Symbol<'static>, text: &str) {
    let now = own.now;
    if let Some(conn) = own.conns.amqp_mut(c) {
        let error = Error::new(condition, text);
        if conn.engine.close(now, Some(&error)).is_err() {
            return close_transport(own, c, NO_ERROR);
        }
        drive(own, c, &[]);
    }
}

/// The transport is gone, or as good as: links end.
pub(super) fn end(own: &mut Owners, c: ConnIdx) {
    if let Some(conn) = own.conns.amqp_mut(c) {
        conn.engine.handle_closed();
        drive(own, c, &[]);
    }
}

pub(super) fn handle_closed(own: &mut Owners, c: ConnIdx, cause: &CloseCause) {
    report_end(own, c, Text::from(alloc::format!("{cause}")));
    if let Some(conn) = own.conns.amqp_mut(c) {
        conn.phase = AmqpPhase::Closing;
    }
    end(own, c);
    resuming::expire(own, c, None);
    forget(own, c);
}

/// Takes a connection that has ended out of the tables.
pub(super) fn forget(own: &mut Owners, c: ConnIdx) {
    throttle::release_all(own, c);
    if let Some(mut conn) = own.conns.remove(c) {
        own.count_out_conn(conn.weight, conn.charge.take());
        let timer = Timer::Conn(conn.id);
        own.timers.cancel(timer, &mut conn.alarm);
        if let Some(carried) = conn.amqp().and_then(|conn| conn.carried) {
            carried::leave(own, carried);
        }
    }
}

/// A stream whose connection has ended is abandoned, both ways.
pub(super) fn reset(own: &mut Owners, c: ConnIdx) {
    let conn = own.conns.amqp(c);
    if let Some((conn, stream)) = conn.map(AmqpConn::place) {
        let code = NO_ERROR;
        own.outbox
            .command(conn, NetCommandKind::ResetStream { stream, code });
        forget(own, c);
    }
}

/// Says in the log that a connection ends, once.
fn report_end(own: &mut Owners, c: ConnIdx, cause: Text) {
    if let Some(conn) = own.conns.amqp_mut(c)
        && conn.phase != AmqpPhase::Closing
    {
        let client_id = conn.who.as_ref().map(|who| who.client_id.clone());
        let (conn, _) = conn.place();
        own.outbox.event(Event::Disconnected {
            conn,
            client_id,
            cause,
        });
    }
}

/// Sends what is waiting and closes.
pub(super) fn close_transport(own: &mut Owners, c: ConnIdx, code: u64) {
    flush(own, c);
    let due = own.now + carried::CLOSE_TIME_OUT;
    let Some(conn) = own.conns.amqp_mut(c) else {
        return;
    };
    if core::mem::replace(&mut conn.phase, AmqpPhase::Closing) == AmqpPhase::Closing {
        return;
    }
    let (at, stream) = conn.place();
    if let Some(carried) = conn.carried {
        // Streams that wait for its identity do so in vain.
        own.later.push_back(Later::Inherit(carried.by));
        let timer = Timer::Conn(conn.id);
        own.timers.cancel(timer, &mut conn.alarm);
        own.timers.remind(due, timer, &mut conn.alarm);
        own.outbox
            .command(at, NetCommandKind::FinishStream { stream });
    } else {
        let promptly = false;
        own.outbox
            .command(at, NetCommandKind::Close { code, promptly });
    }
}
