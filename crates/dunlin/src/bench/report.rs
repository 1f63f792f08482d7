//! The result of a run, as JSON and as a table for people.

use core::fmt::{self, Write as _};

use dunlin_dial::Protocol;
use dunlin_mqtt_codec::Version;
use serde::Serialize;

use super::plan::Plan;
use super::stats::{Causes, Summary, Tally};

/// Format of the JSON; a reader should refuse what it does not know.
const FORMAT: u32 = 1;

/// A whole run.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Number of this format.
    pub format: u32,
    /// Version of the generator.
    pub version: &'static str,
    /// What was asked for.
    pub setup: Setup,
    /// How connecting went.
    pub connections: Connections,
    /// What became of the messages; `None` with idle connections.
    pub messages: Option<Messages>,
    /// Intended time of sending to arrival.
    pub latency: Option<Summary>,
    /// Intended time of sending to acknowledgement.
    pub acknowledgement: Option<Summary>,
    /// What the broker spent, if its process is known.
    pub broker: Option<Broker>,
    /// What this process spent in the measured window.
    pub generator: Option<Generator>,
}

/// What was asked for.
#[derive(Clone, Debug, Serialize)]
pub struct Setup {
    /// The broker's URL, without password.
    pub url: String,
    /// That of subscribers, if it differs.
    pub subscribers_url: Option<String>,
    /// What publishers speak: `mqtt` or `amqp`.
    pub protocol: &'static str,
    /// `3.1.1` or `5.0`; `null` with AMQP.
    pub mqtt: Option<&'static str>,
    /// The queue that all messages went to.
    pub queue: Option<String>,
    /// Messages were to survive a restart of the broker.
    pub durable: bool,
    /// Who talked to whom.
    pub pattern: String,
    /// Publishing connections.
    pub publishers: usize,
    /// Subscribing connections.
    pub subscribers: usize,
    /// Topics.
    pub topics: usize,
    /// Idle connections.
    pub idle: usize,
    /// QoS of messages.
    pub qos: u8,
    /// QoS of subscriptions.
    pub subscribe_qos: u8,
    /// Payload bytes.
    pub payload_bytes: usize,
    /// Messages a second; `null`: saturation.
    pub rate: Option<f64>,
    /// Messages of a publisher on their way at most.
    pub in_flight: usize,
    /// Messages written at once at most.
    pub batch: usize,
    /// Not held back by deliveries.
    pub open_loop: bool,
    /// Shared subscriptions.
    pub share: bool,
    /// Persistent sessions of subscribers.
    pub persistent: bool,
    /// Threads of the generator.
    pub threads: usize,
    /// Seconds not measured.
    pub warmup_s: f64,
    /// Seconds measured.
    pub duration_s: f64,
}

/// How connecting went.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Connections {
    /// Asked for.
    pub wanted: usize,
    /// Came about.
    pub ready: usize,
    /// Did not, by cause.
    pub failures: Causes,
    /// Ended too early, by cause.
    pub losses: Causes,
    /// From the first dialled to the last ready.
    pub seconds: f64,
    /// Per second.
    pub per_second: f64,
    /// Dialling to CONNACK or `open`.
    pub time: Summary,
}

/// What became of the messages whose time to be sent was in the window; the
/// rates are of what happened in the window.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Messages {
    /// Due by schedule (at saturation: sent).
    pub offered: u64,
    /// Given to the transport.
    pub sent: u64,
    /// Acknowledged by the broker (QoS 1 and 2).
    pub acknowledged: u64,
    /// Refused by the broker with a reason code.
    pub refused: u64,
    /// Deliveries that what was sent and not refused must lead to.
    pub expected: u64,
    /// First deliveries.
    pub delivered: u64,
    /// Expected and not delivered.
    pub lost: u64,
    /// Further deliveries of the same message, over the whole run.
    pub duplicates: u64,
    /// Deliveries after a later message of the publisher, over the whole run.
    pub reordered: u64,
    /// Messages sent a second.
    pub sent_per_second: f64,
    /// Acknowledgements a second.
    pub acknowledged_per_second: f64,
    /// Deliveries a second.
    pub delivered_per_second: f64,
    /// Payload megabytes (10^6) delivered a second.
    pub delivered_mb_per_second: f64,
    /// Latency counts from the time at which a message was due, not from when
    /// it could be sent.
    pub coordinated_omission_corrected: bool,
}

