//! Messages on further streams and in datagrams.

use std::time::Instant;

use dunlin_mqtt_codec::{Packet, QoS};

use crate::probe::fault::Fault;
use crate::probe::mqtt::{at, is_acknowledged, message, receive, subscribe};
use crate::probe::{Checked, Probe, Verdict};

/// Publishes on a stream of its own to a subscription on the first one.
pub(super) fn data(probe: &mut Probe, until: Instant, bidirectional: bool) -> Checked {
    let topic = probe.topic("streams");
    let mut wire = probe.join(until)?;
    subscribe(&mut wire, &topic, at(QoS::AtMostOnce), None)?;
    let Some(stream) = wire.open_stream(bidirectional) else {
        return Ok(Verdict::no("the server allows no further stream"));
    };
    let sent = message(&topic, b"x", QoS::AtLeastOnce);
    wire.send_on(stream, &Packet::Publish(sent.clone()))?;
    let (mut arrived, mut acknowledged) = (false, None);
    let answer = wire.wait_for(|on, packet| {
        match packet {
            Packet::Publish(got) => arrived |= got.topic == topic,
            packet => match is_acknowledged(packet, &sent) {
                Some(Err(fault)) => return Some(Err(fault)),
                Some(Ok(())) => acknowledged = Some(on == stream),
                None => {}
            },
        }
        acknowledged.filter(|_| arrived).map(Ok)
    });
    match answer {
        Ok(answer) => {
            let on = match answer? {
                true => "the same stream",
                false => "the first stream",
            };
            wire.disconnect();
            Ok(Verdict::yes(format!("acknowledged on {on}")))
        }
        Err(Fault::Timeout) => Ok(Verdict::no("what is sent there is not acknowledged")),
        Err(fault) => Ok(Verdict::no(format!("the connection ends: {fault}"))),
    }
}

/// A PUBLISH of QoS 0 in a datagram. One that is lost is sent again.
pub(super) fn datagram(probe: &mut Probe, until: Instant) -> Checked {
    const TRIES: u32 = 3;
    let topic = probe.topic("datagram");
    let mut wire = probe.join(until)?;
    subscribe(&mut wire, &topic, at(QoS::AtMostOnce), None)?;
    let sent = Packet::Publish(message(&topic, b"x", QoS::AtMostOnce));
    let each = until.saturating_duration_since(Instant::now()) / TRIES;
    for _ in 0..TRIES {
        if let Err(Fault::Other(why)) = wire.send_datagram(&sent) {
            return Ok(Verdict::no(why));
        }
        wire.allow((Instant::now() + each).min(until));
        match receive(&mut wire, &topic, |_| ()) {
            Ok(()) => {
                wire.disconnect();
                return Ok(Verdict::yes(""));
            }
            Err(Fault::Timeout) => {}
            Err(fault) => return Ok(Verdict::no(format!("the connection ends: {fault}"))),
        }
    }
    Ok(Verdict::no("what is sent there does not arrive"))
}
