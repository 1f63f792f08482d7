//! Retained messages. Every shard has the whole index; the shard that a topic
//! hashes to owns it: it puts changes in order, stores them and tells the
//! others.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::ControlFlow;

use dunlin_base::{Message, QoS, ShardId, Text};
use dunlin_mqtt::server::{Content, Delivery, delivery};
use dunlin_router::Page;
use dunlin_store::{Seq, StoreOp, Target};

use crate::access::Action;
use crate::io::{BusMessage, Output};
use crate::pending::{Due, PendingPublish, RetainedChange};
use crate::publish::Hit;
use crate::session::{RetainedWalk, SessionIdx};
use crate::shard::Shard;
use crate::source::Source;

/// Retained messages taken from the index at a time.
const PAGE_MAX: usize = 128;

/// Bytes after which no more are taken at a time: well below what a QoS 0
/// message needs to be dropped for a slow client.
const PAGE_BYTES: usize = 64 * 1024;

/// Topics looked at for one page.
const STEPS_MAX: usize = 4096;

/// Queued messages of a session below which the next page is taken.
const QUEUE_LOW: usize = 128;

/// Changes of one topic's retained message.
#[derive(Debug, Default)]
pub(crate) struct RetainedTopic {
    /// How many wait for the store.
    waiting: usize,
    /// Place of the last.
    last: u64,
}

impl Shard {
    /// Takes a retained message of a topic that this shard owns. It is in
    /// force at once, as subscribers have seen it live; with `waits`, its
    /// publisher is told when `ops` are stored. `false`: the limit of retained
    /// messages is reached.
    pub(crate) fn own_retained(
        &mut self,
        message: &Arc<Message>,
        waits: bool,
        ops: &mut Vec<StoreOp>,
        retained: &mut Option<RetainedChange>,
    ) -> bool {
        //= mqtt5#[MQTT-3.3.1-6]
        let op = if message.payload.is_empty() {
            StoreOp::DeleteRetained {
                topic: message.topic.clone(),
            }
        } else {
            let full = self.retained.len() >= self.config.retained_max;
            if full && self.retained.get(&message.topic).is_none() {
                return false;
            }
            StoreOp::PutRetained {
                message: Arc::clone(message),
            }
        };
        self.retained_order += 1;
        let order = self.retained_order;
        let previous = self.retained.get(&message.topic).map(Arc::clone);
        self.set_retained(message);
        if waits && self.config.durable {
            ops.push(op);
            let topic = self.retained_waiting.entry(message.topic.clone());
            let topic = topic.or_default();
            topic.waiting += 1;
            topic.last = order;
            *retained = Some(RetainedChange {
                message: Arc::clone(message),
                previous,
                order,
            });
        } else {
            if let Some(topic) = self.retained_waiting.get_mut(message.topic.as_bytes()) {
                topic.last = order;
            }
            self.write(op);
        }
        true
    }

    /// A change was stored, or is off and taken back. If a later one of its
    /// topic is in force, the store is told that one again, since it may have
    /// taken this one last.
    pub(crate) fn settle_retained(&mut self, change: &RetainedChange, stored: bool) {
        let key = change.message.topic.as_bytes();
        let mut newest = true;
        if let Some(topic) = self.retained_waiting.get_mut(key) {
            newest = change.order == topic.last;
            topic.waiting -= 1;
            if topic.waiting == 0 {
                self.retained_waiting.remove(key);
            }
        }
        let topic = change.message.topic.clone();
        match (stored, newest) {
            (true, true) | (false, false) => {}
            (true, false) => {
                let op = match self.retained.get(&topic) {
                    Some(message) => StoreOp::PutRetained {
                        message: Arc::clone(message),
                    },
                    None => StoreOp::DeleteRetained { topic },
                };
                self.write(op);
            }
            (false, true) => {
                let removed = || {
                    Arc::new(Message {
                        topic,
                        ..Message::default()
                    })
                };
                let previous = change.previous.clone().unwrap_or_else(removed);
                self.set_retained(&previous);
            }
        }
    }

