//! From a matched message to the bytes of its receivers.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::num::NonZeroU16;

use dunlin_base::{Message, QoS, SendBuf, ShardId, StreamId, Text};
use dunlin_mqtt::codec::{
    PacketId, PacketType, Publish, ReasonCode, SubscribeOptions, SubscriptionIdentifiers,
};
use dunlin_mqtt::server::{Content, Delivery, Identifiers, Outgoing, Received, Transfer, delivery};
use dunlin_router::{Match, SharedMatch};
use dunlin_store::{InflightState, Request, Seq, SessionKey, StoreOp, Target};
use slab::Slab;

use crate::config::QueueFull;
use crate::conn::Conn;
use crate::fault::Fault;
use crate::io::{Forward, Output};
use crate::pending::{Due, Pending};
use crate::publish::{Forwards, Hit, Scope};
use crate::session::{Session, SessionIdx};
use crate::shard::{Shard, Subscribed, Subscriber};
use crate::shared::{is_available, split_share};
use crate::source::Source;
use crate::throttle::QUEUE_HIGH;

/// Messages loaded from the store at a time, and what they may cost together.
const LOAD_MAX: usize = 256;
const LOAD_BYTES_MAX: usize = 1 << 20;

/// What a topic alias adds to a PUBLISH: the property, and a byte to each of
/// the two lengths before it.
const ALIAS_BYTES_MAX: usize = 5;

/// No Local in the options byte of a subscription.
const NO_LOCAL: u8 = 0b0100;

impl Shard {
    /// Matches a topic: sessions of this shard into `self.hits`, other shards
    /// into the result. With a scope: only what another shard asked for.
    pub(crate) fn find(&mut self, topic: &str, origin: u64, scope: Option<&Scope<'_>>) -> Forwards {
        let mut finder = Finder {
            hits: core::mem::take(&mut self.hits),
            forwards: Forwards::new(),
            conns: &self.conns,
            sessions: &mut self.sessions,
            mark: self.mark + 1,
            origin,
            local: scope.is_some(),
        };
        self.mark += 1;
        finder.hits.clear();
        self.missed.clear();
        if scope.is_none_or(|scope| scope.plain) {
            self.tree.matches(topic, |found| match found {
                Match::Subscriber { key, value } => finder.add(key, value, None),
                Match::Shared(shared) if scope.is_none() => finder.add_shared(&shared),
                _ => {}
            });
        }
        for share in scope.map_or(&[][..], |scope| scope.shares) {
            let before = finder.hits.len();
            if let Some((group, filter)) = split_share(share)
                && let Some(shared) = self.tree.shared_group(group, filter)
            {
                finder.add_shared(&shared);
            }
            if finder.hits.len() == before {
                self.missed.push(share.clone());
            }
        }
        let (hits, forwards) = (finder.hits, finder.forwards);
        self.hits = hits;
        forwards
    }

    /// Delivers to `self.hits`. Deliveries that must be stored first go to
    /// `due`, what is to be stored to `ops`. `false`, and nothing delivered,
    /// when a queue is full and the policy is to refuse.
    pub(crate) fn deliver_hits(
        &mut self,
        source: &mut Source<'_>,
        ops: &mut Vec<StoreOp>,
        due: &mut Vec<Due>,
    ) -> bool {
        if self.hits.is_empty() {
            return true;
        }
        let mut hits = core::mem::take(&mut self.hits);
        let published = source.qos();
        if published != QoS::AtMostOnce && !self.all_have_room(&hits, source) {
            self.hits = hits;
            return false;
        }
        let mut batch = Enqueued::default();
        for hit in hits.drain(..) {
            let Ok(options) = SubscribeOptions::from_byte(hit.options) else {
                continue;
            };
            let qos = delivery::effective_qos(published, options.qos);
            //= mqtt5#[MQTT-3.3.1-12]
            let retain = options.retain_as_published && source.retain();
            if qos == QoS::AtMostOnce {
                self.deliver_qos0(source, &hit, retain);
            } else {
                self.deliver_acknowledged(source, hit, qos, retain, due, &mut batch);
            }
        }
        self.hits = hits;
        for s in batch.slow {
            if let Some(c) = self.sessions.get(s).and_then(|session| session.conn) {
                let fault = Fault::new(ReasonCode::QuotaExceeded, "the client does not keep up");
                self.fail(c, StreamId::CONTROL, fault);
            }
        }
        if let Some(seq) = batch.seq {
            ops.push(StoreOp::Enqueue {
                seq,
                message: source.message(),
                targets: batch.targets,
            });
        }
        true
    }

