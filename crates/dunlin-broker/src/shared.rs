//! Shared subscriptions: who of a group can take a message, and what happens
//! to messages whose member has left.

use alloc::sync::Arc;

use dunlin_base::{Message, Text};
use dunlin_mqtt::server::{Content, Delivery, Identifiers, delivery};
use dunlin_store::{Seq, SessionKey, StoreOp};
use slab::Slab;

use crate::conn::Conn;
use crate::io::{BusMessage, Forward, Missed, Output};
use crate::pending::PendingPublish;
use crate::publish::Hit;
use crate::session::{Session, SessionIdx};
use crate::shard::{Shard, Subscribed, Subscriber};
use crate::source::Source;

/// Messages that an online member of a shared subscription may have waiting
/// before others are preferred.
const SHARED_QUEUE_MAX: usize = 64;

impl Shard {
    /// Gives a message of one shared subscription to another member than
    /// `except`, which had it: one that can take it now or, when `except` will
    /// not be back, any. `false` when there is nobody.
    pub(crate) fn redeliver(
        &mut self,
        delivery: &Delivery,
        except: SessionIdx,
        old: SessionKey,
        ends: bool,
    ) -> bool {
        let (Some(share), Content::Held(message)) = (&delivery.share, &delivery.content) else {
            return false;
        };
        let Some((group, filter)) = split_share(share) else {
            return false;
        };
        let Some(shared) = self.tree.shared_group(group, filter) else {
            return false;
        };
        let (sessions, conns) = (&self.sessions, &self.conns);
        let other = |key: &Subscriber| *key != Subscriber::Session(except as u32);
        let chosen = shared
            .select(|key, _| match key {
                Subscriber::Session(s) => other(key) && is_available(sessions, conns, *s as usize),
                Subscriber::Shard(_) => true,
            })
            .or_else(|| shared.select(|key, _| ends && other(key)));
        let Some((key, &value)) = chosen else {
            return false;
        };
        let message = Arc::clone(message);
        let share = Text::from(&**share);
        let mut publish = PendingPublish::default();
        if let Some(seq) = delivery.seq {
            let (seq, session) = (Seq(seq), old);
            publish.ops.push(StoreOp::Dequeue { seq, session });
        }
        publish.back = Some((old, delivery.clone()));
        let token = self.token();
        if !self.give(&message, share, key, value, token, &mut publish) {
            return false;
        }
        self.advance_publish(token, publish);
        true
    }

    /// A shard that was chosen for shared subscriptions had no member left: it
    /// has said so before, and somebody else is chosen now.
    pub(crate) fn choose_again(
        &mut self,
        missed: &Missed,
        token: u64,
        publish: &mut PendingPublish,
    ) {
        for share in &missed.shares {
            let Some((group, filter)) = split_share(share) else {
                continue;
            };
            let Some(shared) = self.tree.shared_group(group, filter) else {
                continue;
            };
            let (sessions, conns) = (&self.sessions, &self.conns);
            let chosen = shared
                .select(|key, _| match key {
                    Subscriber::Session(s) => is_available(sessions, conns, *s as usize),
                    Subscriber::Shard(_) => true,
                })
                .or_else(|| shared.select(|_, _| true));
            if let Some((key, &value)) = chosen {
                let share = share.clone();
                publish.refused |= !self.give(&missed.message, share, key, value, token, publish);
            }
        }
    }

    /// Gives a message to one member of a shared subscription. `false`, and
    /// nothing done, when it has no room.
    fn give(
        &mut self,
        message: &Arc<Message>,
        share: Text,
        key: Subscriber,
        value: Subscribed,
        token: u64,
        publish: &mut PendingPublish,
    ) -> bool {
        match key {
            Subscriber::Session(s) => {
                let view = delivery::view(message, self.now);
                let mut source = Source::from_message(message, &view, self.now);
                if !self.has_room(s as usize, &mut source) {
                    return false;
                }
                let mut identifiers = Identifiers::new();
                if value.identifier != 0 {
                    identifiers.push(value.identifier);
                }
                self.hits.clear();
                self.hits.push(Hit {
                    session: s as usize,
                    options: value.options,
                    identifiers,
                    stream: value.stream,
                    share: Some(Arc::from(share.as_str())),
                });
                self.deliver_hits(&mut source, &mut publish.ops, &mut publish.due)
            }
            Subscriber::Shard(to) => {
                publish.preparing += 1;
                let forward = Forward {
                    message: Arc::clone(message),
                    origin: 0,
                    plain: false,
                    shares: alloc::vec![share],
                    retain: false,
                };
                let token = Some(token);
                let message = BusMessage::Forward { forward, token };
                self.output(Output::Bus { to, message });
                true
            }
        }
    }
}

/// The name and the filter of `$share/NAME/FILTER`.
pub(crate) fn split_share(text: &str) -> Option<(&str, &str)> {
    text.strip_prefix("$share/")?.split_once('/')
}

/// Whether a member of a shared subscription can take a message now.
pub(crate) fn is_available(sessions: &Slab<Session>, conns: &Slab<Conn>, s: SessionIdx) -> bool {
    sessions.get(s).is_some_and(|session| {
        session.outbound.queued() < SHARED_QUEUE_MAX
            && session
                .conn
                .and_then(|c| conns.get(c))
                .is_some_and(|conn| !conn.blocked)
    })
}
