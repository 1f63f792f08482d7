//! Places clients on chosen shards of a Dunlin broker.
//!
//! Two things decide where a client is: its connection is accepted by the
//! shard to which the kernel gives it, a function of both addresses and ports
//! (`SO_REUSEPORT`), and a durable session lives on the shard of its client
//! identifier. So connections are made from different ports, the broker's page
//! of connections says where each one arrived, and the run uses ports and
//! client identifiers that lead where they should. After connecting the page
//! is read again, so that a run with misplaced clients fails.

use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use core::ops::RangeInclusive;
use core::time::Duration;
use std::collections::HashMap;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::TcpStream;

use anyhow::{Context as _, bail, ensure};
use dunlin_base::transport::{NetEvent, NetEventKind, Transport};
use dunlin_base::{ConnId, SendBuf, StreamId};
use dunlin_dial::Protocol;
use dunlin_mqtt_codec::{Connect, Packet, decode};
use dunlin_net::{Clock, DialConfig, Net, NetConfig, NetError};
use serde_json::Value;

use super::places::{Placement, Places};
use super::plan::Plan;
use super::wire::Framer;

/// Rounds of connections made to find ports.
const ROUNDS_MAX: usize = 20;
/// Connections of one round at most.
const ROUND_MAX: usize = 500;
/// Ports that are tried, each once: below those that the kernel gives to others, and
/// that tests give to servers.
const PORTS: RangeInclusive<u16> = 10_000..=19_999;
/// UDP ports for each shard; QUIC connections share them.
const UDP_PORTS: usize = 4;
/// Time for a round, and for an answer of the metrics.
const PATIENCE: Duration = Duration::from_secs(20);
/// Connections asked for with one request.
const PAGE: usize = 1000;

/// Finds ports for all clients of a plan. `metrics` is the address of the
/// broker's metrics.
///
/// # Errors
/// The broker shows no metrics there, refuses connections, or not enough
/// ports lead to a shard.
pub fn find(plan: &Plan, placement: Placement, metrics: SocketAddr) -> anyhow::Result<Places> {
    let mut places = Places::new(placement, metrics, shard_count(metrics)?);
    let wanted = wanted(&places, plan);
    let mut found: Vec<Vec<SocketAddr>> = vec![Vec::new(); wanted.len()];
    let mut survey = Survey::new(plan)?;
    for round in 0..ROUNDS_MAX {
        let missing = |(wanted, found): (&usize, &Vec<_>)| wanted.saturating_sub(found.len());
        let missing: usize = wanted.iter().zip(&found).map(missing).sum();
        if missing == 0 {
            assign(&mut places, plan, &found);
            return Ok(places);
        }
        let count = (missing * wanted.len()).clamp(8, ROUND_MAX);
        for (shard, addr) in survey.round(round, count, metrics)? {
            if let Some(found) = found.get_mut(usize::from(shard)) {
                found.push(addr);
            }
        }
    }
    bail!(
        "not enough ports lead to each of {} shards",
        places.shards()
    )
}

/// Gives every client an address that leads to its shard; there are fewer
/// of them than clients where connections share a socket.
fn assign(places: &mut Places, plan: &Plan, found: &[Vec<SocketAddr>]) {
    let mut cycles: Vec<_> = found.iter().map(|found| found.iter().cycle()).collect();
    for (role, number) in clients(plan) {
        let cycle = cycles.get_mut(usize::from(places.shard(role, number)));
        if let Some(addr) = cycle.and_then(Iterator::next) {
            places.connect_from(role, number, *addr);
        }
    }
}

/// How many sources each shard needs.
fn wanted(places: &Places, plan: &Plan) -> Vec<usize> {
    let mut wanted = vec![0; usize::from(places.shards())];
    for (role, number) in clients(plan) {
        if let Some(count) = wanted.get_mut(usize::from(places.shard(role, number))) {
            *count += 1;
        }
    }
    if plan.target.transport == Transport::Quic {
        wanted.iter_mut().for_each(|n| *n = (*n).min(UDP_PORTS));
    }
    wanted
}

/// Checks that every client is where it should be.
///
/// # Errors
/// One is not, or the broker does not say where.
pub fn check(places: &Places, plan: &Plan) -> anyhow::Result<()> {
    let found = connections(places.metrics())?;
    for (role, number) in clients(plan) {
        let id = plan.client_id(role, number);
        let (shard, _) = found
            .get(&id)
            .with_context(|| format!("the broker does not list {id}"))?;
        let wanted = places.shard(role, number);
        ensure!(
            *shard == wanted,
            "{id} is on shard {shard}, not on {wanted}"
        );
    }
    Ok(())
}

