//! What a store knows when it opens: an index without the payloads of queued
//! messages, which are loaded when they are wanted.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

use bytes::Bytes;
use dunlin_base::{Instant, Message, QoS, Text};

use crate::{InflightState, Seq, SessionKey, SessionRecord, Target};

/// Everything that survived.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recovered {
    /// Sessions, by key.
    pub sessions: Vec<RecoveredSession>,
    /// Retained messages, by topic.
    pub retained: Vec<Message>,
    /// Named values, by name.
    pub meta: Vec<(Text, Bytes)>,
    /// The largest sequence number in use; shards go on above its counter.
    pub last_seq: Seq,
    /// A session key above all in use.
    pub next_session: u64,
}

/// One session as stored.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecoveredSession {
    /// The session.
    pub key: SessionKey,
    /// Its record.
    pub record: SessionRecord,
    /// Filter, options byte and identifier of each subscription, by filter.
    pub subscriptions: Vec<(Text, u8, Option<u32>)>,
    /// Outgoing packet ids in use, by id.
    pub inflight: Vec<(u16, Seq, InflightState)>,
    /// Ids of incoming QoS 2 messages not yet released, by id.
    pub inbound: Vec<u16>,
    /// Messages queued and not dequeued, oldest first. Those in `inflight`
    /// as [`InflightState::Published`] are among them.
    pub queue: Vec<QueuedRef>,
}

/// A queued message without its bytes, in 24 bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueuedRef {
    seq: Seq,
    extra: Option<Box<QueuedExtra>>,
    /// Whole seconds, rounded up; 0: never, or after what fits.
    expires_secs: u32,
    /// Cost in the low bits, then two bits of QoS, then RETAIN.
    packed: u32,
}

const _: () = assert!(size_of::<QueuedRef>() == 24);

/// What few queued messages have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueuedExtra {
    /// Subscription identifiers, in the order they are sent.
    pub identifiers: Vec<u32>,
    /// The full `$share/…` filter that it came through.
    pub shared: Option<Text>,
    /// Attempts to deliver it that failed.
    pub failed: u16,
    /// Its priority, where that is not the usual one.
    pub priority: Option<u8>,
    /// It is kept back until then.
    pub not_before: Option<Instant>,
    /// What its receivers have added to it.
    pub added: Option<Arc<[u8]>>,
}

impl QueuedRef {
    const COST_BITS: u32 = 29;
    const COST_MAX: u32 = (1 << Self::COST_BITS) - 1;
    const RETAIN_BIT: u32 = 1 << 31;

    /// The reference that stands for `message` in the queue of `target`.
    #[must_use]
    pub fn new(seq: Seq, message: &Message, target: &Target) -> Self {
        Self::from_parts(seq, message.expires, message.cost(), target)
    }

    /// As [`QueuedRef::new`], for a back end that reads expiry and
    /// [`Message::cost`] without the message.
    #[must_use]
    pub fn from_parts(seq: Seq, expires: Option<Instant>, cost: usize, target: &Target) -> Self {
        let few = !target.identifiers.is_empty()
            || target.shared.is_some()
            || target.failed > 0
            || target.priority.is_some()
            || target.not_before.is_some()
            || target.added.is_some();
        let extra = few.then(|| {
            Box::new(QueuedExtra {
                identifiers: target.identifiers.clone(),
                shared: target.shared.clone(),
                failed: target.failed,
                priority: target.priority,
                not_before: target.not_before,
                added: target.added.clone(),
            })
        });
        let cost = u32::try_from(cost).unwrap_or(u32::MAX).min(Self::COST_MAX);
        let retain = if target.retain { Self::RETAIN_BIT } else { 0 };
        // An expiry after the year 2106 does not fit: `Message::expires`
        // decides when the message is loaded.
        let expires_secs = expires.map_or(0, |at| {
            u32::try_from(at.as_micros().div_ceil(1_000_000)).map_or(0, |secs| secs.max(1))
        });
        Self {
            seq,
            extra,
            expires_secs,
            packed: cost | (u32::from(target.qos as u8) << Self::COST_BITS) | retain,
        }
    }

