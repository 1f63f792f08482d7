//! Packets as bytes: no properties but those that must be stepped over, QoS 0
//! and 1. Knows no connection and no order of packets.

/// A packet that does not follow the rules, or that this client did not allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

/// A packet of the broker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Incoming<'a> {
    /// The broker accepts with the reason 0.
    ConnAck {
        /// Whether it has kept the session.
        session: bool,
        /// Reason code.
        reason: u8,
    },
    /// A message of this client has arrived.
    PubAck {
        /// Its packet identifier.
        id: u16,
        /// Reason code; from 128 on the broker refuses it.
        reason: u8,
    },
    /// A subscription was made, or not.
    SubAck {
        /// The packet identifier of the request.
        id: u16,
        /// Reason code of the first filter.
        reason: u8,
    },
    /// A message.
    Publish {
        /// Where it was published.
        topic: &'a [u8],
        /// What was published.
        payload: &'a [u8],
        /// To be acknowledged, with QoS 1.
        id: Option<u16>,
    },
    /// The broker ends the connection.
    Disconnect {
        /// Reason code.
        reason: u8,
    },
    /// Anything else.
    Other,
}

/// Writes packets into a buffer; [`Packets::finish`] tells whether they fit.
#[derive(Debug)]
pub struct Packets<'a> {
    out: &'a mut [u8],
    at: usize,
    full: bool,
}

impl<'a> Packets<'a> {
    /// Nothing written yet.
    pub const fn new(out: &'a mut [u8]) -> Self {
        Self {
            out,
            at: 0,
            full: false,
        }
    }

    /// The packets, if all fit.
    #[must_use]
    pub fn finish(self) -> Option<&'a [u8]> {
        let written = self.out.get(..self.at);
        written.filter(|_| !self.full)
    }

    fn put(&mut self, bytes: &[u8]) {
        let room = self.out.get_mut(self.at..);
        match room.and_then(|room| room.get_mut(..bytes.len())) {
            Some(room) => {
                room.copy_from_slice(bytes);
                self.at += bytes.len();
            }
            None => self.full = true,
        }
    }

    /// A string or binary field.
    fn field(&mut self, bytes: &[u8]) {
        let len = u16::try_from(bytes.len()).unwrap_or(u16::MAX);
        self.full |= usize::from(len) != bytes.len();
        self.put(&len.to_be_bytes());
        self.put(bytes);
    }

    /// A fixed header; packets of 16 KiB and more are not for this client.
    fn head(&mut self, first: u8, len: usize) {
        self.full |= len >= 1 << 14;
        let [low, high, ..] = len.to_le_bytes();
        if len < 0x80 {
            self.put(&[first, low]);
        } else {
            self.put(&[first, low | 0x80, low >> 7 | high << 1]);
        }
    }

    /// CONNECT. `expiry` are seconds that the session outlives the connection,
    /// `maximum` bytes that a packet of the broker may have.
    pub fn connect(&mut self, client_id: &[u8], keep_alive: u16, expiry: u32, maximum: u32) {
        self.head(0x10, 10 + 11 + 2 + client_id.len());
        self.field(b"MQTT");
        // Clean start only for sessions that end with the connection.
        self.put(&[5, if expiry == 0 { 2 } else { 0 }]);
        self.put(&keep_alive.to_be_bytes());
        self.put(&[10, 0x11]);
        self.put(&expiry.to_be_bytes());
        self.put(&[0x27]);
        self.put(&maximum.to_be_bytes());
        self.field(client_id);
    }

    /// PUBLISH with QoS 1, and DUP if it `again` goes out.
    pub fn publish(&mut self, id: u16, again: bool, topic: &[u8], payload: &[u8]) {
        let first = if again { 0x3a } else { 0x32 };
        self.head(first, 2 + topic.len() + 2 + 1 + payload.len());
        self.field(topic);
        self.put(&id.to_be_bytes());
        self.put(&[0]);
        self.put(payload);
    }

    /// SUBSCRIBE to one filter with QoS 1.
    pub fn subscribe(&mut self, id: u16, filter: &[u8]) {
        self.head(0x82, 2 + 1 + 2 + filter.len() + 1);
        self.put(&id.to_be_bytes());
        self.put(&[0]);
        self.field(filter);
        self.put(&[1]);
    }

    /// PUBACK.
    pub fn acknowledge(&mut self, id: u16) {
        self.head(0x40, 2);
        self.put(&id.to_be_bytes());
    }

    /// DISCONNECT.
    pub fn disconnect(&mut self) {
        self.head(0xe0, 0);
    }
}

/// The first packet of `bytes` and its length; nothing if it is not complete.
///
/// # Errors
///
/// [`Malformed`], after which the connection is of no use.
pub fn decode(bytes: &[u8]) -> Result<Option<(Incoming<'_>, usize)>, Malformed> {
    let mut rest = bytes;
    let Some(first) = byte(&mut rest) else {
        return Ok(None);
    };
    let Some(len) = varint(&mut rest)? else {
        return Ok(None);
    };
    let Some(body) = rest.get(..len) else {
        return Ok(None);
    };
    let head = bytes.len() - rest.len();
    let packet = packet(first, body).ok_or(Malformed)?;
    Ok(Some((packet, head + len)))
}

