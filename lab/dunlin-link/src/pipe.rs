//! One direction: packets in at a time, packets out at later times.

use core::cmp::Ordering;
use core::time::Duration;
use std::collections::BinaryHeap;

use crate::counters::{Counters, Fate};
use crate::loss::LossModel;
use crate::packet::Packet;
use crate::profile::{Jitter, Profile};
use crate::random::Random;
use crate::topology::HostId;

/// Packets on their way; what exceeds it counts as a full queue.
const ON_THE_WAY_MAX: usize = 1 << 18;

const NANOS_PER_SECOND: u128 = 1_000_000_000;

/// A packet with its time. Ordered so that the earliest is the greatest.
#[derive(Debug)]
struct Scheduled {
    due: Duration,
    number: u64,
    to: HostId,
    bytes: Vec<u8>,
}

/// A packet at the end of a pipe.
#[derive(Debug)]
pub(crate) struct Arrived {
    pub(crate) due: Duration,
    pub(crate) to: HostId,
    pub(crate) bytes: Vec<u8>,
}

impl Ord for Scheduled {
    fn cmp(&self, other: &Self) -> Ordering {
        (other.due, other.number).cmp(&(self.due, self.number))
    }
}

impl PartialOrd for Scheduled {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Scheduled {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}

impl Eq for Scheduled {}

/// One source of chance for each effect, so that turning one effect on leaves
/// the others' decisions as they were.
#[derive(Debug)]
struct Chances {
    jitter: Random,
    reorder: Random,
    duplicate: Random,
    corrupt: Random,
}

#[derive(Debug)]
pub(crate) struct Pipe {
    profile: Profile,
    chances: Chances,
    loss: LossModel,
    /// When the limited rate is free again.
    free_at: Duration,
    /// The latest time given to a packet that keeps its order.
    last_due: Duration,
    number: u64,
    on_the_way: BinaryHeap<Scheduled>,
    pub(crate) counters: Counters,
}

impl Pipe {
    pub(crate) fn new(random: &Random) -> Self {
        Self {
            profile: Profile::default(),
            chances: Chances {
                jitter: random.split(1),
                reorder: random.split(2),
                duplicate: random.split(3),
                corrupt: random.split(4),
            },
            loss: LossModel::new(random.split(5)),
            free_at: Duration::ZERO,
            last_due: Duration::ZERO,
            number: 0,
            on_the_way: BinaryHeap::new(),
            counters: Counters::default(),
        }
    }

    pub(crate) const fn profile(&self) -> &Profile {
        &self.profile
    }

    /// Changes what happens to packets from now on; those on the way keep
    /// their times.
    pub(crate) fn set_profile(&mut self, profile: &Profile) {
        self.loss.set(profile.loss);
        if self.profile.rate != profile.rate {
            self.free_at = Duration::ZERO;
        }
        self.profile = profile.clone();
    }

    /// Changes a setting that was tried when it was read.
    pub(crate) fn set(&mut self, name: &str, value: &str) {
        let mut profile = self.profile.clone();
        if profile.set(name, value).is_ok() {
            self.set_profile(&profile);
        }
    }

    /// Takes a packet, or gives it back with the reason of its drop.
    pub(crate) fn handle_packet(
        &mut self,
        now: Duration,
        to: HostId,
        mut bytes: Vec<u8>,
    ) -> Result<(), (Fate, Vec<u8>)> {
        self.counters.entered(bytes.len());
        if self.profile.blackhole {
            return self.drop(Fate::Swallowed, bytes);
        }
        let Some(sent) = self.transmit(now, bytes.len()) else {
            return self.drop(Fate::QueueFull, bytes);
        };
        if self.loss.next_is_lost() {
            return self.drop(Fate::Lost, bytes);
        }
        if self.chances.corrupt.chance(self.profile.corrupt) {
            let which = self.chances.corrupt.next();
            if let Some(mut packet) = Packet::new(&mut bytes) {
                packet.flip(which, self.profile.corrupt_unseen);
                self.counters.corrupted += 1;
            }
        }
        if self.chances.duplicate.chance(self.profile.duplicate) {
            self.counters.duplicated += 1;
            let due = self.due(sent);
            self.schedule(due, to, bytes.clone());
        }
        let due = self.due(sent);
        self.schedule(due, to, bytes);
        Ok(())
    }

    /// A packet whose time has come.
    pub(crate) fn poll(&mut self, now: Duration) -> Option<Arrived> {
        if self.on_the_way.peek()?.due > now {
            return None;
        }
        let Scheduled { due, to, bytes, .. } = self.on_the_way.pop()?;
        Some(Arrived { due, to, bytes })
    }

