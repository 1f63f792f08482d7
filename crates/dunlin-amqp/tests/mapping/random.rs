//! Messages by chance, of both protocols, with what each can say at its edges.

use bytes::Bytes;
use dunlin_amqp::codec::{
    Array, Described, Descriptor, Header, List, Map, MessageId, Properties, Section, SerialNumber,
    Symbol, Timestamp, Uuid, Value, encode_annotated,
};
use dunlin_amqp::message::names;
use dunlin_base::{Message, MessageProperties, QoS, Text};

use crate::NOW;

/// Xorshift, enough to choose.
pub(crate) struct Random(u64);

const TEXTS: [&str; 12] = [
    "",
    "a",
    "a/b",
    "topic",
    "text/plain",
    "application/json",
    "ü",
    "5",
    "-1",
    "int a",
    "\u{1}",
    "x y",
];

/// Names that mean something, and values that fit some of them.
const SPECIAL: [(&str, &str); 22] = [
    (names::MESSAGE_ID, "m"),
    (names::MESSAGE_ID_ULONG, "17"),
    (names::MESSAGE_ID_ULONG, "017"),
    (
        names::MESSAGE_ID_UUID,
        "00112233-4455-6677-8899-aabbccddeeff",
    ),
    (names::MESSAGE_ID_BINARY, "AAE="),
    (names::USER_ID, "dXNlcg=="),
    (names::USER_ID, "no base64"),
    (names::TO, ""),
    (names::TO, "elsewhere"),
    (names::SUBJECT, "s"),
    (names::REPLY_TO, "#"),
    (names::CORRELATION_ID, "cor"),
    (names::ABSOLUTE_EXPIRY_TIME, "1800000000999"),
    (names::ABSOLUTE_EXPIRY_TIME, ""),
    (names::CREATION_TIME, "-5"),
    (names::GROUP_SEQUENCE, "4294967295"),
    (names::PRIORITY, "9"),
    (names::TYPE, "int a"),
    (names::TYPE, "boolean 5"),
    (names::BODY, "binary"),
    (names::HEAD, "AFNw"),
    ("amqp-unknown", "u"),
];

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(crate) fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        ((self.0 >> 11) % limit as u64) as usize
    }

    fn one_in(&mut self, limit: usize) -> bool {
        self.below(limit) == 0
    }

    fn text(&mut self) -> &'static str {
        if self.one_in(20) {
            return "long ".repeat(60).leak();
        }
        TEXTS[self.below(TEXTS.len())]
    }

    fn bytes(&mut self) -> &'static [u8] {
        match self.below(4) {
            0 => b"",
            1 => b"\x00\xff",
            2 => vec![b'x'; 300].leak(),
            _ => self.text().as_bytes(),
        }
    }

    /// A message as MQTT publishes it.
    pub(crate) fn neutral(&mut self) -> Message {
        let pairs = (0..self.below(5))
            .map(|_| match self.below(3) {
                0 => SPECIAL[self.below(SPECIAL.len())],
                _ => (self.text(), self.text()),
            })
            .map(|(name, value)| (Text::from(name), Text::from(value)))
            .collect();
        let properties = MessageProperties {
            payload_is_utf8: [None, Some(false), Some(true)][self.below(3)],
            content_type: self.one_in(3).then(|| Text::from(self.text())),
            response_topic: self.one_in(3).then(|| Text::from("reply/to")),
            correlation_data: self.one_in(3).then(|| Bytes::from_static(self.bytes())),
            user_properties: pairs,
        };
        let secs = self.below(100_000) as u64;
        Message {
            topic: Text::from(["a", "a/b", "to"][self.below(3)]),
            payload: Bytes::from_static(self.bytes()),
            qos: QoS::from_u8(self.below(3) as u8).unwrap(),
            retain: self.one_in(3),
            expires: self
                .one_in(3)
                .then(|| NOW + core::time::Duration::from_secs(secs)),
            properties: (!properties.is_empty()).then(|| Box::new(properties)),
            extra: None,
        }
    }

    fn simple(&mut self) -> Value<'static> {
        match self.below(12) {
            0 => Value::Null,
            1 => Value::Bool(self.one_in(2)),
            2 => Value::Int(self.below(300) as i32 - 150),
            3 => Value::Ulong(u64::MAX),
            4 => Value::Double([1.5, f64::NAN, f64::INFINITY, -0.0][self.below(4)]),
            5 => Value::Char('ü'),
            6 => Value::Timestamp(Timestamp(-1)),
            7 => Value::Uuid(Uuid([7; 16])),
            8 => Value::Binary(self.bytes()),
            9 => Value::Symbol(Symbol::from_static("sym")),
            10 => Value::Decimal32([1, 2, 3, 4]),
            _ => Value::String(self.text()),
        }
    }

    fn any(&mut self, depth: usize) -> Value<'static> {
        if depth == 0 || self.one_in(2) {
            return self.simple();
        }
        match self.below(4) {
            0 => {
                let values: Vec<_> = (0..self.below(4)).map(|_| self.any(depth - 1)).collect();
                Value::List(List::new(values.leak()))
            }
            1 => {
                let entries: Vec<_> = (0..self.below(4))
                    .map(|_| (Value::String(self.text()), self.any(depth - 1)))
                    .collect();
                Value::Map(Map::new(entries.leak()))
            }
            2 => Value::Array(Array::new(&[Value::Int(1), Value::Int(500)])),
            _ => {
                let value = Box::leak(Box::new(self.any(depth - 1)));
                Value::Described(Described::new(Descriptor::Code(5), value))
            }
        }
    }

    fn id(&mut self) -> MessageId<'static> {
        match self.below(4) {
            0 => MessageId::Ulong(self.below(1000) as u64),
            1 => MessageId::Uuid(Uuid([9; 16])),
            2 => MessageId::Binary(self.bytes()),
            _ => MessageId::String(self.text()),
        }
    }

    fn properties(&mut self) -> Properties<'static> {
        let text = |random: &mut Self| random.one_in(3).then(|| random.text());
        Properties {
            message_id: self.one_in(2).then(|| self.id()),
            user_id: self.one_in(3).then(|| self.bytes()),
            to: text(self),
            subject: if self.one_in(30) {
                Some("nul\0")
            } else {
                text(self)
            },
            reply_to: text(self),
            correlation_id: self.one_in(2).then(|| self.id()),
            content_type: self.one_in(3).then_some(Symbol::from_static("text/plain")),
            content_encoding: self.one_in(5).then_some(Symbol::from_static("gzip")),
            absolute_expiry_time: self.one_in(4).then_some(Timestamp(1_800_000_060_000)),
            creation_time: self.one_in(3).then_some(Timestamp(1_700_000_000_000)),
            group_id: text(self),
            group_sequence: self.one_in(4).then_some(SerialNumber(3)),
            reply_to_group_id: text(self),
        }
    }

    fn map(&mut self, with_special: bool) -> Map<'static> {
        let special = [
            names::QOS,
            names::RETAIN,
            names::PAYLOAD_FORMAT,
            names::USER_PROPERTIES,
        ];
        let entries: Vec<_> = (0..self.below(4))
            .map(|_| {
                if !with_special {
                    return (Value::String(self.text()), self.simple());
                }
                let name = match self.below(2) {
                    0 => special[self.below(special.len())],
                    _ => "x-opt-other",
                };
                (Value::Symbol(Symbol::new(name).unwrap()), self.any(1))
            })
            .collect();
        Map::new(entries.leak())
    }

    /// A section, at times with lengths that are longer than they must be.
    fn section(&mut self, section: Section, value: Value<'_>, out: &mut Vec<u8>) {
        let encoded = value.to_vec().unwrap();
        match encoded.as_slice() {
            [code @ (0xc0 | 0xc1), _, count, elements @ ..] if self.one_in(3) => {
                out.extend_from_slice(&[0, 0x53, section as u8, code + 0x10]);
                out.extend_from_slice(&(elements.len() as u32 + 4).to_be_bytes());
                out.extend_from_slice(&u32::from(*count).to_be_bytes());
                out.extend_from_slice(elements);
            }
            [code @ (0xa0 | 0xa1), _, data @ ..] if self.one_in(3) => {
                out.extend_from_slice(&[0, 0x53, section as u8, code + 0x10]);
                out.extend_from_slice(&(data.len() as u32).to_be_bytes());
                out.extend_from_slice(data);
            }
            _ => section.encode(&value, out).unwrap(),
        }
    }

    /// A message as a client of AMQP sends it.
    pub(crate) fn amqp(&mut self) -> Bytes {
        let mut out = Vec::new();
        let header = Header {
            durable: self.one_in(2),
            priority: self.below(10) as u8,
            ttl: self.one_in(3).then(|| self.below(100_000) as u32),
            ..Header::default()
        };
        let header = self.one_in(2).then_some(&header);
        let delivery = self.one_in(4).then_some(Map::new(&[]));
        encode_annotated(header, delivery, None, &mut out).unwrap();
        if self.one_in(3) {
            let map = self.map(true);
            self.section(Section::MessageAnnotations, Value::Map(map), &mut out);
        }
        if !self.one_in(3) {
            self.properties().encode(&mut out).unwrap();
        }
        if self.one_in(2) {
            let map = self.map(false);
            self.section(Section::ApplicationProperties, Value::Map(map), &mut out);
        }
        match self.below(5) {
            0 => {}
            1 => {
                for _ in 0..=self.below(2) {
                    let list = Value::List(List::new(&[Value::Int(1), Value::Null]));
                    self.section(Section::AmqpSequence, list, &mut out);
                }
            }
            2 => {
                let value = self.any(3);
                self.section(Section::AmqpValue, value, &mut out);
            }
            _ => {
                for _ in 0..=self.below(2) {
                    let data = Value::Binary(self.bytes());
                    self.section(Section::Data, data, &mut out);
                }
            }
        }
        if self.one_in(10) {
            self.section(Section::Footer, Value::Map(Map::new(&[])), &mut out);
        }
        Bytes::from(out)
    }
}