/// What the broker spent.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Broker {
    /// Its process.
    pub pid: u32,
    /// Name of its program.
    pub name: String,
    /// CPU seconds in the measured window, all threads, kernel included.
    pub cpu_seconds: f64,
    /// CPU seconds a second.
    pub cores: f64,
    /// Deliveries in the window by CPU second.
    pub delivered_per_cpu_second: f64,
    /// Acknowledgements in the window by CPU second.
    pub acknowledged_per_cpu_second: f64,
    /// Resident bytes before anything was connected.
    pub rss_before: u64,
    /// Resident bytes at the end of the window.
    pub rss_after: u64,
    /// The difference by connection.
    pub rss_per_connection: f64,
    /// Resident memory that no file is behind, before the first connection,
    /// bytes.
    pub private_before: u64,
    /// The same at the end of the window.
    pub private_after: u64,
    /// Growth of that by connection, bytes.
    pub private_per_connection: f64,
}

/// What the generator spent.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Generator {
    /// CPU seconds in the measured window.
    pub cpu_seconds: f64,
    /// Part of its threads' time; near 1 the generator is the bottleneck.
    pub busy: f64,
}

impl Report {
    /// A report without measurements.
    pub(super) fn new(plan: &Plan) -> Self {
        Self {
            format: FORMAT,
            version: env!("CARGO_PKG_VERSION"),
            setup: Setup::new(plan),
            connections: Connections {
                wanted: plan.connections(),
                ..Connections::default()
            },
            messages: None,
            latency: None,
            acknowledgement: None,
            broker: None,
            generator: None,
        }
    }

    /// Fills in what the threads counted.
    pub(super) fn count(&mut self, plan: &Plan, tally: &Tally) {
        self.connections.time = tally.connect.summary();
        self.connections.failures.clone_from(&tally.failures);
        self.connections.losses.clone_from(&tally.losses);
        if plan.idle > 0 {
            return;
        }
        let seconds = plan.duration.as_secs_f64();
        let rate = |count: u64| count as f64 / seconds;
        let delivered_per_second = rate(tally.delivered_in_window);
        self.messages = Some(Messages {
            offered: tally.offered,
            sent: tally.sent,
            acknowledged: tally.acknowledged,
            refused: tally.refused,
            expected: tally.expected,
            delivered: tally.delivered,
            lost: tally.lost(),
            duplicates: tally.duplicates,
            reordered: tally.reordered,
            sent_per_second: rate(tally.sent_in_window),
            acknowledged_per_second: rate(tally.acknowledged_in_window),
            delivered_per_second,
            delivered_mb_per_second: delivered_per_second * plan.size as f64 / 1e6,
            coordinated_omission_corrected: plan.rate.is_some(),
        });
        self.latency = (plan.subscribers > 0).then(|| tally.latency.summary());
        self.acknowledgement = (tally.ack_latency.count() > 0).then(|| tally.ack_latency.summary());
        if let Some(broker) = &mut self.broker
            && broker.cpu_seconds > 0.0
        {
            let by_cpu = |count: u64| count as f64 / broker.cpu_seconds;
            broker.delivered_per_cpu_second = by_cpu(tally.delivered_in_window);
            broker.acknowledged_per_cpu_second = by_cpu(tally.acknowledged_in_window);
        }
    }
}

impl Setup {
    fn new(plan: &Plan) -> Self {
        Self {
            url: plan.target.url.clone(),
            subscribers_url: plan.subscribers_at.as_ref().map(|it| it.url.clone()),
            protocol: plan.target.protocol.name(),
            mqtt: match (plan.target.protocol, plan.version) {
                (Protocol::Mqtt, Version::V311) => Some("3.1.1"),
                (Protocol::Mqtt, Version::V5) => Some("5.0"),
                _ => None,
            },
            queue: plan.queue.clone(),
            durable: plan.durable,
            pattern: format!("{:?}", plan.pattern).to_lowercase(),
            publishers: plan.publishers,
            subscribers: plan.subscribers,
            topics: plan.topics,
            idle: plan.idle,
            qos: plan.qos as u8,
            subscribe_qos: plan.subscribe_qos as u8,
            payload_bytes: plan.size,
            rate: plan.rate,
            in_flight: plan.window(),
            batch: plan.batch,
            open_loop: plan.open_loop,
            share: plan.share,
            persistent: plan.persistent,
            threads: plan.threads,
            warmup_s: plan.warmup.as_secs_f64(),
            duration_s: plan.duration.as_secs_f64(),
        }
    }
}

