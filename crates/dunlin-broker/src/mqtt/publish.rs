//! PUBLISH of a client: whether it is new and allowed, and its
//! acknowledgement when it is not routed.

use dunlin_base::{QoS, StreamId};
use dunlin_mqtt::codec::{Publish, ReasonCode, Version};
use dunlin_mqtt::server::AckToken;
use dunlin_mqtt::server::session::Admission;

use crate::ids::{ConnIdx, SessionIdx};
use crate::messages::publish;
use crate::messages::source::Source;
use crate::mqtt::acks;
use crate::mqtt::fault::Fault;
use crate::mqtt::form::Form;
use crate::owners::Owners;
use crate::reports::audit;

/// A PUBLISH from a client. `arrived` is the stream that it came on, `stream`
/// the one that it is answered on.
pub(crate) fn handle_publish(
    own: &mut Owners,
    (c, s): (ConnIdx, SessionIdx),
    (arrived, stream): (StreamId, StreamId),
    (packet, bytes): (Publish<'_>, &[u8]),
) -> Result<(), Fault> {
    own.stats.note_received(packet.qos);
    let maximum = own.config.topic_alias_maximum;
    let alias_topic = match own.conns.mqtt_mut(c) {
        Some(conn) => conn.link.handle_publish(arrived, &packet, maximum)?,
        None => None,
    };
    let Some(session) = own.sessions.mqtt_mut(s) else {
        return Ok(());
    };
    let origin = session.reference(s);
    let token = own.commits.token();
    let mqtt = &mut session.mqtt;
    match mqtt.handle_publish(&packet, stream, AckToken(token))? {
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
    let mut packet = packet;
    if let Some(topic) = &alias_topic {
        packet.topic = topic;
    }
    packet.properties.topic_alias = None;
    packet.dup = false;
    if !own.may_publish(s, packet.topic) {
        audit::note_denied(own, s, "may not publish", packet.topic);
        acknowledge_now(own, s, token, packet.qos, ReasonCode::NotAuthorized);
        return Ok(());
    }
    let form = Form::of_packet(&packet, raw);
    let mut source = Source::new(form.into(), Some(c), own.now);
    publish::dispatch(own, Some(origin), token, &mut source, None);
    Ok(())
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
