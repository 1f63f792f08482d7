//! The background thread of a client library: one event loop that hands events,
//! commands and timers to any number of clients, and lets each one that was
//! touched run once. It ends when nothing could ask it for anything any more.

use core::fmt;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use core::time::Duration;
use std::collections::{BTreeSet, HashMap};
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use dunlin_base::transport::{NetEvent, NetEventKind, Peer};
use dunlin_base::{ConnId, Instant};
use dunlin_net::{Clock, Net, NetConfig, NetError, Qlog, QlogFilter, QlogLimits, Waker};

use crate::context::Context;
use crate::resolver::{Key, Resolved, Resolver};
use crate::runtime::{RuntimeError, RuntimeLimits};

/// One client within the loop.
pub trait Task {
    /// What it is made of.
    type New: Send + 'static;
    /// What its application asks of it.
    type Command: Send + 'static;

    /// A client that begins to connect when it runs first.
    fn new(key: Key, new: Self::New) -> Self;

    /// Something happened on one of its connections. What needs the transport
    /// happens in [`Task::run`], which follows.
    fn handle_net(&mut self, now: Instant, event: NetEvent<&[u8]>);

    /// Its application asks for something. [`Task::run`] follows.
    fn handle_command(&mut self, now: Instant, command: Self::Command);

    /// A name was looked up. [`Task::run`] follows.
    fn handle_resolved(&mut self, attempt: u64, resolved: Resolved);

    /// Does everything that has become possible.
    fn run(&mut self, context: &mut Context<'_>);

    /// It is over and wants to be dropped.
    fn has_ended(&self) -> bool;

    /// When to run again if nothing happens.
    fn deadline(&self) -> Option<Instant>;

    /// Whether connections that come in at a listener of this loop go to
    /// [`Task::accept`]; of one task at most.
    fn accepts(&self) -> bool {
        false
    }

    /// A connection came in: a client for it, with this key. [`Task::run`] of both
    /// follows.
    ///
    /// # Errors
    /// It is not wanted: the application error code that it is closed with.
    fn accept(&mut self, _key: Key, _conn: ConnId, _peer: &Peer) -> Result<Self, u64>
    where
        Self: Sized,
    {
        Err(0)
    }
}

/// The way to the thread; the thread ends when all clones and all clients are
/// gone. `N` and `C` are [`Task::New`] and [`Task::Command`].
pub struct Remote<N: Send + 'static, C: Send + 'static> {
    guard: Arc<Guard<N, C>>,
    limits: RuntimeLimits,
    qlog: Option<Qlog>,
}

impl<N: Send + 'static, C: Send + 'static> Remote<N, C> {
    /// Starts a thread with this name. With a directory, every QUIC connection
    /// is logged to a file of its own in it, in the sequential form of qlog.
    ///
    /// # Errors
    /// The system refuses an event loop or a thread, or the directory cannot be
    /// made.
    pub fn start<T: Task<New = N, Command = C> + 'static>(
        name: &str,
        limits: RuntimeLimits,
        qlog: Option<&Path>,
    ) -> Result<Self, RuntimeError> {
        let clock = Clock::new();
        let mut config = NetConfig::client(clock).map_err(net_error)?;
        if let Some(dir) = qlog {
            let qlog = Qlog::open(dir, QlogLimits::default(), clock);
            let qlog = qlog.map_err(|error| RuntimeError::Qlog(Arc::new(error)))?;
            qlog.select(QlogFilter::all());
            config.qlog = Some(qlog);
        }
        Self::start_with::<T>(name, limits, config)
    }

    /// As [`Remote::start`], with these settings of the loop.
    ///
    /// # Errors
    /// The system refuses an event loop or a thread.
    pub fn start_with<T: Task<New = N, Command = C> + 'static>(
        name: &str,
        limits: RuntimeLimits,
        config: NetConfig,
    ) -> Result<Self, RuntimeError> {
        let (clock, qlog) = (config.clock, config.qlog.clone());
        let net = Net::new(config).map_err(net_error)?;
        let queue = Arc::new(Queue::new(net.waker()));
        let guard = Arc::new(Guard(Arc::clone(&queue)));
        thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || Loop::<T>::new(net, clock, queue).run())
            .map_err(|error| RuntimeError::Thread(Arc::new(error)))?;
        Ok(Self {
            guard,
            limits,
            qlog,
        })
    }

    /// Waits until all connections that are logged have ended and their files
    /// are written, but not longer than `patience`. Blocks the thread.
    pub fn finish_qlog(&self, patience: Duration) {
        if let Some(qlog) = &self.qlog {
            qlog.finish(patience);
        }
    }

    /// Takes a place for another client.
    ///
    /// # Errors
    /// There are as many as the limits allow.
    pub fn register(&self) -> Result<Key, RuntimeError> {
        let queue = &self.guard.0;
        let max = self.limits.clients_max;
        let before = queue.clients.fetch_add(1, Ordering::AcqRel);
        if before >= max {
            queue.clients.fetch_sub(1, Ordering::AcqRel);
            return Err(RuntimeError::TooManyClients(max));
        }
        Ok(Key(queue.next_key.fetch_add(1, Ordering::Relaxed)))
    }

    /// Gives up a client's place.
    pub fn unregister(&self) {
        self.guard.0.clients.fetch_sub(1, Ordering::AcqRel);
    }

    /// Adds a client. If the thread has ended, it is dropped.
    pub fn add(&self, key: Key, new: N) {
        self.guard.0.push(Item::Add(key, Box::new(new)));
    }

    /// Leaves a command and wakes the thread. If the thread or the client has
    /// ended, the command is dropped, which those who wait for it notice.
    pub fn push(&self, key: Key, command: C) {
        self.guard.0.push(Item::Command(key, command));
    }
}

