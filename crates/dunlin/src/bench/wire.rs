//! The few bytes that the generator reads and writes millions of times: a
//! stamp in every payload, PUBLISH packets made once and patched, frames cut
//! from a stream. Everything rarer goes through the codec.

use dunlin_base::{SendBuf, topic};
use dunlin_mqtt_codec::{
    DecodeError, EncodeError, Frame, PacketId, PacketType, Publish, QoS, Version, peek,
};

/// Bytes at the start of every payload that say who sent it and when.
pub const STAMP_BYTES: usize = 16;
/// Largest packet that the generator takes.
const PACKET_BYTES_MAX: u32 = dunlin_base::limits::MQTT_PACKET_BYTES_MAX;

/// What is written at the start of a payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// When the message was to be sent, in microseconds of the process clock.
    pub at_us: u64,
    /// Who sent it.
    pub publisher: u32,
    /// Its number among all messages of this publisher to this topic, from 0.
    pub seq: u32,
}

impl Stamp {
    /// The stamp as bytes.
    #[must_use]
    pub fn to_bytes(self) -> [u8; STAMP_BYTES] {
        let mut bytes = [0; STAMP_BYTES];
        let (at, rest) = bytes.split_at_mut(8);
        let (publisher, seq) = rest.split_at_mut(4);
        at.copy_from_slice(&self.at_us.to_be_bytes());
        publisher.copy_from_slice(&self.publisher.to_be_bytes());
        seq.copy_from_slice(&self.seq.to_be_bytes());
        bytes
    }

    /// The stamp at the start of a payload, if it is long enough.
    #[must_use]
    pub fn from_payload(payload: &[u8]) -> Option<Self> {
        let (at, rest) = payload.split_first_chunk::<8>()?;
        let (publisher, rest) = rest.split_first_chunk::<4>()?;
        let (seq, _) = rest.split_first_chunk::<4>()?;
        Some(Self {
            at_us: u64::from_be_bytes(*at),
            publisher: u32::from_be_bytes(*publisher),
            seq: u32::from_be_bytes(*seq),
        })
    }
}

/// A PUBLISH that lacks only packet identifier, stamp and the rest of its
/// payload.
#[derive(Clone, Debug)]
pub struct Template {
    header: Vec<u8>,
    packet_id_offset: usize,
    has_packet_id: bool,
}

impl Template {
    /// Prepares messages to `topic` with payloads of `payload_len` bytes.
    ///
    /// # Errors
    /// The packet would be larger than MQTT allows.
    pub fn new(
        version: Version,
        qos: QoS,
        topic: &str,
        payload_len: usize,
    ) -> Result<Self, EncodeError> {
        debug_assert!(topic::validate_name(topic).is_ok());
        let publish = Publish {
            qos,
            topic,
            packet_id: (qos != QoS::AtMostOnce).then_some(PacketId::MIN),
            ..Publish::default()
        };
        let mut header = Vec::new();
        let layout = publish.encode_header(version, payload_len, &mut header)?;
        Ok(Self {
            packet_id_offset: layout.packet_id_offset.unwrap_or(header.len()),
            has_packet_id: layout.packet_id_offset.is_some(),
            header,
        })
    }

    /// Bytes of the packet before its payload.
    #[must_use]
    pub fn header_len(&self) -> usize {
        self.header.len()
    }

    /// Writes the header and the stamp; the rest of the payload must follow.
    pub fn write(&self, packet_id: u16, stamp: Stamp, out: &mut SendBuf) {
        let (head, tail) = self.header.split_at(self.packet_id_offset);
        out.put_slice(head);
        if self.has_packet_id {
            out.put_slice(&packet_id.to_be_bytes());
            out.put_slice(tail.get(2..).unwrap_or_default());
        }
        out.put_slice(&stamp.to_bytes());
    }
}

/// What the generator wants to know of a PUBLISH it received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// Quality of service of the delivery.
    pub qos: QoS,
    /// To be acknowledged, unless the QoS is 0.
    pub packet_id: u16,
    /// `None`: the payload is not one of ours.
    pub stamp: Option<Stamp>,
}

/// Reads a PUBLISH just far enough.
#[must_use]
pub fn read_publish(frame: &Frame, packet: &[u8], version: Version) -> Option<Arrival> {
    let qos = QoS::from_u8((frame.flags >> 1) & 0b11)?;
    let body = packet.get(frame.header_len..)?;
    let (topic_len, rest) = body.split_first_chunk::<2>()?;
    let mut rest = rest.get(usize::from(u16::from_be_bytes(*topic_len))..)?;
    let mut packet_id = 0;
    if qos != QoS::AtMostOnce {
        let (id, after) = rest.split_first_chunk::<2>()?;
        packet_id = u16::from_be_bytes(*id);
        rest = after;
    }
    if version == Version::V5 {
        let (len, used) = varint(rest)?;
        rest = rest.get(used + len..)?;
    }
    Some(Arrival {
        qos,
        packet_id,
        stamp: Stamp::from_payload(rest),
    })
}

