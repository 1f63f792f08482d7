//! Which thread serves which shards.
//!
//! As long as one thread keeps up with all shards, the first thread serves them
//! in turn: what crosses between them then needs no wake-up of another core,
//! which costs more than a message. When that thread is busy, each other shard
//! goes to a thread of its own; when all of them together are nearly idle, they
//! come back. A shard is one value ([`Worker`]), which one thread has at a time.

use core::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use core::time::Duration;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use dunlin_base::Instant;
use dunlin_net::{Clock, NetError, NetSet, Waker};

use super::worker::Worker;
use crate::config::ShardThreads;

/// How long the load of a thread is measured before it counts.
const WINDOW: Duration = Duration::from_millis(50);

/// Load of the first thread, in thousandths, above which shards leave it.
const SPREAD_ABOVE: u32 = 600;

/// Load of all threads together, in thousandths of one, below which shards come
/// back. One thread has less to do for the same messages, because it wakes no other, so
/// that it stays below [`SPREAD_ABOVE`].
const JOIN_BELOW: u32 = 450;

/// How long it must have been below.
const JOIN_AFTER: Duration = Duration::from_millis(500);

/// How often a thread looks at the load while shards are spread.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// What the threads share.
#[derive(Debug)]
struct Shared {
    mode: ShardThreads,
    /// By number of the thread, which is that of its shard.
    threads: Vec<Slot>,
    /// Threads that have a shard.
    in_use: Arc<AtomicUsize>,
    /// Wakes the first thread.
    first: Waker,
    clock: Clock,
}

/// The threads of a running broker.
#[derive(Debug, Default)]
pub(super) struct Threads {
    handles: Vec<JoinHandle<()>>,
    shared: Option<Arc<Shared>>,
}

impl Threads {
    /// How many of them have a shard, now and later.
    pub(super) fn in_use(&self) -> Arc<AtomicUsize> {
        let shared = self.shared.as_ref();
        shared.map_or_else(Arc::default, |shared| Arc::clone(&shared.in_use))
    }

    /// How long each of them has been busy.
    pub(super) fn busy(&self) -> Busy {
        Busy(self.shared.clone())
    }

    /// Lets those end that have no shard.
    fn close(&self) {
        for slot in self.shared.iter().flat_map(|shared| &shared.threads) {
            slot.close();
        }
    }

    /// Waits until they have ended.
    pub(super) fn join(&mut self) {
        for thread in self.handles.drain(..) {
            if thread.join().is_err() {
                tracing::error!("a shard panicked");
            }
        }
    }
}

/// How long the threads have been busy, for others to see.
#[derive(Clone, Debug)]
pub(super) struct Busy(Option<Arc<Shared>>);

impl Busy {
    /// Microseconds since the start, by thread. What a thread does is in it when it has
    /// been at it for a moment.
    pub(super) fn micros(&self) -> Vec<u64> {
        let slots = self.0.iter().flat_map(|shared| &shared.threads);
        slots
            .map(|slot| slot.busy.load(Ordering::Relaxed))
            .collect()
    }
}

#[derive(Debug)]
struct Slot {
    arrivals: Mutex<Arrivals>,
    changed: Condvar,
    /// Load in thousandths during the last window.
    load: AtomicU32,
    /// Microseconds of all windows in which the thread did not wait.
    busy: AtomicU64,
}

/// Shards on their way to a thread.
#[derive(Debug, Default)]
struct Arrivals {
    workers: Vec<Worker>,
    /// The thread has ended, or is about to.
    closed: bool,
}

impl Slot {
    fn new() -> Self {
        Self {
            arrivals: Mutex::default(),
            changed: Condvar::new(),
            load: AtomicU32::new(0),
            busy: AtomicU64::new(0),
        }
    }

    fn note(&self, measured: Measured) {
        self.load.store(measured.load, Ordering::Relaxed);
        self.busy.fetch_add(measured.busy, Ordering::Relaxed);
    }

