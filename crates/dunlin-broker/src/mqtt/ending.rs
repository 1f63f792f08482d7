//! The end of a connection: by the client, by the transport, by a broken rule,
//! by silence.

use dunlin_base::transport::CloseCause;
use dunlin_base::transport::NetCommandKind;
use dunlin_base::{StreamId, Text};
use dunlin_mqtt::close_code;
use dunlin_mqtt::codec::{Disconnect, DisconnectProperties, Packet, ReasonCode, Version};
use dunlin_mqtt::server::connect;
use dunlin_mqtt::server::link::Silence;

use crate::control::values::{Ending, EndingKind};
use crate::ids::{ConnIdx, SessionIdx};
use crate::io::{AccessKind, Event};
use crate::messages::throttle;
use crate::mqtt::conn::Phase;
use crate::mqtt::fault::Fault;
use crate::mqtt::{lifetime, send};
use crate::owners::Owners;
use crate::owners::timers::{Timer, Timers};
use crate::reports::audit;
use crate::sessions::subscriptions;

/// CONNACK with an error, then close.
pub(crate) fn refuse(own: &mut Owners, c: ConnIdx, fault: Fault) {
    audit::note(own, c, AccessKind::Refused, fault.text);
    send_refusal(own, c, fault.reason);
    close(own, c, close_code::NO_ERROR);
}

/// CONNACK for a client that is banned, then close.
pub(crate) fn refuse_banned(own: &mut Owners, c: ConnIdx) {
    refuse(own, c, Fault::new(ReasonCode::Banned, "banned"));
}

/// CONNACK that names another server, then close.
pub(crate) fn redirect(own: &mut Owners, c: ConnIdx, server_reference: &str) {
    audit::note(own, c, AccessKind::Refused, "another server serves it");
    own.stats.clients_refused += 1;
    let connack = connect::redirected(server_reference);
    send::send(own, c, StreamId::CONTROL, &connack);
    close(own, c, close_code::NO_ERROR);
}

/// DISCONNECT from the client.
pub(crate) fn handle_disconnect(
    own: &mut Owners,
    c: ConnIdx,
    s: SessionIdx,
    disconnect: &Disconnect<'_>,
) -> Result<(), Fault> {
    let Some(session) = own.sessions.mqtt_mut(s) else {
        return Ok(());
    };
    let max = own.config.sessions.session_expiry_secs_max;
    if session.mqtt.lifetime.handle_disconnect(disconnect, max)? {
        subscriptions::lifetime_changed(own, s);
    }
    let Some(session) = own.sessions.mqtt_mut(s) else {
        return Ok(());
    };
    let client_id = session.client_id.clone();
    if let Some(conn) = own.conns.mqtt(c).map(|conn| conn.id) {
        own.outbox.event(Event::Disconnected {
            conn,
            client_id: Some(client_id),
            cause: Text::from_static("disconnected by the client"),
        });
    }
    part(own, c);
    Ok(())
}

pub(crate) fn handle_closed(own: &mut Owners, c: ConnIdx, cause: &CloseCause) {
    if let Some(conn) = own.conns.mqtt(c) {
        let (id, session) = (conn.id, conn.session());
        let client_id = session.and_then(|s| Some(own.sessions.mqtt(s)?.client_id.clone()));
        let cause = Text::from(alloc::format!("{cause}"));
        own.outbox.event(Event::Disconnected {
            conn: id,
            client_id,
            cause,
        });
        lifetime::detach(own, c, true);
    }
    remove_conn(own, c);
}

pub(crate) fn remove_conn(own: &mut Owners, c: ConnIdx) {
    throttle::release_all(own, c);
    if let Some(mut conn) = own.conns.remove(c) {
        own.count_out_conn(conn.weight, conn.charge.take());
        let timer = Timer::Conn(conn.id);
        own.timers.cancel(timer, &mut conn.alarm);
    }
}

/// The CONNECT deadline or the keep alive may have passed.
pub(crate) fn check_silence(own: &mut Owners, c: ConnIdx) {
    let now = own.now;
    let Some(conn) = own.conns.mqtt_mut(c) else {
        return;
    };
    Timers::came(&mut conn.alarm);
    let connected = match conn.phase {
        Phase::Connected(_) => true,
        Phase::Closing | Phase::HandedOver(_) => return,
        _ => false,
    };
    let expires = conn.expires();
    if connected && expires.is_some_and(|at| at <= now) {
        return expire(own, c);
    }
    if conn.pace.as_ref().is_some_and(|pace| pace.held) {
        // What it sends is not read.
        conn.link.keep_alive.heard(now);
    }
    match conn.link.keep_alive.handle_deadline(now, connected) {
        Silence::Until(due) => {
            let expires = expires.filter(|_| connected);
            if let Some(due) = due.into_iter().chain(expires).min() {
                let timer = Timer::Conn(conn.id);
                own.timers.remind(due, timer, &mut conn.alarm);
            }
        }
        Silence::TooLong(fault) if conn.session().is_some() => {
            own.stats.keep_alive_timeouts += 1;
            fail(own, c, fault);
        }
        Silence::TooLong(_) => close(own, c, close_code::NO_ERROR),
    }
}

/// What vouched for a client does so no longer.
fn expire(own: &mut Owners, c: ConnIdx) {
    let cause = "the token of the client has expired";
    audit::note(own, c, AccessKind::Revoked, cause);
    let Some(conn) = own.conns.mqtt(c) else {
        return;
    };
    let (id, session) = (conn.id, conn.session());
    let client_id = session.and_then(|s| Some(own.sessions.mqtt(s)?.client_id.clone()));
    own.outbox.event(Event::Disconnected {
        conn: id,
        client_id,
        cause: Text::from_static(cause),
    });
    disconnect(own, c, ReasonCode::NotAuthorized);
}

