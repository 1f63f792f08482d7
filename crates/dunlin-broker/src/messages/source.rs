//! A message being routed: the publisher's packet as long as that is enough,
//! a shared [`Message`] from the moment a queue or the store keeps it.

use alloc::sync::Arc;
use alloc::vec::Vec;

use dunlin_base::{Instant, Message, QoS, SendBuf};
use dunlin_mqtt::codec::{Publish, PublishProperties, Version};
use dunlin_mqtt::server::delivery;

use crate::config::Config;
use crate::ids::ConnIdx;

/// A cached encoding: all of a QoS 0 PUBLISH but its payload.
#[derive(Debug)]
struct Header {
    version: Version,
    retain: bool,
    bytes: Vec<u8>,
}

/// A message on its way through the router.
#[derive(Debug)]
pub(crate) struct Source<'a> {
    view: Publish<'a>,
    now: Instant,
    message: Option<Arc<Message>>,
    headers: Vec<Header>,
    level: Option<u8>,
    /// Connection that the message came on.
    publisher: Option<ConnIdx>,
    lossy: bool,
}

impl<'a> Source<'a> {
    /// From a PUBLISH as received; `topic` has any alias resolved.
    pub(crate) fn from_packet(
        publish: &Publish<'a>,
        topic: &'a str,
        publisher: Option<ConnIdx>,
        now: Instant,
    ) -> Self {
        let view = Publish {
            topic,
            properties: PublishProperties {
                topic_alias: None,
                ..publish.properties.clone()
            },
            dup: false,
            ..publish.clone()
        };
        Self {
            view,
            now,
            message: None,
            headers: Vec::new(),
            level: None,
            publisher,
            lossy: false,
        }
    }

    /// From a message and its view as a packet.
    pub(crate) fn from_message(message: &Arc<Message>, view: &Publish<'a>, now: Instant) -> Self {
        Self {
            view: view.clone(),
            now,
            message: Some(Arc::clone(message)),
            headers: Vec::new(),
            level: None,
            publisher: None,
            lossy: false,
        }
    }

    /// As `self`, and a receiver without room goes without: there is no publisher
    /// to refuse it to.
    pub(crate) fn lossy(self) -> Self {
        let lossy = true;
        Self { lossy, ..self }
    }

    /// Whether a receiver without room goes without.
    pub(crate) const fn is_lossy(&self) -> bool {
        self.lossy
    }

    /// Whether the message exists as one that can be kept.
    pub(crate) const fn is_held(&self) -> bool {
        self.message.is_some()
    }

    /// The connection that the message came on.
    pub(crate) const fn publisher(&self) -> Option<ConnIdx> {
        self.publisher
    }

    pub(crate) const fn topic(&self) -> &'a str {
        self.view.topic
    }

    pub(crate) const fn qos(&self) -> QoS {
        self.view.qos
    }

    pub(crate) const fn retain(&self) -> bool {
        self.view.retain
    }

    /// Its level among priorities.
    pub(crate) fn level(&mut self, config: &Config) -> u8 {
        let topic = self.view.topic;
        *self.level.get_or_insert_with(|| config.level(topic))
    }

    /// What the message costs to keep, about.
    pub(crate) fn cost(&self) -> usize {
        match &self.message {
            Some(message) => message.cost(),
            None => Message::default().cost() + self.view.topic.len() + self.view.payload.len(),
        }
    }

    /// The message as something that can be kept.
    pub(crate) fn message(&mut self) -> Arc<Message> {
        let (view, now) = (&self.view, self.now);
        Arc::clone(
            self.message
                .get_or_insert_with(|| Arc::new(delivery::message(view, now))),
        )
    }

    /// Appends the message as a QoS 0 PUBLISH without identifiers or alias.
    /// `false` if the packet would be larger than `bytes_max`, or has no form
    /// in that version.
    pub(crate) fn append_qos0(
        &mut self,
        version: Version,
        retain: bool,
        bytes_max: u32,
        out: &mut SendBuf,
    ) -> bool {
        let known = self
            .headers
            .iter()
            .position(|h| h.version == version && h.retain == retain);
        let at = match known {
            Some(at) => at,
            None => {
                let mut bytes = Vec::with_capacity(16 + self.view.topic.len());
                let publish = Publish {
                    qos: QoS::AtMostOnce,
                    packet_id: None,
                    retain,
                    ..self.view.clone()
                };
                if publish
                    .encode_header(version, self.view.payload.len(), &mut bytes)
                    .is_err()
                {
                    return false;
                }
                self.headers.push(Header {
                    version,
                    retain,
                    bytes,
                });
                self.headers.len() - 1
            }
        };
        let Some(header) = self.headers.get(at) else {
            return false;
        };
        let payload = self.view.payload;
        //= mqtt5#[MQTT-3.1.2-24]
        if header.bytes.len() + payload.len() > bytes_max as usize {
            return false;
        }
        out.put_slice(&header.bytes);
        if payload.len() < dunlin_base::sendbuf::SHARE_BYTES_MIN {
            out.put_slice(payload);
        } else {
            out.put_bytes(&self.message().payload);
        }
        true
    }

    /// The message as a packet, to be adapted for one receiver.
    pub(crate) const fn view(&self) -> &Publish<'a> {
        &self.view
    }
}
