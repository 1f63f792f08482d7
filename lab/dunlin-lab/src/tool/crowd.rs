//! The hidden command `crowd`: clients that connect one after another on a
//! schedule, and how long each step took them. It speaks to the network loop
//! itself, so that the end of a handshake is seen and not only CONNACK.

use core::net::SocketAddr;
use core::time::Duration;
use std::collections::HashMap;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context as _, Result, bail};
use clap::{Args, ValueEnum};
use dunlin_base::transport::{NetEvent, NetEventKind, Transport};
use dunlin_base::{ConnId, QoS, SendBuf, StreamId, Text};
use dunlin_client::Url;
use dunlin_link::parse_duration;
use dunlin_mqtt_codec::{
    Connect, PacketId, PacketType, Subscribe, SubscribeFilter, SubscribeFilters, SubscribeOptions,
    Version, peek,
};
use dunlin_net::{ClientTls, Clock, DialConfig, Net, NetConfig};
use serde::{Deserialize, Serialize};

use super::{Lateness, micros};
use crate::say;

/// Longest that one poll waits.
const POLL_MAX: Duration = Duration::from_millis(50);

/// Time for session tickets to arrive after a handshake.
const TICKETS_AFTER: Duration = Duration::from_millis(500);

/// Most that a server says to a client that only subscribes.
const ANSWER_BYTES_MAX: usize = 4096;

/// Largest packet that a server may answer with.
const PACKET_BYTES_MAX: u32 = 4096;

/// Many clients.
#[derive(Args, Clone, Debug)]
pub(crate) struct Crowd {
    #[arg(long)]
    url: String,
    #[arg(long)]
    ca: PathBuf,
    #[arg(long, default_value_t = 100)]
    clients: usize,
    /// Clients before them that are not counted.
    #[arg(long, default_value_t = 5)]
    warm_up: usize,
    /// Time between two clients.
    #[arg(long, value_parser = parse_duration, default_value = "10ms")]
    every: Duration,
    /// How far each client goes.
    #[arg(long, default_value = "suback")]
    until: Until,
    /// Longest that a client may take.
    #[arg(long, value_parser = parse_duration, default_value = "60s")]
    timeout: Duration,
    /// Connect each once before, and measure the second time, with the ticket
    /// of the first and with early data.
    #[arg(long)]
    resume: bool,
    /// Client identifiers begin with this.
    #[arg(long, default_value = "crowd")]
    id: String,
}

/// A step of a client, in order.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd, ValueEnum)]
enum Until {
    /// The transport is ready: TCP, TLS or QUIC handshake.
    Handshake,
    /// CONNACK.
    Connack,
    /// SUBACK.
    Suback,
}

/// What came of it: for each client that got so far the time since it began,
/// in microseconds.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub(crate) struct Crowded {
    pub(crate) clients: usize,
    /// What a client that did not get to the end took at least.
    pub(crate) timeout_us: u64,
    /// The transport takes bytes.
    pub(crate) ready_us: Vec<u64>,
    /// Those of early data: the server has answered.
    pub(crate) answered_us: Vec<u64>,
    pub(crate) connack_us: Vec<u64>,
    pub(crate) suback_us: Vec<u64>,
    /// Clients that got to the end.
    pub(crate) done: usize,
    /// Clients whose early data was taken.
    pub(crate) early: usize,
    /// How far behind its schedule it was with all but one in fifty.
    pub(crate) late_us: u64,
    /// Why the first one that did not failed.
    pub(crate) why: Option<String>,
}

/// One client.
struct Member {
    begun: Instant,
    number: usize,
    /// It is none of the warm-up.
    counts: bool,
    answer: Vec<u8>,
    done: bool,
}

