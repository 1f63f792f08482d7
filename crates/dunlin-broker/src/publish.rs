//! PUBLISH: from a client (or a will, or another shard) to the sessions of
//! this shard and to the shards that want it.
//!
//! A message that no durable receiver waits for goes straight from the
//! publisher's packet into the receivers' send buffers. For QoS 1 and 2 with
//! durable receivers the order is: every shard prepares, one batch is stored,
//! receivers see it, the publisher is acknowledged.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

use dunlin_base::{QoS, ShardId, StreamId, Text};
use dunlin_mqtt::codec::{Publish, ReasonCode, Version};
use dunlin_mqtt::server::{Ack, AckToken, Identifiers, Receipt, TopicAliases, delivery};
use dunlin_store::{SessionKey, StoreOp};
use smallvec::SmallVec;

use crate::access::Action;
use crate::conn::ConnIdx;
use crate::fault::Fault;
use crate::io::{BusMessage, Forward, Missed, Output};
use crate::pending::{Due, Pending, PendingPublish, Prepared, RetainedChange};
use crate::random::home_shard;
use crate::session::SessionIdx;
use crate::shard::Shard;
use crate::source::Source;

/// A session that a message goes to, overlapping subscriptions merged.
#[derive(Debug)]
pub(crate) struct Hit {
    pub(crate) session: SessionIdx,
    pub(crate) options: u8,
    pub(crate) identifiers: Identifiers,
    pub(crate) stream: StreamId,
    pub(crate) share: Option<Arc<str>>,
}

/// Shards that a message goes to.
pub(crate) type Forwards = SmallVec<[(ShardId, Forward); 2]>;

/// How many times as many messages are kept in memory for a client that is
/// connected: it wants them soon, and reading them again has its price.
const HELD_CONNECTED_FACTOR: usize = 8;

impl Shard {
    /// A PUBLISH from a client.
    pub(crate) fn handle_publish(
        &mut self,
        c: ConnIdx,
        s: SessionIdx,
        stream: StreamId,
        publish: &Publish<'_>,
    ) -> Result<(), Fault> {
        self.stats.note_received(publish.qos);
        if !publish.properties.subscription_identifiers.is_empty() {
            //= mqtt5#[MQTT-3.3.4-6]
            return Err(Fault::protocol("a client sends no subscription identifier"));
        }
        let alias_topic = self.resolve_alias(c, publish)?;
        let topic = alias_topic.as_deref().unwrap_or(publish.topic);
        let Some(session) = self.sessions.get_mut(s) else {
            return Ok(());
        };
        let origin = session.key;
        let token = self.next_token + 1;
        self.next_token = token;
        if let Some(packet_id) = publish.packet_id {
            let ack = Ack {
                stream,
                packet_id,
                qos: publish.qos,
                reason: ReasonCode::Success,
            };
            let receive_maximum = self.config.receive_maximum;
            if publish.qos == QoS::ExactlyOnce {
                session.inbound.resume(stream, packet_id, publish.dup);
            }
            match session
                .inbound
                .handle_publish(ack, AckToken(token), receive_maximum)
            {
                Receipt::New => {}
                Receipt::Pending => return Ok(()),
                Receipt::Duplicate => {
                    self.send_acks(s);
                    return Ok(());
                }
                Receipt::QuotaExceeded => {
                    //= mqtt5#[MQTT-3.3.4-8]
                    return Err(Fault::new(
                        ReasonCode::ReceiveMaximumExceeded,
                        "more messages in flight than the Receive Maximum",
                    ));
                }
            }
        }
        if !self.may(s, Action::Publish, topic) {
            return self.acknowledge_now(s, token, publish.qos, ReasonCode::NotAuthorized);
        }
        let mut source = Source::from_packet(publish, topic, self.now);
        self.publisher = Some(c);
        self.dispatch(Some(origin), token, &mut source);
        self.publisher = None;
        Ok(())
    }

