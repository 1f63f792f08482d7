//! PUBLISH of a client: whether it is new and allowed, and its
//! acknowledgement when it is not routed.

use core::time::Duration;

use dunlin_base::{QoS, StreamId};
use dunlin_mqtt::codec::{Publish, ReasonCode, Version};
use dunlin_mqtt::server::AckToken;
use dunlin_mqtt::server::session::Admission;

use crate::ids::{ConnIdx, SessionIdx, SessionRef};
use crate::io::NotTaken;
use crate::messages::publish;
use crate::messages::source::Source;
use crate::mqtt::fault::Fault;
use crate::mqtt::form::{Form, Raw};
use crate::mqtt::{acks, topics};
use crate::owners::Owners;
use crate::owners::pending::Verdict;
use crate::queues::waiting;
use crate::random::sender_number;
use crate::reports::audit;

/// A PUBLISH from a client. `arrived` is the stream that it came on, `stream`
/// the one that it is answered on.
pub(crate) fn handle_publish(
    own: &mut Owners,
    (c, s): (ConnIdx, SessionIdx),
    (arrived, stream): (StreamId, StreamId),
    (packet, bytes): (&mut Publish<'_>, &[u8]),
) -> Result<(), Fault> {
    own.stats.note_received(packet.qos);
    let maximum = own.config.clients.topic_alias_maximum;
    let (alias_topic, listener) = match own.conns.mqtt_mut(c) {
        Some(conn) => {
            if let Some(pace) = &mut conn.pace {
                pace.note_message(own.now);
            }
            let topic = conn.link.handle_publish(arrived, packet, maximum)?;
            (topic, conn.peer.listener)
        }
        None => (None, 0),
    };
    let Some(session) = own.sessions.mqtt_mut(s) else {
        return Ok(());
    };
    let origin = session.reference(s);
    let token = own.commits.token();
    let mqtt = &mut session.mqtt;
    match mqtt.handle_publish(packet, stream, AckToken(token))? {
        Admission::New => {}
        Admission::Pending => return Ok(()),
        Admission::Repeated => {
            acks::send_acks(own, s);
            return Ok(());
        }
    }
    let raw = packet
        .properties
        .topic_alias
        .is_none()
        .then_some((mqtt.version, bytes));
    // From here on it is as its receivers get it.
    packet.properties.topic_alias = None;
    packet.dup = false;
    let named = alias_topic.as_deref();
    let named = named.map(|topic| Publish {
        topic,
        ..packet.clone()
    });
    let packet = named.as_ref().unwrap_or(packet);
    let from = Publisher { c, origin, token };
    if !own.config.topics.alters() {
        route(own, from, (packet, raw), None);
        return Ok(());
    }
    match topics::publish(own, s, listener, packet) {
        Ok(altered) => {
            let raw = raw.filter(|_| !altered.is_altered());
            route(own, from, (&altered.apply(packet), raw), altered.delay);
        }
        Err(wrong) => {
            audit::note_denied(own, s, topics::cause(wrong), packet.topic);
            acknowledge_now(own, s, token, packet.qos, topics::reason(wrong));
        }
    }
    Ok(())
}

/// Who publishes, and the token of the message.
#[derive(Clone, Copy)]
struct Publisher {
    c: ConnIdx,
    origin: SessionRef,
    token: u64,
}

/// Gives a message that is new to who gets it, now or after a while.
fn route(
    own: &mut Owners,
    from: Publisher,
    (packet, raw): (&Publish<'_>, Option<Raw<'_>>),
    delay: Option<Duration>,
) {
    let Publisher { c, origin, token } = from;
    let s = origin.at;
    if !own.may_publish(s, packet.topic) {
        audit::note_denied(own, s, "may not publish", packet.topic);
        return acknowledge_now(own, s, token, packet.qos, ReasonCode::NotAuthorized);
    }
    let form = Form::of_packet(packet, raw);
    if let Some(delay) = delay {
        return route_later(own, from, &form, delay);
    }
    let mut source = Source::new(form.into(), Some(c), own.now);
    publish::dispatch(own, Some(origin), token, &mut source, None);
}

/// Gives a message to where it waits for its time, if its sender has room there.
fn route_later(own: &mut Owners, from: Publisher, form: &Form<'_>, delay: Duration) {
    let Publisher { c, origin, token } = from;
    let session = own.sessions.get(origin.at);
    let sender = session.and_then(|it| sender_number(it.user.as_deref(), &it.client_id));
    let message = topics::later(form.message(own.now), sender, delay, own.now);
    if sender.is_some_and(|it| !waiting::has_share(own, it, message.cost())) {
        own.stats.publishes_refused += 1;
        if form.qos() != QoS::AtMostOnce {
            let verdict = Verdict::Refused(NotTaken::NoRoom);
            acks::answer_publish(own, origin, token, verdict);
        }
        return;
    }
    let mut source = Source::of(&message, own.now).by(c).for_later();
    publish::dispatch(own, Some(origin), token, &mut source, None);
}

/// Acknowledges without routing. 3.1.1 has no reason codes: there a
/// refusal looks like an acceptance [MQTT-3.3.5-2].
fn acknowledge_now(own: &mut Owners, s: SessionIdx, token: u64, qos: QoS, reason: ReasonCode) {
    let Some(session) = own.sessions.mqtt_mut(s) else {
        return;
    };
    if qos != QoS::AtMostOnce {
        let reason = match session.mqtt.version {
            Version::V5 => reason,
            Version::V311 => ReasonCode::Success,
        };
        session.mqtt.inbound.complete(AckToken(token), reason);
        acks::send_acks(own, s);
    }
}
