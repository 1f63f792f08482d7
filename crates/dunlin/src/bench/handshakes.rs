//! Clients that come one after the other, as far as the end of the handshake,
//! CONNACK or SUBACK: how long each step takes, and what it costs a broker. They
//! come as fast as some at a time get done, and leave; or one each time an interval
//! has passed, and stay until the last is done.

mod cost;

use core::time::Duration;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context as _, bail};
use dunlin_base::transport::{NetEvent, NetEventKind};
use dunlin_base::{ConnId, QoS, SendBuf, StreamId};
use dunlin_mqtt_codec::{
    Connect, Packet, PacketId, PacketType, Subscribe, SubscribeFilter, SubscribeFilters,
    SubscribeOptions, UserProperties, Version,
};
use dunlin_net::{ClientTls, Clock, DialConfig, Net, NetConfig};

use super::plan::Target;
use super::proc::Process;
use super::wire::Framer;
pub(super) use cost::all_but_one_in_fifty;
pub use cost::{Cost, Times};

/// Handshakes that may fail before a run as fast as possible is given up.
const FAILURES_MAX: u64 = 100;
/// Such a run is given up when nothing happens for this long.
const PATIENCE: Duration = Duration::from_secs(20);
/// Longest that one poll waits.
const POLL_MAX: Duration = Duration::from_millis(20);
/// Time for session tickets to arrive after a handshake.
const TICKETS_AFTER: Duration = Duration::from_millis(500);

/// A step of a client, in order.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd, clap::ValueEnum)]
pub enum Until {
    /// The transport is ready: TCP, TLS or QUIC handshake.
    Handshake,
    /// CONNACK.
    Connack,
    /// SUBACK.
    Suback,
}

/// When the next client comes.
#[derive(Clone, Copy, Debug)]
pub enum Pace {
    /// When fewer than these are on their way.
    AtOnce(usize),
    /// Each time this has passed.
    Every(Duration),
}

/// What to do.
#[derive(Clone, Debug)]
pub struct Visits {
    /// Where.
    pub target: Target,
    /// Version of MQTT.
    pub version: Version,
    /// How many are counted.
    pub count: u64,
    /// How many come before them.
    pub warm_up: u64,
    /// When they come.
    pub pace: Pace,
    /// How far each goes.
    pub until: Until,
    /// Longest that one may take, where they come at an interval.
    pub timeout: Duration,
    /// Send CONNECT as early data where there is a ticket.
    pub early_data: bool,
    /// Trust, with tickets of its own, for each client: they come at their interval
    /// once before.
    pub own_tickets: Vec<Arc<ClientTls>>,
}

/// A client under way.
struct Visit {
    number: u64,
    begun: Instant,
    framer: Framer,
    done: bool,
}

/// A loop that makes visits.
struct Run<'a> {
    visits: &'a Visits,
    config: DialConfig,
    net: Net,
    open: HashMap<ConnId, Visit>,
    /// Clients in `open` that are not done.
    under_way: usize,
    /// Those that got done since it was last looked.
    over: Vec<ConnId>,
    sends: Vec<(ConnId, SendBuf)>,
    /// Clients that began.
    begun: u64,
    done: u64,
    /// Those whose CONNECT travelled as early data, and those that count whose
    /// early data was taken.
    early: u64,
    taken: u64,
    failed: u64,
    cause: Option<String>,
    /// Number of the client and how long it took, for each step.
    steps: [Vec<(u64, u64)>; 4],
}

/// Places in [`Run::steps`].
const READY: usize = 0;
const ANSWERED: usize = 1;
const CONNACK: usize = 2;
const SUBACK: usize = 3;

