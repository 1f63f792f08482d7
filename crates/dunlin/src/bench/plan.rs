//! What is to be measured: who publishes what to whom, as arithmetic. Checked
//! before anything is connected.

use core::net::{IpAddr, SocketAddr};
use core::time::Duration;
use std::sync::Arc;

use dunlin_base::Text;
use dunlin_base::transport::Transport;
use dunlin_dial::Protocol;
use dunlin_mqtt_codec::{QoS, Version};
use dunlin_net::{ClientTls, DialConfig, QuicTuning};

use super::places::Places;
use super::wire::STAMP_BYTES;

/// Connections of one run at most.
pub const CONNECTIONS_MAX: usize = 1_000_000;
/// Topics of one run at most.
pub const TOPICS_MAX: usize = 1_000_000;
/// Threads at most.
pub const THREADS_MAX: usize = 256;
/// Messages of QoS 0 on their way at most, over all publishers, unless the
/// user says otherwise.
const IN_FLIGHT_TOTAL: usize = 8192;
/// Bytes of them, likewise.
const IN_FLIGHT_TOTAL_BYTES: usize = 8 << 20;

/// Who talks to whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Pattern {
    /// Each subscriber hears one publisher's topic (1-1, 10-10).
    #[value(alias = "1-1")]
    Pair,
    /// Many publishers with a topic each, every subscriber hears all.
    FanIn,
    /// One topic that every subscriber hears.
    FanOut,
    /// Every subscriber hears every topic.
    #[value(alias = "n-n")]
    All,
}

/// Where the broker is.
#[derive(Clone, Debug)]
pub struct Target {
    /// As the user wrote it, without password.
    pub url: String,
    /// What is spoken there.
    pub protocol: Protocol,
    /// Transport.
    pub transport: Transport,
    /// Resolved address.
    pub addr: SocketAddr,
    /// Name to verify.
    pub server_name: String,
    /// WebSocket resource.
    pub ws_path: String,
    /// Whom to trust.
    pub tls: Option<Arc<ClientTls>>,
    /// How QUIC behaves towards the network.
    pub quic: QuicTuning,
    /// User name.
    pub user: Option<String>,
    /// Password.
    pub password: Option<String>,
}

impl Target {
    /// How to connect there.
    pub(super) fn dial(&self) -> DialConfig {
        let mut config = DialConfig::new(self.transport, self.addr, &self.server_name);
        config.tls.clone_from(&self.tls);
        config.quic.clone_from(&self.quic);
        config.protocols = vec![Text::from_static(self.protocol.name())];
        let ws_path = match self.ws_path.as_str() {
            "" => self.protocol.ws_path(),
            path => path,
        };
        ws_path.clone_into(&mut config.ws_path);
        config
    }
}

/// A run, complete and consistent.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Where the broker is.
    pub target: Target,
    /// Where it is for subscribers, if that differs: they may speak another
    /// protocol than publishers.
    pub subscribers_at: Option<Target>,
    /// Address of the queue that all messages go to, if it is not a topic (AMQP).
    pub queue: Option<String>,
    /// Messages are to survive a restart of the broker (AMQP).
    pub durable: bool,
    /// Version of MQTT.
    pub version: Version,
    /// Who talks to whom.
    pub pattern: Pattern,
    /// Publishing connections.
    pub publishers: usize,
    /// Subscribing connections.
    pub subscribers: usize,
    /// Topics.
    pub topics: usize,
    /// Idle connections; if not 0 there are no publishers and subscribers.
    pub idle: usize,
    /// QoS of messages.
    pub qos: QoS,
    /// Highest QoS of subscriptions.
    pub subscribe_qos: QoS,
    /// Payload bytes.
    pub size: usize,
    /// Messages a second over all publishers; `None`: as fast as possible.
    pub rate: Option<f64>,
    /// Unacknowledged (QoS 1, 2) or undelivered (QoS 0 at saturation) messages
    /// of one publisher at most.
    pub in_flight: Option<usize>,
    /// Messages that a publisher writes at once at most.
    pub batch: usize,
    /// At saturation with QoS 0, do not wait for deliveries.
    pub open_loop: bool,
    /// Subscribers share the messages of a group.
    pub share: bool,
    /// Subscribers have sessions that survive their connection.
    pub persistent: bool,
    /// How long such a session survives.
    pub session_expiry: u32,
    /// Keep alive of all connections, in seconds.
    pub keep_alive: u16,
    /// Not measured at the start.
    pub warmup: Duration,
    /// Measured.
    pub duration: Duration,
    /// Silence after which undelivered messages count as lost.
    pub drain: Duration,
    /// Connections a second; `None`: no limit.
    pub connect_rate: Option<f64>,
    /// Handshakes pending at most.
    pub connecting_max: usize,
    /// Threads.
    pub threads: usize,
    /// Local addresses to connect from, in turn; empty: the system chooses.
    pub sources: Vec<IpAddr>,
    /// Places on the broker's shards; `None`: as the kernel decides.
    pub places: Option<Places>,
    /// Start of topics and client identifiers, unique for this run.
    pub prefix: String,
    /// Unique part of `prefix`, for client identifiers.
    pub run_id: String,
}

