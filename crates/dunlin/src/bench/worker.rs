//! One thread of the generator: a loop over sockets and its share of the
//! connections. Dials, publishes by schedule or as fast as it may, counts. A turn
//! touches those connections that have something to do.

mod devices;
mod publishing;

use core::mem;
use core::sync::atomic::Ordering;
use core::time::Duration;
use std::collections::HashMap;
use std::sync::Arc;

use anyhow::Context as _;
use dunlin_base::transport::{NetEvent, NetEventKind};
use dunlin_base::{ConnId, Instant, SendBuf};
use dunlin_mqtt::close_code;
use dunlin_net::{Clock, Net, NetConfig, SessionTickets};

use super::client::Client;
use super::common::{Common, Cx, Progress, Role, Stage};
use super::dialler::Dialler;
use super::pacer::Pacer;
use super::plan::Plan;
use super::publisher::{self, Publisher};
use super::ready::Ready;
use super::schedule::Schedule;
use super::shared::{Phase, Shared, Window};
use super::stats::{Tally, count_cause};
use super::subscriber::Received;
use devices::Devices;

/// Longest wait for an event.
const POLL_MAX: Duration = Duration::from_millis(20);
/// How often some connections are looked at for what time alone brings about.
const SWEEP_US: u64 = 10_000;
/// In so many times all of them are.
const SWEEPS: usize = 25;
/// How often the messages are counted that wait at the end.
const COUNT_US: u64 = 10_000;
/// Time for connections to close.
const CLOSE_US: u64 = 3_000_000;

/// A thread's state.
pub(super) struct Worker<'a> {
    plan: &'a Plan,
    shared: &'a Shared,
    clock: Clock,
    net: Net,
    state: State<'a>,
    dial: Dialler,
    schedule: Option<Schedule>,
    devices: Devices,
    thread: usize,
    rate: Option<f64>,
    pacer: Option<Pacer>,
    waiting: u64,
    next_count_us: u64,
    next_sweep_us: u64,
    /// The next client to be looked at.
    sweep_at: usize,
}

/// What events change.
struct State<'a> {
    plan: &'a Plan,
    shared: &'a Shared,
    clients: Vec<Client>,
    /// Clients from this index on are publishers.
    publishers_from: usize,
    /// Those to be asked for messages.
    ready: Ready,
    by_conn: HashMap<ConnId, usize>,
    /// Clients with something to send.
    touched: Vec<usize>,
    closing: Vec<ConnId>,
    tally: Tally,
    progress: Progress,
    window: Window,
    now_us: u64,
    /// Handshakes pending.
    connecting: usize,
    alive: usize,
}

impl<'a> Worker<'a> {
    /// The `thread`th of `plan.threads`.
    pub(super) fn new(
        plan: &'a Plan,
        shared: &'a Shared,
        clock: Clock,
        thread: usize,
    ) -> anyhow::Result<Self> {
        let mine = |n: usize| (thread..n).step_by(plan.threads);
        let subscribers = mine(plan.subscribers).map(|n| Role::Subscriber(n, Received::default()));
        let first = subscribers.chain(mine(plan.idle).map(Role::Idle));
        let filler = publisher::filler(plan.size_max());
        let publishers = mine(plan.publishers)
            .enumerate()
            .map(|(local, n)| Role::Publisher(Box::new(Publisher::new(plan, n, local, &filler))));
        let clients = first
            .chain(publishers)
            .map(|role| Client::new(plan, role))
            .collect::<Result<Vec<_>, _>>()
            .context("cannot publish")?;
        let publishers = mine(plan.publishers).count();
        let share = publishers as f64 / plan.publishers.max(1) as f64;
        let net = Net::new(NetConfig::client(clock)?)?;
        shared.register(net.waker());
        Ok(Self {
            plan,
            shared,
            clock,
            net,
            state: State {
                plan,
                shared,
                publishers_from: clients.len() - publishers,
                ready: Ready::new(publishers),
                clients,
                by_conn: HashMap::new(),
                touched: Vec::new(),
                closing: Vec::new(),
                tally: Tally::default(),
                progress: Progress::default(),
                window: Window::default(),
                now_us: clock.now().as_micros(),
                connecting: 0,
                alive: 0,
            },
            dial: Dialler::new(plan, clock),
            schedule: None,
            devices: Devices::default(),
            thread,
            rate: plan
                .pace
                .rate
                .map(|rate| rate * share)
                .filter(|rate| *rate > 0.0),
            pacer: None,
            waiting: 0,
            next_count_us: 0,
            next_sweep_us: 0,
            sweep_at: 0,
        })
    }

