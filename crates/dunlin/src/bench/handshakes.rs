//! What connecting costs a broker: clients that connect, hear CONNACK and go,
//! one after the other. Knows of MQTT no more than CONNECT and CONNACK.

use core::fmt;
use core::time::Duration;
use std::collections::HashMap;

use anyhow::{Context as _, bail};
use dunlin_base::transport::{NetEvent, NetEventKind};
use dunlin_base::{ConnId, SendBuf, StreamId};
use dunlin_mqtt_codec::{Connect, Packet, Version, decode};
use dunlin_net::{Clock, DialConfig, Net, NetConfig};
use serde::Serialize;

use super::plan::Target;
use super::proc::Process;
use super::wire::Framer;

/// Handshakes that may fail before the run is given up.
const FAILURES_MAX: u64 = 100;
/// The run is given up when nothing happens for this long.
const PATIENCE: Duration = Duration::from_secs(20);
/// Share of the handshakes that is not measured, at the beginning.
const WARM_UP_PART: u64 = 10;

/// What to do.
#[derive(Clone, Debug)]
pub struct Visits {
    /// Where.
    pub target: Target,
    /// Version of MQTT.
    pub version: Version,
    /// How many, besides a tenth to warm up.
    pub count: u64,
    /// Going on at a time.
    pub at_once: usize,
    /// Send CONNECT as early data where there is a ticket.
    pub early_data: bool,
}

/// What came of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Cost {
    /// Connections measured, each from the first packet to CONNACK.
    pub connections: u64,
    /// Those whose CONNECT travelled as early data.
    pub early: u64,
    /// Those that failed.
    pub failed: u64,
    /// Seconds that they took.
    pub seconds: f64,
    /// CPU time of the broker for one, in milliseconds.
    pub broker_cpu_ms: Option<f64>,
    /// How many a second of its CPU would be enough for.
    pub per_broker_cpu_second: Option<f64>,
}

impl fmt::Display for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rate = self.connections as f64 / self.seconds.max(f64::MIN_POSITIVE);
        writeln!(
            f,
            "  connections   {} in {:.2} s, {rate:.0}/s",
            self.connections, self.seconds
        )?;
        writeln!(f, "  early data    {}", self.early)?;
        writeln!(f, "  failed        {}", self.failed)?;
        if let (Some(ms), Some(each)) = (self.broker_cpu_ms, self.per_broker_cpu_second) {
            writeln!(f, "  broker CPU    {ms:.3} ms each, {each:.0}/CPU s")?;
        }
        Ok(())
    }
}

struct Visit {
    framer: Framer,
    answered: bool,
}

/// A loop that makes visits.
struct Run<'a> {
    visits: &'a Visits,
    config: DialConfig,
    net: Net,
    open: HashMap<ConnId, Visit>,
    begun: u64,
    done: u64,
    early: u64,
    failed: u64,
    cause: Option<String>,
}

/// Makes the visits and says what they cost `broker`.
///
/// # Errors
/// Too many fail, nothing happens any more, or the loop fails.
pub fn run(visits: &Visits, broker: Option<Process>) -> anyhow::Result<Cost> {
    let target = &visits.target;
    let mut config = DialConfig::new(target.transport, target.addr, &target.server_name);
    config.tls.clone_from(&target.tls);
    config.quic.clone_from(&target.quic);
    config.early_data = visits.early_data;
    config.protocols = Target::protocols();
    target.ws_path().clone_into(&mut config.ws_path);
    let clock = Clock::new();
    let mut run = Run {
        visits,
        config,
        net: Net::new(NetConfig::client(clock)?)?,
        open: HashMap::new(),
        begun: 0,
        done: 0,
        early: 0,
        failed: 0,
        cause: None,
    };
    run.until(visits.count / WARM_UP_PART)?;
    (run.early, run.failed) = (0, 0);
    let cpu = || broker.and_then(Process::cpu);
    let (before, start, done) = (cpu(), clock.now(), run.done);
    run.until(run.done + visits.count)?;
    let (after, connections) = (cpu(), run.done - done);
    let mut cost = Cost {
        connections,
        early: run.early,
        failed: run.failed,
        seconds: (clock.now() - start).as_secs_f64(),
        ..Cost::default()
    };
    if let (Some(before), Some(after)) = (before, after) {
        let each = (after - before).as_secs_f64() / connections.max(1) as f64;
        cost.broker_cpu_ms = Some(each * 1e3);
        cost.per_broker_cpu_second = Some(1.0 / each.max(f64::MIN_POSITIVE));
    }
    Ok(cost)
}

impl Run<'_> {
    fn until(&mut self, done: u64) -> anyhow::Result<()> {
        let mut last = (self.done, self.net.now());
        while self.done < done {
            while self.open.len() < self.visits.at_once.max(1)
                && self.begun.saturating_sub(self.failed) < done
            {
                let conn = self.net.dial(&self.config).context("cannot dial")?;
                let visit = Visit {
                    framer: Framer::default(),
                    answered: false,
                };
                self.open.insert(conn, visit);
                self.begun += 1;
            }
            self.turn()?;
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

    fn turn(&mut self) -> anyhow::Result<()> {
        let (mut opened, mut answered) = (Vec::new(), Vec::new());
        let (open, failed) = (&mut self.open, &mut self.failed);
        let (cause, early, version) = (&mut self.cause, &mut self.early, self.visits.version);
        let handler = &mut |NetEvent { conn, kind }: NetEvent<&[u8]>| match kind {
            NetEventKind::Opened { peer } => {
                *early += u64::from(peer.early_data);
                opened.push(conn);
            }
            NetEventKind::Bytes { data, .. } => {
                let Some(visit) = open.get_mut(&conn) else {
                    return;
                };
                let is_connack = &mut visit.answered;
                let _ = visit.framer.feed(data, |_, packet| {
                    *is_connack |= matches!(decode(packet, version), Ok(Packet::ConnAck(_)));
                });
                if visit.answered {
                    answered.push(conn);
                }
            }
            NetEventKind::Closed { cause: why } if open.remove(&conn).is_some() => {
                *failed += 1;
                *cause = Some(why.to_string());
            }
            _ => {}
        };
        self.net.poll(Some(Duration::from_millis(20)), handler)?;
        for conn in opened {
            let mut data = SendBuf::new();
            self.connect(&mut data)?;
            let _ = self.net.send(conn, StreamId::CONTROL, &mut data);
        }
        for conn in answered {
            if self.open.remove(&conn).is_some() {
                self.done += 1;
                self.net.close(conn, 0);
            }
        }
        self.net.flush();
        Ok(())
    }

    fn connect(&self, out: &mut SendBuf) -> anyhow::Result<()> {
        let target = &self.visits.target;
        let connect = Connect {
            version: self.visits.version,
            clean_start: true,
            keep_alive: 60,
            username: target.user.as_deref(),
            password: target.password.as_deref().map(str::as_bytes),
            ..Connect::default()
        };
        Packet::Connect(connect)
            .encode(self.visits.version, out)
            .context("CONNECT")
    }
}
