//! SUBSCRIBE and UNSUBSCRIBE: the tree, the other shards' interest, the store,
//! then SUBACK, then retained messages.

use alloc::vec::Vec;

use dunlin_base::topic::Filter;
use dunlin_base::{ShardId, StreamId, Text};
use dunlin_mqtt::codec::{
    Packet, ReasonCode, ReasonCodes, ReasonProperties, RetainHandling, SubAck, Subscribe,
    SubscribeFilter, UnsubAck, Unsubscribe,
};
use dunlin_mqtt::server::Identifiers;
use dunlin_store::StoreOp;

use crate::access::Action;
use crate::conn::{Conn, ConnIdx, Phase};
use crate::fault::Fault;
use crate::io::{BusMessage, InterestChange, Output};
use crate::pending::{Pending, PendingSubscribe};
use crate::session::{RetainedWalk, SessionIdx, Subscription};
use crate::shard::{Shard, Subscribed, Subscriber};

impl Shard {
    pub(crate) fn handle_subscribe(
        &mut self,
        c: ConnIdx,
        s: SessionIdx,
        stream: StreamId,
        subscribe: &Subscribe<'_>,
    ) -> Result<(), Fault> {
        let (Some(conn), Some(session)) = (self.conns.get(c), self.sessions.get(s)) else {
            return Ok(());
        };
        let mut pending = PendingSubscribe {
            conn: conn.id,
            session: session.key,
            stream,
            packet_id: subscribe.packet_id,
            reasons: Vec::new(),
            added: Vec::new(),
            unsubscribe: false,
            walks: Vec::new(),
            waiting: 0,
        };
        let identifier = subscribe.subscription_identifier.map(|id| id.get());
        let mut changes = Vec::new();
        for request in subscribe.filters.iter() {
            let subscription = Subscription {
                options: request.options,
                identifier,
                stream,
                flow: self.flow_of(c, stream),
            };
            let reason = self.subscribe_one(s, &request, subscription, &mut changes, &mut pending);
            pending.reasons.push(reason);
        }
        self.announce(changes, pending);
        Ok(())
    }

    fn subscribe_one(
        &mut self,
        s: SessionIdx,
        request: &SubscribeFilter<'_>,
        subscription: Subscription,
        changes: &mut Vec<InterestChange>,
        pending: &mut PendingSubscribe,
    ) -> ReasonCode {
        let text = request.filter;
        let Ok(filter) = Filter::parse(text) else {
            return ReasonCode::TopicFilterInvalid;
        };
        if !self.may(s, Action::Subscribe, filter.filter) {
            return ReasonCode::NotAuthorized;
        }
        let limit = self.config.subscriptions_max;
        let outlives = self.sessions.get(s).is_some_and(|session| {
            let conn = session.conn;
            session.is_persistent()
                && conn.is_some_and(|c| self.outlives(c, session, subscription.stream))
        });
        let Some(session) = self.sessions.get_mut(s) else {
            return ReasonCode::UnspecifiedError;
        };
        let is_new = !session.subscriptions.contains_key(text.as_bytes());
        if is_new && session.subscriptions.len() >= limit {
            return ReasonCode::QuotaExceeded;
        }
        //= mqtt5#[MQTT-3.8.4-3]
        session.subscriptions.insert(Text::from(text), subscription);
        if outlives {
            let op = StoreOp::PutSubscription {
                key: session.key,
                filter: Text::from(text),
                options: subscription.options.to_byte(),
                identifier: subscription.identifier,
            };
            self.write(op);
        }
        self.plant(s, text, subscription);
        if is_new {
            changes.extend(self.count_in(text, &filter));
            pending.added.push(Text::from(text));
        }
        let wants_retained = match subscription.options.retain_handling {
            RetainHandling::SendAtSubscribe => true,
            RetainHandling::SendIfNew => is_new,
            RetainHandling::DoNotSend => false,
        };
        //= mqtt5#[MQTT-3.3.1-9]
        //= mqtt5#[MQTT-3.3.1-10]
        //= mqtt5#[MQTT-3.3.1-11]
        if wants_retained && filter.share.is_none() {
            pending.walks.push(RetainedWalk {
                filter: Text::from(text),
                after: None,
                qos: subscription.options.qos,
                identifiers: subscription.identifier.into_iter().collect::<Identifiers>(),
                stream: subscription.stream,
            });
        }
        match subscription.options.qos as u8 {
            0 => ReasonCode::Success,
            1 => ReasonCode::GrantedQos1,
            _ => ReasonCode::GrantedQos2,
        }
    }

