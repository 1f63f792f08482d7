//! Messages and subscriptions, as they come through the server.

use core::num::{NonZeroU16, NonZeroU32};
use core::time::Duration;
use std::time::Instant;

use dunlin_mqtt_codec::{
    Packet, PacketId, Publish, PublishProperties, QoS, SubscribeOptions, UserProperties,
};

use super::{
    Granted, Login, SESSION_SECONDS, at, is_acknowledged, message, millis, or_absent, publish,
    receive, subscribe,
};
use crate::probe::fault::Fault;
use crate::probe::{Checked, Probe, Verdict, micros};

/// Messages of a round trip; the median counts.
const ROUND_TRIPS: u16 = 5;

/// Messages to a group.
const SHARED: u8 = 10;

/// How long a message that came twice is waited for.
const TWICE_AFTER: Duration = Duration::from_millis(150);

/// Time to take away what a check has left.
const CLEAN_UP_MAX: Duration = Duration::from_secs(2);

/// Publishes to its own subscription.
pub(super) fn round_trip(probe: &mut Probe, until: Instant, qos: QoS) -> Checked {
    let highest = probe.maximum_qos();
    if highest < qos {
        return Ok(Verdict::no(format!("Maximum QoS is {}", highest as u8)));
    }
    let topic = probe.topic("qos");
    let mut wire = probe.join(until)?;
    let granted = subscribe(&mut wire, &topic, at(qos), None)?;
    if granted < qos {
        let granted = granted as u8;
        return Ok(Verdict::no(format!(
            "a subscription is granted QoS {granted}"
        )));
    }
    let mut times = Vec::new();
    for number in 1..=ROUND_TRIPS {
        let payload = number.to_be_bytes();
        let sent = Publish {
            packet_id: message(&topic, &payload, qos)
                .packet_id
                .and_then(|_| PacketId::new(number)),
            ..message(&topic, &payload, qos)
        };
        let begun = Instant::now();
        let (mut arrived, mut acknowledged) = (None, qos == QoS::AtMostOnce);
        wire.send(&Packet::Publish(sent.clone()))?;
        let with = wire.wait_for(|_, packet| {
            match packet {
                Packet::Publish(got) if got.topic == topic && got.payload == payload => {
                    arrived.get_or_insert_with(|| (got.qos, begun.elapsed()));
                }
                packet => match is_acknowledged(packet, &sent) {
                    Some(Err(fault)) => return Some(Err(fault)),
                    Some(Ok(())) => acknowledged = true,
                    None => {}
                },
            }
            arrived.filter(|_| acknowledged).map(Ok)
        })??;
        if with.0 != qos {
            return Ok(Verdict::no(format!("delivered with QoS {}", with.0 as u8)));
        }
        times.push(with.1);
    }
    wire.disconnect();
    times.sort_unstable();
    let median = times.get(times.len() / 2).copied().unwrap_or_default();
    Ok(Verdict::yes(millis(median)).value(micros(median)))
}

pub(super) fn retained(probe: &mut Probe, until: Instant) -> Checked {
    if probe.is_said_missing("retained") {
        return Ok(Verdict::no("Retain Available is 0"));
    }
    let topic = probe.topic("retained");
    let checked = is_retained(probe, &topic, until);
    // Whether it was kept or not.
    let cleaned = forget_retained(probe, &topic);
    match (checked, cleaned) {
        (Ok(verdict), Err(fault)) if verdict.has => {
            let detail = format!("kept; {topic} could not be removed: {fault}");
            Ok(Verdict::yes(detail))
        }
        (checked, _) => checked,
    }
}

fn is_retained(probe: &mut Probe, topic: &str, until: Instant) -> Checked {
    let qos = probe.acknowledged();
    let mut wire = probe.join(until)?;
    let kept = Publish {
        retain: true,
        ..message(topic, b"kept", qos)
    };
    publish(&mut wire, &kept)?;
    wire.disconnect();
    let mut wire = probe.join(until)?;
    subscribe(&mut wire, topic, at(qos), None)?;
    let got = receive(&mut wire, topic, |got| got.retain && got.payload == b"kept");
    let verdict = match or_absent(got, "a message with RETAIN is not kept")? {
        Ok(true) => Verdict::yes("kept, and removed again"),
        Ok(false) => Verdict::no("delivered without RETAIN"),
        Err(absent) => absent,
    };
    wire.disconnect();
    Ok(verdict)
}

fn forget_retained(probe: &mut Probe, topic: &str) -> Result<(), Fault> {
    let qos = probe.acknowledged();
    let mut wire = probe.join(Instant::now() + CLEAN_UP_MAX)?;
    let empty = Publish {
        retain: true,
        ..message(topic, b"", qos)
    };
    publish(&mut wire, &empty)?;
    wire.disconnect();
    Ok(())
}

