//! What `dunlin sink` shows of itself over HTTP: metrics as Prometheus text, and whether
//! broker and target are there.

use core::sync::atomic::Ordering::Relaxed;
use std::sync::Arc;

use dunlin_sink::{Cause, Stats};

use super::http::{Request, Response};
use super::server::Pages;
use super::text::{CONTENT_TYPE, Exposition};

/// What the answers are made from.
pub(crate) struct SinkPages {
    pub(crate) name: String,
    pub(crate) workers: usize,
    pub(crate) stats: Arc<Stats>,
}

impl Pages for SinkPages {
    fn answer(&self, request: &Request, _: bool) -> Response {
        match (request.method.as_str(), request.path.as_str()) {
            ("GET" | "HEAD", "/metrics") => {
                Response::new(CONTENT_TYPE, metrics(&self.name, &self.stats))
            }
            ("GET" | "HEAD", "/healthz") => Response::new("text/plain", "ok\n".into()),
            ("GET" | "HEAD", "/readyz") => match missing(self.workers, &self.stats) {
                None => Response::new("text/plain", "ok\n".into()),
                Some(why) => Response::refusal("503 Service Unavailable", why),
            },
            ("GET" | "HEAD", _) => Response::refusal("404 Not Found", "see /metrics"),
            _ => Response::refusal("405 Method Not Allowed", "only GET"),
        }
    }
}

/// What is not there.
fn missing(workers: usize, stats: &Stats) -> Option<&'static str> {
    if stats.connected.load(Relaxed) < workers {
        Some("the broker is not connected")
    } else if stats.open.load(Relaxed) < workers {
        Some("the target is not there")
    } else {
        None
    }
}

fn metrics(name: &str, stats: &Stats) -> String {
    exposition(name, stats).render()
}

/// All metrics.
pub(super) fn exposition(name: &str, stats: &Stats) -> Exposition {
    let mut out = Exposition::default();
    let own = [("sink", name)];
    for (family, help, value) in [
        (
            "dunlin_sink_connections",
            "Workers that are connected to the broker.",
            stats.connected.load(Relaxed) as f64,
        ),
        (
            "dunlin_sink_targets",
            "Workers whose target is there.",
            stats.open.load(Relaxed) as f64,
        ),
        (
            "dunlin_sink_held_messages",
            "Messages received over the present connections and not acknowledged.",
            stats.held() as f64,
        ),
    ] {
        out.gauge(family, help, &own, value);
    }
    totals(&mut out, name, stats);
    out
}

fn totals(out: &mut Exposition, name: &str, stats: &Stats) {
    let own = [("sink", name)];
    for (family, help, total) in [
        (
            "dunlin_sink_messages_received_total",
            "Messages received.",
            &stats.received,
        ),
        (
            "dunlin_sink_messages_repeated_total",
            "Messages that the broker marked as sent before.",
            &stats.repeated,
        ),
        (
            "dunlin_sink_payload_bytes_total",
            "Bytes of the payloads received.",
            &stats.bytes,
        ),
        (
            "dunlin_sink_messages_acknowledged_total",
            "Messages acknowledged: stored, not selected, or set aside.",
            &stats.acknowledged,
        ),
        ("dunlin_sink_rows_total", "Rows stored.", &stats.rows),
        (
            "dunlin_sink_batches_total",
            "Batches of messages that are done.",
            &stats.batches,
        ),
        (
            "dunlin_sink_retries_total",
            "Attempts that failed and are followed by another.",
            &stats.retries,
        ),
    ] {
        out.counter(family, help, &own, total.load(Relaxed));
    }
    let help = "Time that the target took, attempts that failed included.";
    let seconds = stats.store_micros.load(Relaxed) as f64 / 1e6;
    out.sample(
        "dunlin_sink_store_seconds_total",
        super::text::Kind::Counter,
        help,
        &own,
        seconds,
    );
    for cause in Cause::ALL {
        let labels = [("sink", name), ("cause", cause.name())];
        let help = "Messages that were refused and set aside, by cause.";
        let family = "dunlin_sink_messages_refused_total";
        out.counter(family, help, &labels, stats.refused(cause));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_total_is_shown() {
        let stats = Stats::default();
        stats.received.store(7, Relaxed);
        stats.acknowledged.store(4, Relaxed);
        stats.store_micros.store(1_500_000, Relaxed);
        let text = metrics("s", &stats);
        for line in [
            "dunlin_sink_messages_received_total{sink=\"s\"} 7",
            "dunlin_sink_held_messages{sink=\"s\"} 3",
            "dunlin_sink_store_seconds_total{sink=\"s\"} 1.5",
            "dunlin_sink_messages_refused_total{sink=\"s\",cause=\"target\"} 0",
        ] {
            assert!(text.lines().any(|it| it == line), "{line}\n{text}");
        }
        assert_eq!(missing(1, &stats), Some("the broker is not connected"));
        stats.connected.store(1, Relaxed);
        assert_eq!(missing(1, &stats), Some("the target is not there"));
        stats.open.store(1, Relaxed);
        assert_eq!(missing(1, &stats), None);
    }
}