fn packet(first: u8, mut body: &[u8]) -> Option<Incoming<'_>> {
    Some(match first {
        0x20 => Incoming::ConnAck {
            session: byte(&mut body)? == 1,
            reason: byte(&mut body)?,
        },
        0x40 => Incoming::PubAck {
            id: word(&mut body)?,
            reason: byte(&mut body).unwrap_or(0),
        },
        0x90 => {
            let id = word(&mut body)?;
            properties(&mut body)?;
            let reason = byte(&mut body)?;
            Incoming::SubAck { id, reason }
        }
        0x30..=0x3b => {
            let len = word(&mut body)?;
            let topic = take(&mut body, usize::from(len))?;
            let id = match first & 6 {
                0 => None,
                2 => Some(word(&mut body)?),
                // QoS 2 was not granted.
                _ => return None,
            };
            properties(&mut body)?;
            Incoming::Publish {
                topic,
                payload: body,
                id,
            }
        }
        0xe0 => Incoming::Disconnect {
            reason: byte(&mut body).unwrap_or(0),
        },
        _ => Incoming::Other,
    })
}

fn take<'a>(bytes: &mut &'a [u8], n: usize) -> Option<&'a [u8]> {
    let (head, tail) = bytes.split_at_checked(n)?;
    *bytes = tail;
    Some(head)
}

fn byte(bytes: &mut &[u8]) -> Option<u8> {
    take(bytes, 1)?.first().copied()
}

fn word(bytes: &mut &[u8]) -> Option<u16> {
    Some(u16::from_be_bytes(*take(bytes, 2)?.first_chunk()?))
}

/// A Variable Byte Integer; nothing if it is cut off.
fn varint(bytes: &mut &[u8]) -> Result<Option<usize>, Malformed> {
    let mut value = 0;
    for shift in [0, 7, 14, 21] {
        let Some(next) = byte(bytes) else {
            return Ok(None);
        };
        value |= usize::from(next & 0x7f) << shift;
        if next & 0x80 == 0 {
            return Ok(Some(value));
        }
    }
    Err(Malformed)
}

/// Steps over properties.
fn properties(bytes: &mut &[u8]) -> Option<()> {
    let len = varint(bytes).ok()??;
    take(bytes, len).map(|_| ())
}

#[cfg(test)]
mod tests {
    use std::format;
    use std::string::String;

    use dunlin_mqtt_codec as codec;

    use super::*;

    /// What the codec of the broker makes of the packets.
    fn read(write: impl FnOnce(&mut Packets<'_>)) -> String {
        let mut out = [0; 300];
        let mut packets = Packets::new(&mut out);
        write(&mut packets);
        let bytes = packets.finish().unwrap();
        let packet = codec::decode_from_client(bytes, codec::Version::V5).unwrap();
        format!("{packet:?}")
    }

    #[test]
    fn the_broker_understands() {
        let connect = read(|packets| packets.connect(b"meter", 60, 3600, 512));
        assert!(
            connect.contains("\"meter\"") && connect.contains("3600"),
            "{connect}"
        );
        let payload = [7; 200];
        let publish = read(|packets| packets.publish(9, true, b"a/b", &payload));
        assert!(
            publish.contains("a/b") && publish.contains("dup: true"),
            "{publish}"
        );
        let subscribe = read(|packets| packets.subscribe(3, b"a/+"));
        assert!(subscribe.contains("a/+"), "{subscribe}");
        read(|packets| packets.acknowledge(5));
        read(|packets| packets.disconnect());
    }

    #[test]
    fn packets_of_the_broker() {
        let cases: [(&[u8], Incoming<'_>); 5] = [
            (
                &[0x20, 3, 1, 0, 0],
                Incoming::ConnAck {
                    session: true,
                    reason: 0,
                },
            ),
            (&[0x40, 2, 0, 9], Incoming::PubAck { id: 9, reason: 0 }),
            (
                &[0x90, 4, 0, 3, 0, 1],
                Incoming::SubAck { id: 3, reason: 1 },
            ),
            (
                &[0x32, 10, 0, 1, b'a', 0, 4, 2, 1, 0, b'o', b'n'],
                Incoming::Publish {
                    topic: b"a",
                    payload: b"on",
                    id: Some(4),
                },
            ),
            (&[0xe0, 1, 0x8b], Incoming::Disconnect { reason: 0x8b }),
        ];
        for (bytes, want) in cases {
            for cut in 0..bytes.len() {
                assert_eq!(decode(&bytes[..cut]), Ok(None), "{bytes:?}");
            }
            assert_eq!(decode(bytes), Ok(Some((want, bytes.len()))));
        }
    }

    #[test]
    fn bad_packets() {
        let cases: [&[u8]; 4] = [
            &[0x20, 0xff, 0xff, 0xff, 0xff, 1],
            &[0x20, 1, 0],
            &[0x34, 4, 0, 0, 0, 0],
            &[0x32, 3, 0, 9, 1],
        ];
        for bytes in cases {
            assert_eq!(decode(bytes), Err(Malformed), "{bytes:?}");
        }
    }
}