    /// Acknowledges without routing. 3.1.1 has no reason codes: there a
    /// refusal looks like an acceptance [MQTT-3.3.5-2].
    fn acknowledge_now(
        &mut self,
        s: SessionIdx,
        token: u64,
        qos: QoS,
        reason: ReasonCode,
    ) -> Result<(), Fault> {
        let Some(session) = self.sessions.get_mut(s) else {
            return Ok(());
        };
        if qos != QoS::AtMostOnce {
            let reason = match session.version {
                Version::V5 => reason,
                Version::V311 => ReasonCode::Success,
            };
            session.inbound.complete(AckToken(token), reason);
            self.send_acks(s);
        }
        Ok(())
    }

    fn resolve_alias(&mut self, c: ConnIdx, publish: &Publish<'_>) -> Result<Option<Text>, Fault> {
        let Some(alias) = publish.properties.topic_alias else {
            return Ok(None);
        };
        let maximum = self.config.topic_alias_maximum;
        let Some(conn) = self.conns.get_mut(c) else {
            return Ok(None);
        };
        let invalid = Fault::new(ReasonCode::TopicAliasInvalid, "unknown topic alias");
        let stream = conn.reading;
        let aliases = match stream {
            StreamId::CONTROL => &mut conn.aliases_in,
            stream => match conn.data_stream(stream) {
                Some(data) => data
                    .aliases_in
                    .get_or_insert_with(|| Box::new(TopicAliases::new(maximum))),
                None => return Err(invalid),
            },
        };
        if publish.topic.is_empty() {
            return aliases.topic(alias).map(Some).ok_or(invalid);
        }
        //= mqtt5#[MQTT-3.3.2-9]
        if !aliases.set(alias, publish.topic) {
            return Err(invalid);
        }
        Ok(None)
    }

    /// Routes a message of a client (with the session to acknowledge) or of
    /// the server itself.
    pub(crate) fn dispatch(
        &mut self,
        origin: Option<SessionKey>,
        token: u64,
        source: &mut Source<'_>,
    ) {
        let key = origin.map_or(0, |key| key.0);
        let mut forwards = self.find(source.topic(), key, None);
        let mut publish = PendingPublish {
            origin: origin.filter(|_| source.qos() != QoS::AtMostOnce),
            ..PendingPublish::default()
        };
        if self.hits.is_empty() && forwards.is_empty() {
            publish.reason = ReasonCode::NoMatchingSubscribers;
        }
        if source.retain() {
            self.place_retained(source, &mut publish, &mut forwards);
        }
        publish.refused |= !self.deliver_hits(source, &mut publish.ops, &mut publish.due);
        let acknowledged = source.qos() != QoS::AtMostOnce;
        for (to, mut forward) in forwards {
            forward.message = source.message();
            forward.origin = key;
            publish.preparing += usize::from(acknowledged);
            let token = acknowledged.then_some(token);
            let message = BusMessage::Forward { forward, token };
            self.output(Output::Bus { to, message });
        }
        if acknowledged {
            self.remember_inbound(&mut publish, token, source.qos());
            self.line_up(token, publish);
        }
    }

    /// A QoS 2 identifier of a persistent session is stored with the message.
    fn remember_inbound(&self, publish: &mut PendingPublish, token: u64, qos: QoS) {
        if qos == QoS::ExactlyOnce
            && let Some(key) = publish.origin
            && let Some(session) = self.session_of(key).and_then(|s| self.sessions.get(s))
            && session.is_persistent()
            && self.config.durable
            && let Some(packet_id) = session.inbound.packet_id(AckToken(token))
        {
            publish.ops.push(StoreOp::PutInbound {
                session: key,
                packet_id: packet_id.get(),
            });
        }
    }