/// Ends a connection for a broken rule: with the reason code where the
/// protocol has a packet for it.
pub(crate) fn fail(own: &mut Owners, c: ConnIdx, fault: Fault) {
    if fault.reason == ReasonCode::NotAuthorized {
        audit::note(own, c, AccessKind::Refused, fault.text);
    }
    own.stats.protocol_errors += 1;
    let Some(conn) = own.conns.mqtt(c) else {
        return;
    };
    let id = conn.id;
    let session = conn.session();
    let client_id = session.and_then(|s| Some(own.sessions.mqtt(s)?.client_id.clone()));
    own.outbox.event(Event::Disconnected {
        conn: id,
        client_id,
        cause: Text::from_static(fault.text),
    });
    disconnect(own, c, fault.reason);
}

/// Ends a connection whose session goes to another: DISCONNECT with 0x8E.
pub(crate) fn take_over(own: &mut Owners, c: ConnIdx) {
    //= mqtt5#[MQTT-3.1.4-3]
    own.stats.take_overs += 1;
    let cause = "another connection has the client identifier";
    audit::note(own, c, AccessKind::TakenOver, cause);
    disconnect(own, c, ReasonCode::SessionTakenOver);
}

/// Ends a connection for an operator, who says why.
pub(crate) fn end(own: &mut Owners, c: ConnIdx, ending: &Ending) {
    let (reason, server_reference) = match &ending.kind {
        // DISCONNECT has no code for a ban.
        EndingKind::Ordered | EndingKind::Banned => (ReasonCode::AdministrativeAction, None),
        EndingKind::ShuttingDown => (ReasonCode::ServerShuttingDown, None),
        EndingKind::UseAnother(server) => (ReasonCode::UseAnotherServer, Some(&**server)),
        EndingKind::Moved(server) => (ReasonCode::ServerMoved, Some(&**server)),
    };
    let properties = DisconnectProperties {
        reason_string: Some(&*ending.why).filter(|why| !why.is_empty()),
        server_reference,
        ..DisconnectProperties::default()
    };
    say_and_close(own, c, &Disconnect { reason, properties });
}

/// Sends DISCONNECT (or a refusing CONNACK) with a reason, publishes the
/// will, closes.
pub(crate) fn disconnect(own: &mut Owners, c: ConnIdx, reason: ReasonCode) {
    let disconnect = Disconnect {
        reason,
        ..Disconnect::default()
    };
    say_and_close(own, c, &disconnect);
}

fn say_and_close(own: &mut Owners, c: ConnIdx, disconnect: &Disconnect<'_>) {
    let reason = disconnect.reason;
    let Some(conn) = own.conns.mqtt(c) else {
        return;
    };
    let answered = conn.answered;
    match (&conn.phase, conn.link.terms.version) {
        //= mqtt5#[MQTT-4.13.2-1]
        (Phase::Connected(_), Version::V5) | (Phase::HandedOver(_), Version::V5)
            if answered || !matches!(conn.phase, Phase::HandedOver(_)) =>
        {
            let whole = Packet::Disconnect(disconnect.clone());
            if !send::send(own, c, StreamId::CONTROL, &whole) {
                // The client takes no packet of that size.
                let short = Packet::Disconnect(Disconnect {
                    reason,
                    ..Disconnect::default()
                });
                send::send(own, c, StreamId::CONTROL, &short);
            }
        }
        (
            Phase::Authenticating(_)
            | Phase::Exchanging(..)
            | Phase::Claiming(_)
            | Phase::Storing(..),
            _,
        ) => {
            send_refusal(own, c, connect::connack_reason(reason));
        }
        _ => {}
    }
    lifetime::detach(own, c, reason != ReasonCode::ServerShuttingDown);
    let code = match reason {
        ReasonCode::ServerShuttingDown | ReasonCode::ServerBusy => close_code::OVERLOADED,
        _ => close_code::NO_ERROR,
    };
    close(own, c, code);
}

/// CONNACK with an error.
fn send_refusal(own: &mut Owners, c: ConnIdx, reason: ReasonCode) {
    own.stats.clients_refused += 1;
    send::send(own, c, StreamId::CONTROL, &connect::refused(reason));
}

/// Sends what is waiting and closes; the connection is deaf from now on.
pub(crate) fn close(own: &mut Owners, c: ConnIdx, code: u64) {
    close_link(own, c, code, false);
}

/// As [`close`], after DISCONNECT from the client.
fn part(own: &mut Owners, c: ConnIdx) {
    close_link(own, c, close_code::NO_ERROR, true);
}

fn close_link(own: &mut Owners, c: ConnIdx, code: u64, promptly: bool) {
    lifetime::detach(own, c, true);
    send::flush(own, c);
    let Some(conn) = own.conns.mqtt_mut(c) else {
        return;
    };
    if matches!(conn.phase, Phase::Closing) {
        return;
    }
    let was_handed_over = matches!(conn.phase, Phase::HandedOver(_));
    conn.phase = Phase::Closing;
    conn.link.parked.take();
    let conn = conn.id;
    if was_handed_over {
        own.conns.note_handed_over(false);
    }
    own.weigh_conn(c);
    own.outbox
        .command(conn, NetCommandKind::Close { code, promptly });
}
