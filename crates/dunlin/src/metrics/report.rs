//! What a shard says of itself, and all that is said of all shards, as metrics.
//! The names follow the conventions of Prometheus: base units, `_total` for
//! counters, a label for what a family is divided by.

use std::sync::Arc;
use std::time::Instant as StdInstant;

use dunlin_broker::{Census, Part, Stats};
use dunlin_net::{Counters, Held, QuicStats};
use dunlin_store_redb::{COMMIT_MICROS, StoreMetrics};

use super::text::Exposition;
use crate::bench::proc::Process;
use crate::control::values::Certificate;

/// QUIC connections of one shard that are looked at for one report.
pub(crate) const SAMPLES_MAX: usize = 2048;

/// Upper bounds of the classes of round-trip times, in microseconds.
pub(super) const RTT_MICROS: [u64; 12] = [
    500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000,
    5_000_000,
];

/// Upper bounds of the classes of congestion windows, in bytes.
const WINDOW_BYTES: [u64; 8] = [
    4 << 10,
    8 << 10,
    16 << 10,
    32 << 10,
    64 << 10,
    128 << 10,
    256 << 10,
    1 << 20,
];

/// Upper bounds of the classes of loss, in packets of a million.
const LOSS_PPM: [u64; 8] = [0, 1_000, 5_000, 10_000, 20_000, 50_000, 100_000, 200_000];

/// Observations by size.
#[derive(Clone, Debug)]
pub(crate) struct Histogram<const N: usize> {
    bounds: &'static [u64; N],
    classes: [u64; N],
    sum: u64,
    count: u64,
}

impl<const N: usize> Histogram<N> {
    const fn new(bounds: &'static [u64; N]) -> Self {
        Self {
            bounds,
            classes: [0; N],
            sum: 0,
            count: 0,
        }
    }

    fn observe(&mut self, value: u64) {
        self.sum = self.sum.saturating_add(value);
        self.count += 1;
        let class = self.bounds.iter().position(|bound| value <= *bound);
        if let Some(class) = class.and_then(|at| self.classes.get_mut(at)) {
            *class += 1;
        }
    }

    /// Observations since an earlier moment, by class, and all of them.
    pub(super) fn since(&self, before: Option<&Self>) -> ([u64; N], u64) {
        let earlier = |at: usize| before.and_then(|it| it.classes.get(at)).copied();
        let of = |at: usize| self.classes.get(at).copied().unwrap_or(0);
        let classes = core::array::from_fn(|at| of(at).saturating_sub(earlier(at).unwrap_or(0)));
        let count = self.count.saturating_sub(before.map_or(0, |it| it.count));
        (classes, count)
    }

    /// With what another one has observed.
    pub(super) fn add(&mut self, other: &Self) {
        for (class, more) in self.classes.iter_mut().zip(other.classes) {
            *class += more;
        }
        self.sum = self.sum.saturating_add(other.sum);
        self.count += other.count;
    }

    fn show(&self, out: &mut Exposition, name: &str, help: &'static str, shard: &str, unit: f64) {
        let bounds = self.bounds.iter().map(|bound| *bound as f64 / unit);
        let classes = bounds.zip(self.classes.iter().copied());
        let totals = (self.sum as f64 / unit, self.count);
        out.histogram(name, help, &[("shard", shard)], classes, totals);
    }
}

/// How the paths of a shard's QUIC connections were at the last look.
#[derive(Clone, Debug)]
pub(crate) struct Paths {
    pub(super) rtt: Histogram<{ RTT_MICROS.len() }>,
    window: Histogram<{ WINDOW_BYTES.len() }>,
    loss: Histogram<{ LOSS_PPM.len() }>,
}

impl Default for Paths {
    fn default() -> Self {
        Self {
            rtt: Histogram::new(&RTT_MICROS),
            window: Histogram::new(&WINDOW_BYTES),
            loss: Histogram::new(&LOSS_PPM),
        }
    }
}

impl Paths {
    pub(crate) fn observe(&mut self, stats: &QuicStats) {
        let rtt = u64::try_from(stats.rtt.as_micros()).unwrap_or(u64::MAX);
        self.rtt.observe(rtt);
        self.window.observe(stats.congestion_window);
        if let Some(loss) = (stats.lost_packets * 1_000_000).checked_div(stats.packets_out) {
            self.loss.observe(loss);
        }
    }
}

/// What a shard says of itself.
#[derive(Clone, Debug, Default)]
pub(crate) struct ShardReport {
    pub(crate) shard: u16,
    pub(crate) stats: Stats,
    pub(crate) census: Census,
    /// Parts of the memory budget: bytes here, and the limit of all shards.
    pub(crate) memory: Vec<(Part, usize, usize)>,
    pub(crate) counters: Counters,
    pub(crate) held: Held,
    pub(crate) handshakes_pending: usize,
    pub(crate) inbox_bytes: usize,
    pub(crate) paths: Paths,
}

