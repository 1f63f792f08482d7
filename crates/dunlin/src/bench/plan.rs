//! What is to be measured: who publishes what to whom, as arithmetic. Checked
//! before anything is connected.

mod error;

use core::net::{IpAddr, SocketAddr};
use core::time::Duration;
use std::sync::Arc;

use dunlin_base::Text;
use dunlin_base::transport::Transport;
use dunlin_dial::Protocol;
use dunlin_mqtt_codec::{QoS, Version};
use dunlin_net::{ClientTls, Connector, DialConfig, QuicTuning};

use super::fleet::{Fleet, MOVING_MAX, Share};
use super::places::Places;
use super::scene::Part;
use super::schedule::Arrival;
use super::wire::STAMP_BYTES;
pub use error::PlanError;

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
    /// Many devices that publish now and then; some hear what another publishes,
    /// some sleep in between, some move.
    Fleet,
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
    /// WebSocket resource, or path of a Unix socket.
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
        if self.transport == Transport::Unix {
            config.connector = Some(Connector::unix(ws_path.into()));
        }
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
    /// What devices do beside publishing; only with [`Pattern::Fleet`].
    pub fleet: Fleet,
    /// What is published.
    pub messages: Messages,
    /// When it is published.
    pub pace: Pace,
    /// What clients agree with the broker.
    pub sessions: Sessions,
    /// How long it takes.
    pub time: Time,
    /// How clients connect.
    pub connecting: Connecting,
    /// Threads.
    pub threads: usize,
    /// Places on the broker's shards; `None`: as the kernel decides.
    pub places: Option<Places>,
    /// When it is there, in a scenario.
    pub part: Option<Part>,
    /// Start of topics and client identifiers, unique for this run.
    pub prefix: String,
    /// Unique part of `prefix`, for client identifiers.
    pub run_id: String,
}

/// What is published.
#[derive(Clone, Debug)]
pub struct Messages {
    /// QoS.
    pub qos: QoS,
    /// Payload bytes, by publisher in turn; at least one entry.
    pub sizes: Vec<usize>,
    /// Address of the queue that all messages go to, if it is not a topic (AMQP).
    pub queue: Option<String>,
    /// They are to survive a restart of the broker (AMQP).
    pub durable: bool,
}

/// When messages are published.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// Messages a second over all publishers; `None`: as fast as possible.
    pub rate: Option<f64>,
    /// How these are spread.
    pub arrival: Arrival,
    /// Unacknowledged (QoS 1, 2) or undelivered (QoS 0 at saturation) messages
    /// of one publisher at most.
    pub in_flight: Option<usize>,
    /// Messages that a publisher writes at once at most.
    pub batch: usize,
    /// At saturation with QoS 0, do not wait for deliveries.
    pub open_loop: bool,
}

/// What clients agree with the broker.
#[derive(Clone, Copy, Debug)]
pub struct Sessions {
    /// Version of MQTT.
    pub version: Version,
    /// Highest QoS of subscriptions.
    pub subscribe_qos: QoS,
    /// Subscribers share the messages of a group.
    pub share: bool,
    /// Subscribers have sessions that survive their connection.
    pub persistent: bool,
    /// How long such a session survives, in seconds.
    pub expiry: u32,
    /// Keep alive of all connections, in seconds.
    pub keep_alive: u16,
}

/// How long a run takes.
#[derive(Clone, Copy, Debug)]
pub struct Time {
    /// Not measured at the start.
    pub warmup: Duration,
    /// Measured.
    pub duration: Duration,
    /// Silence after which undelivered messages count as lost.
    pub drain: Duration,
}

/// How clients connect.
#[derive(Clone, Debug)]
pub struct Connecting {
    /// Connections a second; `None`: no limit.
    pub rate: Option<f64>,
    /// Handshakes pending at most.
    pub pending_max: usize,
    /// Local addresses to connect from, in turn; empty: the system chooses.
    pub sources: Vec<IpAddr>,
}

