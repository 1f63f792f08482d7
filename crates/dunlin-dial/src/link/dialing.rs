//! Opening a transport: several addresses with a head start for the first
//! (RFC 8305), and QUIC and TLS side by side where they race. Only the winner
//! ever carries the protocol.

use core::net::{IpAddr, SocketAddr};
use core::time::Duration;
use std::collections::VecDeque;

use dunlin_base::transport::{CloseCause, Transport};
use dunlin_base::{ConnId, Instant};

use super::port_probe::PortProbe;
use super::{CLOSE_NORMAL, Link, State, Step as LinkStep, Watch};
use crate::context::Context;
use crate::error::{DialError, PORT_CLOSED};
use crate::race::{Plan, RaceMemory, Runner, Running, Step, network_name, wall_clock};

/// Head start of an address before the next one is tried as well (RFC 8305
/// section 5).
const HEAD_START: Duration = Duration::from_millis(250);

/// Transports that are being opened.
pub(super) struct Dialing {
    race: Running,
    lanes: Vec<Lane>,
    deadline: Instant,
    /// When to look again.
    wake: Instant,
    /// Why the last one failed.
    cause: DialError,
    network: Option<Network>,
}

/// Where a race takes place, to be remembered.
#[derive(Clone)]
pub(super) struct Network {
    pub(super) name: String,
    pub(super) memory: RaceMemory,
    pub(super) quic_port: u16,
    /// The application's choice of when to try QUIC again.
    pub(super) probe_after: Option<Duration>,
    /// TLS is good enough: QUIC is not tried again.
    pub(super) stay: bool,
}

/// One transport, to several addresses.
struct Lane {
    runner: Runner,
    transport: Transport,
    started: bool,
    port: u16,
    addrs: VecDeque<SocketAddr>,
    conns: Vec<(ConnId, IpAddr)>,
    /// QUIC: whether a port is closed.
    probes: Vec<PortProbe>,
    /// When to try the next address.
    next_at: Instant,
    opened: Option<ConnId>,
}

impl Lane {
    fn new(runner: Runner, transport: Transport, addrs: &[SocketAddr], port: u16) -> Self {
        let with_port = |addr: &SocketAddr| SocketAddr::new(addr.ip(), port);
        Self {
            runner,
            transport,
            started: false,
            port,
            addrs: addrs.iter().map(with_port).collect(),
            conns: Vec::new(),
            probes: Vec::new(),
            next_at: Instant::ZERO,
            opened: None,
        }
    }

    /// Tries this address first, if it is one of them.
    fn prefer(&mut self, addr: Option<SocketAddr>) {
        if let Some(at) = self.addrs.iter().position(|a| Some(*a) == addr) {
            self.addrs.swap(0, at);
        }
    }

    fn opened_addr(&self) -> Option<IpAddr> {
        let is_it = |(conn, _): &&(ConnId, IpAddr)| Some(*conn) == self.opened;
        self.conns.iter().find(is_it).map(|(_, ip)| *ip)
    }
}

impl Dialing {
    pub(super) fn opened(&mut self, now: Instant, conn: ConnId) {
        let has = |lane: &&mut Lane| lane.conns.iter().any(|(other, _)| *other == conn);
        if let Some(lane) = self.lanes.iter_mut().find(has) {
            lane.opened.get_or_insert(conn);
            self.race.opened(lane.runner, now);
        }
    }

    pub(super) fn closed(&mut self, conn: ConnId, cause: CloseCause) {
        for lane in &mut self.lanes {
            lane.conns.retain(|(other, _)| *other != conn);
            lane.probes.retain(|probe| probe.conn != conn);
            if lane.opened == Some(conn) {
                lane.opened = None;
                self.race.failed(lane.runner);
            }
        }
        self.cause = DialError::Transport(cause);
    }

    /// TLS found an address that answers, which may not be the first one: QUIC
    /// gets its chance there, too.
    fn try_winner_address(&mut self, now: Instant) {
        let found = self.lane(Runner::Tls).and_then(Lane::opened_addr);
        let race = &mut self.race;
        let quic = self.lanes.iter_mut().find(|l| l.runner == Runner::Quic);
        if let (Some(ip), Some(quic)) = (found, quic)
            && quic.opened.is_none()
            && let Some(at) = quic.addrs.iter().position(|addr| addr.ip() == ip)
            && quic.started
        {
            quic.addrs.swap(0, at);
            quic.next_at = now;
            race.started(Runner::Quic, now);
        }
    }

    fn lane(&self, runner: Runner) -> Option<&Lane> {
        self.lanes.iter().find(|lane| lane.runner == runner)
    }

    pub(super) fn deadline(&self) -> Instant {
        self.deadline.min(self.wake)
    }

