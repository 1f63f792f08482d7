//! What only QUIC has.

mod parameters;
mod streams;
mod versions;

use core::time::Duration;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use dunlin_dial::Protocol;
use dunlin_mqtt_codec::Packet;
use dunlin_net::{Move, MoveError, SessionTickets};
use serde_json::json;

use super::fault::Fault;
use super::mqtt::Login;
use super::wire::{Wire, plain};
use super::{Check, Checked, Needs, Probe, Verdict, check, millis};
use parameters::Parameters;

/// Time for session tickets, which come after the handshake.
const TICKETS_AFTER: Duration = Duration::from_secs(1);

/// Time for the search of a path's packet size.
const MTU_AFTER: Duration = Duration::from_millis(1500);

/// Time between attempts to move: a handshake must be confirmed before.
const MOVE_AGAIN: Duration = Duration::from_millis(30);

/// Session tickets that are kept.
const TICKETS_MAX: usize = 4;

/// The checks of the transport.
pub(super) const CHECKS: &[Check] = &[
    check("quic-versions", "versions", Needs::Quic, versions::offered),
    check("alpn", "application protocol", Needs::Quic, alpn),
    check("retry", "address check by Retry", Needs::Quic, retry),
    check("idle-timeout", "idle timeout", Needs::Quic, idle_timeout),
    check(
        "stream-limits",
        "streams of the client",
        Needs::Quic,
        stream_limits,
    ),
    check("datagrams", "datagrams (RFC 9221)", Needs::Quic, datagrams),
    check("path-mtu", "path MTU", Needs::Quic, path_mtu),
    check("tickets", "session tickets", Needs::Quic, tickets),
    check("early-data", "early data (0-RTT)", Needs::Quic, early_data),
];

/// The checks that need MQTT, too.
pub(super) const WITH_MQTT: &[Check] = &[
    check(
        "rebind",
        "the client's address changes",
        Needs::MqttOverQuic,
        |probe, until| moves(probe, until, Move::Rebound),
    ),
    check(
        "migration",
        "the client migrates",
        Needs::MqttOverQuic,
        |probe, until| moves(probe, until, Move::Probed),
    ),
    check(
        "data-streams",
        "bidirectional data streams",
        Needs::MqttOverQuic,
        |probe, until| streams::data(probe, until, true),
    ),
    check(
        "uni-streams",
        "unidirectional data streams",
        Needs::MqttOverQuic,
        |probe, until| streams::data(probe, until, false),
    ),
    check(
        "datagram-publish",
        "messages in datagrams",
        Needs::MqttOverQuic,
        streams::datagram,
    ),
];

fn alpn(probe: &mut Probe, until: Instant) -> Checked {
    let mut wire = probe.dial(until)?;
    let protocol = wire.stats().and_then(|stats| stats.protocol);
    wire.abandon();
    Ok(match protocol {
        Some(name) => {
            let name = plain(&String::from_utf8_lossy(&name));
            Verdict::yes(name.clone()).value(name)
        }
        None => Verdict::no("none is agreed on"),
    })
}

impl Probe {
    /// What the server said in a handshake.
    fn parameters(&self, until: Instant) -> Result<Parameters, Fault> {
        let mut wire = self.dial(until)?;
        let encoded = wire.parameters();
        wire.abandon();
        let missing = || Fault::Other("the transport does not say".into());
        Ok(Parameters::read(&encoded.ok_or_else(missing)?))
    }
}

fn retry(probe: &mut Probe, until: Instant) -> Checked {
    Ok(match probe.parameters(until)?.retried {
        true => Verdict::yes("a first connection has to prove its address"),
        false => Verdict::no("not now: servers may ask when they are busy"),
    })
}

fn idle_timeout(probe: &mut Probe, until: Instant) -> Checked {
    Ok(match probe.parameters(until)?.idle_timeout_ms {
        0 => Verdict::no("none: that of the client holds"),
        ms => {
            let time = Duration::from_millis(ms);
            Verdict::yes(format!("{} s", time.as_secs_f64())).value(ms)
        }
    })
}

fn stream_limits(probe: &mut Probe, until: Instant) -> Checked {
    let said = probe.parameters(until)?;
    let (bidi, uni) = (said.streams_bidi, said.streams_uni);
    let detail = format!("{bidi} bidirectional, {uni} unidirectional at first");
    let verdict = match bidi {
        0 => Verdict::no(detail),
        _ => Verdict::yes(detail),
    };
    Ok(verdict.value(json!({ "bidirectional": bidi, "unidirectional": uni })))
}