impl Setup {
    /// What is promised to the publisher, as its protocol calls it.
    fn quality(&self) -> String {
        let durable = if self.durable { ", durable" } else { "" };
        match (self.mqtt, self.qos) {
            (Some(_), qos) => format!("QoS {qos}"),
            (None, 0) => format!("settled{durable}"),
            (None, 1) => format!("unsettled{durable}"),
            (None, _) => format!("unsettled, receivers settle second{durable}"),
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write_setup(f)?;
        self.write_connections(f)?;
        if let Some(messages) = &self.messages {
            self.write_messages(messages, f)?;
        }
        if let Some(broker) = &self.broker {
            self.write_broker(broker, f)?;
        }
        if let Some(generator) = &self.generator {
            let busy = format!("{:.0} % of its threads", generator.busy * 100.0);
            let cpu = format!("{:.2} s CPU, {busy}", generator.cpu_seconds);
            row(f, "generator", &cpu)?;
            if generator.busy > 0.9 {
                row(f, "", "it was the bottleneck: rates are lower bounds")?;
            }
        }
        Ok(())
    }
}

impl Report {
    fn write_setup(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let s = &self.setup;
        let protocol = match s.mqtt {
            Some(version) => format!("MQTT {version}"),
            None => "AMQP 1.0".into(),
        };
        row(f, "broker", &format!("{}, {protocol}", s.url))?;
        if let Some(url) = &s.subscribers_url {
            row(f, "", &format!("subscribers at {url}"))?;
        }
        if let Some(address) = &s.queue {
            row(f, "queue", address)?;
        }
        if s.idle > 0 {
            return row(
                f,
                "pattern",
                &format!("{} idle connections", n(s.idle as u64)),
            );
        }
        let who = format!(
            "{}: {} publishers, {} subscribers, {} topics",
            s.pattern, s.publishers, s.subscribers, s.topics
        );
        row(f, "pattern", &who)?;
        let pace = match (s.rate, s.open_loop) {
            (Some(rate), _) => format!("{} msg/s", n(rate as u64)),
            (None, true) => "saturation, open loop".into(),
            (None, false) => format!("saturation, {} in flight per publisher", s.in_flight),
        };
        let what = format!(
            "{}, {} B, {pace}, {} s after {} s of warm-up",
            s.quality(),
            s.payload_bytes,
            s.duration_s,
            s.warmup_s
        );
        row(f, "load", &what)
    }

    fn write_connections(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let c = &self.connections;
        let text = format!(
            "{} of {} in {:.2} s ({}/s)",
            n(c.ready as u64),
            n(c.wanted as u64),
            c.seconds,
            n(c.per_second as u64)
        );
        row(f, "connections", &text)?;
        row(f, "connect time", &times(&c.time))?;
        for (what, causes) in [("failed", &c.failures), ("ended early", &c.losses)] {
            for (cause, count) in causes {
                row(f, what, &format!("{} × {cause}", n(*count)))?;
            }
        }
        Ok(())
    }

    fn write_messages(&self, m: &Messages, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        row(f, "offered", &n(m.offered))?;
        row(f, "sent", &counted(m.sent, m.sent_per_second))?;
        if self.setup.qos > 0 {
            let text = counted(m.acknowledged, m.acknowledged_per_second);
            row(f, "acknowledged", &text)?;
        }
        if m.refused > 0 {
            row(f, "refused", &n(m.refused))?;
        }
        if self.setup.subscribers > 0 {
            let rate = format!("{:.1} MB/s", m.delivered_mb_per_second);
            let text = counted(m.delivered, m.delivered_per_second);
            row(f, "delivered", &format!("{text}, {rate}"))?;
            let percent = m.lost as f64 * 100.0 / m.expected.max(1) as f64;
            row(f, "lost", &format!("{} ({percent:.3} %)", n(m.lost)))?;
        }
        for (what, count) in [("duplicates", m.duplicates), ("reordered", m.reordered)] {
            if count > 0 {
                row(f, what, &n(count))?;
            }
        }
        if let Some(latency) = &self.latency {
            row(f, "latency", &times(latency))?;
        }
        if let Some(latency) = &self.acknowledgement {
            row(f, "to the ack", &times(latency))?;
        }
        let note = if m.coordinated_omission_corrected {
            "from when a message was due (coordinated omission corrected)"
        } else {
            "from sending; at saturation it is the length of the queues"
        };
        row(f, "", note)
    }

