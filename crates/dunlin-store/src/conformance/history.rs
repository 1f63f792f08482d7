//! Random histories of a store: the same operations for the same seed. Knows
//! nothing of any back end.

use alloc::boxed::Box;
use alloc::format;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::num::NonZeroU64;

use bytes::Bytes;
use dunlin_base::{
    Encoded, Form, Instant, Message, MessageExtra, MessageProperties, QoS, Random, ShardId, Text,
};

use crate::{InflightState, Seq, SessionKey, SessionRecord, StoreOp, Target};

/// A seeded generator of histories, for suites and crash tests.
#[derive(Clone, Debug)]
pub struct Histories {
    random: Random,
    counter: u64,
    /// Open places in queues, by message, to acknowledge real ones.
    queued: Vec<(Seq, SessionKey)>,
}

/// Sessions that a history plays with.
const SESSIONS: u64 = 8;

impl Histories {
    /// The history of this seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self {
            random: Random::new(seed),
            counter: 0,
            queued: Vec::new(),
        }
    }

    /// A number below `below`, which is not zero.
    pub fn below(&mut self, below: u64) -> u64 {
        self.random.below(below)
    }

    /// The next batch's operations.
    pub fn batch(&mut self) -> Vec<StoreOp> {
        (0..=self.below(6)).map(|_| self.op()).collect()
    }

    fn key(&mut self) -> SessionKey {
        SessionKey(self.below(SESSIONS))
    }

    fn packet_id(&mut self) -> u16 {
        1 + self.below(4) as u16
    }

    /// A sequence number that may be in use.
    pub fn some_seq(&mut self) -> Seq {
        let back = self.below(12);
        Seq::new(
            self.counter.saturating_sub(back),
            ShardId(self.below(2) as u16),
        )
    }

    fn text(&mut self, what: &str) -> Text {
        let n = self.below(5);
        Text::from(format!("{what}/{n}"))
    }

    fn message(&mut self) -> Arc<Message> {
        let long = if self.below(10) == 0 { 9000 } else { 40 };
        let len = self.below(long) as usize;
        let expires = self.below(1 << 40);
        Arc::new(Message {
            topic: self.text("topic"),
            payload: Bytes::from(vec![self.random.clone().next() as u8; len]),
            qos: QoS::from_u8(self.below(3) as u8).unwrap_or_default(),
            retain: self.below(2) == 0,
            expires: (expires.is_multiple_of(3)).then(|| Instant::from_micros(expires)),
            properties: (expires.is_multiple_of(5)).then(|| {
                Box::new(MessageProperties {
                    content_type: Some(Text::from("text/plain")),
                    ..MessageProperties::default()
                })
            }),
            extra: (expires.is_multiple_of(7)).then(|| Box::new(extra(expires))),
        })
    }

    fn targets(&mut self, seq: Seq) -> Vec<Target> {
        (0..=self.below(3))
            .map(|_| {
                let session = self.key();
                self.queued.push((seq, session));
                Target {
                    retain: self.below(4) == 0,
                    identifiers: (0..self.below(3)).map(|n| n as u32 + 1).collect(),
                    shared: (self.below(5) == 0).then(|| Text::from("$share/g/t")),
                    failed: self.below(3) as u16,
                    priority: (self.below(4) == 0).then_some(7),
                    not_before: (self.below(4) == 0).then_some(Instant::from_micros(1 << 50)),
                    added: (self.below(4) == 0).then(|| Arc::from(&b"added"[..])),
                    ..Target::new(
                        session,
                        QoS::from_u8(self.below(3) as u8).unwrap_or_default(),
                    )
                }
            })
            .collect()
    }

    fn op(&mut self) -> StoreOp {
        let session = self.key();
        match self.below(24) {
            0..=1 => StoreOp::PutSession {
                key: session,
                record: SessionRecord {
                    client_id: self.text("client"),
                    version: 5,
                    expiry_interval_secs: self.below(100) as u32,
                    ..SessionRecord::default()
                },
            },
            2 if self.below(3) == 0 => StoreOp::DeleteSession { key: session },
            2..=3 => StoreOp::PutSubscription {
                key: session,
                filter: self.text("filter"),
                options: self.below(256) as u8,
                identifier: (self.below(2) == 0).then_some(7),
            },
            4 => StoreOp::DeleteSubscription {
                key: session,
                filter: self.text("filter"),
            },
            5..=10 => self.enqueue(),
            11..=15 => self.dequeue(),
            16..=17 => StoreOp::PutInflight {
                session,
                packet_id: self.packet_id(),
                seq: self.some_seq(),
                state: if self.below(2) == 0 {
                    InflightState::Published
                } else {
                    InflightState::Released
                },
            },
            18 => StoreOp::DeleteInflight {
                session,
                packet_id: self.packet_id(),
            },
            19 => StoreOp::PutInbound {
                session,
                packet_id: self.packet_id(),
            },
            20 => StoreOp::DeleteInbound {
                session,
                packet_id: self.packet_id(),
            },
            21 => StoreOp::PutRetained {
                message: self.message(),
            },
            22 => StoreOp::DeleteRetained {
                topic: self.text("topic"),
            },
            _ if self.below(2) == 0 => StoreOp::DeleteMeta {
                key: self.text("meta"),
            },
            _ => StoreOp::PutMeta {
                key: self.text("meta"),
                value: Bytes::from(vec![9; self.below(100) as usize]),
            },
        }
    }

    fn enqueue(&mut self) -> StoreOp {
        let seq = if self.below(6) == 0 {
            self.some_seq()
        } else {
            self.counter += 1;
            Seq::new(self.counter, ShardId(self.below(2) as u16))
        };
        StoreOp::Enqueue {
            seq,
            message: self.message(),
            targets: self.targets(seq),
        }
    }

    fn dequeue(&mut self) -> StoreOp {
        if self.queued.is_empty() || self.below(10) == 0 {
            return StoreOp::Dequeue {
                seq: self.some_seq(),
                session: self.key(),
            };
        }
        let at = self.below(self.queued.len() as u64) as usize;
        let (seq, session) = self.queued.swap_remove(at);
        StoreOp::Dequeue { seq, session }
    }
}

/// What another protocol knows of a message, more or less.
fn extra(draw: u64) -> MessageExtra {
    MessageExtra {
        priority: (draw.is_multiple_of(2)).then_some((draw % 10) as u8),
        created_ms: (draw.is_multiple_of(3)).then_some(draw as i64 - (1 << 39)),
        deliver_at: None,
        sender: NonZeroU64::new(draw).filter(|_| draw.is_multiple_of(7)),
        encoded: (draw.is_multiple_of(5)).then(|| Encoded {
            form: Form::Amqp,
            bytes: Bytes::from(vec![draw as u8; (draw % 300) as usize]),
        }),
    }
}
