//! Figures of all shards, as the first one knows them, and how fast they grow; how many
//! events were published of late.

use alloc::collections::BTreeMap;
use core::time::Duration;

use dunlin_base::{Instant, ShardId};

/// Counts of one shard or of all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) sessions: u64,
    pub(crate) connected: u64,
    pub(crate) subscriptions: u64,
    pub(crate) queued: u64,
    pub(crate) queued_bytes: u64,
    /// Since the start, like all that follow.
    pub(crate) connections: u64,
    pub(crate) clients: u64,
    pub(crate) received: u64,
    pub(crate) sent: u64,
    pub(crate) dropped: u64,
    pub(crate) bytes_received: u64,
    pub(crate) bytes_sent: u64,
}

impl Counts {
    const fn plus(&self, other: &Self) -> Self {
        Self {
            sessions: self.sessions + other.sessions,
            connected: self.connected + other.connected,
            subscriptions: self.subscriptions + other.subscriptions,
            queued: self.queued + other.queued,
            queued_bytes: self.queued_bytes + other.queued_bytes,
            connections: self.connections + other.connections,
            clients: self.clients + other.clients,
            received: self.received + other.received,
            sent: self.sent + other.sent,
            dropped: self.dropped + other.dropped,
            bytes_received: self.bytes_received + other.bytes_received,
            bytes_sent: self.bytes_sent + other.bytes_sent,
        }
    }

    /// What has a load, by its name.
    const fn growing(&self) -> [(&'static str, u64); LOADS] {
        [
            ("messages/received", self.received),
            ("messages/sent", self.sent),
            ("publish/received", self.received),
            ("publish/sent", self.sent),
            ("publish/dropped", self.dropped),
            ("bytes/received", self.bytes_received),
            ("bytes/sent", self.bytes_sent),
            ("sockets", self.connections),
            ("connections", self.clients),
        ]
    }
}

/// Counts that have a load.
const LOADS: usize = 9;

/// Minutes over which loads are averaged.
const MINUTES: [u8; 3] = [1, 5, 15];

/// Events that a shard publishes in a second.
pub(crate) const EVENTS_MAX: u32 = 100;

/// What a shard remembers of what it tells about itself.
#[derive(Debug, Default)]
pub(crate) struct Figures {
    shards: BTreeMap<ShardId, Counts>,
    last: Option<(Instant, Counts)>,
    /// A minute, averaged.
    loads: [[f64; MINUTES.len()]; LOADS],
    /// Most clients that were connected at a time when they were counted.
    pub(crate) connected_max: u64,
    /// The second of the events.
    since: Instant,
    events: u32,
    left_out: u64,
}

impl Figures {
    /// A shard has counted.
    pub(crate) fn note(&mut self, shard: ShardId, counts: Counts) {
        self.shards.insert(shard, counts);
    }

    /// A shard is gone.
    pub(crate) fn forget(&mut self, shard: ShardId) {
        self.shards.remove(&shard);
    }

    /// All shards together, from which loads are made; `started`: when counting began.
    pub(crate) fn sum(&mut self, now: Instant, started: Instant) -> Counts {
        let shards = self.shards.values();
        let all = shards.fold(Counts::default(), |sum, one| sum.plus(one));
        self.connected_max = self.connected_max.max(all.connected);
        let (at, before) = self.last.unwrap_or_else(|| (started, Counts::default()));
        let minutes = (now - at).as_secs_f64() / 60.0;
        if minutes > 0.0 {
            let pairs = all.growing().into_iter().zip(before.growing());
            for (loads, ((_, count), (_, before))) in self.loads.iter_mut().zip(pairs) {
                let rate = count.saturating_sub(before) as f64 / minutes;
                for (load, over) in loads.iter_mut().zip(MINUTES) {
                    let kept = decay(minutes / f64::from(over));
                    *load = *load * kept + rate * (1.0 - kept);
                }
            }
            self.last = Some((now, all));
        }
        all
    }

    /// Loads: name, minutes that they are averaged over, count a minute.
    pub(crate) fn loads(&self) -> impl Iterator<Item = (&'static str, u8, f64)> + use<'_> {
        let names = Counts::default().growing().into_iter();
        let all = names.zip(&self.loads);
        all.flat_map(|((name, _), loads)| {
            let loads = MINUTES.into_iter().zip(loads);
            loads.map(move |(minutes, load)| (name, minutes, *load))
        })
    }

    /// Whether one more event is published; how many were not before it.
    pub(crate) fn admit_event(&mut self, now: Instant) -> Option<u64> {
        if now - self.since >= Duration::from_secs(1) {
            (self.since, self.events) = (now, 0);
        }
        if self.events >= EVENTS_MAX {
            self.left_out += 1;
            return None;
        }
        self.events += 1;
        Some(core::mem::take(&mut self.left_out))
    }
}

/// The exponential of `-x`, to about one in a thousand.
fn decay(x: f64) -> f64 {
    const HALVINGS: u32 = 10;
    let mut part = (1.0 - x / f64::from(1_u32 << HALVINGS)).max(0.0);
    for _ in 0..HALVINGS {
        part *= part;
    }
    part
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loads_follow_what_comes_in_a_minute() {
        let mut figures = Figures::default();
        let mut now = Instant::from_micros(1_000_000);
        let started = now;
        let mut counts = Counts::default();
        let load = |figures: &Figures, minutes| {
            let mut all = figures.loads();
            let found = all.find(|it| (it.0, it.1) == ("messages/received", minutes));
            found.expect("a load").2
        };
        // 360 messages a minute of each of two shards, for ten minutes.
        for _ in 0..60 {
            now += Duration::from_secs(10);
            counts.received += 60;
            figures.note(ShardId(0), counts);
            figures.note(ShardId(1), counts);
            assert_eq!(figures.sum(now, started).received, 2 * counts.received);
        }
        for (minutes, want) in [(1, 720.0), (5, 622.6), (15, 350.3)] {
            let got = load(&figures, minutes);
            assert!((got - want).abs() < 3.0, "{minutes}: {got}");
        }
        // Then none for one minute.
        for _ in 0..6 {
            now += Duration::from_secs(10);
            figures.sum(now, started);
        }
        let got = load(&figures, 1);
        assert!((got - 264.9).abs() < 3.0, "{got}");
        assert!(decay(0.0) > 0.999 && decay(1e9) < 1e-9);
    }

    #[test]
    fn events_have_a_rate() {
        let mut figures = Figures::default();
        let now = Instant::from_micros(5_000_000);
        for _ in 0..EVENTS_MAX {
            assert_eq!(figures.admit_event(now), Some(0));
        }
        assert_eq!(figures.admit_event(now), None);
        assert_eq!(figures.admit_event(now), None);
        let later = now + Duration::from_secs(1);
        assert_eq!(figures.admit_event(later), Some(2));
        assert_eq!(figures.admit_event(later), Some(0));
    }
}
