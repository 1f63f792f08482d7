//! Quotas of clients: how fast they may send, and how much they may have, by user, client
//! identifier and listener. Who sends faster is not read for a while; who has still sent
//! too much then is disconnected.

use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::time::Duration;

use dunlin_base::{Instant, Text};

use crate::access::{Acl, OwnLimits, OwnRules};
use crate::topics::is_like;

/// Most quotas: each is compared with a client in turn.
pub const QUOTAS_MAX: usize = 64;

/// What some clients may do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Quota {
    /// Client identifiers: `*` at the end stands for the rest; `None`: all.
    pub client_id: Option<Text>,
    /// User names, likewise.
    pub user: Option<Text>,
    /// A group, of the access list or by what vouches for the client; `None`: all clients.
    pub group: Option<Text>,
    /// Numbers of listeners; none: all.
    pub listeners: Vec<u16>,
    /// Messages a second of one connection; 0: no limit.
    pub messages: u64,
    /// Bytes a second of one connection; 0: no limit.
    pub bytes: u64,
    /// Time for which a connection may save up what it has not sent.
    pub burst: Duration,
    /// Time that it may be ahead before it is disconnected.
    pub debt: Duration,
    /// Bytes of the largest packet; 0: as for all.
    pub packet_bytes_max: u32,
    /// Messages that wait for one session; 0: as for all.
    pub queue_messages_max: usize,
    /// Bytes of these; 0: as for all.
    pub queue_bytes_max: usize,
    /// Sessions of one user; 0: as for all.
    pub sessions_max: usize,
}

/// Whom a quota may be for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Subject<'a> {
    pub(crate) client_id: &'a str,
    pub(crate) user: Option<&'a str>,
    /// Of its connection; a session has none.
    pub(crate) listener: Option<u16>,
    pub(crate) rules: Option<&'a OwnRules>,
    pub(crate) acl: Option<&'a Acl>,
}

impl Subject<'_> {
    fn is_in(&self, group: &str) -> bool {
        let listed = |acl: &Acl| self.user.is_some_and(|user| acl.is_in(group, user));
        self.rules.is_some_and(|own| own.is_in(group)) || self.acl.is_some_and(listed)
    }
}

/// The quota of a client with limits of its own.
fn over(own: &OwnLimits, quota: Option<&Quota>) -> Quota {
    let usual = Quota {
        burst: Duration::from_secs(1),
        debt: Duration::from_secs(10),
        ..Quota::default()
    };
    let quota = quota.unwrap_or(&usual);
    let size = |limit: Option<u64>, usual: usize| {
        limit.map_or(usual, |it| usize::try_from(it).unwrap_or(usize::MAX))
    };
    let packet = u64::from(quota.packet_bytes_max);
    let packet = own.packet_size.unwrap_or(packet);
    Quota {
        messages: own.messages.unwrap_or(quota.messages),
        bytes: own.bytes.unwrap_or(quota.bytes),
        burst: own.burst.map_or(quota.burst, Duration::from_millis),
        debt: own.debt.map_or(quota.debt, Duration::from_millis),
        packet_bytes_max: u32::try_from(packet).unwrap_or(u32::MAX),
        queue_messages_max: size(own.queue_messages, quota.queue_messages_max),
        queue_bytes_max: size(own.queue_bytes, quota.queue_bytes_max),
        sessions_max: size(own.sessions, quota.sessions_max),
        ..Quota::default()
    }
}

impl Quota {
    fn is_for(&self, who: &Subject<'_>) -> bool {
        let Subject {
            client_id, user, ..
        } = *who;
        let by_listener = match who.listener {
            Some(listener) => self.listeners.is_empty() || self.listeners.contains(&listener),
            None => self.listeners.is_empty(),
        };
        let by_id = self.client_id.as_deref();
        let by_user = self.user.as_deref();
        let by_group = self.group.as_deref();
        by_listener
            && by_group.is_none_or(|group| who.is_in(group))
            && by_id.is_none_or(|pattern| is_like(pattern, client_id))
            && by_user.is_none_or(|it| user.is_some_and(|user| is_like(it, user)))
    }