impl<N: Send + 'static, C: Send + 'static> Clone for Remote<N, C> {
    fn clone(&self) -> Self {
        Self {
            guard: Arc::clone(&self.guard),
            limits: self.limits,
            qlog: self.qlog.clone(),
        }
    }
}

impl<N: Send + 'static, C: Send + 'static> fmt::Debug for Remote<N, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Remote")
            .field("limits", &self.limits)
            .finish_non_exhaustive()
    }
}

fn net_error(error: NetError) -> RuntimeError {
    RuntimeError::Net(Arc::new(error))
}

/// Ends the thread when the last handle that could ask for something is gone.
struct Guard<N, C>(Arc<Queue<N, C>>);

impl<N, C> Drop for Guard<N, C> {
    fn drop(&mut self) {
        self.0.push(Item::End);
    }
}

/// What is on its way to the thread. What an application may have there is
/// bounded by its client.
enum Item<N, C> {
    Add(Key, Box<N>),
    Command(Key, C),
    Resolved(Key, u64, Resolved),
    End,
}

struct Queue<N, C> {
    state: Mutex<QueueState<N, C>>,
    waker: Waker,
    clients: AtomicUsize,
    next_key: AtomicU64,
}

struct QueueState<N, C> {
    items: Vec<Item<N, C>>,
    ended: bool,
}

impl<N, C> Queue<N, C> {
    fn new(waker: Waker) -> Self {
        let state = QueueState {
            items: Vec::new(),
            ended: false,
        };
        Self {
            state: Mutex::new(state),
            waker,
            clients: AtomicUsize::new(0),
            next_key: AtomicU64::new(0),
        }
    }

    fn lock(&self) -> MutexGuard<'_, QueueState<N, C>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, item: Item<N, C>) {
        let mut state = self.lock();
        if state.ended {
            // Not under the lock: dropping may push again.
            drop(state);
            drop(item);
            return;
        }
        state.items.push(item);
        let first = state.items.len() == 1;
        drop(state);
        // The thread takes all at once, so the first has woken it already.
        if first {
            self.waker.wake();
        }
    }

    /// Takes everything; `into` is empty.
    fn take(&self, into: &mut Vec<Item<N, C>>) {
        core::mem::swap(&mut self.lock().items, into);
    }

    fn end(&self) {
        let mut state = self.lock();
        state.ended = true;
        let rest = core::mem::take(&mut state.items);
        drop(state);
        drop(rest);
    }
}

/// A client, and what the loop knows of it.
struct Entry<T> {
    task: T,
    /// The instant of its entry in the timers.
    armed: Option<Instant>,
    /// It is in the list of those to run.
    touched: bool,
}

impl<T> Entry<T> {
    const fn new(task: T) -> Self {
        Self {
            task,
            armed: None,
            touched: false,
        }
    }
}

struct Loop<T: Task> {
    net: Net,
    clock: Clock,
    queue: Arc<Queue<T::New, T::Command>>,
    resolver: Resolver,
    tasks: HashMap<Key, Entry<T>>,
    conns: HashMap<ConnId, Key>,
    timers: BTreeSet<(Instant, Key)>,
    /// Tasks to run; each once.
    touched: Vec<Key>,
    /// The task that takes connections which come in.
    acceptor: Option<Key>,
    ending: bool,
}

impl<T: Task> Loop<T> {
    fn new(net: Net, clock: Clock, queue: Arc<Queue<T::New, T::Command>>) -> Self {
        let answers = Arc::downgrade(&queue);
        let resolver = Resolver::new(move |key, attempt, resolved| {
            let queue = answers.upgrade();
            if let Some(queue) = &queue {
                queue.push(Item::Resolved(key, attempt, resolved));
            }
            queue.is_some()
        });
        Self {
            net,
            clock,
            queue,
            resolver,
            tasks: HashMap::new(),
            conns: HashMap::new(),
            timers: BTreeSet::new(),
            touched: Vec::new(),
            acceptor: None,
            ending: false,
        }
    }

