//! Random values of everything that is in a message: the tables of the format make those
//! of structs and variants.

use alloc::boxed::Box;
use alloc::format;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr, SocketAddrV6};
use core::num::NonZeroU64;
use core::time::Duration;

use bytes::Bytes;
use dunlin_base::transport::{BindingType, CloseCause, Transport};
use dunlin_base::{
    ConnId, Encoded, Form, Instant, Message, MessageExtra, MessageProperties, QoS, Random, Repeat,
    SendBuf, ShardId, StreamId, Text,
};
use dunlin_queue::Identifiers;
use dunlin_store::{InflightState, Seq, SessionKey, SessionRecord, StoreOp, StoredWill, Target};

use crate::access::OwnRules;
use crate::io::{PassedOn, Preparation, QueueCall, ShardFigures};
use crate::wants::Wants;

/// Makes values.
pub(in crate::between::codec) struct Gen {
    random: Random,
    /// Bytes of payloads, at most.
    bytes_max: u64,
    /// Elements of lists, at most.
    list_max: u64,
    /// Numbers that variants are taken of first, the outermost first.
    first: Vec<u8>,
}

impl Gen {
    /// Values of all sizes.
    pub(super) const fn new(seed: u64) -> Self {
        Self {
            random: Random::new(seed),
            bytes_max: 6000,
            list_max: 4,
            first: Vec::new(),
        }
    }

    /// Small ones, of these variants.
    pub(super) fn small(seed: u64, first: &[u8]) -> Self {
        Self {
            bytes_max: 4,
            list_max: 2,
            first: first.iter().rev().copied().collect(),
            ..Self::new(seed)
        }
    }

    pub(in crate::between::codec) fn any<T: Any>(&mut self) -> T {
        T::any(self)
    }

    pub(in crate::between::codec) fn one_of(&mut self, numbers: &[u8]) -> u8 {
        let any = numbers[self.below(numbers.len() as u64) as usize];
        self.first.pop().unwrap_or(any)
    }

    pub(super) const fn below(&mut self, below: u64) -> u64 {
        self.random.below(below)
    }

    fn bytes(&mut self) -> Vec<u8> {
        // Most are short.
        let max = match self.random.one_in(8) {
            true => self.bytes_max,
            false => self.bytes_max.min(12),
        };
        let len = self.below(max + 1);
        (0..len).map(|_| self.random.next() as u8).collect()
    }

    fn list<T: Any>(&mut self) -> Vec<T> {
        let len = self.below(self.list_max + 1);
        (0..len).map(|_| self.any()).collect()
    }
}

/// A type that has random values.
pub(in crate::between::codec) trait Any: Sized {
    fn any(g: &mut Gen) -> Self;
}

/// A type, and how its values are made.
macro_rules! any {
    ($($name:ty: |$g:ident| $value:expr;)+) => {$(
        impl Any for $name {
            fn any($g: &mut Gen) -> Self {
                $value
            }
        }
    )+};
}

/// Numbers of all sizes, the ends among them.
fn number(g: &mut Gen) -> u64 {
    match g.below(8) {
        0 => u64::MAX,
        1 => 0,
        2..=4 => g.below(300),
        _ => g.random.next() >> g.below(64),
    }
}