/// Families that divide totals by a label: what the name of a total begins
/// with, the family, the label. A new total of such a beginning needs no line
/// here.
const DIVIDED: [(&str, &str, &str, &str); 7] = [
    (
        "refused_",
        "connections_refused",
        "cause",
        "Connections refused, by cause.",
    ),
    (
        "early_data_refused_",
        "early_data_refused",
        "cause",
        "Connections whose 0-RTT data was refused, by cause.",
    ),
    (
        "quic_handshakes_",
        "quic_handshakes",
        "kind",
        "Handshakes of accepted QUIC connections, by whether they resumed an earlier session.",
    ),
    (
        "memory_refused_",
        "memory_refused",
        "part",
        "Requests refused for want of room in a part of the memory budget.",
    ),
    (
        "messages_dropped_",
        "messages_dropped",
        "cause",
        "Messages dropped for a receiver, by cause.",
    ),
    (
        "messages_received_",
        "messages_received",
        "qos",
        "PUBLISH packets received, by QoS.",
    ),
    (
        "messages_sent_",
        "messages_sent",
        "qos",
        "PUBLISH packets sent, by QoS.",
    ),
];

/// Writes one total of a shard.
fn total(
    out: &mut Exposition,
    area: &str,
    field: &'static str,
    help: &'static str,
    shard: &str,
    value: u64,
) {
    for (begin, family, label, help) in DIVIDED {
        if let Some(part) = field.strip_prefix(begin) {
            let name = format!("dunlin_{area}{family}_total");
            let part = part.strip_prefix("qos").unwrap_or(part);
            return out.counter(&name, help, &[("shard", shard), (label, part)], value);
        }
    }
    let name = format!("dunlin_{area}{}_total", family_of(field));
    out.counter(&name, help, &[("shard", shard)], value);
}

/// Units come last in a name, and directions are spelled out.
fn family_of(field: &str) -> String {
    let (rest, direction) = match field {
        "connections" => return "connections_opened".into(),
        _ if field.ends_with("_left_out") => return field.to_owned(),
        _ if field.ends_with("_in") => (field.trim_end_matches("_in"), "received"),
        _ if field.ends_with("_out") => (field.trim_end_matches("_out"), "sent"),
        _ => {
            return field.strip_prefix("bytes_").map_or_else(
                || field.to_owned(),
                |direction| format!("{direction}_bytes"),
            );
        }
    };
    match rest.strip_suffix("_bytes") {
        Some(area) => format!("{area}_{direction}_bytes"),
        None => format!("{rest}_{direction}"),
    }
}

impl ShardReport {
    fn show(&self, out: &mut Exposition) {
        let shard = self.shard.to_string();
        let shard = shard.as_str();
        self.stats
            .each(|name, help, value| total(out, "", name, help, shard, value));
        self.counters
            .each(|name, help, value| total(out, "net_", name, help, shard, value));
        for (transport, count) in self.held.iter() {
            let labels = [("shard", shard), ("transport", transport.name())];
            let help = "Network connections, by transport.";
            out.gauge("dunlin_net_connections", help, &labels, count as f64);
        }
        for (name, help, value) in self.sizes() {
            let name = format!("dunlin_{name}");
            out.gauge(&name, help, &[("shard", shard)], value as f64);
        }
        for (part, bytes, _) in &self.memory {
            let labels = [("shard", shard), ("part", part.name())];
            let help = "Bytes kept for clients, by part of the memory budget.";
            out.gauge("dunlin_memory_bytes", help, &labels, *bytes as f64);
        }
        let paths = &self.paths;
        let help = "Smoothed round-trip times of QUIC connections, a sample at each scrape.";
        paths
            .rtt
            .show(out, "dunlin_quic_rtt_seconds", help, shard, 1e6);
        let help = "Congestion windows of QUIC connections, a sample at each scrape.";
        let name = "dunlin_quic_congestion_window_bytes";
        paths.window.show(out, name, help, shard, 1.0);
        let help = "Shares of packets lost on paths of QUIC connections, a sample at each scrape.";
        paths
            .loss
            .show(out, "dunlin_quic_loss_ratio", help, shard, 1e6);
    }