    /// QoS 1 and 2: into the session's queue, by way of the store if the
    /// session is durable.
    fn deliver_acknowledged(
        &mut self,
        source: &mut Source<'_>,
        hit: Hit,
        qos: QoS,
        retain: bool,
        due: &mut Vec<Due>,
        batch: &mut Enqueued,
    ) {
        let s = hit.session;
        let room = self.has_room(s, source);
        let message = source.message();
        let level = source.level(&self.config);
        let Some(session) = self.sessions.get_mut(s) else {
            return;
        };
        let (key, persistent) = (session.key, session.is_persistent());
        let behind = session.outbound.queued() >= QUEUE_HIGH;
        let cost = message.cost();
        let mut delivery = Delivery {
            content: Content::Held(message),
            seq: None,
            qos,
            retain,
            identifiers: hit.identifiers,
            share: hit.share,
            stream: hit.stream,
            level,
            maybe_sent: false,
        };
        if !room {
            // Only where the policy is to drop, or where a session that ends
            // with its connection does not keep up: its end is a matter
            // between the two of them, not of the publisher.
            self.stats.messages_dropped_full += 1;
            if !persistent && self.config.queue_full == QueueFull::Reject {
                batch.slow.push(s);
            }
        } else if persistent && self.config.durable {
            let seq = *batch.seq.get_or_insert_with(|| {
                self.next_seq += 1;
                Seq::new(self.next_seq, self.config.shard)
            });
            batch.targets.push(target(key, &delivery));
            delivery.seq = Some(seq.0);
            session.outbound.reserve(cost);
            due.push(Due {
                session: key,
                delivery,
                cost,
            });
        } else {
            session.outbound.push(delivery);
            self.pump(s);
        }
        if behind {
            self.check_pace(s);
        }
    }

    pub(crate) fn has_room(&self, s: SessionIdx, source: &mut Source<'_>) -> bool {
        let (messages, bytes) = (self.config.queue_messages_max, self.config.queue_bytes_max);
        let cost = source.message().cost();
        self.sessions
            .get(s)
            .is_some_and(|session| session.outbound.has_room(cost, messages, bytes))
    }

    fn all_have_room(&self, hits: &[Hit], source: &mut Source<'_>) -> bool {
        if self.config.queue_full == QueueFull::DropNewest {
            return true;
        }
        hits.iter().all(|hit| {
            let session = self.sessions.get(hit.session);
            (hit.options & 3) == QoS::AtMostOnce as u8
                || !session.is_some_and(Session::is_persistent)
                || self.has_room(hit.session, source)
        })
    }

    /// QoS 0 goes out at once, or not at all.
    pub(crate) fn deliver_qos0(&mut self, source: &mut Source<'_>, hit: &Hit, retain: bool) {
        let Some(c) = self.sessions.get(hit.session).and_then(|s| s.conn) else {
            return;
        };
        let level = source.level(&self.config);
        let limit = self.config.qos0_limit(level);
        let Some(conn) = self.conns.get(c) else {
            return;
        };
        let datagrams = !conn.datagram_age.is_zero() && hit.stream == StreamId::CONTROL;
        if !datagrams && conn.is_blocked_for(hit.stream, source.topic()) {
            self.stats.messages_dropped_slow += 1;
            return;
        }
        let backlog = conn.backlog();
        if backlog >= self.config.send_backlog_bytes {
            self.check_pace(hit.session);
        }
        if backlog >= limit {
            self.stats.messages_dropped_slow += 1;
            return;
        }
        let Some(conn) = self.conns.get(c) else {
            return;
        };
        let (version, bytes_max) = (conn.version, conn.packet_bytes_max);
        let aliased = conn.aliases_out.is_enabled() && conn.lanes.is_none();
        self.stats.note_sent(QoS::AtMostOnce);
        if datagrams && self.deliver_datagram(source, hit, retain) {
            return;
        }
        if hit.identifiers.is_empty() && !aliased {
            let (_, out) = self.delivery_out(c, hit.stream, source.topic());
            if let Some(out) = out {
                source.append_qos0(version, retain, bytes_max, out);
            }
            return;
        }
        let publish = Publish {
            qos: QoS::AtMostOnce,
            packet_id: None,
            retain,
            ..source.view().clone()
        };
        self.send_publish(c, hit.stream, publish, &hit.identifiers, None);
    }