/// Makes the visits and says what they cost `broker`.
///
/// # Errors
/// Too many fail, nothing happens any more, or the loop fails.
pub fn run(visits: &Visits, broker: Option<Process>) -> anyhow::Result<Cost> {
    let target = &visits.target;
    let mut config = target.dial();
    config.early_data = visits.early_data;
    let clock = Clock::new();
    let run = Run {
        visits,
        config,
        net: Net::new(NetConfig::client(clock)?)?,
        open: HashMap::new(),
        under_way: 0,
        over: Vec::new(),
        sends: Vec::new(),
        begun: 0,
        done: 0,
        early: 0,
        taken: 0,
        failed: 0,
        cause: None,
        steps: Default::default(),
    };
    match visits.pace {
        Pace::AtOnce(_) => run.measured(broker),
        Pace::Every(interval) => run.timed(interval),
    }
}

impl Run<'_> {
    /// As fast as they get done.
    fn measured(mut self, broker: Option<Process>) -> anyhow::Result<Cost> {
        self.until(self.visits.warm_up)?;
        (self.early, self.failed) = (0, 0);
        let cpu = || broker.and_then(Process::cpu);
        let (before, start, done) = (cpu(), self.net.now(), self.done);
        self.until(self.done + self.visits.count)?;
        let (after, connections) = (cpu(), self.done - done);
        let mut cost = Cost {
            connections,
            early: self.early,
            failed: self.failed,
            seconds: (self.net.now() - start).as_secs_f64(),
            ..Cost::default()
        };
        if let (Some(before), Some(after)) = (before, after) {
            let each = (after - before).as_secs_f64() / connections.max(1) as f64;
            cost.broker_cpu_ms = Some(each * 1e3);
            cost.per_broker_cpu_second = Some(1.0 / each.max(f64::MIN_POSITIVE));
        }
        Ok(cost)
    }

    /// At an interval, each once before if it has tickets of its own.
    fn timed(mut self, interval: Duration) -> anyhow::Result<Cost> {
        if !self.visits.own_tickets.is_empty() {
            self.round(interval, TICKETS_AFTER)?;
            (self.begun, self.done, self.failed) = (0, 0, 0);
            (self.early, self.taken, self.cause) = (0, 0, None);
            self.steps = Default::default();
        }
        let start = self.net.now();
        let late_us = self.round(interval, Duration::ZERO)?;
        let [ready_us, answered_us, connack_us, suback_us] = self.steps.map(cost::in_order);
        Ok(Cost {
            connections: self.done,
            early: self.early,
            failed: self.visits.count - self.done,
            seconds: (self.net.now() - start).as_secs_f64(),
            times: Some(Times {
                clients: self.visits.count,
                done: self.done,
                early: self.taken,
                timeout_us: cost::micros(self.visits.timeout),
                ready_us,
                answered_us,
                connack_us,
                suback_us,
                late_us,
                why: self.cause,
            }),
            ..Cost::default()
        })
    }

    fn until(&mut self, done: u64) -> anyhow::Result<()> {
        let Pace::AtOnce(at_once) = self.visits.pace else {
            return Ok(());
        };
        let mut last = (self.done, self.net.now());
        while self.done < done {
            while self.open.len() < at_once.max(1) && self.begun.saturating_sub(self.failed) < done
            {
                self.begin()?;
            }
            self.poll(POLL_MAX)?;
            for conn in core::mem::take(&mut self.over) {
                if self.open.remove(&conn).is_some() {
                    self.net.close(conn, 0);
                }
            }
            self.net.flush();
            if self.failed > FAILURES_MAX {
                bail!("too many failed: {}", self.cause.as_deref().unwrap_or("?"));
            }
            let now = self.net.now();
            if last.0 != self.done {
                last = (self.done, now);
            }
            if now - last.1 > PATIENCE {
                bail!("nothing happens: {}", self.cause.as_deref().unwrap_or("?"));
            }
        }
        Ok(())
    }

    /// All clients once; then they all leave. How far behind its schedule it was.
    fn round(&mut self, interval: Duration, after: Duration) -> anyhow::Result<u64> {
        let all = self.visits.count + self.visits.warm_up;
        let at = |number: u64| interval.saturating_mul(u32::try_from(number).unwrap_or(u32::MAX));
        let start = Instant::now();
        let mut late = Vec::new();
        let mut last = start;
        while self.begun < all || self.under_way > 0 || last.elapsed() < after {
            let due = start + at(self.begun);
            let mut wait = POLL_MAX;
            if self.begun < all {
                let now = Instant::now();
                if due <= now {
                    late.push(cost::micros(now - due));
                    self.begin()?;
                }
                let next = start + at(self.begun);
                wait = next.saturating_duration_since(now).min(POLL_MAX);
            }
            self.poll(wait)?;
            self.over.clear();
            if self.under_way > 0 {
                last = Instant::now();
                // A server that took the connection may still say nothing.
                if self.begun == all && last - start > self.visits.timeout + at(all) {
                    break;
                }
            }
        }
        for (conn, _) in self.open.drain() {
            self.net.close(conn, 0);
        }
        self.under_way = 0;
        self.net.poll(Some(Duration::ZERO), &mut |_| {})?;
        Ok(all_but_one_in_fifty(late))
    }

    /// The next client comes.
    fn begin(&mut self) -> anyhow::Result<()> {
        let trusts = &self.visits.own_tickets;
        let tls = usize::try_from(self.begun)
            .ok()
            .and_then(|at| trusts.get(at));
        if let Some(tls) = tls {
            self.config.tls = Some(Arc::clone(tls));
        }
        if let Pace::Every(_) = self.visits.pace {
            self.config.handshake_timeout = Some(self.visits.timeout);
        }
        let begun = Instant::now();
        let conn = self.net.dial(&self.config).context("cannot dial")?;
        let visit = Visit {
            number: self.begun,
            begun,
            framer: Framer::default(),
            done: false,
        };
        self.open.insert(conn, visit);
        self.under_way += 1;
        self.begun += 1;
        Ok(())
    }

    fn poll(&mut self, wait: Duration) -> anyhow::Result<()> {
        let mut events = Vec::new();
        self.net
            .poll(Some(wait), &mut |NetEvent { conn, kind }: NetEvent<
                &[u8],
            >| {
                let at = Instant::now();
                match kind {
                    NetEventKind::Opened { peer } => {
                        events.push((conn, at, Seen::Opened(peer.early_data)))
                    }
                    NetEventKind::EarlyData { accepted } => {
                        events.push((conn, at, Seen::Answered(accepted)))
                    }
                    NetEventKind::Bytes { data, .. } => {
                        events.push((conn, at, Seen::Bytes(data.to_vec())));
                    }
                    NetEventKind::Closed { cause } => {
                        events.push((conn, at, Seen::Closed(cause.to_string())));
                    }
                    _ => {}
                }
            })?;
        for (conn, at, seen) in events {
            self.note(conn, at, seen);
        }
        for (conn, mut bytes) in core::mem::take(&mut self.sends) {
            // A few bytes; when they left does not matter.
            let _ = self.net.send(conn, StreamId::CONTROL, &mut bytes);
        }
        self.net.flush();
        Ok(())
    }

    fn note(&mut self, conn: ConnId, at: Instant, seen: Seen) {
        match seen {
            Seen::Opened(early) => self.opened(conn, at, early),
            Seen::Answered(accepted) => {
                self.step(conn, at, ANSWERED);
                self.taken += u64::from(accepted && self.counts(conn));
                if self.visits.until == Until::Handshake {
                    self.end(conn);
                }
            }
            Seen::Bytes(data) => self.answered(conn, at, &data),
            Seen::Closed(cause) => {
                if let Some(visit) = self.open.remove(&conn).filter(|visit| !visit.done) {
                    self.under_way -= 1;
                    self.failed += 1;
                    let why = format!("client {}: {cause}", visit.number);
                    self.cause.get_or_insert(why);
                }
            }
        }
    }

    /// Whether a client is timed, and none of the warm-up.
    fn counts(&self, conn: ConnId) -> bool {
        let visit = self.open.get(&conn);
        matches!(self.visits.pace, Pace::Every(_))
            && visit.is_some_and(|visit| visit.number >= self.visits.warm_up)
    }

    /// A client has come so far.
    fn step(&mut self, conn: ConnId, at: Instant, step: usize) {
        if self.counts(conn)
            && let Some(visit) = self.open.get(&conn)
        {
            let took = cost::micros(at.saturating_duration_since(visit.begun));
            self.steps[step].push((visit.number, took));
        }
    }

    /// With early data the server has not answered yet.
    fn opened(&mut self, conn: ConnId, at: Instant, early: bool) {
        self.step(conn, at, READY);
        let Some(visit) = self.open.get(&conn) else {
            return;
        };
        self.early += u64::from(early);
        if self.visits.until > Until::Handshake {
            let bytes = self.connect(visit.number);
            self.sends.push((conn, bytes));
        } else if !early {
            self.end(conn);
        }
    }

    fn answered(&mut self, conn: ConnId, at: Instant, data: &[u8]) {
        let Some(visit) = self.open.get_mut(&conn).filter(|visit| !visit.done) else {
            return;
        };
        let number = visit.number;
        let mut answers = Vec::new();
        // What is no MQTT is no answer.
        let _ = visit
            .framer
            .feed(data, |frame, _| answers.push(frame.packet_type));
        for answer in answers {
            match answer {
                PacketType::ConnAck => {
                    self.step(conn, at, CONNACK);
                    if self.visits.until == Until::Suback {
                        let bytes = self.subscribe(number);
                        self.sends.push((conn, bytes));
                    } else {
                        self.end(conn);
                    }
                }
                PacketType::SubAck => {
                    self.step(conn, at, SUBACK);
                    self.end(conn);
                }
                _ => {}
            }
        }
    }

    fn end(&mut self, conn: ConnId) {
        let Some(visit) = self.open.get_mut(&conn).filter(|visit| !visit.done) else {
            return;
        };
        visit.done = true;
        self.under_way -= 1;
        let counts = matches!(self.visits.pace, Pace::AtOnce(_)) || self.counts(conn);
        self.done += u64::from(counts);
        self.over.push(conn);
    }

    fn connect(&self, number: u64) -> SendBuf {
        let target = &self.visits.target;
        let client_id = match self.visits.pace {
            Pace::AtOnce(_) => String::new(),
            Pace::Every(_) => format!("visit-{}-{number}", std::process::id()),
        };
        let connect = Connect {
            version: self.visits.version,
            clean_start: true,
            keep_alive: 60,
            client_id: &client_id,
            username: target.user.as_deref(),
            password: target.password.as_deref().map(str::as_bytes),
            ..Connect::default()
        };
        self.encoded(&Packet::Connect(connect))
    }

    fn subscribe(&self, number: u64) -> SendBuf {
        let filter = format!("visit/{number}");
        let options = SubscribeOptions {
            qos: QoS::AtMostOnce,
            ..SubscribeOptions::default()
        };
        let filters = [SubscribeFilter {
            filter: &filter,
            options,
        }];
        self.encoded(&Packet::Subscribe(Subscribe {
            packet_id: PacketId::MIN,
            subscription_identifier: None,
            user_properties: UserProperties::default(),
            filters: SubscribeFilters::new(&filters),
        }))
    }

    fn encoded(&self, packet: &Packet<'_>) -> SendBuf {
        let mut bytes = SendBuf::new();
        // A buffer that grows takes everything.
        let _ = packet.encode(self.visits.version, &mut bytes);
        bytes
    }
}

/// What happened on a connection.
enum Seen {
    /// It may be early data that says so.
    Opened(bool),
    /// The server has answered early data: whether it has taken it.
    Answered(bool),
    Bytes(Vec<u8>),
    Closed(String),
}