fn varint(bytes: &[u8]) -> Option<(usize, usize)> {
    let mut value = 0;
    for (index, byte) in bytes.iter().take(4).enumerate() {
        value |= usize::from(byte & 0x7f) << (7 * index);
        if byte & 0x80 == 0 {
            return Some((value, index + 1));
        }
    }
    None
}

/// Cuts a stream into packets, keeping only what is incomplete.
#[derive(Debug, Default)]
pub struct Framer {
    partial: Vec<u8>,
}

impl Framer {
    /// Takes the next bytes and hands out the packets that are complete.
    ///
    /// # Errors
    /// The bytes are not MQTT.
    pub fn feed(
        &mut self,
        mut data: &[u8],
        mut on_packet: impl FnMut(&Frame, &[u8]),
    ) -> Result<(), DecodeError> {
        while !self.partial.is_empty() && !data.is_empty() {
            // Only what the first packet lacks is copied; the rest is read
            // where it lies.
            let wanted = match peek(&self.partial, PACKET_BYTES_MAX)? {
                Some(frame) => frame.total_len - self.partial.len(),
                None => 1,
            };
            let (head, rest) = data.split_at(wanted.min(data.len()));
            self.partial.extend_from_slice(head);
            data = rest;
            if let Some(frame) = peek(&self.partial, PACKET_BYTES_MAX)?
                && frame.total_len == self.partial.len()
            {
                on_packet(&frame, &self.partial);
                self.partial.clear();
            }
        }
        while let Some(frame) = peek(data, PACKET_BYTES_MAX)? {
            let Some((packet, rest)) = data.split_at_checked(frame.total_len) else {
                break;
            };
            on_packet(&frame, packet);
            data = rest;
        }
        self.partial.extend_from_slice(data);
        Ok(())
    }
}

/// Whether a packet is a PUBLISH, the one kind that is not decoded in full.
#[must_use]
pub fn is_publish(frame: &Frame) -> bool {
    frame.packet_type == PacketType::Publish
}

#[cfg(test)]
mod tests {
    use super::*;
    use dunlin_mqtt_codec::{Packet, decode};

    fn packet(version: Version, qos: QoS, size: usize, stamp: Stamp) -> Vec<u8> {
        let template = Template::new(version, qos, "bench/1", size).unwrap();
        let mut out = SendBuf::new();
        template.write(513, stamp, &mut out);
        out.put_slice(&vec![b'.'; size - STAMP_BYTES]);
        out.slices().flatten().copied().collect()
    }

    #[test]
    fn templates_make_what_the_codec_reads_and_arrivals_are_read_back() {
        let stamp = Stamp {
            at_us: 1_777_000_123_456_789,
            publisher: 77,
            seq: 1_000_000,
        };
        for version in [Version::V311, Version::V5] {
            for qos in [QoS::AtMostOnce, QoS::AtLeastOnce, QoS::ExactlyOnce] {
                let bytes = packet(version, qos, 200, stamp);
                let Ok(Packet::Publish(publish)) = decode(&bytes, version) else {
                    panic!("{version:?} {qos:?}");
                };
                assert_eq!((publish.qos, publish.topic), (qos, "bench/1"));
                assert_eq!(publish.payload.len(), 200);
                let frame = peek(&bytes, PACKET_BYTES_MAX).unwrap().unwrap();
                let arrival = read_publish(&frame, &bytes, version).unwrap();
                let id = publish.packet_id.map_or(0, PacketId::get);
                assert_eq!((arrival.qos, arrival.packet_id), (qos, id));
                assert_eq!(arrival.stamp, Some(stamp));
            }
        }
    }

    #[test]
    fn packets_are_cut_wherever_the_stream_is() {
        let stamp = |seq| Stamp {
            at_us: 5,
            publisher: 1,
            seq,
        };
        let stream: Vec<u8> = (0..20)
            .flat_map(|seq| {
                packet(
                    Version::V5,
                    QoS::AtLeastOnce,
                    16 + 13 * seq as usize,
                    stamp(seq),
                )
            })
            .collect();
        for step in [1, 2, 3, 7, 50, 64, 1000, stream.len()] {
            let (mut framer, mut seen) = (Framer::default(), Vec::new());
            for piece in stream.chunks(step) {
                framer
                    .feed(piece, |frame, packet| {
                        let arrival = read_publish(frame, packet, Version::V5).unwrap();
                        seen.push(arrival.stamp.unwrap().seq);
                    })
                    .unwrap();
            }
            assert_eq!(seen, (0..20).collect::<Vec<_>>(), "step {step}");
            assert!(framer.partial.is_empty());
        }
    }

    #[test]
    fn foreign_payloads_have_no_stamp() {
        assert_eq!(Stamp::from_payload(b"short"), None);
        assert!(Framer::default().feed(&[0x00, 0x00], |_, _| ()).is_err());
    }
}