    fn write_broker(&self, b: &Broker, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        row(f, "broker process", &format!("{} (pid {})", b.name, b.pid))?;
        let cpu = format!("{:.2} s CPU ({:.2} cores)", b.cpu_seconds, b.cores);
        row(f, "broker CPU", &cpu)?;
        let by_message = |rate: f64| format!("{} ({:.2} µs each)", n(rate as u64), 1e6 / rate);
        if b.delivered_per_cpu_second > 0.0 {
            let text = by_message(b.delivered_per_cpu_second);
            row(f, "delivered/CPU s", &text)?;
        }
        if b.acknowledged_per_cpu_second > 0.0 {
            row(f, "acked/CPU s", &by_message(b.acknowledged_per_cpu_second))?;
        }
        let memory = |before: u64, after: u64, each: f64| {
            let (before, after) = (n(before / 1024), n(after / 1024));
            let each = each / 1024.0;
            format!("{before} → {after} KiB, {each:.1} KiB by connection")
        };
        let resident = memory(b.rss_before, b.rss_after, b.rss_per_connection);
        row(f, "broker memory", &resident)?;
        let own = memory(b.private_before, b.private_after, b.private_per_connection);
        row(f, "  of its own", &own)
    }
}

fn row(f: &mut fmt::Formatter<'_>, name: &str, value: &str) -> fmt::Result {
    writeln!(f, "{name:<16} {value}")
}

fn counted(count: u64, rate: f64) -> String {
    format!("{} ({}/s)", n(count), n(rate as u64))
}

/// A distribution in one line.
fn times(s: &Summary) -> String {
    if s.count == 0 {
        return "none".into();
    }
    let parts = [
        ("p50", s.p50_us),
        ("p90", s.p90_us),
        ("p99", s.p99_us),
        ("p99.9", s.p999_us),
        ("max", s.max_us),
    ];
    let texts: Vec<String> = parts
        .iter()
        .map(|(name, us)| format!("{name} {}", duration(*us)))
        .collect();
    texts.join("  ")
}

/// Three digits and a unit.
fn duration(us: u64) -> String {
    match us {
        0..1_000 => format!("{us} µs"),
        1_000..1_000_000 => format!("{:.2} ms", us as f64 / 1e3),
        _ => format!("{:.2} s", us as f64 / 1e6),
    }
}

/// A number with its thousands set apart.
pub(super) fn n(value: u64) -> String {
    let digits = value.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        // Writing to a string does not fail.
        let _ = text.write_char(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::plan::Pattern;
    use crate::bench::plan::tests::plan;

    #[test]
    fn numbers_are_readable() {
        let cases = [
            (0, "0"),
            (999, "999"),
            (1_000, "1,000"),
            (1_234_567, "1,234,567"),
        ];
        for (value, want) in cases {
            assert_eq!(n(value), want);
        }
        assert_eq!(duration(999), "999 µs");
        assert_eq!(duration(44_130), "44.13 ms");
        assert_eq!(duration(1_500_000), "1.50 s");
    }

    #[test]
    fn a_report_says_what_was_lost_and_whose_fault_it_was() {
        let plan = plan(Pattern::Pair, 1, 1, 1);
        let mut tally = Tally {
            offered: 1000,
            sent: 1000,
            expected: 1000,
            delivered: 990,
            delivered_in_window: 980,
            ..Tally::default()
        };
        tally.latency.record(55);
        tally.losses.insert("idle timeout".into(), 2);
        let mut report = Report::new(&plan);
        report.broker = Some(Broker {
            cpu_seconds: 0.5,
            ..Broker::default()
        });
        report.generator = Some(Generator {
            cpu_seconds: 1.0,
            busy: 0.99,
        });
        report.count(&plan, &tally);
        let text = report.to_string();
        for want in [
            "10 (1.000 %)",
            "2 × idle timeout",
            "bottleneck",
            "1,960 (510.20 µs each)",
        ] {
            assert!(text.contains(want), "{want} in\n{text}");
        }
        let json = serde_json::to_value(&report).unwrap();
        assert_eq!(json["messages"]["lost"], 10);
        assert_eq!(json["broker"]["delivered_per_cpu_second"], 1960.0);
        assert_eq!(json["latency"]["p50_us"], 55);
    }
}