impl Plan {
    /// One publisher and one subscriber at saturation, QoS 0, 64 bytes;
    /// `run_id` tells this run's topics and clients from those of others.
    #[must_use]
    pub fn new(target: Target, run_id: &str) -> Self {
        Self {
            target,
            subscribers_at: None,
            pattern: Pattern::Pair,
            publishers: 1,
            subscribers: 1,
            topics: 1,
            idle: 0,
            fleet: Fleet::default(),
            messages: Messages {
                qos: QoS::AtMostOnce,
                sizes: vec![64],
                queue: None,
                durable: false,
            },
            pace: Pace {
                rate: None,
                arrival: Arrival::Even,
                in_flight: None,
                batch: 1024,
                open_loop: false,
            },
            sessions: Sessions {
                version: Version::V5,
                subscribe_qos: QoS::AtMostOnce,
                share: false,
                persistent: false,
                expiry: 3600,
                keep_alive: 60,
            },
            time: Time {
                warmup: Duration::from_secs(2),
                duration: Duration::from_secs(10),
                drain: Duration::from_secs(3),
            },
            connecting: Connecting {
                rate: None,
                pending_max: 100,
                sources: Vec::new(),
            },
            threads: 1,
            places: None,
            part: None,
            prefix: format!("bench/{run_id}"),
            run_id: run_id.into(),
        }
    }