    #[rustfmt::skip]
    fn sizes(&self) -> [(&'static str, &'static str, usize); 18] {
        let c = &self.census;
        [
            ("inbox_bytes", "Bytes of mail that wait for the shard.", self.inbox_bytes),
            ("connections", "Network connections whose session is here, or not known yet.", c.conns),
            ("connections_on_streams", "Connections of AMQP that are streams of one over QUIC.", c.carried),
            ("connections_handed_over", "Network connections whose session is on another shard.", c.handed_over),
            ("sessions", "Sessions, connected or not.", c.sessions),
            ("subscriptions", "Subscriptions in the tree, with those of other shards.", c.subscriptions),
            ("retained_messages", "Retained messages, copied to every shard.", c.retained),
            ("timers", "Deadlines.", c.timers),
            ("pending_requests", "Publishes, subscriptions and acknowledgements that wait for the store or for other shards.", c.pending),
            ("prepared_publishes", "Parts of publishes of other shards that wait for their outcome.", c.prepared),
            ("store_requests", "Requests to the store without an answer.", c.store_requests),
            ("queued_messages", "Messages that wait for a session.", c.queued),
            ("queued_bytes", "Bytes of those that are held in memory.", c.queued_bytes),
            ("inflight_messages", "QoS 1 and 2 messages on their way to clients.", c.in_flight),
            ("receiving_messages", "QoS 2 messages on their way from clients.", c.receiving),
            ("backlog_bytes", "Bytes on their way to clients.", c.backlog_bytes),
            ("parked_bytes", "Bytes of clients that wait for their CONNACK.", c.parked_bytes),
            ("unfinished_bytes", "Bytes of packets on QUIC data streams that have not come whole.", c.unfinished_bytes),
        ]
    }
}

/// All metrics.
pub(crate) fn metrics(
    reports: &[ShardReport],
    store: Option<&Arc<StoreMetrics>>,
    started: StdInstant,
) -> Exposition {
    let mut out = Exposition::default();
    let labels = [("version", env!("CARGO_PKG_VERSION"))];
    let help = "Always 1; the labels tell what runs.";
    out.gauge("dunlin_build_info", help, &labels, 1.0);
    let help = "Time since the broker started.";
    let uptime = started.elapsed().as_secs_f64();
    out.gauge("dunlin_uptime_seconds", help, &[], uptime);
    for report in reports {
        report.show(&mut out);
    }
    for (part, _, limit) in reports.first().map_or(&[][..], |report| &report.memory) {
        let labels = [("part", part.name())];
        let help = "Bytes that all shards may keep for clients, by part.";
        out.gauge("dunlin_memory_limit_bytes", help, &labels, *limit as f64);
    }
    // The shards share the count.
    let pending = reports.iter().map(|report| report.handshakes_pending).max();
    let help = "Handshakes going on.";
    let pending = pending.unwrap_or(0) as f64;
    out.gauge("dunlin_net_handshakes_pending", help, &[], pending);
    if let Some(store) = store {
        store_metrics(&mut out, store);
    }
    process(&mut out);
    out
}

/// Until when the certificates of listeners are good, as their files are now.
pub(super) fn certificates(out: &mut Exposition, all: &[Certificate]) {
    for it in all {
        let number = it.listener.map(|listener| listener.to_string());
        let labels = [("listener", number.as_deref().unwrap_or("http"))];
        let help = "Until when the certificate of a listener is good, in seconds since 1970.";
        let name = "dunlin_certificate_end_timestamp_seconds";
        out.gauge(name, help, &labels, it.not_after as f64);
    }
}

fn store_metrics(out: &mut Exposition, store: &StoreMetrics) {
    let totals = store.totals();
    for (name, help, value) in [
        ("batches", "Batches of shards committed.", totals.batches),
        ("operations", "Operations committed.", totals.operations),
        (
            "message_bytes",
            "Bytes of messages committed.",
            totals.bytes,
        ),
        (
            "batches_failed",
            "Batches that the store refused.",
            totals.failed,
        ),
        (
            "records_damaged",
            "Records of the store that cannot be read; the log names them.",
            totals.damaged,
        ),
    ] {
        out.counter(&format!("dunlin_store_{name}_total"), help, &[], value);
    }
    let bounds = COMMIT_MICROS.iter().map(|micros| *micros as f64 / 1e6);
    let classes = bounds.zip(totals.by_time);
    let sums = (totals.commit_micros as f64 / 1e6, totals.commits);
    let help = "Time of commits to the store.";
    out.histogram("dunlin_store_commit_seconds", help, &[], classes, sums);
}

/// Under the names that client libraries of Prometheus use.
fn process(out: &mut Exposition) {
    let Some(process) = Process::own() else {
        return;
    };
    if let Some(cpu) = process.cpu() {
        let help = "CPU time used, in user and kernel mode.";
        let name = "process_cpu_seconds_total";
        out.sample(
            name,
            super::text::Kind::Counter,
            help,
            &[],
            cpu.as_secs_f64(),
        );
    }
    if let Some(rss) = process.rss() {
        let help = "Resident memory.";
        out.gauge("process_resident_memory_bytes", help, &[], rss as f64);
    }
    if let Ok(fds) = std::fs::read_dir("/proc/self/fd") {
        let help = "Open file descriptors.";
        out.gauge("process_open_fds", help, &[], fds.count() as f64);
    }
}