    /// What a connection is held to, if that is something.
    pub(crate) fn pace(&self) -> Option<Box<Pace>> {
        let is_some = self.messages > 0 || self.bytes > 0 || self.packet_bytes_max > 0;
        is_some.then(|| {
            Box::new(Pace {
                messages: Bucket::new(self.messages),
                bytes: Bucket::new(self.bytes),
                burst: self.burst,
                debt: self.debt,
                packet_bytes_max: match self.packet_bytes_max {
                    0 => u32::MAX,
                    max => max,
                },
                held: false,
            })
        })
    }
}

/// All quotas; the first that is for a client counts.
#[derive(Clone, Debug, Default)]
pub struct Quotas(pub Vec<Quota>);

impl Quotas {
    /// The quota of a client; of a session, whose listener is not known, only those for
    /// all listeners.
    pub(crate) fn of(&self, who: &Subject<'_>) -> Option<Cow<'_, Quota>> {
        let mut all = self.0.iter();
        let quota = all.find(|quota| quota.is_for(who));
        match who.rules.and_then(OwnRules::limits) {
            Some(own) => Some(Cow::Owned(over(own, quota))),
            None => quota.map(Cow::Borrowed),
        }
    }

    /// Whether sessions of users are counted for one.
    pub(crate) fn counts_sessions(&self) -> bool {
        self.0.iter().any(|quota| quota.sessions_max > 0)
    }
}

/// Something that comes at a rate.
#[derive(Debug)]
struct Bucket {
    /// A second; 0: no limit.
    rate: u64,
    /// When all that came is paid for, in nanoseconds.
    paid: u64,
}

const NANOS: u64 = 1_000_000_000;

impl Bucket {
    const fn new(rate: u64) -> Self {
        Self { rate, paid: 0 }
    }

    fn take(&mut self, count: u64, now: Instant, burst: Duration) {
        let Some(nanos) = count.saturating_mul(NANOS).checked_div(self.rate) else {
            return;
        };
        let saved = u64::try_from(burst.as_nanos()).unwrap_or(u64::MAX);
        let from = self.paid.max(nanos_of(now).saturating_sub(saved));
        self.paid = from.saturating_add(nanos);
    }

    /// Time until all that came is paid for.
    const fn ahead(&self, now: Instant) -> Duration {
        Duration::from_nanos(self.paid.saturating_sub(nanos_of(now)))
    }
}

const fn nanos_of(at: Instant) -> u64 {
    at.as_micros().saturating_mul(1000)
}

/// What a connection has sent, beside what it may.
#[derive(Debug)]
pub(crate) struct Pace {
    messages: Bucket,
    bytes: Bucket,
    burst: Duration,
    debt: Duration,
    /// Of one packet.
    pub(crate) packet_bytes_max: u32,
    /// It is not read.
    pub(crate) held: bool,
}

/// What follows from what a connection has sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It is read on.
    Go,
    /// It is read on after so long.
    Wait(Duration),
    /// Far too many messages came.
    Messages,
    /// Far too many bytes came.
    Bytes,
}

impl Pace {
    /// A message came.
    pub(crate) fn note_message(&mut self, now: Instant) {
        self.messages.take(1, now, self.burst);
    }

    /// Time until all that came is paid for.
    pub(crate) fn ahead(&self, now: Instant) -> Duration {
        self.messages.ahead(now).max(self.bytes.ahead(now))
    }