    /// Runs until [`Phase::Stop`].
    pub(super) fn run(mut self) -> anyhow::Result<Tally> {
        loop {
            let phase = self.shared.phase();
            if phase == Phase::Stop {
                break;
            }
            self.state.now_us = self.clock.now().as_micros();
            self.dial_some(phase);
            let more = match phase {
                Phase::Run | Phase::Drain => self.publish(phase)?,
                _ => false,
            };
            if self.schedule.is_some() {
                self.tend_devices();
            }
            self.sweep();
            self.flush();
            self.make_public(phase);
            let timeout = self.timeout(phase, more);
            self.poll(timeout)?;
        }
        self.stop()?;
        Ok(self.state.tally)
    }

    fn poll(&mut self, timeout: Duration) -> anyhow::Result<()> {
        let (state, clock) = (&mut self.state, self.clock);
        self.net
            .poll(Some(timeout), &mut |event| {
                state.now_us = clock.now().as_micros();
                state.on_event(event);
            })
            .context("the event loop failed")?;
        Ok(())
    }

    fn dial_some(&mut self, phase: Phase) {
        let until = match phase {
            Phase::Subscribers => self.state.publishers_from,
            _ => self.state.clients.len(),
        };
        while self.dial.next < until
            && self.state.connecting < self.dial.connecting_max
            && self.dial.may(self.state.now_us)
        {
            self.dial.next += 1;
            self.dial(self.dial.next - 1, Stage::Connecting);
        }
    }

    /// Dials for a client, which is at this stage then.
    fn dial(&mut self, index: usize, stage: Stage) {
        let state = &mut self.state;
        let Some(client) = state.clients.get_mut(index) else {
            return;
        };
        let common = &mut client.common;
        common.stage = stage;
        common.dialled_us = self.clock.now().as_micros();
        let (kind, number) = common.name();
        let from = match &self.plan.places {
            Some(places) => places.source(kind, number),
            None => self.dial.source(index),
        };
        let tickets = common.sleeper.as_ref();
        let tickets = tickets.map(|it| Arc::clone(&it.tickets) as Arc<dyn SessionTickets>);
        match self.net.dial(self.dial.config(kind, from, tickets)) {
            Ok(conn) => {
                common.conn = Some(conn);
                state.by_conn.insert(conn, index);
                state.connecting += 1;
                state.alive += 1;
            }
            Err(error) => {
                common.stage = Stage::Gone;
                state.progress.failed += 1;
                count_cause(&mut state.tally.failures, error.to_string());
            }
        }
    }

    /// Looks at some of the connections, for what time alone brings about.
    fn sweep(&mut self) {
        let state = &mut self.state;
        if state.now_us < self.next_sweep_us {
            return;
        }
        self.next_sweep_us = state.now_us + SWEEP_US;
        let all = state.clients.len();
        for _ in 0..all.min(all / SWEEPS + 1) {
            let index = self.sweep_at % all;
            self.sweep_at = index + 1;
            state.act(index, |client, cx| client.keep_alive(cx));
            if self.plan.waits_for_deliveries() {
                // What is missing for long counts as lost, and makes room.
                state.list(index);
            }
        }
    }

    /// Gives everything written to the transport.
    fn flush(&mut self) {
        let state = &mut self.state;
        for index in state.touched.drain(..) {
            let Some(client) = state.clients.get_mut(index) else {
                continue;
            };
            client.common.touched = false;
            let (Some(conn), bytes) = (client.common.conn, client.common.out.len()) else {
                continue;
            };
            let left = self.net.send(conn, Common::STREAM, &mut client.common.out);
            // Ten thousand idle connections need no buffers.
            if !matches!(client.common.role, Role::Publisher(_)) && bytes < 1024 {
                client.common.out = SendBuf::new();
            }
            client.common.backlog += bytes - left.min(bytes);
            client.common.last_sent_us = state.now_us;
        }
        for conn in state.closing.drain(..) {
            self.net.close(conn, close_code::NO_ERROR);
        }
        self.net.flush();
    }