impl Crowd {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let url: Url = self.url.parse()?;
        let ip = url.ip().context("the URL needs an address")?;
        let addr = SocketAddr::new(ip, url.port());
        let mut net = Net::new(NetConfig::client(Clock::new())?)?;
        let each = if self.resume { self.all() } else { 1 };
        let trust = (0..each)
            .map(|_| {
                Ok(Arc::new(
                    ClientTls::builder().ca_pem_file(&self.ca)?.build()?,
                ))
            })
            .collect::<Result<Vec<_>>>()?;
        let dial = |number: usize| {
            let mut dial = DialConfig::new(url.transport(), addr, &ip.to_string());
            dial.tls = trust.get(number % each).cloned();
            dial.protocols = vec![Text::from_static("mqtt")];
            dial.handshake_timeout = Some(self.timeout);
            dial.early_data = self.resume;
            dial
        };
        if self.resume {
            if url.transport() != Transport::Quic {
                bail!("only QUIC has early data");
            }
            self.round(&mut net, &dial, TICKETS_AFTER)?;
        }
        let crowded = self.round(&mut net, &dial, Duration::ZERO)?;
        say::out(serde_json::to_string(&crowded)?);
        Ok(ExitCode::SUCCESS)
    }

    /// All clients once; then they all leave.
    fn round(
        &self,
        net: &mut Net,
        dial: &dyn Fn(usize) -> DialConfig,
        after: Duration,
    ) -> Result<Crowded> {
        let mut round = Round {
            crowd: self,
            members: HashMap::new(),
            crowded: Crowded {
                clients: self.clients,
                timeout_us: u64::try_from(self.timeout.as_micros())?,
                ..Crowded::default()
            },
            steps: Steps::default(),
            open: 0,
            sends: Vec::new(),
        };
        let start = Instant::now();
        let mut late = Lateness::default();
        let mut next = 0;
        let mut last = start;
        while next < self.all() || round.open > 0 || last.elapsed() < after {
            let due = start + self.every.saturating_mul(u32::try_from(next)?);
            if next < self.all() && due <= Instant::now() {
                late.note(due);
                let config = dial(next);
                let begun = Instant::now();
                let conn = net.dial(&config)?;
                round.began(conn, next, begun);
                next += 1;
            }
            let wait = match next < self.all() {
                true => due.saturating_duration_since(Instant::now()).min(POLL_MAX),
                false => POLL_MAX,
            };
            net.poll(Some(wait), &mut |event| round.note(event))?;
            for (conn, mut bytes) in round.sends.drain(..) {
                // A few bytes; when they left does not matter.
                let _ = net.send(conn, StreamId::CONTROL, &mut bytes);
            }
            net.flush();
            if round.open > 0 {
                last = Instant::now();
                // A server that took the connection may still say nothing.
                if next == self.all() && last - start > self.timeout + self.span() {
                    break;
                }
            }
        }
        for conn in round.members.keys() {
            net.close(*conn, 0);
        }
        net.poll(Some(Duration::ZERO), &mut |_| {})?;
        let (mut crowded, steps) = (round.crowded, round.steps);
        crowded.ready_us = in_order(steps.ready);
        crowded.answered_us = in_order(steps.answered);
        crowded.connack_us = in_order(steps.connack);
        crowded.suback_us = in_order(steps.suback);
        crowded.late_us = late.p98_us();
        Ok(crowded)
    }

    /// Clients with those of the warm-up.
    const fn all(&self) -> usize {
        self.clients + self.warm_up
    }

    fn span(&self) -> Duration {
        self.every
            .saturating_mul(u32::try_from(self.all()).unwrap_or(u32::MAX))
    }

    fn connect(&self, number: usize) -> SendBuf {
        let mut bytes = SendBuf::new();
        let connect = Connect {
            clean_start: true,
            keep_alive: 60,
            client_id: &format!("{}-{number}", self.id),
            ..Connect::default()
        };
        // A buffer that grows takes everything.
        let _ = connect.encode(&mut bytes);
        bytes
    }

    fn subscribe(&self, number: usize) -> SendBuf {
        let mut bytes = SendBuf::new();
        let filter = format!("{}/{number}", self.id);
        let options = SubscribeOptions {
            qos: QoS::AtMostOnce,
            ..SubscribeOptions::default()
        };
        let filters = [SubscribeFilter {
            filter: &filter,
            options,
        }];
        let subscribe = Subscribe {
            packet_id: PacketId::MIN,
            subscription_identifier: None,
            user_properties: dunlin_mqtt_codec::UserProperties::default(),
            filters: SubscribeFilters::new(&filters),
        };
        let _ = subscribe.encode(Version::V5, &mut bytes);
        bytes
    }
}

/// Number of the client and how long it took, for each step.
#[derive(Default)]
struct Steps {
    ready: Vec<(usize, u64)>,
    answered: Vec<(usize, u64)>,
    connack: Vec<(usize, u64)>,
    suback: Vec<(usize, u64)>,
}

