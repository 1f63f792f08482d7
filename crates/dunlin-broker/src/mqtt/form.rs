//! A message in the form of PUBLISH, borrowed: as its publisher sent it, or as
//! a view of one that is held.

use alloc::vec::Vec;

use dunlin_base::{Instant, Message, QoS, SendBuf};
use dunlin_mqtt::codec::{Publish, PublishProperties, Version};
use dunlin_mqtt::server::delivery;

/// A cached encoding: all of a QoS 0 PUBLISH but its payload.
#[derive(Debug)]
struct Header {
    version: Version,
    retain: bool,
    bytes: Vec<u8>,
}

/// A message as PUBLISH, and how it leaves for receivers with QoS 0.
#[derive(Debug)]
pub(crate) struct Form<'a> {
    view: Publish<'a>,
    headers: Vec<Header>,
}

impl<'a> Form<'a> {
    /// Of a PUBLISH as received; `topic` has any alias resolved.
    pub(crate) fn of_packet(publish: &Publish<'a>, topic: &'a str) -> Self {
        Self {
            view: Publish {
                topic,
                properties: PublishProperties {
                    topic_alias: None,
                    ..publish.properties.clone()
                },
                dup: false,
                ..publish.clone()
            },
            headers: Vec::new(),
        }
    }

    /// Of a message that is held, with what is left of its time at `now`.
    pub(crate) fn of_message(message: &'a Message, now: Instant) -> Self {
        Self {
            view: delivery::view(message, now),
            headers: Vec::new(),
        }
    }

    pub(crate) const fn topic(&self) -> &'a str {
        self.view.topic
    }

    pub(crate) const fn payload(&self) -> &'a [u8] {
        self.view.payload
    }

    pub(crate) const fn qos(&self) -> QoS {
        self.view.qos
    }

    pub(crate) const fn retain(&self) -> bool {
        self.view.retain
    }

    /// The message as something that can be kept.
    pub(crate) fn message(&self, now: Instant) -> Message {
        delivery::message(&self.view, now)
    }

    /// The packet, to be adapted for one receiver.
    pub(crate) const fn view(&self) -> &Publish<'a> {
        &self.view
    }

    /// Appends all of a QoS 0 PUBLISH without identifiers or alias but its
    /// payload. `false` if the packet would be larger than `bytes_max`, or has no
    /// form in that version.
    pub(crate) fn append_header(
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
        //= mqtt5#[MQTT-3.1.2-24]
        if header.bytes.len() + self.view.payload.len() > bytes_max as usize {
            return false;
        }
        out.put_slice(&header.bytes);
        true
    }
}
