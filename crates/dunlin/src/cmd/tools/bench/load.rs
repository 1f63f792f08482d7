//! Options of `dunlin bench` that say who sends what to whom, when and how much.

use core::time::Duration;

use anyhow::bail;
use clap::{Args, ValueEnum};
use dunlin_mqtt_codec::{QoS, Version};

use super::{qos, seconds};
use crate::bench::fleet::{Fleet, Share};
use crate::bench::plan::{self, Messages, Pattern, Sessions, Time};
use crate::bench::schedule::Arrival;

/// Shortest time that is measured.
const DURATION_MIN: Duration = Duration::from_millis(100);

#[derive(Debug, Args)]
#[command(next_help_heading = "Load")]
pub(super) struct Load {
    /// Who talks to whom.
    #[arg(long, value_enum, default_value = "pair")]
    pub(super) pattern: Pattern,
    /// Publishers.
    #[arg(long, value_name = "N")]
    pub(super) pubs: Option<usize>,
    /// Subscribers.
    #[arg(long, value_name = "N")]
    pub(super) subs: Option<usize>,
    /// Topics; several of one publisher are used in turn.
    #[arg(long, value_name = "N")]
    pub(super) topics: Option<usize>,
    /// QoS of messages and subscriptions. With AMQP 0 is settled, 1 unsettled, 2
    /// unsettled with the receiver settling second.
    #[arg(long, default_value = "0", value_parser = qos)]
    pub(super) qos: QoS,
    /// With AMQP: all messages go to the queue with this address, such as
    /// /queues/NAME, and each from there to one of the subscribers.
    #[arg(long, value_name = "ADDRESS")]
    pub(super) queue: Option<String>,
    /// With AMQP: messages are to survive a restart of the broker.
    #[arg(long)]
    pub(super) durable: bool,
    /// QoS of subscriptions, if it differs.
    #[arg(long, value_parser = qos)]
    pub(super) sub_qos: Option<QoS>,
    /// Payload bytes; several: publishers in turn.
    #[arg(
        long,
        default_value = "64",
        value_delimiter = ',',
        value_name = "BYTES,..."
    )]
    pub(super) size: Vec<usize>,
    #[command(flatten)]
    pace: Pace,
    /// Messages of one publisher that may be on their way: unacknowledged with
    /// QoS 1 and 2, undelivered with QoS 0 at saturation.
    #[arg(long, value_name = "N")]
    pub(super) inflight: Option<usize>,
    /// Messages that a publisher writes at once at most; 1 is the worst case
    /// for a broker.
    #[arg(long, default_value_t = 1024, value_name = "N")]
    pub(super) batch: usize,
    /// With QoS 0 at saturation do not wait for deliveries: what the broker
    /// drops shows as loss.
    #[arg(long)]
    pub(super) open_loop: bool,
    /// Subscribers form one shared subscription.
    #[arg(long)]
    pub(super) share: bool,
    /// Subscribers have persistent sessions.
    #[arg(long)]
    pub(super) persistent: bool,
    /// How long such a session outlives its connection, in seconds.
    #[arg(long, default_value_t = 3600, value_name = "SECONDS")]
    pub(super) session_expiry: u32,
    /// Seconds measured.
    #[arg(long, short, default_value = "10", value_parser = seconds)]
    pub(super) duration: Duration,
    /// Seconds before that, not measured.
    #[arg(long, default_value = "2", value_parser = seconds)]
    pub(super) warmup: Duration,
    /// Seconds of silence after which what is missing counts as lost.
    #[arg(long, default_value = "3", value_parser = seconds)]
    pub(super) drain: Duration,
    /// Start of all topics; a random part follows.
    #[arg(long, default_value = "bench")]
    pub(super) prefix: String,
}

/// When messages are sent.
#[derive(Debug, Args)]
#[command(next_help_heading = "Load")]
struct Pace {
    /// Messages a second, all publishers together; without it as fast as the
    /// broker takes them.
    #[arg(long, value_name = "PER_SECOND")]
    rate: Option<f64>,
    /// How the messages of --rate are spread over time.
    #[arg(long, value_enum, default_value = "even")]
    arrival: Spread,
    /// Messages of a cluster.
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    cluster: u32,
}

impl Load {
    /// Publishers, subscribers and topics, with what the pattern suggests for
    /// those not given.
    pub(super) fn shape(&self, fleet: &FleetOptions) -> (usize, usize, usize) {
        let (pubs, subs) = match self.pattern {
            Pattern::Fleet => fleet.shape(),
            Pattern::Pair => {
                let pairs = self.pubs.or(self.subs).unwrap_or(1);
                (self.pubs.unwrap_or(pairs), self.subs.unwrap_or(pairs))
            }
            Pattern::FanIn => (self.pubs.unwrap_or(100), self.subs.unwrap_or(1)),
            Pattern::FanOut => (self.pubs.unwrap_or(1), self.subs.unwrap_or(50)),
            Pattern::All => (self.pubs.unwrap_or(10), self.subs.unwrap_or(10)),
        };
        let topics = match self.pattern {
            _ if self.queue.is_some() => return (pubs, subs, 1),
            Pattern::FanOut => 1,
            Pattern::Fleet if subs == 0 => pubs,
            Pattern::Pair | Pattern::Fleet => pubs.min(subs),
            Pattern::FanIn | Pattern::All => pubs,
        };
        (pubs, subs, self.topics.unwrap_or(topics).max(1))
    }