    /// Sends a message as a datagram; `false` if it must go on a stream.
    fn deliver_datagram(&mut self, source: &mut Source<'_>, hit: &Hit, retain: bool) -> bool {
        let Some(c) = self.sessions.get(hit.session).and_then(|s| s.conn) else {
            return true;
        };
        let Some(conn) = self.conns.get(c) else {
            return true;
        };
        let (version, bytes_max) = (conn.version, conn.packet_bytes_max);
        let mut packet = SendBuf::new();
        if hit.identifiers.is_empty() {
            source.append_qos0(version, retain, bytes_max, &mut packet);
        } else {
            let mut publish = Publish {
                qos: QoS::AtMostOnce,
                packet_id: None,
                retain,
                ..source.view().clone()
            };
            publish.properties.subscription_identifiers =
                SubscriptionIdentifiers::new(hit.identifiers.as_slice());
            if publish
                .encode_header(version, publish.payload.len(), &mut packet)
                .is_ok()
            {
                packet.put_slice(publish.payload);
            }
        }
        // Nothing was written: there is no form that the client takes.
        let fits = !packet.is_empty() && packet.len() <= bytes_max as usize;
        !fits || self.send_datagram(c, &packet)
    }

    /// Adds identifiers and alias, checks the size, encodes. The stream that it
    /// leaves on, as far as that is known; `None` when the client does not take
    /// a packet of that size.
    fn send_publish<'a>(
        &mut self,
        c: usize,
        stream: StreamId,
        mut publish: Publish<'a>,
        identifiers: &'a Identifiers,
        shared: Option<&Arc<Message>>,
    ) -> Option<StreamId> {
        let Some(conn) = self.conns.get_mut(c) else {
            return Some(stream);
        };
        publish.properties.subscription_identifiers =
            SubscriptionIdentifiers::new(identifiers.as_slice());
        let (version, max) = (conn.version, conn.packet_bytes_max as usize);
        let len = publish.encoded_len(version).ok()?;
        //= mqtt5#[MQTT-3.1.2-24]
        if len > max {
            return None;
        }
        let topic = publish.topic;
        // On another stream, the alias could arrive before its topic.
        if conn.aliases_out.is_enabled()
            && stream == StreamId::CONTROL
            && conn.lanes.is_none()
            && len.saturating_add(ALIAS_BYTES_MAX) <= max
            && let Some((alias, is_new)) = conn.aliases_out.alias(publish.topic)
        {
            publish.properties.topic_alias = Some(alias);
            if !is_new {
                publish.topic = "";
            }
        }
        let (stream, out) = self.delivery_out(c, stream, topic);
        let Some(out) = out else {
            return Some(stream);
        };
        if publish
            .encode_header(version, publish.payload.len(), out)
            .is_ok()
        {
            match shared {
                Some(message) => out.put_bytes(&message.payload),
                None => out.put_slice(publish.payload),
            }
        }
        Some(stream)
    }

    /// Sends what the session's queue, window and transport allow.
    pub(crate) fn pump(&mut self, s: SessionIdx) {
        loop {
            let Some(session) = self.sessions.get_mut(s) else {
                return;
            };
            let Some(c) = session.conn else {
                return;
            };
            let Some(conn) = self.conns.get_mut(c) else {
                return;
            };
            if !matches!(conn.phase, crate::conn::Phase::Connected(_)) {
                return;
            }
            let level = session.outbound.next_level();
            let apart = conn.lanes.is_some();
            if conn.backlog() >= self.config.backlog_limit(level, apart) {
                conn.blocked = true;
                return;
            }
            let window = conn.receive_maximum.min(self.config.inflight_max);
            let window = self.config.window(level, window);
            match self.pass_over(s, c) {
                Some(true) => continue,
                Some(false) => return,
                None => {}
            }
            let Some(session) = self.sessions.get_mut(s) else {
                return;
            };
            let Some(outgoing) = session.outbound.poll(self.now, window) else {
                if !self.walk_retained(s) {
                    return;
                }
                continue;
            };
            self.handle_outgoing(s, c, outgoing);
        }
    }

    fn handle_outgoing(&mut self, s: SessionIdx, c: usize, outgoing: Outgoing) {
        let Some(session) = self.sessions.get_mut(s) else {
            return;
        };
        let key = session.key;
        match outgoing {
            Outgoing::Publish(transfer) => self.send_delivery(s, c, &transfer),
            Outgoing::Release { packet_id, stream } => {
                let reason = ReasonCode::Success;
                self.send_ack(c, stream, PacketType::PubRel, packet_id, reason);
            }
            Outgoing::Store { packet_id, seq } => self.store_outgoing(key, packet_id, Seq(seq)),
            Outgoing::Load => {
                let seqs = session.outbound.stored_at_front(LOAD_MAX, LOAD_BYTES_MAX);
                let seqs = seqs.into_iter().map(Seq).collect();
                let token = self.token();
                self.loads.insert(token, key.0);
                self.output(Output::Store(Request::Load { token, seqs }));
            }
            //= mqtt5#[MQTT-3.3.2-5]
            Outgoing::Expired(delivery) => {
                self.stats.messages_expired += 1;
                self.dequeue(key, delivery.seq);
            }
        }
    }

    /// Has the store know the identifier of a QoS 2 message; it leaves then.
    pub(crate) fn store_outgoing(&mut self, session: SessionKey, packet_id: NonZeroU16, seq: Seq) {
        self.write(StoreOp::PutInflight {
            session,
            packet_id: packet_id.get(),
            seq,
            state: InflightState::Published,
        });
        let token = self.token();
        let pending = Pending::Outgoing { session, packet_id };
        self.await_writes(token, pending);
    }

    fn send_delivery(&mut self, s: SessionIdx, c: usize, transfer: &Transfer<PacketId>) {
        let (packet_id, message) = (transfer.key, &transfer.message);
        let publish = Publish {
            dup: transfer.again,
            qos: transfer.qos,
            retain: transfer.retain,
            packet_id: Some(packet_id),
            ..delivery::view(message, self.now)
        };
        self.stats.note_sent(transfer.qos);
        let identifiers = &transfer.identifiers;
        let sent = self.send_publish(c, transfer.stream, publish, identifiers, Some(message));
        if sent == Some(transfer.stream) {
            return;
        }
        let Some(session) = self.sessions.get_mut(s) else {
            return;
        };
        if let Some(stream) = sent {
            session.outbound.note_stream(packet_id, stream);
        } else {
            // Too large for this client: as if it had been delivered.
            let key = session.key;
            let received = session.outbound.handle_refused(packet_id);
            self.forget(key, packet_id, &received);
        }
    }

    /// Tells the store that a delivery is over.
    pub(crate) fn forget(&mut self, key: SessionKey, packet_id: NonZeroU16, received: &Received) {
        if let Received::Done { seq, id_stored } = received {
            self.dequeue(key, *seq);
            if *id_stored {
                self.write(StoreOp::DeleteInflight {
                    session: key,
                    packet_id: packet_id.get(),
                });
            }
        }
    }

    pub(crate) fn dequeue(&mut self, session: SessionKey, seq: Option<u64>) {
        if let Some(seq) = seq {
            self.write(StoreOp::Dequeue {
                seq: Seq(seq),
                session,
            });
        }
    }

    /// Messages that a session wanted came from the store, or are lost.
    pub(crate) fn handle_loaded(&mut self, key: u64, messages: &[(u64, Option<Arc<Message>>)]) {
        if let Some(&s) = self.session_keys.get(&key)
            && let Some(session) = self.sessions.get_mut(s)
        {
            session.outbound.handle_loaded(messages);
            if !messages.is_empty() {
                self.pump(s);
            }
        }
    }
}

