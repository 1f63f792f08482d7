//! What CONNACK says of the server's limits.

use std::time::Instant;

use super::{Login, Probe};
use crate::probe::{Checked, Verdict};

/// What CONNACK said, or that it said nothing, and what then holds.
fn limit(said: Option<u32>, absent: &str) -> Checked {
    Ok(match said {
        Some(value) => Verdict::yes(value.to_string()).value(value),
        None => Verdict::yes(format!("not limited ({absent})")),
    })
}

pub(super) fn receive_maximum(probe: &mut Probe, _: Instant) -> Checked {
    let said = probe.said().and_then(|said| said.receive_maximum);
    limit(said.map(u32::from), "65535")
}

pub(super) fn packet_size(probe: &mut Probe, _: Instant) -> Checked {
    let said = probe.said().and_then(|said| said.packet_size);
    limit(said, "as the protocol")
}

pub(super) fn maximum_qos(probe: &mut Probe, _: Instant) -> Checked {
    let qos = probe.maximum_qos() as u8;
    Ok(Verdict::yes(qos.to_string()).value(qos))
}

pub(super) fn keep_alive(probe: &mut Probe, _: Instant) -> Checked {
    Ok(match probe.said().and_then(|said| said.keep_alive) {
        Some(seconds) => Verdict::yes(format!("{seconds} s")).value(seconds),
        None => Verdict::no("that of the client holds"),
    })
}

pub(super) fn assigned_id(probe: &mut Probe, until: Instant) -> Checked {
    let (wire, granted) = probe.enter(&Login::default(), until)?;
    wire.disconnect();
    Ok(match granted.assigned_id {
        Some(id) => Verdict::yes(id.clone()).value(id),
        None => Verdict::no("CONNACK names none"),
    })
}

/// Asks for a session without end, and ends it.
pub(super) fn session_expiry(probe: &mut Probe, until: Instant) -> Checked {
    let id = probe.client_id();
    let login = Login {
        id: &id,
        expiry: u32::MAX,
        ..Login::default()
    };
    let (wire, granted) = probe.enter(&login, until)?;
    wire.disconnect();
    probe.forget_session(&id);
    Ok(match granted.session_expiry {
        None | Some(u32::MAX) => Verdict::yes("without end"),
        Some(0) => Verdict::no("sessions end with their connection"),
        Some(seconds) => Verdict::yes(format!("{seconds} s")).value(seconds),
    })
}