    pub(super) fn messages(&self) -> Messages {
        Messages {
            qos: self.qos,
            sizes: self.size.clone(),
            queue: self.queue.clone(),
            durable: self.durable,
        }
    }

    /// The rate of a fleet is one message a second of each publisher if not given.
    pub(super) fn pace(&self, publishers: usize) -> plan::Pace {
        let each = (self.pattern == Pattern::Fleet && publishers > 0).then_some(publishers as f64);
        plan::Pace {
            rate: self.pace.rate.or(each),
            arrival: match self.pace.arrival {
                Spread::Even => Arrival::Even,
                Spread::Clusters => Arrival::Clusters(self.pace.cluster),
                Spread::Poisson => Arrival::Poisson,
            },
            in_flight: self.inflight,
            batch: self.batch.max(1),
            open_loop: self.open_loop,
        }
    }

    pub(super) fn sessions(&self, version: Version, keep_alive: u16) -> Sessions {
        Sessions {
            version,
            subscribe_qos: self.sub_qos.unwrap_or(self.qos),
            share: self.share,
            persistent: self.persistent,
            expiry: self.session_expiry,
            keep_alive,
        }
    }

    pub(super) fn time(&self) -> Time {
        Time {
            warmup: self.warmup,
            duration: self.duration.max(DURATION_MIN),
            drain: self.drain,
        }
    }
}

/// As [`Arrival`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Spread {
    /// At equal distances, publishers in turn.
    Even,
    /// Some at the same instant (--cluster), publishers in turn.
    Clusters,
    /// Each publisher at random, a Poisson process.
    Poisson,
}

/// Devices of a fleet if not given.
const DEVICES: usize = 1000;
/// Shortest time between two moves of a device.
const MOVE_EVERY_MIN: Duration = Duration::from_millis(100);

#[derive(Debug, Args)]
#[command(next_help_heading = "Fleet (--pattern fleet)")]
pub(super) struct FleetOptions {
    /// Devices; 1,000 if not given. --rate is one message a second of each that
    /// publishes, unless given.
    #[arg(long, value_name = "N", conflicts_with_all = ["pubs", "subs", "idle"])]
    devices: Option<usize>,
    /// Percentage of them that subscribe, each to the topic of one that publishes;
    /// the others publish.
    #[arg(long, value_name = "PERCENT", default_value = "50", value_parser = share)]
    subscribing: Share,
    /// Percentage of those that publish which are connected only while they have
    /// something to publish; over QUIC they wake with a session ticket and early
    /// data.
    #[arg(long, value_name = "PERCENT", default_value = "0", value_parser = share)]
    sleeping: Share,
    /// Percentage of the others whose local port changes from time to time (QUIC).
    #[arg(long, value_name = "PERCENT", default_value = "0", value_parser = share)]
    moving: Share,
    /// Seconds between two moves of a device.
    #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = super::seconds)]
    move_every: Duration,
}

impl FleetOptions {
    /// Publishers and subscribers.
    const fn shape(&self) -> (usize, usize) {
        let devices = match self.devices {
            Some(devices) => devices,
            None => DEVICES,
        };
        let subscribers = self.subscribing.of(devices);
        (devices - subscribers, subscribers)
    }

    /// What devices do, if the pattern has some.
    pub(super) fn fleet(&self, load: &Load) -> anyhow::Result<Fleet> {
        if load.pattern != Pattern::Fleet {
            let does = [self.sleeping, self.moving]
                .iter()
                .any(|it| *it != Share::default());
            if does || self.devices.is_some() {
                bail!("--devices, --sleeping and --moving are of --pattern fleet");
            }
            return Ok(Fleet::default());
        }
        if load.pubs.is_some() || load.subs.is_some() {
            bail!("a fleet has --devices and --subscribing instead of --pubs and --subs");
        }
        if self.move_every < MOVE_EVERY_MIN {
            bail!("--move-every is at least 0.1");
        }
        Ok(Fleet {
            sleeping: self.sleeping,
            moving: self.moving,
            move_every: self.move_every,
        })
    }
}

fn share(text: &str) -> Result<Share, String> {
    let percent = text.trim_end_matches('%').parse().ok();
    let share = percent.and_then(Share::percent);
    share.ok_or_else(|| "must be a percentage from 0 to 100".into())
}