    /// Gives a publish its place behind earlier ones of the same client: one
    /// that other shards prepare must not be overtaken by one that they need
    /// not see [MQTT-4.6.0-5].
    fn line_up(&mut self, token: u64, publish: PendingPublish) {
        let session = publish.origin.and_then(|key| self.session_of(key));
        if let Some(session) = session.and_then(|s| self.sessions.get_mut(s))
            && (publish.preparing > 0 || !session.preparing.is_empty())
        {
            session.preparing.push_back(token);
        }
        self.advance_publish(token, publish);
    }

    /// Stores or finishes a publish, once it and all earlier ones of the same
    /// client are prepared.
    pub(crate) fn advance_publish(&mut self, token: u64, publish: PendingPublish) {
        let origin = publish.origin;
        let mut next = Some((token, publish));
        while let Some((token, publish)) = next.take() {
            let session = origin.and_then(|key| self.session_of(key));
            let line = session
                .and_then(|s| self.sessions.get_mut(s))
                .map(|session| &mut session.preparing);
            let waits = line
                .as_ref()
                .and_then(|line| line.front())
                .is_some_and(|first| *first != token);
            if publish.preparing > 0 || waits {
                self.pending.insert(token, Pending::Publish(publish));
                return;
            }
            if let Some(line) = line {
                line.pop_front();
            }
            self.commit_publish(token, publish);
            next = self.next_in_line(origin);
        }
    }

    /// The client's next publish, if it is prepared.
    fn next_in_line(&mut self, origin: Option<SessionKey>) -> Option<(u64, PendingPublish)> {
        let s = self.session_of(origin?)?;
        let token = *self.sessions.get(s)?.preparing.front()?;
        self.take_prepared(token)
    }

    fn take_prepared(&mut self, token: u64) -> Option<(u64, PendingPublish)> {
        match self.pending.remove(&token)? {
            Pending::Publish(publish) if publish.preparing == 0 => Some((token, publish)),
            other => {
                self.pending.insert(token, other);
                None
            }
        }
    }

    /// The session of these publishes is gone: whatever is prepared goes on
    /// without its place in line.
    pub(crate) fn release_line(&mut self, line: impl IntoIterator<Item = u64>) {
        for token in line {
            if let Some((token, publish)) = self.take_prepared(token) {
                self.commit_publish(token, publish);
            }
        }
    }

    fn commit_publish(&mut self, token: u64, mut publish: PendingPublish) {
        if publish.refused || publish.ops.is_empty() {
            let stored = !publish.refused;
            self.finish_publish(token, publish, stored);
        } else {
            for op in core::mem::take(&mut publish.ops) {
                self.write_together(op);
            }
            self.await_writes(token, Pending::Publish(publish));
        }
    }

    /// The batch of a publish was stored, or the publish is off.
    pub(crate) fn finish_publish(&mut self, token: u64, publish: PendingPublish, stored: bool) {
        self.settle_due(publish.due, publish.retained, stored);
        for to in publish.participants {
            let message = BusMessage::Settled {
                token,
                committed: stored,
            };
            self.output(Output::Bus { to, message });
        }
        if let Some((key, delivery)) = publish.back.filter(|_| !stored)
            && let Some(s) = self.session_of(key)
            && let Some(session) = self.sessions.get_mut(s)
        {
            session.outbound.push(delivery);
            self.pump(s);
        }
        let Some(s) = publish.origin.and_then(|key| self.session_of(key)) else {
            return;
        };
        let Some(session) = self.sessions.get_mut(s) else {
            return;
        };
        let mut reason = publish.reason;
        if !stored {
            self.stats.publishes_refused += 1;
            reason = ReasonCode::QuotaExceeded;
            if session.version == Version::V311 {
                // No way to say so: the client is cut off and sends it again.
                session.inbound.abandon(AckToken(token));
                if let Some(c) = session.conn {
                    let fault = Fault::new(reason, "the publish cannot be kept");
                    self.fail(c, StreamId::CONTROL, fault);
                }
                return;
            }
        }
        session.inbound.complete(AckToken(token), reason);
        self.send_acks(s);
    }