    fn make_public(&mut self, phase: Phase) {
        let progress = mem::take(&mut self.state.progress);
        let add = |to: &core::sync::atomic::AtomicU64, n: u64| {
            if n > 0 {
                to.fetch_add(n, Ordering::Relaxed);
            }
        };
        add(&self.shared.received, progress.received);
        add(&self.shared.acknowledged, progress.acknowledged);
        // Everything refused was counted as expected before, by this thread.
        let refused = progress.refused_deliveries;
        add(&self.shared.expected, refused.wrapping_neg());
        let add = |to: &core::sync::atomic::AtomicUsize, n: usize| {
            if n > 0 {
                to.fetch_add(n, Ordering::Release);
            }
        };
        if progress.ready > 0 {
            let now = self.state.now_us;
            self.shared.last_ready_us.fetch_max(now, Ordering::AcqRel);
        }
        add(&self.shared.ready, progress.ready);
        add(&self.shared.failed, progress.failed);
        add(&self.shared.lost, progress.lost);
        if phase == Phase::Drain && self.state.now_us >= self.next_count_us {
            self.next_count_us = self.state.now_us + COUNT_US;
            let clients = self.state.clients.iter().skip(self.state.publishers_from);
            let waiting: u64 = clients
                .filter(|client| client.common.stage != Stage::Gone)
                .map(|client| match &client.common.role {
                    Role::Publisher(publisher) => publisher.waiting(),
                    _ => 0,
                })
                .sum();
            let change = waiting.wrapping_sub(self.waiting);
            self.shared.waiting.fetch_add(change, Ordering::Relaxed);
            self.waiting = waiting;
        }
    }

    /// Disconnects everything in order.
    fn stop(&mut self) -> anyhow::Result<()> {
        let state = &mut self.state;
        let now = Instant::from_micros(state.now_us);
        for (index, client) in state.clients.iter_mut().enumerate() {
            if let Some(conn) = client.common.conn {
                if client.common.stage == Stage::Ready {
                    client.put_disconnect(self.plan, now);
                    if !mem::replace(&mut client.common.touched, true) {
                        state.touched.push(index);
                    }
                }
                client.common.stage = Stage::Gone;
                state.closing.push(conn);
            }
        }
        self.flush();
        let until = self.clock.now().as_micros() + CLOSE_US;
        while self.state.alive > 0 && self.clock.now().as_micros() < until {
            self.poll(POLL_MAX)?;
            self.flush();
        }
        Ok(())
    }
}

impl State<'_> {
    fn on_event(&mut self, event: NetEvent<&[u8]>) {
        let NetEvent { conn, kind } = event;
        let Some(&index) = self.by_conn.get(&conn) else {
            return;
        };
        if matches!(kind, NetEventKind::Closed { .. }) {
            self.alive -= 1;
            self.by_conn.remove(&conn);
        }
        self.with(index, |client, cx| match kind {
            NetEventKind::Opened { .. } => client.on_opened(cx),
            NetEventKind::Bytes { stream, data } => client.on_bytes(stream, data, cx),
            NetEventKind::Sent { bytes, .. } => {
                client.common.backlog = client.common.backlog.saturating_sub(bytes)
            }
            NetEventKind::Closed { cause } => client.common.closed(cause.to_string(), cx),
            NetEventKind::EarlyData { accepted } => cx.count(|seen| seen.early_data(accepted)),
            NetEventKind::Moved { .. } => cx.count(|seen| seen.moves += 1),
            NetEventKind::MoveFailed { .. } => cx.count(|seen| seen.moves_failed += 1),
            NetEventKind::StreamFinished { stream } | NetEventKind::StreamReset { stream, .. } => {
                client.on_stream_end(stream, cx);
            }
            _ => {}
        });
    }

    /// Lets a client act upon an event, and notes what follows from that.
    fn with(&mut self, index: usize, act: impl FnOnce(&mut Client, &mut Cx<'_>)) {
        self.act(index, act);
        self.list(index);
    }

    /// If the client is a publisher, it is asked for messages.
    fn list(&mut self, index: usize) {
        if let Some(publisher) = index.checked_sub(self.publishers_from) {
            self.ready.add(publisher);
        }
    }

    fn act(&mut self, index: usize, act: impl FnOnce(&mut Client, &mut Cx<'_>)) {
        let Some(client) = self.clients.get_mut(index) else {
            return;
        };
        let mut cx = Cx {
            plan: self.plan,
            shared: self.shared,
            tally: &mut self.tally,
            progress: &mut self.progress,
            ready: &mut self.ready,
            window: self.window,
            now_us: self.now_us,
        };
        let before = client.common.stage;
        act(client, &mut cx);
        if before.is_dialled() && !client.common.stage.is_dialled() {
            self.connecting -= 1;
        }
        if before != Stage::Gone && client.common.stage == Stage::Gone {
            self.closing.extend(client.common.conn);
        }
        self.touch(index);
    }

    /// If a client has written something, it is sent in this turn.
    fn touch(&mut self, index: usize) {
        if let Some(client) = self.clients.get_mut(index)
            && !client.common.out.is_empty()
            && !mem::replace(&mut client.common.touched, true)
        {
            self.touched.push(index);
        }
    }
}