    /// Drops everything but one connection.
    pub(super) fn abort(&self, context: &mut Context<'_>, but: Option<ConnId>) {
        for lane in &self.lanes {
            let conns = lane.conns.iter().map(|(conn, _)| conn);
            for conn in conns.filter(|conn| Some(**conn) != but) {
                context.conns.remove(conn);
                match lane.opened == Some(*conn) {
                    // The server has accepted it: its end is said.
                    true => context.net.close(*conn, CLOSE_NORMAL),
                    false => context.net.conn(*conn).abort(),
                }
            }
        }
    }
}

impl<W: Watch> Link<W> {
    /// The addresses are known.
    pub(super) fn start_dialing(&mut self, context: &Context<'_>, addrs: &[SocketAddr]) {
        let options = &*self.options;
        let (url, now) = (&options.url, context.now);
        let mut lanes = Vec::new();
        let mut network = None;
        let race = match &options.race {
            Some(race) => {
                let quic_port = race
                    .quic_port
                    .unwrap_or_else(|| url.port_of(Transport::Quic));
                let tls_port = race.tls_port.unwrap_or_else(|| url.port_of(Transport::Tls));
                lanes.push(Lane::new(Runner::Quic, Transport::Quic, addrs, quic_port));
                lanes.push(Lane::new(Runner::Tls, Transport::Tls, addrs, tls_port));
                let memory = race.memory.clone().unwrap_or_else(RaceMemory::global);
                let mut plan = Plan::UNKNOWN;
                if let Some(addr) = addrs.first() {
                    let name = network_name(*addr, url.host(), quic_port);
                    plan = memory.plan(&name, wall_clock());
                    network = Some(Network {
                        name,
                        memory,
                        quic_port,
                        probe_after: race.probe_after,
                        stay: race.stay,
                    });
                }
                if self.early.was_silent() && plan.quic.is_some() {
                    plan = Plan::SILENT;
                }
                self.early.race(plan.took);
                Running::new(now, plan.with_head_start(race.head_start))
            }
            None => {
                let transport = url.transport();
                lanes.push(Lane::new(Runner::Quic, transport, addrs, url.port()));
                let mut alone = Running::new(now, Plan::PROBE);
                alone.failed(Runner::Tls);
                alone
            }
        };
        self.early.pace.begin(self.early.home());
        for lane in lanes.iter_mut().filter(|l| l.transport == Transport::Quic) {
            lane.prefer(self.early.home());
        }
        self.state = State::Dialing(Dialing {
            race,
            lanes,
            deadline: now + options.connect_timeout,
            wake: now,
            cause: DialError::Transport(CloseCause::HandshakeTimeout),
            network,
        });
    }

    /// Dials on; `None` if the state has changed and there is more to do.
    pub(super) fn run_dialing(
        &mut self,
        context: &mut Context<'_>,
        mut dialing: Dialing,
    ) -> Option<LinkStep<W::Cause>> {
        if dialing.deadline <= context.now {
            dialing.abort(context, None);
            let cause = DialError::Transport(CloseCause::HandshakeTimeout);
            return Some(self.ended(context, cause.into()));
        }
        loop {
            let mut wake = self.run_lanes(context, &mut dialing);
            dialing.try_winner_address(context.now);
            match dialing.race.next(context.now) {
                Step::Start(runner) => {
                    dialing.race.started(runner, context.now);
                    for lane in dialing.lanes.iter_mut().filter(|l| l.runner == runner) {
                        (lane.started, lane.next_at) = (true, context.now);
                    }
                }
                Step::Win(runner) => return self.take_winner(context, &dialing, runner),
                Step::Lost => return Some(self.ended(context, dialing.cause.into())),
                Step::Wait(until) => {
                    wake = wake.into_iter().chain(until).min();
                    dialing.wake = wake.unwrap_or(dialing.deadline);
                    self.state = State::Dialing(dialing);
                    return Some(LinkStep::Rest);
                }
            }
        }
    }

    /// Dials the addresses whose turn it is; gives when the next one's is.
    fn run_lanes(&self, context: &mut Context<'_>, dialing: &mut Dialing) -> Option<Instant> {
        let mut wake: Option<Instant> = None;
        self.drop_refused(context, dialing);
        for lane in dialing.lanes.iter_mut().filter(|lane| lane.started) {
            if lane.opened.is_some() {
                continue;
            }
            while lane.conns.is_empty() || lane.next_at <= context.now {
                let Some(addr) = lane.addrs.pop_front() else {
                    break;
                };
                match self.dial(context, lane.transport, addr, true) {
                    Ok(conn) => {
                        lane.conns.push((conn, addr.ip()));
                        if lane.transport == Transport::Quic {
                            lane.probes.push(PortProbe::new(context.now, conn, addr));
                        }
                        lane.next_at = context.now + HEAD_START;
                    }
                    Err(cause) => dialing.cause = cause,
                }
            }
            if lane.conns.is_empty() {
                dialing.race.failed(lane.runner);
            } else if !lane.addrs.is_empty() {
                wake = wake.into_iter().chain([lane.next_at]).min();
            }
            let probes = lane.probes.iter().map(|probe| probe.at);
            wake = wake.into_iter().chain(probes).min();
        }
        wake
    }

