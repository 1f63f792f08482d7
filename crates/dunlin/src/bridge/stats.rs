//! What bridges have done, counted by their thread and shown by others.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use core::time::Duration;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use tokio::sync::watch;

use super::route::{Dropped, Way};
use crate::config::bridge::Bridge;
use crate::metrics::text::Exposition;

/// A round trip counts for an eighth of the average, as in RFC 6298.
const RTT_SHARE: u64 = 8;

/// Totals of one bridge.
#[derive(Debug, Default)]
pub(crate) struct Stats {
    connected: AtomicBool,
    connects: AtomicU64,
    messages: [AtomicU64; Way::ALL.len()],
    bytes: [AtomicU64; Way::ALL.len()],
    dropped: [AtomicU64; Dropped::ALL.len()],
    /// From a message to its acknowledgement by the other broker, smoothed; 0: none yet.
    rtt_micros: AtomicU64,
    /// What went wrong last, and when.
    error: Mutex<Option<(SystemTime, String)>>,
}

/// Longest text of what went wrong.
const ERROR_CHARS_MAX: usize = 256;

/// What operators want of a bridge.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Wanted {
    /// It is not connected until this is taken back.
    pub(crate) paused: bool,
    /// It begins again when this changes.
    pub(crate) attempt: u64,
    /// When it ends, its sessions do.
    pub(crate) discards: bool,
}

impl Stats {
    /// Something went wrong.
    pub(super) fn failed(&self, error: &dyn core::fmt::Display) {
        let text = error.to_string().chars().take(ERROR_CHARS_MAX).collect();
        let mut last = self.error.lock().unwrap_or_else(PoisonError::into_inner);
        *last = Some((SystemTime::now(), text));
    }

    /// What went wrong last, and when.
    pub(crate) fn error(&self) -> Option<(SystemTime, String)> {
        let last = self.error.lock();
        last.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Connections that the other broker has accepted.
    pub(crate) fn connects(&self) -> u64 {
        self.connects.load(Relaxed)
    }

    /// Messages carried one way.
    pub(crate) fn messages(&self, way: Way) -> u64 {
        let total = self.messages.get(way as usize);
        total.map_or(0, |total| total.load(Relaxed))
    }

    /// Messages that were not carried.
    pub(crate) fn messages_dropped(&self) -> u64 {
        self.dropped.iter().map(|total| total.load(Relaxed)).sum()
    }

    /// From a message to its acknowledgement, smoothed.
    pub(crate) fn rtt_micros(&self) -> Option<u64> {
        Some(self.rtt_micros.load(Relaxed)).filter(|rtt| *rtt > 0)
    }

    /// All connections are there, or not; tells whether that is new.
    pub(super) fn set_connected(&self, connected: bool) -> bool {
        self.connected.swap(connected, Relaxed) != connected
    }

    /// Whether all connections are there.
    pub(crate) fn is_connected(&self) -> bool {
        self.connected.load(Relaxed)
    }

    /// The other broker has accepted a connection.
    pub(super) fn connect(&self) {
        self.connects.fetch_add(1, Relaxed);
    }

    /// A message has arrived at its target.
    pub(super) fn carried(&self, way: Way, bytes: usize) {
        let at = way as usize;
        for (totals, more) in [(&self.messages, 1), (&self.bytes, bytes as u64)] {
            if let Some(total) = totals.get(at) {
                total.fetch_add(more, Relaxed);
            }
        }
    }

    /// A message goes no further.
    pub(super) fn dropped(&self, why: Dropped) {
        if let Some(total) = self.dropped.get(why as usize) {
            total.fetch_add(1, Relaxed);
        }
    }

    /// The other broker has acknowledged a message after this time.
    pub(super) fn round_trip(&self, took: Duration) {
        let took = u64::try_from(took.as_micros()).unwrap_or(u64::MAX).max(1);
        let before = self.rtt_micros.load(Relaxed);
        let smoothed = match before {
            0 => took,
            _ => (before.saturating_mul(RTT_SHARE - 1).saturating_add(took)) / RTT_SHARE,
        };
        self.rtt_micros.store(smoothed, Relaxed);
    }
}

/// A bridge as others see it.
#[derive(Clone, Debug)]
pub(crate) struct View {
    pub(crate) name: Arc<str>,
    /// Client identifier of the session in which messages wait, if any do.
    pub(crate) session: Option<String>,
    pub(crate) stats: Arc<Stats>,
    /// What operators want of it.
    pub(crate) wanted: watch::Sender<Wanted>,
    pub(crate) config: Arc<Bridge>,
    /// An operator has added it; the configuration file does not have it.
    pub(crate) is_added: bool,
}

impl View {
    pub(crate) fn is_paused(&self) -> bool {
        self.wanted.borrow().paused
    }
}

/// Writes the metrics of a bridge; `waiting`: messages in its queue, if that is known.
pub(crate) fn metrics(out: &mut Exposition, view: &View, waiting: Option<usize>) {
    let (name, stats) = (&*view.name, &view.stats);
    let own = [("bridge", name)];
    let help = "Whether all connections of a bridge to the other broker are there: 1 or 0.";
    let connected = u8::from(stats.is_connected());
    out.gauge("dunlin_bridge_connected", help, &own, connected.into());
    if let Some(waiting) = waiting {
        let help = "Messages that wait for the other broker, those on their way included.";
        out.gauge("dunlin_bridge_waiting_messages", help, &own, waiting as f64);
    }
    let help = "Time from a message to its acknowledgement by the other broker, smoothed.";
    let rtt = stats.rtt_micros.load(Relaxed) as f64 / 1e6;
    out.gauge("dunlin_bridge_round_trip_seconds", help, &own, rtt);
    let help = "Connections that the other broker has accepted.";
    let connects = stats.connects.load(Relaxed);
    out.counter("dunlin_bridge_connects_total", help, &own, connects);
    for way in Way::ALL {
        let labels = [("bridge", name), ("direction", way.name())];
        for (family, help, totals) in [
            (
                "dunlin_bridge_messages_total",
                "Messages carried, by direction.",
                &stats.messages,
            ),
            (
                "dunlin_bridge_payload_bytes_total",
                "Bytes of the payloads of these.",
                &stats.bytes,
            ),
        ] {
            let total = totals.get(way as usize).map_or(0, |it| it.load(Relaxed));
            out.counter(family, help, &labels, total);
        }
    }
    for (why, total) in Dropped::ALL.iter().zip(&stats.dropped) {
        let labels = [("bridge", name), ("cause", why.name())];
        let help = "Messages that a bridge did not carry, by cause.";
        let name = "dunlin_bridge_messages_dropped_total";
        out.counter(name, help, &labels, total.load(Relaxed));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trips_are_smoothed() {
        let stats = Stats::default();
        stats.round_trip(Duration::from_micros(800));
        assert_eq!(stats.rtt_micros.load(Relaxed), 800);
        stats.round_trip(Duration::from_micros(1600));
        assert_eq!(stats.rtt_micros.load(Relaxed), 900);
    }
}