fn target(session: SessionKey, delivery: &Delivery) -> Target {
    Target {
        session,
        qos: delivery.qos,
        retain: delivery.retain,
        identifiers: delivery.identifiers.to_vec(),
        shared: delivery.share.as_deref().map(Text::from),
    }
}

/// What the durable receivers of one message have in common.
#[derive(Default)]
struct Enqueued {
    seq: Option<Seq>,
    targets: Vec<Target>,
    /// Receivers that did not keep up and are cut off.
    slow: Vec<SessionIdx>,
}

/// Collects the receivers of one message.
struct Finder<'a> {
    hits: Vec<Hit>,
    forwards: Forwards,
    conns: &'a Slab<Conn>,
    sessions: &'a mut Slab<Session>,
    mark: u64,
    /// Session of the publisher.
    origin: u64,
    /// Other shards are not wanted.
    local: bool,
}

impl Finder<'_> {
    fn add(&mut self, key: Subscriber, value: &Subscribed, share: Option<&Text>) {
        match key {
            Subscriber::Shard(to) if !self.local => {
                let forward = self.forward(to);
                match share {
                    Some(share) => forward.shares.push(share.clone()),
                    None => forward.plain = true,
                }
            }
            Subscriber::Shard(_) => {}
            Subscriber::Session(s) => self.add_session(s as usize, value, share),
        }
    }

    fn forward(&mut self, to: ShardId) -> &mut Forward {
        let at = match self.forwards.iter().position(|(shard, _)| *shard == to) {
            Some(at) => at,
            None => {
                let forward = Forward {
                    message: Arc::new(Message::default()),
                    origin: 0,
                    plain: false,
                    shares: Vec::new(),
                    retain: false,
                };
                self.forwards.push((to, forward));
                self.forwards.len() - 1
            }
        };
        // Just found or pushed.
        #[allow(clippy::indexing_slicing)]
        &mut self.forwards[at].1
    }

    fn add_session(&mut self, s: SessionIdx, value: &Subscribed, share: Option<&Text>) {
        let Some(session) = self.sessions.get_mut(s) else {
            return;
        };
        //= mqtt5#[MQTT-3.8.3-3]
        if value.options & NO_LOCAL != 0 && session.key.0 == self.origin {
            return;
        }
        // A shared subscription delivers besides any plain one.
        if share.is_none() {
            if session.mark == self.mark
                && let Some(hit) = self.hits.get_mut(session.mark_at)
            {
                return merge(hit, value);
            }
            session.mark = self.mark;
            session.mark_at = self.hits.len();
        }
        let mut identifiers = Identifiers::new();
        if value.identifier != 0 {
            identifiers.push(value.identifier);
        }
        self.hits.push(Hit {
            session: s,
            options: value.options,
            identifiers,
            stream: value.stream,
            share: share.map(|share| Arc::from(share.as_str())),
        });
    }

    /// One member, in turn: one that can take it now, else any.
    fn add_shared(&mut self, shared: &SharedMatch<'_, Subscriber, Subscribed>) {
        let local = self.local;
        let (sessions, conns) = (&*self.sessions, self.conns);
        let chosen = shared
            .select(|key, _| match key {
                Subscriber::Session(s) => is_available(sessions, conns, *s as usize),
                Subscriber::Shard(_) => !local,
            })
            .or_else(|| shared.select(|key, _| !local || matches!(key, Subscriber::Session(_))));
        if let Some((key, value)) = chosen {
            let share = alloc::format!("$share/{}/{}", shared.group(), shared.filter());
            self.add(key, value, Some(&Text::from(share)));
        }
    }
}

/// Overlapping subscriptions of one session give one copy, with the highest
/// QoS and all identifiers [MQTT-3.3.4-2, MQTT-3.3.4-4].
fn merge(hit: &mut Hit, value: &Subscribed) {
    let (old, new) = (hit.options, value.options);
    let qos = (old & 3).max(new & 3);
    // Retain As Published if any wants it.
    let retain_as_published = (old | new) & 0b1000;
    hit.options = qos | retain_as_published;
    if value.identifier != 0 && !hit.identifiers.contains(&value.identifier) {
        hit.identifiers.push(value.identifier);
    }
}