/// Why a run makes no sense.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// The stamp does not fit.
    #[error("payloads carry a time stamp and need at least {STAMP_BYTES} bytes")]
    SizeTooSmall,
    /// Beyond [`CONNECTIONS_MAX`].
    #[error("at most {CONNECTIONS_MAX} connections are possible")]
    TooManyConnections,
    /// Beyond [`TOPICS_MAX`].
    #[error("at most {TOPICS_MAX} topics are possible")]
    TooManyTopics,
    /// Beyond [`THREADS_MAX`], or none.
    #[error("the number of threads must be from 1 to {THREADS_MAX}")]
    Threads,
    /// Nothing to connect.
    #[error("there is nothing to do: no publishers, no subscribers, no idle connections")]
    Nothing,
    /// A rate that is zero, negative or not a number.
    #[error("a rate must be more than 0")]
    Rate,
    /// What one protocol has and the other has not.
    #[error("{0} are of {1}")]
    OtherProtocol(&'static str, &'static str),
    /// More bytes than a packet holds.
    #[error("a payload has at most 268,000,000 bytes")]
    SizeTooLarge,
}

impl Plan {
    /// One publisher and one subscriber at saturation, QoS 0, 64 bytes;
    /// `run_id` tells this run's topics and clients from those of others.
    #[must_use]
    pub fn new(target: Target, run_id: &str) -> Self {
        Self {
            target,
            subscribers_at: None,
            queue: None,
            durable: false,
            version: Version::V5,
            pattern: Pattern::Pair,
            publishers: 1,
            subscribers: 1,
            topics: 1,
            idle: 0,
            qos: QoS::AtMostOnce,
            subscribe_qos: QoS::AtMostOnce,
            size: 64,
            rate: None,
            in_flight: None,
            batch: 1024,
            open_loop: false,
            share: false,
            persistent: false,
            session_expiry: 3600,
            keep_alive: 60,
            warmup: Duration::from_secs(2),
            duration: Duration::from_secs(10),
            drain: Duration::from_secs(3),
            connect_rate: None,
            connecting_max: 100,
            threads: 1,
            sources: Vec::new(),
            places: None,
            prefix: format!("bench/{run_id}"),
            run_id: run_id.into(),
        }
    }