    /// Checks what arithmetic relies on.
    ///
    /// # Errors
    /// The first thing that makes no sense.
    pub fn check(&self) -> Result<(), PlanError> {
        if self.messages.sizes.iter().any(|size| *size < STAMP_BYTES)
            || self.messages.sizes.is_empty()
        {
            return Err(PlanError::SizeTooSmall);
        }
        if self.size_max() > 268_000_000 {
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
        if self.messages.queue.is_some() && speaks(Protocol::Amqp) != [true; 2] {
            return Err(PlanError::OtherProtocol("queues", "AMQP"));
        }
        let is_mqtt = self.target_of('s').protocol == Protocol::Mqtt;
        if (self.sessions.share || self.sessions.persistent) && !is_mqtt {
            let what = "persistent sessions and $share groups";
            return Err(PlanError::OtherProtocol(what, "MQTT"));
        }
        let wrong = |rate: Option<f64>| rate.is_some_and(|r| !(r > 0.0 && r.is_finite()));
        if wrong(self.pace.rate) || wrong(self.connecting.rate) {
            return Err(PlanError::Rate);
        }
        self.check_fleet()
    }

    fn check_fleet(&self) -> Result<(), PlanError> {
        let is_timed =
            self.pace.arrival != Arrival::Even || self.fleet.sleeping != Share::default();
        if is_timed && self.pace.rate.is_none() {
            return Err(PlanError::NoRate);
        }
        if self.fleet.sleeping != Share::default() && self.target.protocol != Protocol::Mqtt {
            return Err(PlanError::OtherProtocol("devices that sleep", "MQTT"));
        }
        let moving = self.fleet.movers(self.publishers, self.subscribers);
        let is_quic = |kind| self.target_of(kind).transport == Transport::Quic;
        if moving > 0 && !(is_quic('p') && is_quic('s')) {
            return Err(PlanError::MovesNeedQuic);
        }
        if moving > MOVING_MAX * self.threads {
            return Err(PlanError::TooManyMoving);
        }
        Ok(())
    }

    /// Whether what a publisher may send depends on what is delivered.
    #[must_use]
    pub const fn waits_for_deliveries(&self) -> bool {
        self.pace.rate.is_none()
            && !self.pace.open_loop
            && matches!(self.messages.qos, QoS::AtMostOnce)
    }

    /// Payload bytes of a publisher.
    #[must_use]
    pub fn size_of(&self, publisher: usize) -> usize {
        let index = publisher
            .checked_rem(self.messages.sizes.len())
            .unwrap_or(0);
        self.messages
            .sizes
            .get(index)
            .copied()
            .unwrap_or(STAMP_BYTES)
    }

    /// Payload bytes of a message on average.
    #[must_use]
    pub fn size_mean(&self) -> usize {
        self.messages.sizes.iter().sum::<usize>() / self.messages.sizes.len().max(1)
    }

    /// The longest payload.
    #[must_use]
    pub fn size_max(&self) -> usize {
        self.messages
            .sizes
            .iter()
            .copied()
            .max()
            .unwrap_or(STAMP_BYTES)
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
        self.sessions.share || self.messages.queue.is_some()
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
        match &self.messages.queue {
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
        let shared = if self.sessions.share {
            "$share/bench/"
        } else {
            ""
        };
        match self.pattern {
            Pattern::Pair | Pattern::Fleet => spread(s, self.subscribers, self.topics)
                .map(|t| format!("{shared}{}", self.topic(t)))
                .collect(),
            _ if self.topics == 1 || self.messages.queue.is_some() => {
                vec![format!("{shared}{}", self.topic(0))]
            }
            _ => vec![format!("{shared}{}/+", self.prefix)],
        }
    }

    /// How many deliveries a message to topic `t` leads to.
    #[must_use]
    pub fn fan_of(&self, t: usize) -> u64 {
        let subscribers = match self.pattern {
            Pattern::Pair | Pattern::Fleet if self.subscribers == 0 => 0,
            Pattern::Pair | Pattern::Fleet if self.topics >= self.subscribers => 1,
            Pattern::Pair | Pattern::Fleet => {
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
        if let Some(in_flight) = self.pace.in_flight {
            return in_flight.clamp(1, usize::from(u16::MAX));
        }
        match self.messages.qos {
            QoS::AtMostOnce => {
                let by_bytes = IN_FLIGHT_TOTAL_BYTES / self.size_max();
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
        small.messages.sizes = vec![64, 15];
        assert_eq!(small.check(), Err(PlanError::SizeTooSmall));
        assert_eq!(
            plan(Pattern::Pair, 0, 0, 1).check(),
            Err(PlanError::Nothing)
        );
        let mut rate = plan(Pattern::Pair, 1, 1, 1);
        rate.pace.rate = Some(0.0);
        assert_eq!(rate.check(), Err(PlanError::Rate));
        let mut queue = plan(Pattern::Pair, 1, 1, 1);
        queue.messages.queue = Some("/queues/q".into());
        let refused = queue.check();
        assert_eq!(refused, Err(PlanError::OtherProtocol("queues", "AMQP")));
        queue.target.protocol = Protocol::Amqp;
        assert_eq!(queue.check(), Ok(()));
        let mut fleet = plan(Pattern::Fleet, 10, 10, 10);
        fleet.fleet.sleeping = Share::percent(10.0).unwrap();
        assert_eq!(fleet.check(), Err(PlanError::NoRate));
        fleet.pace.rate = Some(5.0);
        assert_eq!(fleet.check(), Ok(()));
        fleet.fleet.moving = Share::percent(50.0).unwrap();
        assert_eq!(fleet.check(), Err(PlanError::MovesNeedQuic));
        fleet.target.transport = Transport::Quic;
        assert_eq!(fleet.check(), Ok(()));
        fleet.publishers = 2_000;
        assert_eq!(fleet.check(), Err(PlanError::TooManyMoving));
        let mut threads = plan(Pattern::Pair, 1, 1, 1);
        threads.threads = 0;
        assert_eq!(threads.check(), Err(PlanError::Threads));
    }

    #[test]
    fn windows_are_bounded_in_messages_and_bytes() {
        assert_eq!(plan(Pattern::Pair, 1, 1, 1).window(), 1024);
        assert_eq!(plan(Pattern::Pair, 100, 1, 1).window(), 81);
        let mut large = plan(Pattern::Pair, 1, 1, 1);
        large.messages.sizes = vec![1 << 20];
        assert_eq!(large.window(), 8);
        large.pace.in_flight = Some(3);
        assert_eq!(large.window(), 3);
    }
}