/// Subscribers, then publishers, as they connect.
fn clients(plan: &Plan) -> impl Iterator<Item = (char, usize)> + use<> {
    let subscribers = (0..plan.subscribers).map(|n| ('s', n));
    let idle = (0..plan.idle).map(|n| ('i', n));
    let publishers = (0..plan.publishers).map(|n| ('p', n));
    subscribers.chain(idle).chain(publishers)
}

/// Makes connections to see where they arrive.
struct Survey<'a> {
    plan: &'a Plan,
    config: DialConfig,
    ports: RangeInclusive<u16>,
}

impl<'a> Survey<'a> {
    fn new(plan: &'a Plan) -> anyhow::Result<Self> {
        let target = &plan.target;
        ensure!(
            target.addr.ip().is_loopback() && target.addr.is_ipv4(),
            "clients can be placed on 127.0.0.1 only"
        );
        ensure!(
            target.protocol == Protocol::Mqtt && plan.subscribers_at.is_none(),
            "clients of MQTT at one place can be placed"
        );
        let config = target.dial();
        let ports = PORTS;
        Ok(Self {
            plan,
            config,
            ports,
        })
    }

    /// Connects from `count` ports; returns where they lead.
    fn round(
        &mut self,
        round: usize,
        count: usize,
        metrics: SocketAddr,
    ) -> anyhow::Result<Vec<(u16, SocketAddr)>> {
        let mut net = Net::new(NetConfig::client(Clock::new())?)?;
        let prefix = format!("b{}-port{round}-", self.plan.run_id);
        let mut open = HashMap::new();
        for number in 0..count {
            let conn = match self.plan.target.transport {
                Transport::Quic => self.dial_quic(&mut net, number)?,
                _ => self.dial_tcp(&mut net)?,
            };
            open.insert(conn, (format!("{prefix}{number}"), Framer::default()));
        }
        let until = net.now() + PATIENCE;
        let mut accepted = Vec::new();
        while accepted.len() < count {
            ensure!(net.now() < until, "connections to find ports hang");
            self.turn(&mut net, &mut open, &mut accepted)?;
        }
        let found = connections(metrics)?;
        for conn in accepted {
            // Over TCP this sends RST: the port is free at once.
            net.conn(conn).abort();
        }
        net.flush();
        net.poll(Some(Duration::from_millis(20)), &mut |_| {})?;
        let ours = found.into_iter().filter(|(id, _)| id.starts_with(&prefix));
        Ok(ours.map(|(_, place)| place).collect())
    }

    /// QUIC connections from one address would share a socket.
    fn dial_quic(&mut self, net: &mut Net, number: usize) -> anyhow::Result<ConnId> {
        let host = (number % 250 + 1) as u8;
        let ip = IpAddr::from(Ipv4Addr::new(127, 0, 0, host));
        self.config.local_addr = Some((ip, 0).into());
        net.dial(&self.config).context("cannot dial")
    }

    /// Connects from the next port that is free.
    fn dial_tcp(&mut self, net: &mut Net) -> anyhow::Result<ConnId> {
        loop {
            let port = self.ports.next().context("all ports have been tried")?;
            self.config.local_addr = Some((Ipv4Addr::LOCALHOST, port).into());
            match net.dial(&self.config) {
                Err(NetError::Dial { source, .. }) if is_taken(source.kind()) => {}
                conn => return conn.context("cannot dial"),
            }
        }
    }

    fn turn(
        &self,
        net: &mut Net,
        open: &mut HashMap<ConnId, (String, Framer)>,
        accepted: &mut Vec<ConnId>,
    ) -> anyhow::Result<()> {
        let (mut opened, mut failed) = (Vec::new(), None);
        let version = self.plan.sessions.version;
        net.poll(Some(Duration::from_millis(20)), &mut |event| {
            let NetEvent { conn, kind } = event;
            match kind {
                NetEventKind::Opened { .. } => opened.push(conn),
                NetEventKind::Bytes { data, .. } => {
                    let Some((_, framer)) = open.get_mut(&conn) else {
                        return;
                    };
                    let _ = framer.feed(data, |_, packet| {
                        if let Ok(Packet::ConnAck(connack)) = decode(packet, version) {
                            if connack.reason.is_error() {
                                failed = Some(format!("refused: {:?}", connack.reason));
                            }
                            accepted.push(conn);
                        }
                    });
                }
                NetEventKind::Closed { cause } => failed = Some(cause.to_string()),
                _ => {}
            }
        })?;
        if let Some(cause) = failed {
            bail!("a connection to find a port failed: {cause}");
        }
        for conn in opened {
            let Some((client_id, _)) = open.get(&conn) else {
                continue;
            };
            let mut data = SendBuf::new();
            self.connect(client_id, &mut data)?;
            // The answer shows that it left.
            let _ = net.send(conn, StreamId::CONTROL, &mut data);
        }
        net.flush();
        Ok(())
    }