    fn run(mut self) {
        let mut items = Vec::new();
        while !(self.ending && self.tasks.is_empty()) {
            if let Err(error) = self.poll() {
                tracing::error!(%error, "the client's event loop failed");
                break;
            }
            self.queue.take(&mut items);
            for item in items.drain(..) {
                self.handle(item);
            }
            self.handle_time();
            self.run_touched();
            self.net.flush();
        }
    }

    fn poll(&mut self) -> io::Result<()> {
        let Self {
            net,
            clock,
            queue,
            tasks,
            conns,
            touched,
            timers,
            acceptor,
            ..
        } = self;
        let now = net.now();
        let timeout = timers
            .first()
            .map(|(at, _)| at.saturating_duration_since(now));
        // Read once, after the wait.
        let mut woken = None;
        let mut unwanted = Vec::new();
        net.poll(timeout, &mut |event| {
            let now = *woken.get_or_insert_with(|| clock.now());
            let key = match (conns.get(&event.conn).copied(), &event.kind) {
                (Some(key), _) => key,
                (None, NetEventKind::Opened { peer }) => {
                    let Some(acceptor) = *acceptor else {
                        return;
                    };
                    let key = Key(queue.next_key.fetch_add(1, Ordering::Relaxed));
                    let accepted = tasks.get_mut(&acceptor).map_or(Err(0), |entry| {
                        touch(touched, acceptor, entry);
                        entry.task.accept(key, event.conn, peer)
                    });
                    match accepted {
                        Ok(task) => tasks.insert(key, Entry::new(task)),
                        Err(code) => return unwanted.push((event.conn, code)),
                    };
                    conns.insert(event.conn, key);
                    key
                }
                (None, _) => return,
            };
            if matches!(event.kind, NetEventKind::Closed { .. }) {
                conns.remove(&event.conn);
            }
            if let Some(entry) = tasks.get_mut(&key) {
                touch(touched, key, entry);
                entry.task.handle_net(now, event);
            }
        })?;
        for (conn, code) in unwanted {
            net.conn(conn).close_promptly(code);
        }
        Ok(())
    }

    fn handle(&mut self, item: Item<T::New, T::Command>) {
        let now = self.net.now();
        let key = match &item {
            Item::Add(key, _) | Item::Command(key, _) | Item::Resolved(key, ..) => *key,
            Item::End => {
                self.ending = true;
                return;
            }
        };
        if let Item::Add(_, new) = item {
            let mut entry = Entry::new(T::new(key, *new));
            if entry.task.accepts() {
                self.acceptor = Some(key);
            }
            touch(&mut self.touched, key, &mut entry);
            self.tasks.insert(key, entry);
            return;
        }
        // What is for a client that has ended is dropped.
        let Some(entry) = self.tasks.get_mut(&key) else {
            return;
        };
        touch(&mut self.touched, key, entry);
        match item {
            Item::Command(_, command) => entry.task.handle_command(now, command),
            Item::Resolved(_, attempt, resolved) => entry.task.handle_resolved(attempt, resolved),
            Item::Add(..) | Item::End => {}
        }
    }

    fn handle_time(&mut self) {
        let now = self.net.now();
        while let Some(&(at, key)) = self.timers.first() {
            if at > now {
                break;
            }
            self.timers.pop_first();
            if let Some(entry) = self.tasks.get_mut(&key) {
                entry.armed = None;
                touch(&mut self.touched, key, entry);
            }
        }
    }

    fn run_touched(&mut self) {
        let mut touched = core::mem::take(&mut self.touched);
        for key in touched.drain(..) {
            let Some(entry) = self.tasks.get_mut(&key) else {
                continue;
            };
            entry.touched = false;
            let mut context = Context {
                now: self.net.now(),
                net: &mut self.net,
                conns: &mut self.conns,
                resolver: &mut self.resolver,
            };
            entry.task.run(&mut context);
            let has_ended = entry.task.has_ended();
            let next = entry.task.deadline().filter(|_| !has_ended);
            if next != entry.armed {
                if let Some(at) = entry.armed {
                    self.timers.remove(&(at, key));
                }
                if let Some(at) = next {
                    self.timers.insert((at, key));
                }
                entry.armed = next;
            }
            if has_ended {
                self.tasks.remove(&key);
            }
        }
        self.touched = touched;
    }
}

/// Also when the thread panics: those who wait for it must notice.
impl<T: Task> Drop for Loop<T> {
    fn drop(&mut self) {
        self.queue.end();
    }
}

fn touch<T>(touched: &mut Vec<Key>, key: Key, entry: &mut Entry<T>) {
    if !core::mem::replace(&mut entry.touched, true) {
        touched.push(key);
    }
}