    /// Brings an owned retained message into force everywhere.
    pub(crate) fn set_retained(&mut self, message: &Arc<Message>) {
        self.keep_retained(message);
        for shard in 0..self.config.shards {
            let to = ShardId(shard);
            if to != self.config.shard {
                let message = BusMessage::Retained {
                    message: Arc::clone(message),
                };
                self.output(Output::Bus { to, message });
            }
        }
    }

    /// Puts a retained message into this shard's index.
    pub(crate) fn keep_retained(&mut self, message: &Arc<Message>) {
        if message.payload.is_empty() {
            self.retained.remove(&message.topic);
        } else {
            //= mqtt5#[MQTT-3.3.1-5]
            self.retained.set(&message.topic, Arc::clone(message));
        }
    }

    /// Takes one page of retained messages for the session's new
    /// subscriptions. `false` when there is nothing to take now.
    pub(crate) fn walk_retained(&mut self, s: SessionIdx) -> bool {
        let Some(session) = self.sessions.get_mut(s) else {
            return false;
        };
        if session.outbound.expected() >= QUEUE_LOW {
            return false;
        }
        let Some(mut walk) = session.walks.pop_front() else {
            return false;
        };
        let mut page: Vec<Arc<Message>> = Vec::new();
        let mut bytes = 0;
        let end = self.retained.visit_steps(
            &walk.filter,
            walk.after.as_deref(),
            STEPS_MAX,
            |_, message| {
                page.push(Arc::clone(message));
                bytes += message.cost();
                if page.len() < PAGE_MAX && bytes < PAGE_BYTES {
                    ControlFlow::Continue(())
                } else {
                    ControlFlow::Break(())
                }
            },
        );
        let next = match end {
            Page::Stopped => page.last().map(|message| message.topic.clone()),
            Page::Paused { after } => Some(Text::from(after)),
            _ => None,
        };
        for message in page {
            self.deliver_retained(s, &walk, message);
        }
        if next.is_some()
            && let Some(session) = self.sessions.get_mut(s)
        {
            walk.after = next;
            session.walks.push_front(walk);
        }
        true
    }

    fn deliver_retained(&mut self, s: SessionIdx, walk: &RetainedWalk, message: Arc<Message>) {
        if message.is_expired(self.now) || !self.may(s, Action::Receive, &message.topic) {
            return;
        }
        let qos = delivery::effective_qos(message.qos, walk.qos);
        //= mqtt5#[MQTT-3.3.1-8]
        let retain = true;
        if qos == QoS::AtMostOnce {
            let view = delivery::view(&message, self.now);
            let mut source = Source::from_message(&message, &view, self.now);
            let hit = Hit {
                session: s,
                options: 0,
                identifiers: walk.identifiers.clone(),
                stream: walk.stream,
                share: None,
            };
            return self.deliver_qos0(&mut source, &hit, retain);
        }
        let (seq, level) = (self.seq(), self.config.level(&message.topic));
        let Some(session) = self.sessions.get_mut(s) else {
            return;
        };
        let cost = message.cost();
        let durable = self.config.durable && session.is_persistent();
        let mut delivery = Delivery {
            content: Content::Held(Arc::clone(&message)),
            seq: None,
            qos,
            retain,
            identifiers: walk.identifiers.clone(),
            share: None,
            stream: walk.stream,
            level,
            maybe_sent: false,
        };
        if !durable {
            session.outbound.push(delivery);
            return;
        }
        delivery.seq = Some(seq.0);
        session.outbound.reserve(cost);
        let key = session.key;
        let publish = PendingPublish {
            ops: alloc::vec![StoreOp::Enqueue {
                seq: Seq(seq.0),
                message,
                targets: alloc::vec![Target {
                    session: key,
                    qos,
                    retain,
                    identifiers: walk.identifiers.to_vec(),
                    shared: None,
                }],
            }],
            due: alloc::vec![Due {
                session: key,
                delivery,
                cost,
            }],
            ..PendingPublish::default()
        };
        let token = self.token();
        self.advance_publish(token, publish);
    }
}