fn datagrams(probe: &mut Probe, until: Instant) -> Checked {
    Ok(match probe.parameters(until)?.datagram_size {
        0 => Verdict::no("max_datagram_frame_size is 0"),
        size => Verdict::yes(format!("up to {size} bytes")).value(size),
    })
}

fn path_mtu(probe: &mut Probe, until: Instant) -> Checked {
    let mut wire = probe.dial(until)?;
    wire.linger(MTU_AFTER)?;
    let stats = wire.stats().and_then(|stats| stats.quic);
    wire.abandon();
    let stats = stats.ok_or_else(|| Fault::Other("the connection ended".into()))?;
    let detail = format!("{} bytes, round trip {}", stats.mtu, millis(stats.rtt));
    Ok(Verdict::yes(detail).value(stats.mtu))
}

/// Session tickets of one check.
#[derive(Debug, Default)]
struct Tickets(Mutex<VecDeque<Vec<u8>>>);

impl Tickets {
    fn is_empty(&self) -> bool {
        let tickets = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        tickets.is_empty()
    }
}

impl SessionTickets for Tickets {
    fn insert(&self, ticket: Vec<u8>) {
        let mut tickets = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if tickets.len() < TICKETS_MAX {
            tickets.push_back(ticket);
        }
    }

    fn take(&self) -> Option<Vec<u8>> {
        let mut tickets = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        tickets.pop_front()
    }
}

/// Makes a connection and waits for its session tickets.
fn collect(probe: &Probe, until: Instant) -> Result<Arc<Tickets>, Fault> {
    let tickets = Arc::new(Tickets::default());
    let mut config = probe.config();
    config.tickets = Some(Arc::clone(&tickets) as _);
    let version = probe.version.unwrap_or_default();
    let mut wire = Wire::dial(&config, version, until)?;
    let end = (Instant::now() + TICKETS_AFTER).min(until);
    while tickets.is_empty() && Instant::now() < end {
        wire.linger(Duration::from_millis(20))?;
    }
    wire.abandon();
    Ok(tickets)
}

fn tickets(probe: &mut Probe, until: Instant) -> Checked {
    Ok(match collect(probe, until)?.is_empty() {
        false => Verdict::yes(""),
        true => Verdict::no("none comes"),
    })
}

/// A second connection sends CONNECT, or nothing of AMQP, with its first datagram.
fn early_data(probe: &mut Probe, until: Instant) -> Checked {
    let tickets = collect(probe, until)?;
    if tickets.is_empty() {
        return Ok(Verdict::no("there are no session tickets"));
    }
    let mut config = probe.config();
    config.tickets = Some(tickets as _);
    config.early_data = true;
    let version = probe.version.unwrap_or_default();
    let mut wire = Wire::dial(&config, version, until)?;
    if !wire.peer().is_some_and(|peer| peer.early_data) {
        return Ok(Verdict::no("the tickets are not for early data"));
    }
    match probe.options.url.protocol() {
        Protocol::Amqp => wire.send_bytes(super::amqp::SASL_HEADER),
        _ => {
            let id = probe.client_id();
            let login = Login {
                id: &id,
                ..Login::default()
            };
            probe.send_connect(&mut wire, version, &login)?;
        }
    }
    let accepted = wire.early_verdict()?;
    wire.abandon();
    Ok(match accepted {
        true => Verdict::yes(""),
        false => Verdict::no("refused: sent again after the handshake"),
    })
}

/// A connection goes on from another local port.
fn moves(probe: &mut Probe, until: Instant, how: Move) -> Checked {
    let mut wire = probe.join(until)?;
    let moved = loop {
        match wire.migrate(how) {
            Err(Fault::Move(MoveError::Handshaking | MoveError::Busy)) => {
                wire.linger(MOVE_AGAIN)?;
                if Instant::now() >= wire.until() {
                    return Err(Fault::Timeout);
                }
            }
            Err(Fault::Move(MoveError::Forbidden)) => {
                return Ok(Verdict::no("the server forbids it"));
            }
            moved => break moved?,
        }
    };
    if !moved {
        return Ok(Verdict::no("no answer over the new path"));
    }
    let begun = Instant::now();
    wire.send(&Packet::PingReq)?;
    let answered = wire.wait_for(|_, packet| matches!(packet, Packet::PingResp).then_some(()));
    let took = begun.elapsed();
    Ok(match answered {
        Ok(()) => {
            wire.disconnect();
            Verdict::yes(format!(
                "the connection lives, PINGRESP after {}",
                millis(took)
            ))
        }
        Err(Fault::Timeout) => Verdict::no("no answer after it"),
        Err(fault) => Verdict::no(format!("the connection ends: {fault}")),
    })
}