any! {
    u8: |g| number(g) as Self;
    u16: |g| number(g) as Self;
    u32: |g| number(g) as Self;
    u64: |g| number(g);
    i32: |g| number(g) as Self;
    i64: |g| number(g) as Self;
    usize: |g| number(g) as Self;
    bool: |g| g.random.one_in(2);
    NonZeroU64: |g| Self::MIN.saturating_add(number(g));
    ShardId: |g| Self(g.any());
    StreamId: |g| Self(g.any());
    SessionKey: |g| Self(g.any());
    Seq: |g| Self(g.any());
    ConnId: |g| Self::from_number(g.any());
    QoS: |g| Self::from_u8(g.below(3) as u8).expect("a QoS");
    Transport: |g| Self::from_number(1 + g.below(6) as u8).expect("a transport");
    Repeat: |g| Self::from_number(1 + g.below(4) as u8).expect("a repeat");
    BindingType: |g| Self::from_number(1 + g.below(2) as u8).expect("a type");
    Duration: |g| Self::new(g.any(), g.below(1_000_000_000) as u32);
    Text: |g| {
        let len = g.below(12);
        let chars = (0..len).map(|_| ['a', '/', '+', '0', 'é', '水'][g.below(6) as usize]);
        Self::from(chars.collect::<alloc::string::String>())
    };
    Arc<str>: |g| Text::any(g).as_str().into();
    Bytes: |g| g.bytes().into();
    Box<[u8]>: |g| g.bytes().into();
    Arc<[u8]>: |g| g.bytes().into();
    Vec<u8>: |g| g.bytes();
    Identifiers: |g| g.list::<u32>().into();
    SendBuf: |g| {
        let mut all = Self::new();
        all.put_bytes(&g.any());
        all
    };
    Instant: |g| match g.below(8) {
        0 => Self::FAR_FUTURE,
        // Within a year around the moment at which it is sent.
        _ => {
            let year = 365 * 24 * 3600 * 1_000_000;
            Self::from_micros(super::SENT.as_micros() - year + g.below(2 * year))
        }
    };
    IpAddr: |g| match g.any() {
        true => Self::from([10, 0, 0, g.any()]),
        false => Self::from([0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, g.any(), g.any()]),
    };
    SocketAddr: |g| match IpAddr::any(g) {
        IpAddr::V4(ip) => (ip, g.any()).into(),
        IpAddr::V6(ip) => SocketAddrV6::new(ip, g.any(), g.any(), g.any()).into(),
    };
    CloseCause: |g| {
        let number = 1 + g.below(6) as u8;
        let (code, text) = (g.any(), Text::any(g));
        Self::from_parts(number, code, &text).expect("a cause")
    };
    OwnRules: |g| {
        let text = format!("group g{}\nlimit messages 10\nwrite a/%c/{}", g.below(9), g.below(9));
        Self::parse(&text).expect("rules")
    };
    Message: |g| message(g);
    StoreOp: |g| op(g);
    Preparation: |g| Self {
        ops: g.list(),
        waits: g.any(),
        refused: g.any(),
        missed: g.any(),
        dead: g.any(),
    };
    PassedOn: |g| Self(g.any());
    QueueCall: |g| Self(g.any());
    ShardFigures: |g| Self(g.any());
    Wants: |g| wants(g);
}

impl<T: Any> Any for Option<T> {
    fn any(g: &mut Gen) -> Self {
        g.random.one_in(2).then(|| g.any())
    }
}

impl<T: Any> Any for Box<T> {
    fn any(g: &mut Gen) -> Self {
        Self::new(g.any())
    }
}

impl<T: Any> Any for Arc<T> {
    fn any(g: &mut Gen) -> Self {
        Self::new(g.any())
    }
}

/// Elements of lists: not `u8`, whose lists are bytes.
trait Element: Any {}

macro_rules! elements {
    ($($name:ty),+) => {$(impl Element for $name {})+};
}

elements!(
    u32,
    crate::owners::posts::Post,
    u64,
    Text,
    StoreOp,
    Arc<Message>,
    (Bytes, bool),
    (u32, dunlin_queue::Outcome, Option<Bytes>),
    (
        crate::owners::holders::Holder,
        crate::owners::holders::Holding
    ),
    crate::io::InterestChange,
    crate::queues::orders::View
);

impl<T: Element> Any for Vec<T> {
    fn any(g: &mut Gen) -> Self {
        g.list()
    }
}

impl<A: Any, B: Any> Any for (A, B) {
    fn any(g: &mut Gen) -> Self {
        (g.any(), g.any())
    }
}

impl<A: Any, B: Any, C: Any> Any for (A, B, C) {
    fn any(g: &mut Gen) -> Self {
        (g.any(), g.any(), g.any())
    }
}