    /// Bytes came, and the messages in them are noted.
    pub(crate) fn note_bytes(&mut self, bytes: usize, now: Instant) -> Verdict {
        self.bytes.take(bytes as u64, now, self.burst);
        let (messages, bytes) = (self.messages.ahead(now), self.bytes.ahead(now));
        match self.ahead(now) {
            Duration::ZERO => Verdict::Go,
            _ if messages > self.debt => Verdict::Messages,
            _ if bytes > self.debt => Verdict::Bytes,
            ahead => Verdict::Wait(ahead),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Instant {
        Instant::from_micros(1_000_000_000 + millis * 1000)
    }

    #[test]
    fn what_comes_too_fast_waits_and_then_ends() {
        let quota = Quota {
            messages: 10,
            bytes: 1000,
            burst: Duration::from_secs(1),
            debt: Duration::from_secs(5),
            ..Quota::default()
        };
        let mut pace = quota.pace().expect("a pace");
        for _ in 0..10 {
            pace.note_message(at(0));
        }
        assert_eq!(pace.note_bytes(500, at(0)), Verdict::Go);
        pace.note_message(at(0));
        let wait = Verdict::Wait(Duration::from_millis(100));
        assert_eq!(pace.note_bytes(500, at(0)), wait);
        assert_eq!(pace.note_bytes(0, at(100)), Verdict::Go);
        // What is saved up has an end.
        for _ in 0..11 {
            pace.note_message(at(60_000));
        }
        assert_eq!(pace.note_bytes(0, at(60_000)), wait);
        let second = Verdict::Wait(Duration::from_secs(1));
        assert_eq!(pace.note_bytes(2000, at(120_000)), second);
        assert_eq!(pace.note_bytes(4001, at(120_000)), Verdict::Bytes);
        for _ in 0..61 {
            pace.note_message(at(200_000));
        }
        assert_eq!(pace.note_bytes(0, at(200_000)), Verdict::Messages);
    }

    #[test]
    fn what_a_client_brings_counts_in_place_of_its_quota() {
        let acl = Acl::parse("group ops = bob").expect("valid");
        let quotas = Quotas(alloc::vec![
            Quota {
                group: Some(Text::from_static("ops")),
                messages: 1,
                bytes: 2,
                burst: Duration::from_secs(3),
                ..Quota::default()
            },
            Quota {
                messages: 9,
                ..Quota::default()
            },
        ]);
        let of = |user, rules: &str| {
            let rules = OwnRules::parse(rules).expect("valid");
            let who = Subject {
                client_id: "c",
                user: Some(user),
                listener: None,
                rules: Some(&rules),
                acl: Some(&acl),
            };
            let quota = quotas.of(&who).expect("a quota").into_owned();
            (quota.messages, quota.bytes, quota.burst.as_millis())
        };
        assert_eq!(of("bob", ""), (1, 2, 3000));
        assert_eq!(of("alice", ""), (9, 0, 0));
        assert_eq!(of("alice", "open\ngroup ops"), (1, 2, 3000));
        let own = "open\nlimit messages 7\nlimit burst 500";
        assert_eq!(of("bob", own), (7, 2, 500));
        let own = OwnRules::parse("limit queue_messages 5\nlimit packet_size 99999999999");
        let own = own.expect("valid");
        let quota = over(own.limits().expect("some"), None);
        assert_eq!((quota.queue_messages_max, quota.queue_bytes_max), (5, 0));
        assert_eq!(
            (quota.packet_bytes_max, quota.debt.as_secs()),
            (u32::MAX, 10)
        );
    }

    #[test]
    fn the_first_quota_for_a_client_counts() {
        let quota = |user: &str, listeners: &[u16], messages| Quota {
            user: (user != "-").then(|| Text::from(user)),
            listeners: listeners.into(),
            messages,
            ..Quota::default()
        };
        let quotas = Quotas(alloc::vec![
            quota("sensor-*", &[], 1),
            quota("-", &[1], 2),
            quota("alice", &[], 3),
        ]);
        let of = |user, listener| {
            let found = quotas.of(&Subject {
                client_id: "c",
                user,
                listener,
                rules: None,
                acl: None,
            });
            found.map_or(0, |quota| quota.messages)
        };
        assert_eq!(of(Some("sensor-7"), Some(1)), 1);
        assert_eq!(of(Some("alice"), Some(1)), 2);
        assert_eq!(of(None, Some(1)), 2);
        assert_eq!(of(Some("alice"), Some(0)), 3);
        assert_eq!(of(Some("alice"), None), 3);
        assert_eq!(of(None, Some(0)), 0);
        assert!(quota("-", &[], 0).pace().is_none());
    }
}
