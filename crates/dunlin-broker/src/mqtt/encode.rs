//! PUBLISH towards a client: its form for this connection, and the stream or
//! datagram that takes it.

use alloc::sync::Arc;

use dunlin_base::{Message, QoS, SendBuf, StreamId};
use dunlin_mqtt::codec::{Publish, SubscriptionIdentifiers, Version};
use dunlin_mqtt::server::link::put_publish;
use dunlin_queue::Identifiers;

use crate::messages::source::Source;
use crate::messages::throttle;
use crate::mqtt::form::Form;
use crate::mqtt::{outgoing_streams, topics};
use crate::owners::Owners;
use crate::owners::routing::Hit;

/// QoS 0 goes out at once, or not at all.
pub(crate) fn deliver_qos0(own: &mut Owners, source: &mut Source<'_>, hit: &Hit, retain: bool) {
    let Some(c) = own.sessions.mqtt(hit.session).and_then(|s| s.conn) else {
        return;
    };
    let level = source.level(&own.config);
    let limit = own.unsent_limit(c, own.config.qos0_limit(level));
    let Some(conn) = own.conns.mqtt(c) else {
        return;
    };
    let datagrams = !conn.link.terms.datagram_age.is_zero() && hit.stream == StreamId::CONTROL;
    if !datagrams && conn.link.is_blocked_for(hit.stream, source.topic()) {
        own.stats.messages_dropped_slow += 1;
        return;
    }
    let backlog = conn.link.backlog();
    if backlog >= own.config.sending.send_backlog_bytes {
        throttle::check_pace(own, hit.session, source.publisher());
    }
    if backlog >= limit {
        own.stats.messages_dropped_slow += 1;
        return;
    }
    let Some(conn) = own.conns.mqtt(c) else {
        return;
    };
    let (version, bytes_max) = (conn.link.terms.version, conn.link.terms.packet_bytes_max);
    let aliased = conn.link.uses_aliases(hit.stream);
    let mounted = !own.config.topics.mount(conn.peer.listener).is_empty();
    own.stats.note_sent(QoS::AtMostOnce);
    if datagrams && deliver_datagram(own, source, hit, retain) {
        return;
    }
    if hit.identifiers.is_empty() && !aliased && !mounted {
        let (_, out) = outgoing_streams::delivery_out(own, c, hit.stream, source.topic());
        if let Some(out) = out {
            append_qos0(source, version, retain, bytes_max, out);
        }
        return;
    }
    let publish = Publish {
        qos: QoS::AtMostOnce,
        packet_id: None,
        retain,
        ..source.publish_form().view().clone()
    };
    send_publish(own, c, hit.stream, publish, &hit.identifiers, None);
}

/// Appends the message as a QoS 0 PUBLISH without identifiers or alias, unless
/// the client does not take one of that size or version.
fn append_qos0(
    source: &mut Source<'_>,
    version: Version,
    retain: bool,
    bytes_max: u32,
    out: &mut SendBuf,
) {
    let payload = source.payload();
    let shared = payload.len() >= dunlin_base::sendbuf::SHARE_BYTES_MIN;
    if !source
        .publish_form()
        .append_header(version, retain, bytes_max, out)
    {
        return;
    }
    match shared {
        true => out.put_bytes(&source.message().payload),
        false => out.put_slice(payload),
    }
}

/// Sends a message as a datagram; `false` if it must go on a stream.
fn deliver_datagram(own: &mut Owners, source: &mut Source<'_>, hit: &Hit, retain: bool) -> bool {
    let Some(c) = own.sessions.mqtt(hit.session).and_then(|s| s.conn) else {
        return true;
    };
    let Some(conn) = own.conns.mqtt(c) else {
        return true;
    };
    let (version, bytes_max) = (conn.link.terms.version, conn.link.terms.packet_bytes_max);
    let mount = own.config.topics.mount(conn.peer.listener);
    let mut packet = SendBuf::new();
    if hit.identifiers.is_empty() && mount.is_empty() {
        append_qos0(source, version, retain, bytes_max, &mut packet);
    } else {
        let mut publish = Publish {
            qos: QoS::AtMostOnce,
            packet_id: None,
            retain,
            ..source.publish_form().view().clone()
        };
        publish.properties.subscription_identifiers =
            SubscriptionIdentifiers::new(hit.identifiers.as_slice());
        // Where it is not seen, nothing is written.
        let is_seen = mount.is_empty() || topics::relative(&mut publish, mount);
        let len = publish.payload.len();
        if is_seen && publish.encode_header(version, len, &mut packet).is_ok() {
            packet.put_slice(publish.payload);
        }
    }
    // Nothing was written: there is no form that the client takes.
    let fits = !packet.is_empty() && packet.len() <= bytes_max as usize;
    !fits || outgoing_streams::send_datagram(own, c, &packet)
}

/// Adds identifiers and alias, checks the size, encodes. The stream that it
/// leaves on, as far as that is known; `None` when the client does not take
/// a packet of that size, or its topic is not below the client's mount point.
pub(crate) fn send_publish<'a>(
    own: &mut Owners,
    c: usize,
    stream: StreamId,
    mut publish: Publish<'a>,
    identifiers: &'a Identifiers,
    shared: Option<&Arc<Message>>,
) -> Option<StreamId> {
    let Some(conn) = own.conns.mqtt_mut(c) else {
        return Some(stream);
    };
    let version = conn.link.terms.version;
    let may_alias = conn.link.uses_aliases(stream);
    let topic = publish.topic;
    let mount = own.config.topics.mount(conn.peer.listener);
    if !mount.is_empty() && !topics::relative(&mut publish, mount) {
        return None;
    }
    if !conn.link.fit(&mut publish, identifiers, may_alias) {
        return None;
    }
    let (stream, out) = outgoing_streams::delivery_out(own, c, stream, topic);
    if let Some(out) = out {
        let payload = shared.map(|message| &message.payload);
        put_publish(&publish, version, payload, out);
    }
    Some(stream)
}

impl<'a> Source<'a> {
    /// The message as PUBLISH.
    pub(crate) fn publish_form(&mut self) -> &mut Form<'a> {
        let now = self.now();
        self.written_mut().publish_form(now)
    }
}