pub(super) fn wildcards(probe: &mut Probe, until: Instant) -> Checked {
    if probe.is_said_missing("wildcards") {
        return Ok(Verdict::no("Wildcard Subscription Available is 0"));
    }
    let topic = probe.topic("wildcards");
    let mut wire = probe.join(until)?;
    for (filter, name) in [("+/a", "1/a"), ("2/#", "2/a/b")] {
        let (filter, name) = (format!("{topic}/{filter}"), format!("{topic}/{name}"));
        subscribe(&mut wire, &filter, at(QoS::AtMostOnce), None)?;
        publish(&mut wire, &message(&name, b"x", QoS::AtMostOnce))?;
        let got = receive(&mut wire, &name, |_| ());
        if let Err(absent) = or_absent(got, "a message that matches does not come")? {
            return Ok(absent);
        }
    }
    wire.disconnect();
    Ok(Verdict::yes("+ and #"))
}

/// Two members of a group share the messages of a third client.
pub(super) fn shared(probe: &mut Probe, until: Instant) -> Checked {
    if probe.is_said_missing("shared") {
        return Ok(Verdict::no("Shared Subscription Available is 0"));
    }
    let topic = probe.topic("shared");
    let filter = format!("$share/{}/{topic}", probe.run);
    let qos = probe.acknowledged();
    let mut members = [probe.join(until)?, probe.join(until)?];
    for member in &mut members {
        subscribe(member, &filter, at(qos), None)?;
    }
    let mut sender = probe.join(until)?;
    for number in 0..SHARED {
        publish(&mut sender, &message(&topic, &[number], qos))?;
    }
    let mut counts = [0_u8; 2];
    let mut quiet_since = Instant::now();
    while Instant::now() < until && quiet_since.elapsed() < TWICE_AFTER {
        for (member, count) in members.iter_mut().zip(&mut counts) {
            member.allow((Instant::now() + TWICE_AFTER / 5).min(until));
            match receive(member, &topic, |_| ()) {
                Ok(()) => (*count, quiet_since) = (count.saturating_add(1), Instant::now()),
                Err(Fault::Timeout) => {}
                Err(fault) => return Err(fault),
            }
        }
        if counts.iter().sum::<u8>() < SHARED {
            quiet_since = Instant::now();
        }
    }
    for wire in members.into_iter().chain([sender]) {
        wire.disconnect();
    }
    let [first, second] = counts;
    let detail = format!("{SHARED} messages, {first} and {second} to two members");
    Ok(match first.saturating_add(second) == SHARED {
        true => Verdict::yes(detail).value(vec![first, second]),
        false => Verdict::no(detail),
    })
}

/// What was published while a client was away comes when it is back.
pub(super) fn session(probe: &mut Probe, until: Instant) -> Checked {
    let id = probe.client_id();
    let checked = is_resumed(probe, &id, until);
    probe.forget_session(&id);
    checked
}

fn is_resumed(probe: &mut Probe, id: &str, until: Instant) -> Checked {
    let topic = probe.topic("session");
    let qos = probe.acknowledged();
    let first = Login {
        id,
        expiry: SESSION_SECONDS,
        ..Login::default()
    };
    let (mut wire, granted) = probe.enter(&first, until)?;
    if granted.session_expiry == Some(0) {
        return Ok(Verdict::no("Session Expiry Interval is 0"));
    }
    subscribe(&mut wire, &topic, at(qos), None)?;
    wire.disconnect();
    let mut other = probe.join(until)?;
    publish(&mut other, &message(&topic, b"missed", qos))?;
    other.disconnect();
    let again = Login {
        resume: true,
        ..first
    };
    let (mut wire, granted) = probe.enter(&again, until)?;
    if !granted.session_present {
        return Ok(Verdict::no("Session Present is 0"));
    }
    if qos == QoS::AtMostOnce {
        return Ok(Verdict::yes("resumed"));
    }
    let got = receive(&mut wire, &topic, |_| ());
    let absent = "resumed, but what was published meanwhile does not come";
    Ok(match or_absent(got, absent)? {
        Ok(()) => Verdict::yes("resumed, with a message of QoS 1"),
        Err(absent) => absent,
    })
}

impl Probe {
    /// Ends a session that the server has. One that is left ends by itself.
    pub(super) fn forget_session(&self, id: &str) {
        let login = Login {
            id,
            ..Login::default()
        };
        if let Ok((wire, _)) = self.enter(&login, Instant::now() + CLEAN_UP_MAX) {
            wire.disconnect();
        }
    }
}

/// A client that leaves without DISCONNECT.
pub(super) fn will(probe: &mut Probe, until: Instant) -> Checked {
    let topic = probe.topic("will");
    let mut watcher = probe.join(until)?;
    subscribe(&mut watcher, &topic, at(QoS::AtMostOnce), None)?;
    let id = probe.client_id();
    let login = Login {
        id: &id,
        will: Some(&topic),
        ..Login::default()
    };
    let (wire, _) = probe.enter(&login, until)?;
    wire.abandon();
    let begun = Instant::now();
    let got = receive(&mut watcher, &topic, |_| begun.elapsed());
    let verdict = match or_absent(got, "not published")? {
        Ok(took) => Verdict::yes(format!("published after {}", millis(took))),
        Err(absent) => absent,
    };
    watcher.disconnect();
    Ok(verdict)
}

