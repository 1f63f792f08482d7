//! A message in the form of PUBLISH, borrowed: as its publisher sent it, or as
//! a view of one that is held.

use alloc::vec::Vec;

use dunlin_base::{Instant, Message, QoS, SendBuf};
use dunlin_mqtt::codec::{Publish, Version};
use dunlin_mqtt::server::delivery;

/// A cached encoding: all of a QoS 0 PUBLISH but its payload.
#[derive(Debug)]
struct Header {
    version: Version,
    retain: bool,
    bytes: Vec<u8>,
}

/// The bytes of a PUBLISH.
pub(crate) type Raw<'a> = (Version, &'a [u8]);

/// The packet: that of the publisher, or one made of a message.
#[derive(Debug)]
enum View<'a> {
    /// With its bytes, if they are what another shard may have.
    Received(&'a Publish<'a>, Option<Raw<'a>>),
    Made(Publish<'a>),
}

/// A message as PUBLISH, and how it leaves for receivers with QoS 0.
#[derive(Debug)]
pub(crate) struct Form<'a> {
    view: View<'a>,
    /// A receiver has got it.
    used: bool,
    headers: Vec<Header>,
}

impl<'a> Form<'a> {
    const fn new(view: View<'a>) -> Self {
        Self {
            view,
            used: false,
            headers: Vec::new(),
        }
    }

    /// Of a PUBLISH as received, without DUP and with any alias resolved; `raw` if
    /// it had none.
    pub(crate) const fn of_packet(publish: &'a Publish<'a>, raw: Option<Raw<'a>>) -> Self {
        Self::new(View::Received(publish, raw))
    }

    /// Its bytes, as it came.
    pub(crate) const fn raw(&self) -> Option<Raw<'a>> {
        match &self.view {
            View::Received(_, raw) => *raw,
            View::Made(_) => None,
        }
    }

    /// Of a message that is held, with what is left of its time at `now`.
    pub(crate) fn of_message(message: &'a Message, now: Instant) -> Self {
        Self::new(View::Made(delivery::view(message, now)))
    }

    pub(crate) const fn topic(&self) -> &'a str {
        self.view().topic
    }

    pub(crate) const fn payload(&self) -> &'a [u8] {
        self.view().payload
    }

    pub(crate) const fn qos(&self) -> QoS {
        self.view().qos
    }

    pub(crate) const fn retain(&self) -> bool {
        self.view().retain
    }

    /// The message as something that can be kept.
    pub(crate) fn message(&self, now: Instant) -> Message {
        delivery::message(self.view(), now)
    }

    /// The packet, to be adapted for one receiver.
    pub(crate) const fn view(&self) -> &Publish<'a> {
        match &self.view {
            View::Received(publish, _) => publish,
            View::Made(publish) => publish,
        }
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
        let payload_len = self.payload().len();
        let mut headers = self.headers.iter();
        let known = headers.find(|h| h.version == version && h.retain == retain);
        if let Some(known) = known {
            //= mqtt5#[MQTT-3.1.2-24]
            let fits = known.bytes.len() + payload_len <= bytes_max as usize;
            if fits {
                out.put_slice(&known.bytes);
            }
            return fits;
        }
        let publish = Publish {
            qos: QoS::AtMostOnce,
            packet_id: None,
            retain,
            ..self.view().clone()
        };
        //= mqtt5#[MQTT-3.1.2-24]
        let bytes_max = bytes_max as usize;
        // Most messages have one receiver: only with another one is it kept.
        if !core::mem::replace(&mut self.used, true) {
            let put = publish.encode_header_within(version, payload_len, bytes_max, out);
            return put.is_ok();
        }
        let mut bytes = Vec::with_capacity(16 + publish.topic.len());
        if publish
            .encode_header(version, payload_len, &mut bytes)
            .is_err()
        {
            return false;
        }
        let fits = bytes.len() + payload_len <= bytes_max;
        if fits {
            out.put_slice(&bytes);
        }
        self.headers.push(Header {
            version,
            retain,
            bytes,
        });
        fits
    }
}