    fn connect(&self, client_id: &str, out: &mut SendBuf) -> anyhow::Result<()> {
        let target = &self.plan.target;
        let connect = Connect {
            version: self.plan.sessions.version,
            clean_start: true,
            keep_alive: 60,
            client_id,
            username: target.user.as_deref(),
            password: target.password.as_deref().map(str::as_bytes),
            ..Connect::default()
        };
        Packet::Connect(connect)
            .encode(self.plan.sessions.version, out)
            .context("CONNECT")
    }
}

/// Whether another socket has a port.
const fn is_taken(error: ErrorKind) -> bool {
    matches!(error, ErrorKind::AddrInUse | ErrorKind::AddrNotAvailable)
}

/// Shard and address of each connected client.
fn connections(metrics: SocketAddr) -> anyhow::Result<HashMap<String, (u16, SocketAddr)>> {
    let mut found = HashMap::new();
    let mut after = String::new();
    loop {
        let page = get(metrics, &format!("/connections?limit={PAGE}{after}"))?;
        let page: Value = serde_json::from_str(&page).context("the page of connections")?;
        for row in page["connections"].as_array().into_iter().flatten() {
            let place = || {
                let shard = row["connection"].as_str()?.split_once(':')?.0;
                let addr = row["address"].as_str()?.parse().ok()?;
                Some((shard.parse().ok()?, addr))
            };
            if let (Some(id), Some(place)) = (row["client_id"].as_str(), place()) {
                found.insert(id.to_owned(), place);
            }
        }
        match page["next"].as_str() {
            Some(next) => after = format!("&after={next}"),
            None => return Ok(found),
        }
    }
}

fn shard_count(metrics: SocketAddr) -> anyhow::Result<u16> {
    let text = get(metrics, "/metrics")?;
    let value = text
        .lines()
        .find_map(|line| line.strip_prefix("dunlin_shards "));
    let count = value.and_then(|value| value.trim().parse::<u16>().ok());
    count.with_context(|| format!("http://{metrics}/metrics does not show dunlin_shards"))
}

/// The body of a page.
fn get(addr: SocketAddr, path: &str) -> anyhow::Result<String> {
    let request = format!("GET {path} HTTP/1.1\r\nHost: {addr}\r\nConnection: close\r\n\r\n");
    let mut stream = TcpStream::connect(addr).with_context(|| format!("no metrics at {addr}"))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(request.as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (head, body) = answer.split_once("\r\n\r\n").context("not HTTP")?;
    ensure!(
        head.starts_with("HTTP/1.1 200"),
        "http://{addr}{path}: {}",
        head.lines().next().unwrap_or_default()
    );
    Ok(body.to_owned())
}

#[cfg(test)]
mod tests {
    use dunlin_broker::home_shard;

    use super::super::plan::Pattern;
    use super::super::plan::tests::plan;
    use super::*;

    fn places(placement: Placement, plan: &Plan) -> Places {
        let addr = |shard: u16| (1..=12).map(move |n| ([127, 0, 0, 1], shard * 100 + n).into());
        let mut places = Places::new(placement, ([127, 0, 0, 1], 1).into(), 2);
        assign(&mut places, plan, &[addr(1).collect(), addr(2).collect()]);
        places
    }

    #[test]
    fn each_client_has_its_own_port_on_its_shard() {
        for (placement, apart) in [
            (Placement::OneShard, false),
            (Placement::Local, false),
            (Placement::Crossing, true),
        ] {
            let plan = plan(Pattern::Pair, 5, 5, 5);
            let places = places(placement, &plan);
            let mut used = Vec::new();
            for (role, number) in clients(&plan) {
                let shard = places.shard(role, number);
                let source = places.source(role, number).expect("a port");
                assert_eq!(source.port() / 100, shard + 1, "{placement:?}");
                used.push(source);
                let id = places.client_id("x", role, number);
                assert_eq!(home_shard(&id, 2), shard);
            }
            used.sort();
            used.dedup();
            assert_eq!(used.len(), 10, "{placement:?}");
            for number in 0..5 {
                let differ = places.shard('s', number) != places.shard('p', number);
                assert_eq!(differ, apart, "{placement:?}");
            }
        }
    }
}