    /// Checks what arithmetic relies on.
    ///
    /// # Errors
    /// The first thing that makes no sense.
    pub fn check(&self) -> Result<(), PlanError> {
        if self.size < STAMP_BYTES {
            return Err(PlanError::SizeTooSmall);
        }
        if self.size > 268_000_000 {
            return Err(PlanError::SizeTooLarge);
        }
        if self.connections() > CONNECTIONS_MAX {
            return Err(PlanError::TooManyConnections);
        }
        if self.connections() == 0 {
            return Err(PlanError::Nothing);
        }
        if self.topics > TOPICS_MAX {
            return Err(PlanError::TooManyTopics);
        }
        if !(1..=THREADS_MAX).contains(&self.threads) {
            return Err(PlanError::Threads);
        }
        let speaks =
            |protocol| [self.target_of('p'), self.target_of('s')].map(|t| t.protocol == protocol);
        if self.queue.is_some() && speaks(Protocol::Amqp) != [true; 2] {
            return Err(PlanError::OtherProtocol("queues", "AMQP"));
        }
        let is_mqtt = self.target_of('s').protocol == Protocol::Mqtt;
        if (self.share || self.persistent) && !is_mqtt {
            let what = "persistent sessions and $share groups";
            return Err(PlanError::OtherProtocol(what, "MQTT"));
        }
        let wrong = |rate: Option<f64>| rate.is_some_and(|r| !(r > 0.0 && r.is_finite()));
        if wrong(self.rate) || wrong(self.connect_rate) {
            return Err(PlanError::Rate);
        }
        Ok(())
    }

    /// All connections.
    #[must_use]
    pub const fn connections(&self) -> usize {
        self.publishers + self.subscribers + self.idle
    }

    /// Where clients of a kind connect: `p`, `s` or `i`.
    #[must_use]
    pub fn target_of(&self, kind: char) -> &Target {
        match (&self.subscribers_at, kind) {
            (Some(target), 's') => target,
            _ => &self.target,
        }
    }

    /// Whether each message goes to one of the subscribers of its topic.
    const fn is_competing(&self) -> bool {
        self.share || self.queue.is_some()
    }

    /// Identifier of a client: `p`, `s` or `i`, and its number.
    #[must_use]
    pub fn client_id(&self, kind: char, number: usize) -> String {
        let name = format!("b{}{kind}{number}", self.run_id);
        match &self.places {
            Some(places) => places.client_id(&name, kind, number),
            None => name,
        }
    }

    /// Topic number `t`.
    #[must_use]
    pub fn topic(&self, t: usize) -> String {
        match &self.queue {
            Some(address) => address.clone(),
            None => format!("{}/{t}", self.prefix),
        }
    }

    /// The topics that publisher `p` uses in turn.
    pub fn topics_of_publisher(&self, p: usize) -> impl Iterator<Item = usize> + use<> {
        spread(p, self.publishers, self.topics)
    }

    /// The filters of subscriber `s`.
    #[must_use]
    pub fn filters_of_subscriber(&self, s: usize) -> Vec<String> {
        let shared = if self.share { "$share/bench/" } else { "" };
        match self.pattern {
            Pattern::Pair => spread(s, self.subscribers, self.topics)
                .map(|t| format!("{shared}{}", self.topic(t)))
                .collect(),
            _ if self.topics == 1 || self.queue.is_some() => {
                vec![format!("{shared}{}", self.topic(0))]
            }
            _ => vec![format!("{shared}{}/+", self.prefix)],
        }
    }

    /// How many deliveries a message to topic `t` leads to.
    #[must_use]
    pub fn fan_of(&self, t: usize) -> u64 {
        let subscribers = match self.pattern {
            Pattern::Pair if self.subscribers == 0 => 0,
            Pattern::Pair if self.topics >= self.subscribers => 1,
            Pattern::Pair => {
                let (all, topics) = (self.subscribers, self.topics);
                all / topics + usize::from(t < all % topics)
            }
            _ => self.subscribers,
        };
        if self.is_competing() {
            subscribers.min(1) as u64
        } else {
            subscribers as u64
        }
    }

    /// Messages of one publisher that may be on their way, before the server's
    /// Receive Maximum is known.
    #[must_use]
    pub fn window(&self) -> usize {
        if let Some(in_flight) = self.in_flight {
            return in_flight.clamp(1, usize::from(u16::MAX));
        }
        match self.qos {
            QoS::AtMostOnce => {
                let by_bytes = IN_FLIGHT_TOTAL_BYTES / self.size.max(1);
                (IN_FLIGHT_TOTAL.min(by_bytes) / self.publishers.max(1)).clamp(4, 1024)
            }
            _ => 64,
        }
    }
}