    /// Puts a session's subscription into the tree, or replaces its options.
    pub(crate) fn plant(&mut self, s: SessionIdx, text: &str, subscription: Subscription) {
        let Ok(filter) = Filter::parse(text) else {
            return;
        };
        let key = Subscriber::Session(s as u32);
        let value = Subscribed {
            options: subscription.options.to_byte(),
            identifier: subscription.identifier.unwrap_or(0),
            stream: subscription.stream,
        };
        match filter.share {
            None => self.tree.insert(filter.filter, key, value),
            Some(group) => self.tree.insert_shared(group, filter.filter, key, value, 1),
        };
    }

    /// Takes a session's subscription out of the tree; says what that changes
    /// for other shards.
    pub(crate) fn uproot(&mut self, s: SessionIdx, text: &str) -> Option<InterestChange> {
        let filter = Filter::parse(text).ok()?;
        let key = Subscriber::Session(s as u32);
        match filter.share {
            None => {
                self.tree.remove(filter.filter, key);
                self.interest
                    .remove(filter.filter)
                    .then(|| InterestChange::Remove(Text::from(text)))
            }
            Some(group) => {
                self.tree.remove_shared(group, filter.filter, key);
                let members = self.interest.remove_shared(group, filter.filter);
                Some(InterestChange::Share(
                    Text::from(text),
                    members.unwrap_or(0),
                ))
            }
        }
    }

    /// Counts a new subscription; says what that changes for other shards.
    pub(crate) fn count_in(&mut self, text: &str, filter: &Filter<'_>) -> Option<InterestChange> {
        match filter.share {
            None => self
                .interest
                .add(filter.filter)
                .then(|| InterestChange::Add(Text::from(text))),
            Some(group) => {
                let members = self.interest.add_shared(group, filter.filter);
                Some(InterestChange::Share(Text::from(text), members))
            }
        }
    }

    pub(crate) fn handle_unsubscribe(
        &mut self,
        c: ConnIdx,
        s: SessionIdx,
        stream: StreamId,
        unsubscribe: &Unsubscribe<'_>,
    ) -> Result<(), Fault> {
        let Some(conn) = self.conns.get(c).map(|conn| conn.id) else {
            return Ok(());
        };
        let mut changes = Vec::new();
        let mut reasons = Vec::new();
        let Some(key) = self.sessions.get(s).map(|session| session.key) else {
            return Ok(());
        };
        for text in unsubscribe.filters.iter() {
            let Some(session) = self.sessions.get_mut(s) else {
                break;
            };
            //= mqtt5#[MQTT-3.10.4-1]
            if session.subscriptions.remove(text.as_bytes()).is_none() {
                reasons.push(ReasonCode::NoSubscriptionExisted);
                continue;
            }
            session.walks.retain(|walk| walk.filter != text);
            if session.is_persistent() {
                let filter = Text::from(text);
                self.write(StoreOp::DeleteSubscription { key, filter });
            }
            changes.extend(self.uproot(s, text));
            reasons.push(ReasonCode::Success);
        }
        let pending = PendingSubscribe {
            conn,
            session: key,
            stream,
            packet_id: unsubscribe.packet_id,
            reasons,
            added: Vec::new(),
            unsubscribe: true,
            walks: Vec::new(),
            waiting: 0,
        };
        self.announce(changes, pending);
        Ok(())
    }

    /// Tells the other shards and the store, and waits for all of them. Shards
    /// are asked even when nothing changes for them: their answer comes after
    /// every retained message that they sent before.
    fn announce(&mut self, changes: Vec<InterestChange>, mut pending: PendingSubscribe) {
        let token = self.token();
        let persistent = self
            .session_of(pending.session)
            .and_then(|s| self.sessions.get(s))
            .is_some_and(crate::session::Session::is_persistent);
        if let Some(&c) = self.conn_ids.get(&pending.conn)
            && let Some(conn) = self.conns.get_mut(c)
        {
            conn.subscribing = conn.subscribing.saturating_add(1);
        }
        pending.waiting = usize::from(self.config.shards) - 1;
        self.tell_all(token, &changes);
        if persistent && self.config.durable {
            pending.waiting += 1;
            self.await_writes(token, Pending::Subscribe(pending));
        } else if pending.waiting > 0 {
            self.pending.insert(token, Pending::Subscribe(pending));
        } else {
            pending.waiting = 1;
            self.advance_subscribe(token, pending);
        }
    }

    /// Sends interest to every other shard.
    pub(crate) fn tell_all(&mut self, token: u64, changes: &[InterestChange]) {
        for shard in 0..self.config.shards {
            let to = ShardId(shard);
            if to != self.config.shard {
                let message = BusMessage::Interest {
                    token,
                    changes: changes.to_vec(),
                };
                self.output(Output::Bus { to, message });
            }
        }
    }