/// The times in the order of the clients, not of their ends: those that took
/// long are no neighbours.
fn in_order(mut times: Vec<(usize, u64)>) -> Vec<u64> {
    times.sort_unstable();
    times.into_iter().map(|(_, took)| took).collect()
}

/// Clients on their way.
struct Round<'a> {
    crowd: &'a Crowd,
    members: HashMap<ConnId, Member>,
    crowded: Crowded,
    steps: Steps,
    /// Clients that are neither done nor gone.
    open: usize,
    sends: Vec<(ConnId, SendBuf)>,
}

impl Round<'_> {
    fn began(&mut self, conn: ConnId, number: usize, begun: Instant) {
        self.open += 1;
        let member = Member {
            begun,
            number,
            counts: number >= self.crowd.warm_up,
            answer: Vec::new(),
            done: false,
        };
        self.members.insert(conn, member);
    }

    fn note(&mut self, event: NetEvent<&[u8]>) {
        let NetEvent { conn, kind } = event;
        match kind {
            NetEventKind::Opened { peer } => self.opened(conn, peer.early_data),
            NetEventKind::EarlyData { accepted } => {
                if let Some(member) = self.members.get(&conn).filter(|m| m.counts) {
                    self.steps
                        .answered
                        .push((member.number, micros(member.begun)));
                    self.crowded.early += usize::from(accepted);
                }
                if self.crowd.until == Until::Handshake {
                    self.end(conn);
                }
            }
            NetEventKind::Bytes { data, .. } => self.answered(conn, data),
            NetEventKind::Closed { cause } => {
                let gone = self.members.remove(&conn);
                if let Some(member) = gone.filter(|member| !member.done) {
                    self.open -= 1;
                    let why = || format!("client {}: {cause}", member.number);
                    self.crowded.why.get_or_insert_with(why);
                }
            }
            _ => {}
        }
    }

    /// With early data the server has not answered yet.
    fn opened(&mut self, conn: ConnId, early: bool) {
        let Some(member) = self.members.get_mut(&conn) else {
            return;
        };
        if member.counts {
            self.steps.ready.push((member.number, micros(member.begun)));
        }
        if self.crowd.until == Until::Handshake {
            if !early {
                self.end(conn);
            }
        } else {
            let bytes = self.crowd.connect(member.number);
            self.sends.push((conn, bytes));
        }
    }

    fn answered(&mut self, conn: ConnId, data: &[u8]) {
        let Some(member) = self.members.get_mut(&conn).filter(|m| !m.done) else {
            return;
        };
        if member.answer.len() < ANSWER_BYTES_MAX {
            member.answer.extend_from_slice(data);
        }
        let Ok(Some(frame)) = peek(&member.answer, PACKET_BYTES_MAX) else {
            return;
        };
        if member.answer.len() < frame.total_len {
            return;
        }
        // A client has one question open at a time: there is one answer.
        member.answer.clear();
        let (number, took) = (member.number, micros(member.begun));
        let counted = member.counts.then_some((number, took));
        match frame.packet_type {
            PacketType::ConnAck => {
                self.steps.connack.extend(counted);
                if self.crowd.until == Until::Suback {
                    let bytes = self.crowd.subscribe(number);
                    self.sends.push((conn, bytes));
                } else {
                    self.end(conn);
                }
            }
            PacketType::SubAck => {
                self.steps.suback.extend(counted);
                self.end(conn);
            }
            _ => {}
        }
    }

    fn end(&mut self, conn: ConnId) {
        if let Some(member) = self.members.get_mut(&conn).filter(|m| !m.done) {
            member.done = true;
            self.open -= 1;
            self.crowded.done += usize::from(member.counts);
        }
    }
}

impl Crowded {
    /// The times in milliseconds; clients that did not get so far count with
    /// the time after which they were given up, else loss would look good.
    pub(crate) fn or_given_up(&self, times: &[u64]) -> Vec<f64> {
        let missing = self.clients.saturating_sub(times.len());
        let all = times.iter().copied();
        all.chain(core::iter::repeat_n(self.timeout_us, missing))
            .map(|us| Duration::from_micros(us).as_secs_f64() * 1e3)
            .collect()
    }
}