    /// Gives stored deliveries to their sessions, or their room back.
    pub(crate) fn settle_due(
        &mut self,
        due: Vec<Due>,
        retained: Option<RetainedChange>,
        stored: bool,
    ) {
        if let Some(change) = retained {
            self.settle_retained(&change, stored);
        }
        let held_max = self.config.queue_held_max;
        for Due {
            session,
            mut delivery,
            cost,
        } in due
        {
            let Some(s) = self.session_of(session) else {
                continue;
            };
            if let Some(entry) = self.sessions.get_mut(s) {
                entry.outbound.unreserve(cost);
                if stored {
                    // Nobody is there to take it soon: the store has it. What
                    // came through a shared subscription may still go to
                    // another member.
                    let held_max = match entry.conn {
                        Some(_) if delivery.share.is_some() => usize::MAX,
                        Some(_) => held_max.saturating_mul(HELD_CONNECTED_FACTOR),
                        None => held_max,
                    };
                    if entry.outbound.queued() >= held_max {
                        delivery.shed();
                    }
                    entry.outbound.push(delivery);
                    self.pump(s);
                }
            }
        }
    }

    /// A message from another shard.
    pub(crate) fn handle_forward(&mut self, from: ShardId, forward: &Forward, token: Option<u64>) {
        let scope = Scope {
            plain: forward.plain,
            shares: &forward.shares,
        };
        self.find(&forward.message.topic, forward.origin, Some(&scope));
        let message = Arc::clone(&forward.message);
        let mut prepared = Prepared::default();
        let mut ops = Vec::new();
        let mut room = true;
        if forward.retain {
            room = self.own_retained(&message, token.is_some(), &mut ops, &mut prepared.retained);
        }
        let view = delivery::view(&message, self.now);
        let mut source = Source::from_message(&message, &view, self.now);
        room &= self.deliver_hits(&mut source, &mut ops, &mut prepared.due);
        if let Some(token) = token {
            if ops.is_empty() {
                self.settle_due(prepared.due, prepared.retained, room);
            } else {
                // A second part, when a shared subscription was chosen again.
                let all = self.prepared.entry((from, token)).or_default();
                all.due.extend(prepared.due);
                if prepared.retained.is_some() {
                    all.retained = prepared.retained;
                }
            }
            let shares = core::mem::take(&mut self.missed);
            let message = BusMessage::Prepared {
                token,
                ops,
                refused: !room,
                missed: (!shares.is_empty()).then(|| Missed { message, shares }),
            };
            self.output(Output::Bus { to: from, message });
        }
    }

    /// The owner of a topic's retained message stores it; others ask it to.
    fn place_retained(
        &mut self,
        source: &mut Source<'_>,
        publish: &mut PendingPublish,
        forwards: &mut Forwards,
    ) {
        let owner = ShardId(home_shard(source.topic(), self.config.shards));
        if owner != self.config.shard {
            if let Some((_, forward)) = forwards.iter_mut().find(|(to, _)| *to == owner) {
                forward.retain = true;
                return;
            }
            let forward = Forward {
                message: source.message(),
                origin: 0,
                plain: false,
                shares: Vec::new(),
                retain: true,
            };
            forwards.push((owner, forward));
            return;
        }
        let message = source.message();
        let waits = source.qos() != QoS::AtMostOnce;
        publish.refused |=
            !self.own_retained(&message, waits, &mut publish.ops, &mut publish.retained);
    }

    /// Access control for the session.
    pub(crate) fn may(&self, s: SessionIdx, action: Action, topic: &str) -> bool {
        let (Some(acl), Some(session)) = (&self.acl, self.sessions.get(s)) else {
            return true;
        };
        acl.allows(session.user.as_deref(), &session.client_id, action, topic)
    }
}

/// What a forwarded message may be delivered to.
#[derive(Debug)]
pub(crate) struct Scope<'a> {
    pub(crate) plain: bool,
    pub(crate) shares: &'a [Text],
}