    /// When the next packet's time comes.
    pub(crate) fn next_timeout(&self) -> Option<Duration> {
        self.on_the_way.peek().map(|packet| packet.due)
    }

    fn drop(&mut self, fate: Fate, bytes: Vec<u8>) -> Result<(), (Fate, Vec<u8>)> {
        self.counters.dropped(fate);
        Err((fate, bytes))
    }

    /// When the last bit of a packet has been sent; `None` if it does not fit
    /// into the queue.
    fn transmit(&mut self, now: Duration, len: usize) -> Option<Duration> {
        if self.on_the_way.len() >= ON_THE_WAY_MAX {
            return None;
        }
        let Some(rate) = self.profile.rate else {
            return Some(now);
        };
        let len = len as u64;
        let rate = u128::from(rate.max(1));
        let waiting = self.free_at.saturating_sub(now);
        let backlog = waiting.as_nanos() * rate / 8 / NANOS_PER_SECOND;
        let backlog = u64::try_from(backlog).unwrap_or(u64::MAX);
        let queue = backlog.saturating_add(len);
        if backlog > 0 && queue > self.profile.queue {
            return None;
        }
        self.counters.queue_max = self.counters.queue_max.max(queue);
        let nanos = u128::from(len) * 8 * NANOS_PER_SECOND / rate;
        let takes = Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
        self.free_at = self.free_at.max(now).saturating_add(takes);
        Some(self.free_at)
    }

    /// When a packet that was sent at this time arrives.
    fn due(&mut self, sent: Duration) -> Duration {
        let profile = &self.profile;
        let mut due = sent.saturating_add(profile.delay);
        let shift = match profile.jitter {
            Jitter::None => 0.0,
            Jitter::Normal(deviation) => deviation.as_secs_f64() * self.chances.jitter.normal(),
            Jitter::Uniform(most) => most.as_secs_f64() * (2.0 * self.chances.jitter.unit() - 1.0),
        };
        let by = Duration::try_from_secs_f64(shift.abs()).unwrap_or_default();
        due = if shift < 0.0 {
            due.saturating_sub(by).max(sent)
        } else {
            due.saturating_add(by)
        };
        if self.chances.reorder.chance(profile.reorder.probability) {
            self.counters.reordered += 1;
            return due.saturating_add(profile.reorder.by);
        }
        if profile.keep_order {
            due = due.max(self.last_due);
            self.last_due = due;
        }
        due
    }