#[cfg(test)]
mod tests {
    use dunlin_net::QlogTotals;

    use super::*;

    /// Of a program with all features.
    #[cfg(feature = "cluster")]
    #[test]
    fn book_page_is_in_step() {
        let store = Arc::new(StoreMetrics::default());
        let report = ShardReport {
            memory: Part::ALL.map(|part| (part, 0, 0)).to_vec(),
            ..ShardReport::default()
        };
        let mut out = metrics(&[report], Some(&store), StdInstant::now());
        super::super::broker::shards(&mut out, 1, 1, 1);
        let log = super::super::log::LogView {
            lease_age: Some(core::time::Duration::ZERO),
            ..Default::default()
        };
        super::super::log::metrics(&mut out, log);
        super::super::cluster::metrics(&mut out, &super::super::cluster::sample());
        super::super::Readiness::default().metrics(&mut out);
        super::super::logs::metrics(&mut out, &QlogTotals::default(), false);
        let bridge = crate::bridge::stats::View {
            name: "cloud".into(),
            session: None,
            stats: Arc::default(),
            wanted: tokio::sync::watch::Sender::default(),
            config: Arc::new(toml::from_str("name = 'cloud'\nurl = 'quic://h'").expect("a bridge")),
            is_added: false,
        };
        crate::bridge::stats::metrics(&mut out, &bridge, Some(0));
        let certificate = Certificate {
            listener: Some(0),
            file: "server.pem".into(),
            development: false,
            subject: "CN=server".into(),
            names: Vec::new(),
            not_before: 0,
            not_after: 1_900_000_000,
        };
        certificates(&mut out, &[certificate]);
        let mut page = String::from(
            "# Metrics\n\n\
             What `/metrics` shows; how to switch it on is in [Seeing inside](observability.md).\n\
             Everything that begins with `dunlin_` and is of a shard carries the label `shard`.\n\
             This page is made from the code.\n\n\
             | metric | kind | labels | meaning |\n|---|---|---|---|\n",
        );
        let text = out.render();
        for (name, kind, help) in out.families() {
            let labels = labels_of(&text, name);
            page.push_str(&format!(
                "| `{name}` | {} | {labels} | {help} |\n",
                kind.name()
            ));
        }
        let path = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../docs/book/src/metrics.md"
        );
        if std::env::var_os("DUNLIN_BLESS").is_some() {
            std::fs::write(path, &page).expect("written");
        }
        assert!(
            std::fs::read_to_string(path).unwrap_or_default() == page,
            "docs/book/src/metrics.md is not what the code says; \
             DUNLIN_BLESS=1 cargo test -p dunlin book_page writes it"
        );
    }

    /// Labels of the first sample of a family, and the values of those that
    /// have few.
    fn labels_of(text: &str, name: &str) -> String {
        let samples = text.lines().filter_map(|line| line.strip_prefix(name));
        let samples = samples.filter(|rest| rest.starts_with(['{', ' ']) || rest.starts_with("_b"));
        let mut labels = std::collections::BTreeMap::<&str, Vec<&str>>::new();
        for sample in samples.filter_map(|s| s.split_once('{')?.1.split_once('}')) {
            for label in sample.0.split(',') {
                let (key, value) = label.split_once('=').expect("a label");
                let values = labels.entry(key).or_default();
                let value = value.trim_matches('"');
                if !values.contains(&value) {
                    values.push(value);
                }
            }
        }
        let shown = labels.iter().filter(|(key, _)| **key != "le");
        let shown = shown.map(|(key, values)| match *key {
            "shard" | "version" => format!("`{key}`"),
            _ => format!("`{key}`: {}", values.join(", ")),
        });
        shown.collect::<Vec<_>>().join("; ")
    }

    #[test]
    fn names_have_their_unit_last() {
        for (field, family) in [
            ("tcp_bytes_in", "tcp_received_bytes"),
            ("datagrams_out", "datagrams_sent"),
            ("bytes_sent", "sent_bytes"),
            ("migrations", "migrations"),
            ("log_lines_left_out", "log_lines_left_out"),
        ] {
            assert_eq!(family_of(field), family);
        }
    }

    #[test]
    fn totals_of_one_beginning_share_a_family() {
        let mut out = Exposition::default();
        total(&mut out, "net_", "refused_full", "x", "0", 3);
        total(&mut out, "", "messages_sent_qos2", "x", "1", 4);
        let text = out.render();
        let expected = "dunlin_net_connections_refused_total{shard=\"0\",cause=\"full\"} 3\n";
        assert!(text.contains(expected), "{text}");
        let expected = "dunlin_messages_sent_total{shard=\"1\",qos=\"2\"} 4\n";
        assert!(text.contains(expected), "{text}");
    }
}