fn message(g: &mut Gen) -> Message {
    let mut message = Message {
        topic: g.any(),
        payload: g.any(),
        qos: g.any(),
        retain: g.any(),
        expires: g.any(),
        properties: None,
        extra: None,
    };
    if g.any() {
        message.properties = Some(Box::new(MessageProperties {
            payload_is_utf8: g.any(),
            content_type: g.any(),
            response_topic: g.any(),
            correlation_data: g.any(),
            user_properties: (0..g.below(3)).map(|_| g.any()).collect(),
        }));
    }
    if g.any() {
        let bytes = Bytes::from([b"before", &*message.payload].concat());
        if g.any() {
            message.payload = bytes.slice(6..);
        }
        let encoded = Encoded {
            form: Form::Amqp,
            bytes,
        };
        message.extra = Some(Box::new(MessageExtra {
            priority: g.any(),
            created_ms: g.any(),
            deliver_at: g.any(),
            sender: g.any(),
            encoded: bool::any(g).then_some(encoded),
        }));
    }
    message
}

fn target(g: &mut Gen) -> Target {
    Target {
        session: g.any(),
        qos: g.any(),
        retain: g.any(),
        identifiers: g.list(),
        shared: g.any(),
        failed: g.any(),
        priority: g.any(),
        not_before: g.any(),
        added: g.any(),
    }
}

fn record(g: &mut Gen) -> SessionRecord {
    let will = bool::any(g).then(|| {
        let mut message = message(g);
        // Is not stored with a will.
        if let Some(extra) = &mut message.extra {
            extra.deliver_at = None;
        }
        StoredWill {
            message,
            delay_secs: g.any(),
            message_expiry_secs: g.any(),
        }
    });
    SessionRecord {
        client_id: g.any(),
        version: g.any(),
        expiry_interval_secs: g.any(),
        disconnected_at: g.any(),
        will,
        user_name: g.any(),
        owner: g.any(),
        options: g.any(),
    }
}

fn op(g: &mut Gen) -> StoreOp {
    let (key, session, packet_id) = (g.any(), g.any(), g.any());
    match g.below(14) {
        0 => StoreOp::PutSession {
            key,
            record: record(g),
        },
        1 => StoreOp::DeleteSession { key },
        2 => StoreOp::PutSubscription {
            key,
            filter: g.any(),
            options: g.any(),
            identifier: g.any(),
        },
        3 => StoreOp::DeleteSubscription {
            key,
            filter: g.any(),
        },
        4 => StoreOp::Enqueue {
            seq: g.any(),
            message: g.any(),
            targets: (0..g.below(3)).map(|_| target(g)).collect(),
        },
        5 => StoreOp::Dequeue {
            seq: g.any(),
            session,
        },
        6 => StoreOp::PutInflight {
            session,
            packet_id,
            seq: g.any(),
            state: match g.any() {
                true => InflightState::Published,
                false => InflightState::Released,
            },
        },
        7 => StoreOp::DeleteInflight { session, packet_id },
        8 => StoreOp::PutInbound { session, packet_id },
        9 => StoreOp::DeleteInbound { session, packet_id },
        10 => StoreOp::PutRetained { message: g.any() },
        11 => StoreOp::DeleteRetained { topic: g.any() },
        12 => StoreOp::PutMeta {
            key: g.any(),
            value: g.any(),
        },
        _ => StoreOp::DeleteMeta { key: g.any() },
    }
}

/// A map with the selector `a = 1`, and one with the filter no-local.
const FILTERS: [&[u8]; 2] = [
    b"\xc1\x20\x02\xa3\x0cjms-selector\0\x80\0\0\x46\x8c\0\0\0\x04\xa1\x05a = 1",
    b"\xc1\x16\x02\xa3\x08no-local\0\x80\0\0\x46\x8c\0\0\0\x03\x45",
];

fn wants(g: &mut Gen) -> Wants {
    let own = Some(g.any());
    Wants::parse(FILTERS[g.below(2) as usize], own).expect("filters")
}