    /// Gives up connections of QUIC whose port is closed.
    fn drop_refused(&self, context: &mut Context<'_>, dialing: &mut Dialing) {
        let lanes = dialing.lanes.iter_mut();
        let probes = lanes.filter(|lane| lane.opened.is_none());
        let probes = probes.flat_map(|lane| &mut lane.probes);
        let local = self.options.local_addr;
        let refused = probes.filter_map(|probe| {
            let refused = probe.is_refused(context.now, local);
            refused.then_some(probe.conn)
        });
        for conn in refused.collect::<Vec<_>>() {
            context.conns.remove(&conn);
            context.net.conn(conn).abort();
            dialing.closed(conn, CloseCause::failed(PORT_CLOSED));
        }
    }

    fn take_winner(
        &mut self,
        context: &mut Context<'_>,
        dialing: &Dialing,
        runner: Runner,
    ) -> Option<LinkStep<W::Cause>> {
        let lane = dialing.lane(runner);
        let Some((lane, conn)) = lane.and_then(|lane| Some((lane, lane.opened?))) else {
            return Some(self.ended(context, dialing.cause.clone().into()));
        };
        dialing.abort(context, Some(conn));
        if let Some(network) = &dialing.network {
            let Network { name, memory, .. } = network;
            let now = wall_clock();
            match (runner, dialing.race.took(Runner::Quic)) {
                // Nothing has come through yet.
                (Runner::Quic, _) if self.early.is_pending(conn) => {}
                (Runner::Quic, Some(took)) => memory.worked(name, took, now),
                _ if dialing.race.quic_missed() => memory.blocked(name, now),
                _ => {}
            }
            context.resolver.save(memory);
            if runner == Runner::Tls {
                let quic_port = network.quic_port;
                let addr = lane.opened_addr().map(|ip| SocketAddr::new(ip, quic_port));
                let connected = context.now;
                self.upgrade.plan(connected, addr, network.clone(), now);
            }
        }
        let ip = lane.opened_addr();
        let addr = ip.map(|ip| SocketAddr::new(ip, lane.port));
        let addr = addr.filter(|_| lane.transport == Transport::Quic);
        self.early.begin(addr, dialing.race.took(runner));
        Some(self.take(conn, lane.transport))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::net::TcpListener;
    use std::sync::Arc;

    use dunlin_base::transport::NetEventKind;
    use dunlin_net::{Clock, Net, NetConfig};

    use super::*;
    use crate::options::LinkOptions;
    use crate::resolver::{Key, Resolver};

    /// An owner that does not look.
    struct Blind;

    impl Watch for Blind {
        type Cause = DialError;

        fn disconnected(&self, _: &DialError) {}

        fn reconnecting(&self, _: Duration) {}
    }

    /// A name with two addresses, of which the first refuses.
    #[test]
    fn the_second_address_of_a_name_is_tried() {
        let config = NetConfig::client(Clock::new()).expect("a configuration");
        let mut net = Net::new(config).expect("an event loop");
        let listener = TcpListener::bind("127.0.0.2:0").expect("a port");
        let second = listener.local_addr().expect("an address");
        let url = format!("mqtt://name.invalid:{}", second.port());
        let options = Arc::new(LinkOptions::new(url.parse().expect("a URL")));
        let mut link = Link::new(Arc::new(Blind), Key(0), options, "");
        let (mut conns, mut resolver) = (HashMap::new(), Resolver::new(|_, _, _| true));
        let first = SocketAddr::new([127, 0, 0, 1].into(), second.port());
        let mut found = Some(Ok((vec![first, second], None)));
        loop {
            let mut context = Context {
                now: net.now(),
                net: &mut net,
                conns: &mut conns,
                resolver: &mut resolver,
            };
            match link.run(&mut context) {
                LinkStep::Begin(_) => break,
                LinkStep::End(cause) => unreachable!("{cause:?}"),
                LinkStep::Rest => {}
            }
            if let Some(found) = found.take() {
                link.resolved(1, found);
                continue;
            }
            let (now, wait) = (net.now(), Duration::from_millis(20));
            net.poll(Some(wait), &mut |event| match event.kind {
                NetEventKind::Opened { .. } => link.opened(now, event.conn, false),
                NetEventKind::Closed { cause } => link.closed(now, event.conn, cause),
                _ => {}
            })
            .expect("polled");
        }
    }
}