    /// One of those that a SUBSCRIBE or UNSUBSCRIBE waits for has answered.
    pub(crate) fn advance_subscribe(&mut self, token: u64, mut pending: PendingSubscribe) {
        pending.waiting = pending.waiting.saturating_sub(1);
        if pending.waiting > 0 {
            self.pending.insert(token, Pending::Subscribe(pending));
            return;
        }
        let Some(s) = self.session_of(pending.session) else {
            return;
        };
        let Some(&c) = self.conn_ids.get(&pending.conn) else {
            return;
        };
        let phase = self.conns.get(c).map(|conn: &Conn| &conn.phase);
        if !matches!(phase, Some(Phase::Connected(at)) if *at == s) {
            return;
        }
        self.send_suback(c, &pending);
        if let Some(session) = self.sessions.get_mut(s) {
            let subscriptions = &session.subscriptions;
            // An UNSUBSCRIBE may have come before this answer.
            let walks = pending.walks.into_iter();
            let walks = walks.filter(|walk| subscriptions.contains_key(walk.filter.as_bytes()));
            session.walks.extend(walks);
        }
        self.pump(s);
    }

    /// The store did not take a SUBSCRIBE or UNSUBSCRIBE: the client is told,
    /// and new subscriptions are taken back. What UNSUBSCRIBE removed stays
    /// removed, though a restart may bring it back.
    pub(crate) fn refuse_subscribe(&mut self, pending: &mut PendingSubscribe) {
        let reason = match pending.unsubscribe {
            true => ReasonCode::UnspecifiedError,
            false => ReasonCode::QuotaExceeded,
        };
        for granted in pending.reasons.iter_mut().filter(|r| !r.is_error()) {
            *granted = reason;
        }
        pending.walks.clear();
        let Some(s) = self.session_of(pending.session) else {
            return;
        };
        let mut changes = Vec::new();
        for text in pending.added.drain(..) {
            let session = self.sessions.get_mut(s);
            if session.is_some_and(|s| s.subscriptions.remove(text.as_bytes()).is_some()) {
                changes.extend(self.uproot(s, &text));
            }
        }
        if !changes.is_empty() {
            self.tell_all(0, &changes);
        }
    }

    fn send_suback(&mut self, c: ConnIdx, pending: &PendingSubscribe) {
        if let Some(conn) = self.conns.get_mut(c) {
            conn.subscribing = conn.subscribing.saturating_sub(1);
        }
        let (packet_id, reasons) = (pending.packet_id, ReasonCodes::new(&pending.reasons));
        let properties = ReasonProperties::default();
        let packet = if pending.unsubscribe {
            Packet::UnsubAck(UnsubAck {
                packet_id,
                properties,
                reasons,
            })
        } else {
            Packet::SubAck(SubAck {
                packet_id,
                properties,
                reasons,
            })
        };
        self.send(c, pending.stream, &packet);
    }

    /// Subscriptions made on data streams of an earlier connection go on, on
    /// control.
    pub(crate) fn rehome_streams(&mut self, s: SessionIdx) {
        let Some(session) = self.sessions.get(s) else {
            return;
        };
        let moved: Vec<(Text, Subscription)> = session
            .subscriptions
            .iter()
            .filter(|(_, subscription)| subscription.stream != StreamId::CONTROL)
            .map(|(text, subscription)| (text.clone(), *subscription))
            .collect();
        for (text, mut subscription) in moved {
            subscription.stream = StreamId::CONTROL;
            self.plant(s, &text, subscription);
            if let Some(session) = self.sessions.get_mut(s) {
                session.subscriptions.insert(text, subscription);
            }
        }
    }

    /// Subscriptions made on a stream that ended go on, on control, when the
    /// session is persistent; otherwise, or if the client wants it so, they
    /// end with it, as with EMQX.
    pub(crate) fn rehome_subscriptions(&mut self, c: ConnIdx, s: SessionIdx, stream: StreamId) {
        let Some(session) = self.sessions.get(s) else {
            return;
        };
        let keep = session.is_persistent() && self.outlives(c, session, stream);
        let moved = session.subscriptions.iter();
        let moved: Vec<(Text, Subscription)> = moved
            .filter(|(_, subscription)| subscription.stream == stream)
            .map(|(text, subscription)| (text.clone(), *subscription))
            .collect();
        if !keep {
            return self.drop_subscriptions(s, |_, on| on == stream);
        }
        for (text, mut subscription) in moved {
            subscription.stream = StreamId::CONTROL;
            self.plant(s, &text, subscription);
            if let Some(session) = self.sessions.get_mut(s) {
                session.subscriptions.insert(text, subscription);
            }
        }
    }
}
