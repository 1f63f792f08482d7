//! The result of a run, as JSON and as a table for people.

mod table;

use dunlin_dial::Protocol;
use dunlin_mqtt_codec::Version;
use serde::Serialize;

use super::fleet;
use super::plan::{Pattern, Plan};
use super::shared::Window;
use super::stats::{self, Causes, Summary, Tally};
pub(super) use table::{duration, n};

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
    /// What sleeping and moving devices did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fleet: Option<fleet::Report>,
    /// Messages by phase of a scenario.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub phases: Vec<OfPhase>,
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
    /// Payload bytes, on average.
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

/// What became of the messages of one phase of a scenario.
#[derive(Clone, Debug, Default, Serialize)]
pub struct OfPhase {
    /// Seconds of the phase in which this population published.
    pub seconds: f64,
    /// Given to the transport.
    pub sent: u64,
    /// Deliveries that they must lead to.
    pub expected: u64,
    /// First deliveries.
    pub delivered: u64,
    /// Expected and not delivered.
    pub lost: u64,
    /// Messages a second.
    pub sent_per_second: f64,
    /// Deliveries a second.
    pub delivered_per_second: f64,
    /// Intended time of sending to arrival.
    pub latency: Summary,
}

impl OfPhase {
    fn new(counted: &stats::OfPhase, seconds: f64) -> Self {
        let rate = |count: u64| match seconds > 0.0 {
            true => count as f64 / seconds,
            false => 0.0,
        };
        Self {
            seconds,
            sent: counted.sent,
            expected: counted.expected,
            delivered: counted.delivered,
            lost: counted.expected.saturating_sub(counted.delivered),
            sent_per_second: rate(counted.sent),
            delivered_per_second: rate(counted.delivered),
            latency: counted.latency.summary(),
        }
    }
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
    /// How often a publisher was asked whether it has something to send, over the
    /// whole run.
    pub asked: u64,
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
            fleet: None,
            phases: Vec::new(),
            broker: None,
            generator: None,
        }
    }

    /// Fills in what the threads counted.
    pub(super) fn count(&mut self, plan: &Plan, tally: &Tally, window: Window) {
        self.connections.time = tally.connect.summary();
        self.connections.failures.clone_from(&tally.failures);
        self.connections.losses.clone_from(&tally.losses);
        if plan.idle > 0 {
            return;
        }
        let seconds = window.seconds().max(f64::MIN_POSITIVE);
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
            delivered_mb_per_second: delivered_per_second * plan.size_mean() as f64 / 1e6,
            coordinated_omission_corrected: plan.pace.rate.is_some(),
        });
        self.fleet = (plan.pattern == Pattern::Fleet).then(|| {
            let devices = (plan.publishers, plan.subscribers);
            fleet::Report::new(&plan.fleet, devices, tally)
        });
        if let Some(part) = &plan.part {
            let counted = tally.phases.iter().enumerate();
            let phases = counted.map(|(at, it)| OfPhase::new(it, part.seconds_in(at, window)));
            self.phases = phases.collect();
        }
        if let Some(generator) = &mut self.generator {
            generator.asked = tally.asked;
        }
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
            mqtt: match (plan.target.protocol, plan.sessions.version) {
                (Protocol::Mqtt, Version::V311) => Some("3.1.1"),
                (Protocol::Mqtt, Version::V5) => Some("5.0"),
                _ => None,
            },
            queue: plan.messages.queue.clone(),
            durable: plan.messages.durable,
            pattern: format!("{:?}", plan.pattern).to_lowercase(),
            publishers: plan.publishers,
            subscribers: plan.subscribers,
            topics: plan.topics,
            idle: plan.idle,
            qos: plan.messages.qos as u8,
            subscribe_qos: plan.sessions.subscribe_qos as u8,
            payload_bytes: plan.size_mean(),
            rate: plan.pace.rate,
            in_flight: plan.window(),
            batch: plan.pace.batch,
            open_loop: plan.pace.open_loop,
            share: plan.sessions.share,
            persistent: plan.sessions.persistent,
            threads: plan.threads,
            warmup_s: plan.time.warmup.as_secs_f64(),
            duration_s: plan.time.duration.as_secs_f64(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::plan::tests::plan;

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
            ..Generator::default()
        });
        let window = Window {
            end_us: 10_000_000,
            ..Window::default()
        };
        report.count(&plan, &tally, window);
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