    fn lock(&self) -> MutexGuard<'_, Arrivals> {
        self.arrivals.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives the thread a shard, or it back if the thread takes none any more.
    fn give(&self, worker: Worker) -> Result<(), Box<Worker>> {
        let mut arrivals = self.lock();
        if arrivals.closed {
            return Err(Box::new(worker));
        }
        arrivals.workers.push(worker);
        self.changed.notify_one();
        Ok(())
    }

    /// Waits for a shard; none comes any more after [`Slot::close`].
    fn take(&self) -> Option<Worker> {
        let mut arrivals = self.lock();
        loop {
            if let Some(worker) = arrivals.workers.pop() {
                return Some(worker);
            }
            if arrivals.closed {
                return None;
            }
            arrivals = self
                .changed
                .wait(arrivals)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// No shard can be given from now on. Returns those that were.
    fn close(&self) -> Vec<Worker> {
        let mut arrivals = self.lock();
        arrivals.closed = true;
        self.changed.notify_one();
        core::mem::take(&mut arrivals.workers)
    }
}

/// Starts the threads of all shards.
pub(super) fn start(
    workers: Vec<Worker>,
    mode: ShardThreads,
    clock: Clock,
) -> Result<Threads, NetError> {
    let Some(first) = workers.first() else {
        return Ok(Threads::default());
    };
    let shared = Arc::new(Shared {
        mode,
        threads: workers.iter().map(|_| Slot::new()).collect(),
        in_use: Arc::new(AtomicUsize::new(1)),
        first: first.net.waker(),
        clock,
    });
    let host = Host::new(workers, Arc::clone(&shared))?;
    let mut handles = Vec::with_capacity(shared.threads.len());
    let spawned = spawn(host, &shared, &mut handles);
    let mut threads = Threads {
        handles,
        shared: Some(shared),
    };
    if let Err(error) = spawned {
        threads.close();
        threads.join();
        return Err(NetError::Loop(error));
    }
    Ok(threads)
}

fn spawn(host: Host, shared: &Arc<Shared>, to: &mut Vec<JoinHandle<()>>) -> io::Result<()> {
    let named = |index| std::thread::Builder::new().name(format!("shard-{index}"));
    for index in 1..shared.threads.len() {
        let shared = Arc::clone(shared);
        to.push(named(index).spawn(move || serve_one(index, &shared))?);
    }
    to.push(named(0).spawn(move || host.run())?);
    Ok(())
}

/// How busy a thread is.
#[derive(Debug)]
struct Load {
    since: Instant,
    waited: Duration,
}

impl Load {
    const fn new(now: Instant) -> Self {
        Self {
            since: now,
            waited: Duration::ZERO,
        }
    }

    /// Once a window: how much of it the thread did not wait.
    fn measure(&mut self, now: Instant) -> Option<Measured> {
        let window = now.saturating_duration_since(self.since);
        if window < WINDOW {
            return None;
        }
        let busy = window.saturating_sub(self.waited).as_micros();
        let load = u32::try_from(busy * 1000 / window.as_micros().max(1)).unwrap_or(1000);
        *self = Self::new(now);
        let busy = u64::try_from(busy).unwrap_or(0);
        Some(Measured { load, busy })
    }
}

/// What a thread did in a window.
#[derive(Clone, Copy, Debug)]
struct Measured {
    /// Share of it in which it did not wait, in thousandths.
    load: u32,
    /// The same in microseconds.
    busy: u64,
}

/// A thread other than the first: serves its shard whenever that is here.
fn serve_one(index: usize, shared: &Shared) {
    let (Some(slot), Some(first)) = (shared.threads.get(index), shared.threads.first()) else {
        return;
    };
    while let Some(mut worker) = slot.take() {
        shared.in_use.fetch_add(1, Ordering::Relaxed);
        let mut load = Load::new(shared.clock.now());
        let mut calm_since = None;
        loop {
            let bound = (shared.mode == ShardThreads::AsNeeded).then_some(LOOK_EVERY);
            load.waited += worker.turn(bound);
            if worker.is_over() {
                return;
            }
            let now = shared.clock.now();
            let Some(measured) = load.measure(now) else {
                continue;
            };
            slot.note(measured);
            if shared.mode == ShardThreads::Always || worker.is_ending() {
                continue;
            }
            let loads = shared
                .threads
                .iter()
                .map(|t| t.load.load(Ordering::Relaxed));
            if loads.sum::<u32>() >= JOIN_BELOW {
                calm_since = None;
                continue;
            }
            if now < *calm_since.get_or_insert(now) + JOIN_AFTER {
                continue;
            }
            slot.load.store(0, Ordering::Relaxed);
            match first.give(worker) {
                Ok(()) => {
                    shared.in_use.fetch_sub(1, Ordering::Relaxed);
                    shared.first.wake();
                    break;
                }
                Err(back) => worker = *back,
            }
        }
    }
}

/// A shard that the first thread serves.
struct Served {
    worker: Worker,
    /// Its loop has something to do.
    is_ready: bool,
}

/// The first thread.
struct Host {
    shared: Arc<Shared>,
    served: Vec<Served>,
    /// The loops of the shards.
    set: NetSet,
    load: Load,
}

impl Host {
    fn new(workers: Vec<Worker>, shared: Arc<Shared>) -> Result<Self, NetError> {
        let mut host = Self {
            set: NetSet::new()?,
            load: Load::new(shared.clock.now()),
            served: Vec::with_capacity(workers.len()),
            shared,
        };
        workers.into_iter().for_each(|worker| host.serve(worker));
        Ok(host)
    }

    fn serve(&mut self, worker: Worker) {
        let key = worker.place();
        if let Err(error) = self.set.insert(key, &worker.net) {
            tracing::error!(%error, "cannot watch the loop of a shard");
        }
        self.served.push(Served {
            worker,
            is_ready: true,
        });
    }

    fn run(mut self) {
        if self.shared.mode == ShardThreads::Always {
            self.spread();
        }
        loop {
            let is_spread = self.served.len() < self.shared.threads.len();
            if is_spread {
                self.take_back();
            }
            let bound = is_spread.then_some(LOOK_EVERY);
            match &mut self.served[..] {
                [] => {}
                [one] => self.load.waited += one.worker.turn(bound),
                _ => self.round(bound),
            }
            self.served.retain(|served| !served.worker.is_over());
            if self.served.is_empty() && !self.has_arrivals_at_end() {
                return;
            }
            self.weigh();
        }
    }

    /// Shards that came back from their threads.
    fn take_back(&mut self) {
        let Some(slot) = self.shared.threads.first() else {
            return;
        };
        let arrived = core::mem::take(&mut slot.lock().workers);
        arrived.into_iter().for_each(|worker| self.serve(worker));
    }

    /// To be called when all shards of this thread are over: ends the threads
    /// that have none, and serves those that were on their way here.
    fn has_arrivals_at_end(&mut self) -> bool {
        let arrived: Vec<_> = self.shared.threads.iter().flat_map(Slot::close).collect();
        arrived.into_iter().for_each(|worker| self.serve(worker));
        !self.served.is_empty()
    }

    /// A turn of each shard that has something to do, then a wait for any.
    fn round(&mut self, bound: Option<Duration>) {
        for served in &mut self.served {
            if served.is_ready {
                // A shard that is held up leaves its sockets for a later turn;
                // the set reports them only once.
                served.is_ready = served.worker.is_held_up();
                served.worker.turn(Some(Duration::ZERO));
            }
        }
        // What they have sent each other.
        for served in &mut self.served {
            if served.worker.has_mail() {
                served.worker.turn_without_net();
            }
        }
        let mut timeout = bound;
        for served in &mut self.served {
            let (mut bound, is_ready) = served.worker.prepare_wait();
            if served.is_ready && !is_ready {
                bound = Some(Duration::ZERO);
            }
            served.is_ready |= is_ready;
            timeout = match (timeout, bound) {
                (Some(a), Some(b)) => Some(a.min(b)),
                (a, b) => a.or(b),
            };
        }
        if let Err(error) = self.wait(timeout) {
            tracing::error!(%error, "cannot wait for the shards");
            std::thread::sleep(Duration::from_millis(10));
        }
        for served in &self.served {
            served.worker.wake_up();
        }
    }

    fn wait(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        let before = self.shared.clock.now();
        let served = &mut self.served;
        let times = served.iter_mut();
        let gather = times.map(|served| served.worker.gather_time(timeout)).max();
        self.set.wait(timeout, gather.unwrap_or_default(), |key| {
            let found = served
                .iter_mut()
                .find(|served| served.worker.place() == key);
            if let Some(served) = found {
                served.is_ready = true;
            }
        })?;
        let now = self.shared.clock.now();
        if timeout == Some(Duration::ZERO) {
            return Ok(());
        }
        self.load.waited += now.saturating_duration_since(before);
        // A deadline may be what ended the wait.
        if now.saturating_duration_since(before) >= timeout.unwrap_or(Duration::MAX) {
            for served in &mut self.served {
                served.is_ready = true;
            }
        }
        Ok(())
    }

    /// Measures the load and spreads the shards if it is high.
    fn weigh(&mut self) {
        let Some(measured) = self.load.measure(self.shared.clock.now()) else {
            return;
        };
        let load = measured.load;
        if let Some(slot) = self.shared.threads.first() {
            slot.note(measured);
        }
        let is_ending = self.served.iter().any(|served| served.worker.is_ending());
        if load > SPREAD_ABOVE && self.served.len() > 1 && !is_ending {
            self.spread();
        }
    }

    /// Gives each shard but the first to its own thread.
    fn spread(&mut self) {
        let mut kept = Vec::with_capacity(self.shared.threads.len());
        for Served { worker, .. } in self.served.drain(..) {
            let index = worker.place();
            let back = match self.shared.threads.get(index) {
                Some(slot) if index > 0 => {
                    let removed = self.set.remove(&worker.net);
                    if let Err(error) = removed {
                        tracing::error!(%error, "cannot stop watching the loop of a shard");
                    }
                    slot.give(worker).err().map(|worker| *worker)
                }
                _ => {
                    kept.push(Served {
                        worker,
                        is_ready: true,
                    });
                    None
                }
            };
            kept.extend(back.map(|worker| Served {
                worker,
                is_ready: true,
            }));
        }
        self.served = kept;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(millis: u64) -> Instant {
        Instant::from_micros(millis * 1000)
    }

    /// Load, and how long it was busy.
    fn measured(load: &mut Load, millis: u64) -> Option<(u32, u64)> {
        let measured = load.measure(at(millis));
        measured.map(|it| (it.load, it.busy))
    }

    #[test]
    fn load_is_the_share_of_a_window_that_was_not_waited() {
        let mut load = Load::new(at(0));
        load.waited += Duration::from_millis(10);
        assert_eq!(measured(&mut load, 49), None, "the window is not over");
        assert_eq!(measured(&mut load, 50), Some((800, 40_000)));
        load.waited += Duration::from_millis(400);
        assert_eq!(
            measured(&mut load, 450),
            Some((0, 0)),
            "the next window is measured by itself"
        );
        // A wait that began in the window before.
        load.waited += Duration::from_millis(90);
        assert_eq!(measured(&mut load, 500), Some((0, 0)));
    }

    #[test]
    fn a_closed_slot_gives_its_thread_nothing_more() {
        let slot = Slot::new();
        assert!(slot.close().is_empty());
        assert!(slot.take().is_none());
    }
}
