//! Sessions between connections: leaving, wills, expiry, the end.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

use dunlin_mqtt::codec::{Disconnect, ReasonCode};
use dunlin_mqtt::server::delivery;
use dunlin_store::{SessionKey, StoreOp, StoredWill};

use crate::access::Action;
use crate::conn::ConnIdx;
use crate::fault::Fault;
use crate::io::Event;
use crate::pending::Pending;
use crate::session::SessionIdx;
use crate::shard::Shard;
use crate::source::Source;
use crate::timers::{Timer, Timers};

impl Shard {
    /// DISCONNECT from the client.
    pub(crate) fn handle_disconnect(
        &mut self,
        c: ConnIdx,
        s: SessionIdx,
        disconnect: &Disconnect<'_>,
    ) -> Result<(), Fault> {
        let Some(session) = self.sessions.get_mut(s) else {
            return Ok(());
        };
        if let Some(expiry) = disconnect.properties.session_expiry_interval {
            //= mqtt5#[MQTT-3.14.2-2]
            if session.expiry_secs == 0 && expiry != 0 {
                return Err(Fault::protocol(
                    "a session that ends with its connection cannot be prolonged",
                ));
            }
            session.expiry_secs = expiry.min(self.config.session_expiry_secs_max);
        }
        let with_will = disconnect.reason != ReasonCode::Success;
        if !with_will {
            //= mqtt5#[MQTT-3.14.4-3]
            session.will = None;
        }
        let client_id = session.client_id.clone();
        if let Some(conn) = self.conns.get(c).map(|conn| conn.id) {
            self.event(Event::Disconnected {
                conn,
                client_id: Some(client_id),
                cause: dunlin_base::Text::from_static("disconnected by the client"),
            });
        }
        self.part(c);
        Ok(())
    }

    /// The session loses its connection. `with_will`: unless the will waits,
    /// it is published.
    pub(crate) fn detach(&mut self, s: SessionIdx, with_will: bool) {
        let (now, shutting_down) = (self.now, self.is_shutting_down());
        let Some(session) = self.sessions.get_mut(s) else {
            return;
        };
        let Some(c) = session.conn.take() else {
            return;
        };
        // After a restart the store says that it was connected: that is when
        // its will is due and its expiry begins.
        if shutting_down {
            return;
        }
        session.disconnected_at = Some(now);
        if session.expiry_secs > 0 {
            let durable = self.conns.get(c).is_none_or(|conn| conn.durable_streams);
            self.lose_streams(s, durable);
        }
        let Some(session) = self.sessions.get_mut(s) else {
            return;
        };
        let key = session.key;
        if !with_will {
            session.will = None;
        }
        if let Some(will) = &session.will {
            //= mqtt5#[MQTT-3.1.3-9]
            let delay = will.delay_secs.min(session.expiry_secs);
            session.will_due = Some(now + Duration::from_secs(u64::from(delay)));
            if delay == 0 {
                self.publish_will(s);
            }
        }
        let Some(session) = self.sessions.get_mut(s) else {
            return;
        };
        if session.expiry_secs == 0 {
            return self.end_session(s);
        }
        self.release_shared(s, false);
        let Some(session) = self.sessions.get_mut(s) else {
            return;
        };
        session
            .outbound
            .shed(self.config.queue_held_max * usize::from(self.config.durable));
        let deadlines = [session.will_due, session.expires_at()];
        for at in deadlines.into_iter().flatten() {
            let timer = Timer::Session(key.0);
            self.timers.remind(at, timer, &mut session.alarm);
        }
        let record = session.record();
        self.write(StoreOp::PutSession { key, record });
    }

    /// Messages of shared subscriptions go to members that are still there.
    fn release_shared(&mut self, s: SessionIdx, ends: bool) {
        let Some(session) = self.sessions.get_mut(s) else {
            return;
        };
        let key = session.key;
        let taken = session.outbound.take_shared(ends);
        for delivery in taken {
            if !self.redeliver(&delivery, s, key, ends)
                && let Some(session) = self.sessions.get_mut(s)
            {
                session.outbound.push(delivery);
            }
        }
    }

