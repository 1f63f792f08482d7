//! One thread of the generator: a loop over sockets and its share of the
//! connections. Dials, publishes by schedule or as fast as it may, counts.

use core::mem;
use core::sync::atomic::Ordering;
use core::time::Duration;
use std::collections::HashMap;

use anyhow::Context as _;
use bytes::Bytes;
use dunlin_base::transport::{NetEvent, NetEventKind};
use dunlin_base::{ConnId, Instant, SendBuf};
use dunlin_mqtt::close_code;
use dunlin_net::{Clock, Net, NetConfig};

use super::client::Client;
use super::common::{Common, Cx, Progress, Role, Stage};
use super::dialler::Dialler;
use super::pacer::Pacer;
use super::plan::Plan;
use super::publisher::{self, Publisher};
use super::schedule::Schedule;
use super::shared::{Phase, Shared, Window};
use super::stats::{Tally, count_cause};
use super::subscriber::Received;

/// Longest wait for an event.
const POLL_MAX: Duration = Duration::from_millis(20);
/// The same while other threads may make room.
const POLL_SHARED: Duration = Duration::from_millis(1);
/// A message due within this time is waited for without sleeping.
const SPIN_US: u64 = 100;
/// How often keep alive is looked at.
const SWEEP_US: u64 = 500_000;
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
    /// Clients from this index on are publishers.
    publishers_from: usize,
    rate: Option<f64>,
    pacer: Option<Pacer>,
    filler: Bytes,
    waiting: u64,
    next_sweep_us: u64,
}