    fn schedule(&mut self, due: Duration, to: HostId, bytes: Vec<u8>) {
        self.number += 1;
        self.on_the_way.push(Scheduled {
            due,
            number: self.number,
            to,
            bytes,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);
    const TO: HostId = HostId(0);

    fn pipe(settings: &[(&str, &str)]) -> Pipe {
        let mut profile = Profile::default();
        for (name, value) in settings {
            profile.set(name, value).unwrap();
        }
        let mut pipe = Pipe::new(&Random::new(42));
        pipe.set_profile(&profile);
        pipe
    }

    /// A packet with a number in it.
    fn packet(number: u32, len: usize) -> Vec<u8> {
        let mut bytes = vec![0u8; len];
        bytes[0] = 0x45;
        bytes[len - 4..].copy_from_slice(&number.to_be_bytes());
        bytes
    }

    fn number(bytes: &[u8]) -> u32 {
        u32::from_be_bytes(bytes[bytes.len() - 4..].try_into().unwrap())
    }

    /// Numbers and arrival times of `count` packets, sent `gap` apart.
    fn send(pipe: &mut Pipe, count: u32, gap: Duration, len: usize) -> Vec<(u32, Duration)> {
        for i in 0..count {
            let _ = pipe.handle_packet(gap * i, TO, packet(i, len));
        }
        let mut out = Vec::new();
        while let Some(Arrived { due, bytes, .. }) = pipe.poll(Duration::MAX) {
            out.push((number(&bytes), due));
        }
        out
    }

    #[test]
    fn delay_is_exact() {
        let out = send(&mut pipe(&[("delay", "25ms")]), 10, MS, 100);
        let want: Vec<_> = (0..10).map(|i| (i, MS * (25 + i))).collect();
        assert_eq!(out, want);
    }

    #[test]
    fn rate_spaces_packets_and_its_queue_drops_the_tail() {
        // 1250 bytes at 10 Mbit/s take one millisecond.
        let mut pipe = pipe(&[("rate", "10mbit"), ("queue", "5kB"), ("delay", "1ms")]);
        let out = send(&mut pipe, 10, Duration::ZERO, 1250);
        let want: Vec<_> = (0..4).map(|i| (i, MS * (2 + i))).collect();
        assert_eq!(out, want);
        assert_eq!(pipe.counters.queue_full, 6);
        assert_eq!(pipe.counters.queue_max, 5_000);
        // A packet larger than the queue passes an idle link.
        assert_eq!(pipe.handle_packet(MS * 100, TO, packet(9, 9_000)), Ok(()));
    }

    #[test]
    fn jitter_keeps_the_order_unless_set_otherwise() {
        let settings = [("delay", "10ms"), ("jitter", "3ms")];
        let kept = send(&mut pipe(&settings), 1000, MS, 100);
        assert!(kept.is_sorted_by_key(|(number, _)| *number));
        let free = send(
            &mut pipe(&[settings[0], settings[1], ("order", "free")]),
            1000,
            MS,
            100,
        );
        assert!(!free.is_sorted_by_key(|(number, _)| *number));
        assert!(free.is_sorted_by_key(|(_, due)| *due));
        let shift =
            |(number, due): &(u32, Duration)| due.as_secs_f64() * 1e3 - f64::from(number + 10);
        let mean = free.iter().map(shift).sum::<f64>() / 1e3;
        let var = free.iter().map(|x| (shift(x) - mean).powi(2)).sum::<f64>() / 1e3;
        assert!(
            mean.abs() < 0.3 && (2.7..3.3).contains(&var.sqrt()),
            "{mean} {var}"
        );
        let uniform = send(
            &mut pipe(&[("jitter", "uniform 3ms"), settings[0], ("order", "free")]),
            1000,
            MS,
            100,
        );
        assert!(uniform.iter().all(|x| shift(x).abs() <= 3.0));
    }

    #[test]
    fn held_back_packets_are_overtaken() {
        let mut pipe = pipe(&[("delay", "10ms"), ("reorder", "10% 5ms")]);
        let out = send(&mut pipe, 1000, MS, 100);
        let late = out.iter().filter(|(n, due)| *due == MS * (n + 15)).count();
        assert_eq!(late as u64, pipe.counters.reordered);
        assert!((70..130).contains(&late), "{late}");
        assert!(
            out.iter()
                .all(|(n, due)| *due == MS * (n + 10) || *due == MS * (n + 15))
        );
    }

    #[test]
    fn duplicates_and_flipped_bits_are_counted() {
        let mut pipe = pipe(&[("duplicate", "20%"), ("corrupt", "20%")]);
        let out = send(&mut pipe, 1000, MS, 100);
        assert_eq!(out.len() as u64, 1000 + pipe.counters.duplicated);
        assert!((150..250).contains(&pipe.counters.duplicated));
        assert!((150..250).contains(&pipe.counters.corrupted));
    }

    #[test]
    fn drops_have_reasons() {
        let mut pipe = pipe(&[("loss", "every 3"), ("delay", "5ms")]);
        assert_eq!(pipe.handle_packet(MS, TO, packet(1, 50)), Ok(()));
        assert_eq!(pipe.handle_packet(MS, TO, packet(2, 50)), Ok(()));
        let lost = pipe.handle_packet(MS, TO, packet(3, 50));
        assert_eq!(lost, Err((Fate::Lost, packet(3, 50))));
        let mut hole = pipe.profile().clone();
        hole.blackhole = true;
        pipe.set_profile(&hole);
        let swallowed = pipe.handle_packet(MS, TO, packet(4, 50));
        assert!(matches!(swallowed, Err((Fate::Swallowed, _))));
        assert_eq!(pipe.next_timeout(), Some(MS * 6));
        let counters = &pipe.counters;
        assert_eq!(
            (counters.packets_in, counters.lost, counters.swallowed),
            (4, 1, 1)
        );
    }

    #[test]
    fn the_same_seed_gives_the_same_schedule_and_effects_do_not_mix() {
        let settings = [
            ("delay", "9ms"),
            ("jitter", "2ms"),
            ("loss", "10%"),
            ("duplicate", "5%"),
        ];
        let first = send(&mut pipe(&settings), 500, MS, 100);
        assert_eq!(first, send(&mut pipe(&settings), 500, MS, 100));
        // Which packets are lost does not depend on the jitter.
        let lost = |settings: &[(&str, &str)]| {
            let mut pipe = pipe(settings);
            (0..500u32)
                .filter(|i| pipe.handle_packet(MS * *i, TO, packet(*i, 100)).is_err())
                .collect::<Vec<_>>()
        };
        assert_eq!(lost(&settings), lost(&[("loss", "10%")]));
    }

    #[test]
    fn the_way_is_bounded() {
        let mut pipe = pipe(&[("delay", "10s")]);
        let refused = (0..ON_THE_WAY_MAX + 10)
            .filter(|_| pipe.handle_packet(MS, TO, vec![0x45; 20]).is_err())
            .count();
        assert_eq!(refused, 10);
    }
}