    /// Its place in the order.
    #[must_use]
    pub const fn seq(&self) -> Seq {
        self.seq
    }

    /// QoS of the delivery.
    #[must_use]
    pub const fn qos(&self) -> QoS {
        match (self.packed >> Self::COST_BITS) & 3 {
            0 => QoS::AtMostOnce,
            1 => QoS::AtLeastOnce,
            _ => QoS::ExactlyOnce,
        }
    }

    /// RETAIN flag of the delivery.
    #[must_use]
    pub const fn retain(&self) -> bool {
        self.packed & Self::RETAIN_BIT != 0
    }

    /// When the message expires, up to a second late.
    #[must_use]
    pub fn expires(&self) -> Option<Instant> {
        (self.expires_secs != 0)
            .then(|| Instant::from_micros(u64::from(self.expires_secs) * 1_000_000))
    }

    /// Bytes counted against queue limits: [`Message::cost`].
    #[must_use]
    pub const fn cost(&self) -> usize {
        (self.packed & Self::COST_MAX) as usize
    }

    /// Subscription identifiers, in the order they are sent.
    #[must_use]
    pub fn identifiers(&self) -> &[u32] {
        self.extra.as_ref().map_or(&[], |e| &e.identifiers)
    }

    /// The full `$share/…` filter that it came through.
    #[must_use]
    pub fn shared(&self) -> Option<&Text> {
        self.extra.as_ref().and_then(|e| e.shared.as_ref())
    }

    /// Attempts to deliver it that failed.
    #[must_use]
    pub fn failed(&self) -> u16 {
        self.extra.as_ref().map_or(0, |e| e.failed)
    }

    /// Its priority, where that is not the usual one.
    #[must_use]
    pub fn priority(&self) -> Option<u8> {
        self.extra.as_ref().and_then(|e| e.priority)
    }

    /// It is kept back until then.
    #[must_use]
    pub fn not_before(&self) -> Option<Instant> {
        self.extra.as_ref().and_then(|e| e.not_before)
    }

    /// What its receivers have added to it.
    #[must_use]
    pub fn added(&self) -> Option<&Arc<[u8]>> {
        self.extra.as_ref().and_then(|e| e.added.as_ref())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    #[test]
    fn references_keep_what_they_were_made_of() {
        for qos in [QoS::AtMostOnce, QoS::AtLeastOnce, QoS::ExactlyOnce] {
            for retain in [false, true] {
                let target = Target {
                    retain,
                    identifiers: vec![1, 268_435_455],
                    shared: Some(Text::from("$share/g/a")),
                    failed: 3,
                    priority: Some(9),
                    not_before: Some(Instant::from_micros(7)),
                    added: Some(Arc::from(&b"x"[..])),
                    ..Target::new(SessionKey(1), qos)
                };
                let at = Instant::from_micros(1_500_000);
                let r = QueuedRef::from_parts(Seq(9), Some(at), 268_435_460, &target);
                assert_eq!((r.seq(), r.qos(), r.retain()), (Seq(9), qos, retain));
                assert_eq!(r.cost(), 268_435_460);
                assert_eq!(r.expires(), Some(Instant::from_micros(2_000_000)));
                assert_eq!(r.identifiers(), &[1, 268_435_455]);
                assert_eq!(r.shared(), target.shared.as_ref());
                assert_eq!((r.failed(), r.priority()), (3, Some(9)));
                assert_eq!(r.not_before(), Some(Instant::from_micros(7)));
                assert_eq!(r.added(), target.added.as_ref());
            }
        }
        let never = QueuedRef::from_parts(
            Seq(1),
            Some(Instant::FAR_FUTURE),
            0,
            &Target::new(SessionKey(1), QoS::AtLeastOnce),
        );
        assert_eq!(never.expires(), None, "does not fit, so never early");
    }
}