/// What events change.
struct State<'a> {
    plan: &'a Plan,
    shared: &'a Shared,
    clients: Vec<Client>,
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
        let publishers = mine(plan.publishers)
            .enumerate()
            .map(|(local, n)| Role::Publisher(Box::new(Publisher::new(plan, n, local))));
        let clients = first
            .chain(publishers)
            .map(|role| Client::new(plan, role))
            .collect::<Result<Vec<_>, _>>()
            .context("cannot publish")?;
        let publishers_from = clients.len() - mine(plan.publishers).count();
        let share = mine(plan.publishers).count() as f64 / plan.publishers.max(1) as f64;
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
            publishers_from,
            rate: plan
                .rate
                .map(|rate| rate * share)
                .filter(|rate| *rate > 0.0),
            pacer: None,
            filler: publisher::filler(plan.size),
            waiting: 0,
            next_sweep_us: 0,
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
            self.keep_alive();
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
            Phase::Subscribers => self.publishers_from,
            _ => self.state.clients.len(),
        };
        let state = &mut self.state;
        while self.dial.next < until
            && state.connecting < self.dial.connecting_max
            && self.dial.may(state.now_us)
        {
            let index = self.dial.next;
            self.dial.next += 1;
            let Some(client) = state.clients.get_mut(index) else {
                break;
            };
            client.common.stage = Stage::Connecting;
            client.common.dialled_us = self.clock.now().as_micros();
            let (kind, number) = client.common.name();
            let from = match &self.plan.places {
                Some(places) => places.source(kind, number),
                None => self.dial.source(index),
            };
            match self.net.dial(self.dial.config(kind, from)) {
                Ok(conn) => {
                    client.common.conn = Some(conn);
                    state.by_conn.insert(conn, index);
                    state.connecting += 1;
                    state.alive += 1;
                }
                Err(error) => {
                    client.common.stage = Stage::Gone;
                    state.progress.failed += 1;
                    count_cause(&mut state.tally.failures, error.to_string());
                }
            }
        }
    }

    /// Lets publishers write; returns whether some could go on at once.
    fn publish(&mut self, phase: Phase) -> anyhow::Result<bool> {
        let state = &mut self.state;
        if self.schedule.is_none() && phase == Phase::Run {
            state.window = self.shared.window();
            if let Some(rate) = self.rate {
                let publishers = state.clients.len() - self.publishers_from;
                self.schedule = Some(Schedule::new(state.window.start_us, rate, publishers));
                self.pacer = Some(Pacer::new(self.clock, self.net.waker())?);
            }
        }
        let (now, window) = (state.now_us, state.window);
        if now < window.start_us {
            return Ok(false);
        }
        if let Some(schedule) = &mut self.schedule {
            let (from, tally) = (self.publishers_from, &mut state.tally);
            let clients = &mut state.clients;
            schedule.announce(now.min(window.end_us.saturating_sub(1)), |local, at_us| {
                tally.offered += u64::from(window.contains(at_us));
                if let Some(Role::Publisher(publisher)) = clients
                    .get_mut(from + local)
                    .map(|client| &mut client.common.role)
                {
                    publisher.add_due();
                }
            });
        } else if now >= window.end_us {
            return Ok(false);
        }
        Ok(self.produce())
    }

    fn produce(&mut self) -> bool {
        let state = &mut self.state;
        let (mut sent, mut expected, mut more) = (0, 0, false);
        let now = Instant::from_micros(state.now_us);
        for (index, client) in state
            .clients
            .iter_mut()
            .enumerate()
            .skip(self.publishers_from)
        {
            let Role::Publisher(publisher) = &client.common.role else {
                continue;
            };
            let Some(delivered) = self.shared.delivered.get(publisher.index) else {
                continue;
            };
            if client.common.stage != Stage::Ready {
                continue;
            }
            let mut cx = publisher::Cx {
                plan: self.plan,
                filler: &self.filler,
                window: state.window,
                now_us: state.now_us,
                tally: &mut state.tally,
                delivered,
                schedule: self.schedule.as_ref(),
                backlog: client.common.backlog,
            };
            let produced = client.produce(&mut cx, now);
            sent += produced.messages;
            expected += produced.deliveries;
            more |= produced.more;
            if produced.messages > 0 && !mem::replace(&mut client.common.touched, true) {
                state.touched.push(index);
            }
        }
        if sent > 0 {
            self.shared.sent.fetch_add(sent, Ordering::Relaxed);
            self.shared.expected.fetch_add(expected, Ordering::Relaxed);
        }
        more
    }

    fn keep_alive(&mut self) {
        let state = &mut self.state;
        let now = state.now_us;
        if now < self.next_sweep_us {
            return;
        }
        self.next_sweep_us = now + SWEEP_US;
        for index in 0..state.clients.len() {
            state.with(index, |client, cx| client.keep_alive(cx));
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
        if phase == Phase::Drain {
            let clients = self.state.clients.iter().skip(self.publishers_from);
            let waiting: u64 = clients
                .filter(|client| client.common.stage == Stage::Ready)
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

    fn timeout(&self, phase: Phase, more: bool) -> Duration {
        if more {
            return Duration::ZERO;
        }
        let now = self.clock.now().as_micros();
        let longest = if self.plan.threads > 1 && phase == Phase::Run {
            POLL_SHARED
        } else {
            POLL_MAX
        };
        if let (Phase::Run, Some(schedule), Some(pacer)) = (phase, &self.schedule, &self.pacer) {
            let due = schedule.next_us();
            if due >= self.state.window.end_us {
                return longest;
            }
            if due <= now + SPIN_US {
                return Duration::ZERO;
            }
            pacer.wake_at(due - SPIN_US);
            return longest;
        }
        let until_start = self.shared.window().start_us.saturating_sub(now);
        if phase == Phase::Run && until_start > 0 {
            return longest.min(Duration::from_micros(until_start));
        }
        let may_dial = match phase {
            Phase::Subscribers => self.dial.next < self.publishers_from,
            _ => self.dial.next < self.state.clients.len(),
        };
        if may_dial && self.state.connecting < self.dial.connecting_max {
            return self.dial.wait(now).min(longest);
        }
        longest
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
            NetEventKind::Closed { cause } => {
                client.common.fail(cause.to_string(), cx);
                client.common.conn = None;
            }
            NetEventKind::StreamFinished { stream } | NetEventKind::StreamReset { stream, .. } => {
                client.on_stream_end(stream, cx);
            }
            _ => {}
        });
    }

    /// Lets a client act, and notes what follows from that.
    fn with(&mut self, index: usize, act: impl FnOnce(&mut Client, &mut Cx<'_>)) {
        let Some(client) = self.clients.get_mut(index) else {
            return;
        };
        let mut cx = Cx {
            plan: self.plan,
            shared: self.shared,
            tally: &mut self.tally,
            progress: &mut self.progress,
            window: self.window,
            now_us: self.now_us,
        };
        let before = client.common.stage;
        act(client, &mut cx);
        if before == Stage::Connecting && client.common.stage != Stage::Connecting {
            self.connecting -= 1;
        }
        if before != Stage::Gone && client.common.stage == Stage::Gone {
            self.closing.extend(client.common.conn);
        }
        if !client.common.out.is_empty() && !mem::replace(&mut client.common.touched, true) {
            self.touched.push(index);
        }
    }
}