pub(super) fn identifiers(probe: &mut Probe, until: Instant) -> Checked {
    const ID: u32 = 77;
    if probe.is_said_missing("subscription-ids") {
        return Ok(Verdict::no("Subscription Identifiers Available is 0"));
    }
    let topic = probe.topic("ids");
    let mut wire = probe.join(until)?;
    subscribe(&mut wire, &topic, at(QoS::AtMostOnce), NonZeroU32::new(ID))?;
    publish(&mut wire, &message(&topic, b"x", QoS::AtMostOnce))?;
    let ids = |got: &Publish<'_>| got.properties.subscription_identifiers.iter().eq([ID]);
    let verdict = match receive(&mut wire, &topic, ids)? {
        true => Verdict::yes(""),
        false => Verdict::no("a message comes without its identifier"),
    };
    wire.disconnect();
    Ok(verdict)
}

pub(super) fn no_local(probe: &mut Probe, until: Instant) -> Checked {
    let topic = probe.topic("local");
    let qos = probe.acknowledged();
    let mut wire = probe.join(until)?;
    let options = SubscribeOptions {
        no_local: true,
        ..at(qos)
    };
    subscribe(&mut wire, &topic, options, None)?;
    let mut other = probe.join(until)?;
    publish(&mut wire, &message(&topic, b"own", qos))?;
    publish(&mut other, &message(&topic, b"other", qos))?;
    let verdict = match receive(&mut wire, &topic, |got| got.payload == b"other")? {
        true => Verdict::yes(""),
        false => Verdict::no("a client gets its own message back"),
    };
    wire.disconnect();
    other.disconnect();
    Ok(verdict)
}

pub(super) fn properties(probe: &mut Probe, until: Instant) -> Checked {
    const USER: [(&str, &str); 2] = [("a", "1"), ("a", "2")];
    const EXPIRY: u32 = 60;
    let topic = probe.topic("properties");
    let mut wire = probe.join(until)?;
    subscribe(&mut wire, &topic, at(QoS::AtMostOnce), None)?;
    let sent = Publish {
        properties: PublishProperties {
            payload_format_indicator: Some(true),
            message_expiry_interval: Some(EXPIRY),
            response_topic: Some(&topic),
            correlation_data: Some(b"data"),
            content_type: Some("text/plain"),
            user_properties: UserProperties::new(&USER),
            ..PublishProperties::default()
        },
        ..message(&topic, b"x", QoS::AtMostOnce)
    };
    publish(&mut wire, &sent)?;
    let lost = receive(&mut wire, &topic, |got| {
        let got = &got.properties;
        let expiry = got.message_expiry_interval;
        let passed = [
            (
                "Payload Format Indicator",
                got.payload_format_indicator == Some(true),
            ),
            (
                "Message Expiry Interval",
                expiry.is_some_and(|left| left <= EXPIRY),
            ),
            ("Response Topic", got.response_topic == Some(&topic)),
            ("Correlation Data", got.correlation_data == Some(b"data")),
            ("Content Type", got.content_type == Some("text/plain")),
            ("User Property", got.user_properties.iter().eq(USER)),
        ];
        let lost = passed.into_iter().filter(|(_, passed)| !passed);
        lost.map(|(name, _)| name).collect::<Vec<_>>()
    })?;
    wire.disconnect();
    Ok(match lost.is_empty() {
        true => Verdict::yes(""),
        false => Verdict::no(format!("lost: {}", lost.join(", "))),
    })
}

pub(super) fn alias(probe: &mut Probe, until: Instant) -> Checked {
    let maximum = probe
        .said()
        .map_or(0, |said: &Granted| said.topic_alias_maximum);
    let Some(alias) = NonZeroU16::new(maximum) else {
        return Ok(Verdict::no("Topic Alias Maximum is 0"));
    };
    let topic = probe.topic("alias");
    let mut wire = probe.join(until)?;
    subscribe(&mut wire, &topic, at(QoS::AtMostOnce), None)?;
    for (name, payload) in [(topic.as_str(), b"1"), ("", b"2")] {
        let mut sent = message(name, payload, QoS::AtMostOnce);
        sent.properties.topic_alias = Some(alias);
        publish(&mut wire, &sent)?;
        if !receive(&mut wire, &topic, |got| got.payload == payload)? {
            return Ok(Verdict::no("another message comes instead"));
        }
    }
    wire.disconnect();
    Ok(Verdict::yes(format!("up to {maximum}")).value(maximum))
}