    /// A session's will or expiry may be due.
    pub(crate) fn check_session(&mut self, s: SessionIdx) {
        let now = self.now;
        let Some(session) = self.sessions.get_mut(s) else {
            return;
        };
        Timers::came(&mut session.alarm);
        if session.conn.is_some() {
            return;
        }
        let expired = session.expires_at().is_some_and(|at| at <= now);
        if session.will_due.is_some_and(|at| at <= now) {
            self.publish_will(s);
            if !expired && let Some(session) = self.sessions.get(s) {
                let (key, record) = (session.key, session.record());
                self.write(StoreOp::PutSession { key, record });
            }
        }
        if expired {
            return self.end_session(s);
        }
        if let Some(session) = self.sessions.get_mut(s) {
            let (deadlines, key) = ([session.will_due, session.expires_at()], session.key);
            for at in deadlines.into_iter().flatten() {
                let timer = Timer::Session(key.0);
                self.timers.remind(at, timer, &mut session.alarm);
            }
        }
    }

    /// Publishes the session's will, once.
    fn publish_will(&mut self, s: SessionIdx) {
        let Some(session) = self.sessions.get_mut(s) else {
            return;
        };
        session.will_due = None;
        let Some(will) = session.will.take() else {
            return;
        };
        if self.may(s, Action::Publish, &will.message.topic) {
            self.publish_message(*will);
        }
    }

    fn publish_message(&mut self, will: StoredWill) {
        let mut message = will.message;
        //= mqtt5#[MQTT-3.1.3-9]
        message.expires = will
            .message_expiry_secs
            .map(|secs| self.now + Duration::from_secs(u64::from(secs)));
        let message = Arc::new(message);
        let view = delivery::view(&message, self.now);
        let mut source = Source::from_message(&message, &view, self.now);
        let token = self.token();
        // No acknowledgement is due, and nobody is left for whom a will could
        // be local.
        self.dispatch(None, token, &mut source);
    }

    /// Ends a session: its will, its subscriptions, its record.
    pub(crate) fn end_session(&mut self, s: SessionIdx) {
        //= mqtt5#[MQTT-3.1.2-8]
        if self.sessions.get(s).is_some_and(|s| s.will_due.is_some()) {
            self.publish_will(s);
        }
        self.release_shared(s, true);
        let Some(session) = self.sessions.get_mut(s) else {
            return;
        };
        let subscriptions = core::mem::take(&mut session.subscriptions);
        let line = core::mem::take(&mut session.preparing);
        let mut changes = Vec::new();
        for text in subscriptions.keys() {
            changes.extend(self.uproot(s, text));
        }
        if !changes.is_empty() {
            self.tell_all(0, &changes);
        }
        let Some(mut session) = self.sessions.try_remove(s) else {
            return;
        };
        let timer = Timer::Session(session.key.0);
        self.timers.cancel(timer, &mut session.alarm);
        self.client_ids.remove(session.client_id.as_bytes());
        self.session_keys.remove(&session.key.0);
        if session.stored {
            self.store_forget(session.key);
        }
        self.release_line(line);
    }

    /// Has the store forget a session: what it keeps would come back with a
    /// restart.
    pub(crate) fn store_forget(&mut self, session: SessionKey) {
        self.write(StoreOp::DeleteSession { key: session });
        let token = self.token();
        self.await_writes(token, Pending::Forget { session });
    }

    /// A key for a new session: the shard in the low bits, so that shards need
    /// not ask each other.
    pub(crate) fn new_session_key(&mut self) -> SessionKey {
        self.next_session += 1;
        SessionKey((self.next_session << 16) | u64::from(self.config.shard.0))
    }
}