/// Deals `topics` to `clients` in turn: several topics for one client, or
/// several clients on one topic.
fn spread(client: usize, clients: usize, topics: usize) -> impl Iterator<Item = usize> + use<> {
    let (first, step) = if topics >= clients {
        (client, clients.max(1))
    } else {
        (client % topics.max(1), topics.max(1))
    };
    (first..topics).step_by(step)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn plan(
        pattern: Pattern,
        publishers: usize,
        subscribers: usize,
        topics: usize,
    ) -> Plan {
        let target = Target {
            url: "mqtt://127.0.0.1:1".into(),
            protocol: Protocol::Mqtt,
            transport: Transport::Tcp,
            addr: ([127, 0, 0, 1], 1).into(),
            server_name: "localhost".into(),
            ws_path: String::new(),
            tls: None,
            quic: QuicTuning::default(),
            user: None,
            password: None,
        };
        let mut plan = Plan::new(target, "x");
        plan.pattern = pattern;
        (plan.publishers, plan.subscribers) = (publishers, subscribers);
        plan.topics = topics;
        plan
    }

    /// Every topic is published to, and the fan announced is the number of
    /// filters that match.
    #[test]
    fn fans_agree_with_filters() {
        let counts = [1, 2, 3, 7, 10];
        let patterns = [Pattern::Pair, Pattern::FanIn, Pattern::FanOut, Pattern::All];
        for pattern in patterns {
            for (p, s, t) in counts
                .iter()
                .flat_map(|p| counts.iter().map(move |s| (*p, *s)))
                .flat_map(|(p, s)| counts.iter().map(move |t| (p, s, *t)))
            {
                let plan = plan(pattern, p, s, t);
                let filters: Vec<String> =
                    (0..s).flat_map(|s| plan.filters_of_subscriber(s)).collect();
                for topic in 0..t {
                    let name = plan.topic(topic);
                    let matching = filters
                        .iter()
                        .filter(|f| **f == name || f.ends_with("/+"))
                        .count();
                    let what = format!("{pattern:?} {p} {s} {t} topic {topic}");
                    assert_eq!(plan.fan_of(topic), matching as u64, "{what}");
                    let used = (0..p).any(|p| plan.topics_of_publisher(p).any(|x| x == topic));
                    assert!(used, "{what}");
                }
                assert!((0..p).all(|p| plan.topics_of_publisher(p).count() > 0));
            }
        }
    }

    #[test]
    fn nonsense_is_refused() {
        let mut small = plan(Pattern::Pair, 1, 1, 1);
        small.size = 15;
        assert_eq!(small.check(), Err(PlanError::SizeTooSmall));
        assert_eq!(
            plan(Pattern::Pair, 0, 0, 1).check(),
            Err(PlanError::Nothing)
        );
        let mut rate = plan(Pattern::Pair, 1, 1, 1);
        rate.rate = Some(0.0);
        assert_eq!(rate.check(), Err(PlanError::Rate));
        let mut queue = plan(Pattern::Pair, 1, 1, 1);
        queue.queue = Some("/queues/q".into());
        let refused = queue.check();
        assert_eq!(refused, Err(PlanError::OtherProtocol("queues", "AMQP")));
        queue.target.protocol = Protocol::Amqp;
        assert_eq!(queue.check(), Ok(()));
        let mut threads = plan(Pattern::Pair, 1, 1, 1);
        threads.threads = 0;
        assert_eq!(threads.check(), Err(PlanError::Threads));
    }

    #[test]
    fn windows_are_bounded_in_messages_and_bytes() {
        assert_eq!(plan(Pattern::Pair, 1, 1, 1).window(), 1024);
        assert_eq!(plan(Pattern::Pair, 100, 1, 1).window(), 81);
        let mut large = plan(Pattern::Pair, 1, 1, 1);
        large.size = 1 << 20;
        assert_eq!(large.window(), 8);
        large.in_flight = Some(3);
        assert_eq!(large.window(), 3);
    }
}
