//! The writer thread: takes what shards submitted, commits it as one group,
//! answers each. A second thread reads messages back, so that loading a long
//! queue does not hold up commits.

use core::time::Duration;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TryRecvError};
use std::time::Instant;

use dunlin_store::{
    Batch, Charge, LoadedMessage, MemoryStore, OnDone, Pending, Request, Seq, StoreDone, StoreError,
};

use crate::engine::{self, Engine};
use crate::metrics::StoreMetrics;
use crate::snapshot::Snapshot;
use crate::tables::LogReader;

/// Most operations committed as one group, give or take a batch.
pub(crate) const GROUP_OPS_MAX: usize = 16_384;

/// Most bytes of messages committed as one group, give or take a batch.
pub(crate) const GROUP_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Bytes of messages that are submitted and not committed, of all submitters, from
/// which on more is refused: what comes later waits for all of them.
pub const WAITING_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Loads waiting for the reading thread; the writer waits for room.
pub(crate) const LOADS_MAX: usize = 256;

/// A group stops waiting when nothing came for this part of the window.
const QUIET_DIVISOR: u32 = 4;

/// Where a view of the store is wanted.
pub(crate) type View = SyncSender<Result<Snapshot, StoreError>>;

/// What the writer thread receives.
pub(crate) enum Command {
    /// Boxed: the queue has room for thousands, and is nearly always empty.
    Request(Box<Pending>),
    /// A view of everything as of now, or why there is none.
    Snapshot(View),
    Close,
}

/// What does the work.
pub(crate) enum Core {
    Disk(Box<Engine>),
    Memory(MemoryStore),
}

/// A load for the reading thread.
pub(crate) struct Load {
    reader: LogReader,
    token: u64,
    seqs: Vec<Seq>,
    on_done: OnDone,
}

/// Runs the reading thread until the writer thread is gone.
pub(crate) fn run_reader(loads: &Receiver<Load>, metrics: &StoreMetrics) {
    for load in loads {
        let messages = engine::load(&load.reader, &load.seqs, &mut |_| {
            metrics.note_damaged(1);
        });
        drop(load.reader);
        (load.on_done)(loaded(load.token, messages));
    }
}

fn loaded(token: u64, messages: Result<Vec<LoadedMessage>, StoreError>) -> StoreDone {
    match messages {
        Ok(messages) => StoreDone::Loaded { token, messages },
        Err(error) => StoreDone::Failed { token, error },
    }
}

/// The state of the writer thread.
pub(crate) struct Writer {
    pub(crate) metrics: Arc<StoreMetrics>,
    pub(crate) core: Core,
    pub(crate) commands: Receiver<Command>,
    pub(crate) loads: Option<SyncSender<Load>>,
    pub(crate) window: Duration,
}

/// What is committed and answered together.
#[derive(Default)]
struct Group {
    batches: Vec<Batch>,
    waiting: Vec<OnDone>,
    /// Views of what this group makes of the store.
    views: Vec<View>,
    /// Loads and flushes that came after a write of this group.
    after: Vec<Pending>,
    charges: Vec<Charge>,
    ops: usize,
    bytes: usize,
    closing: bool,
}

impl Group {
    fn is_full(&self) -> bool {
        self.closing || self.ops >= GROUP_OPS_MAX || self.bytes >= GROUP_BYTES_MAX
    }

    fn push(&mut self, batch: Batch, on_done: OnDone, charge: Option<Charge>) {
        self.ops += batch.ops.len();
        self.bytes += charge.as_ref().map_or(0, Charge::bytes);
        self.charges.extend(charge);
        self.batches.push(batch);
        self.waiting.push(on_done);
    }
}

impl Writer {
    /// Runs until closed, or until every submitter is gone.
    pub(crate) fn run(mut self) {
        let mut group = Group::default();
        while !group.closing {
            // Whether several requests are under way at once. A lone client
            // that waits for each answer gains nothing from a window.
            let (first, busy) = match self.commands.try_recv() {
                Ok(command) => (Ok(command), true),
                Err(_) => (self.commands.recv(), false),
            };
            let Ok(first) = first else {
                break;
            };
            self.take(&mut group, first);
            self.gather(&mut group, busy);
            self.commit(&mut group);
        }
    }

    /// Fills the group with what is there and, when worthwhile, with what
    /// comes within the window.
    fn gather(&mut self, group: &mut Group, busy: bool) {
        let deadline = Instant::now() + self.window;
        while !group.is_full() {
            match self.commands.try_recv() {
                Ok(command) => {
                    self.take(group, command);
                    continue;
                }
                Err(TryRecvError::Disconnected) => return,
                Err(TryRecvError::Empty) => {}
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if !busy || left.is_zero() || group.batches.is_empty() {
                return;
            }
            let quiet = self.window / QUIET_DIVISOR;
            match self.commands.recv_timeout(left.min(quiet)) {
                Ok(command) => self.take(group, command),
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    fn take(&mut self, group: &mut Group, command: Command) {
        let mut pending = match command {
            Command::Request(pending) => *pending,
            Command::Snapshot(to) => {
                group.views.push(to);
                return;
            }
            Command::Close => {
                group.closing = true;
                return;
            }
        };
        match pending.request.take() {
            Some(Request::Write(batch)) => {
                group.push(batch, pending.on_done.clone(), pending.charge.take());
            }
            other => {
                pending.request = other;
                if group.batches.is_empty() {
                    self.answer(pending);
                } else {
                    group.after.push(pending);
                }
            }
        }
    }

    fn commit(&mut self, group: &mut Group) {
        let begin = Instant::now();
        let verdicts: Vec<_> = match &mut self.core {
            _ if group.batches.is_empty() => Vec::new(),
            Core::Disk(engine) => engine.write(&group.batches),
            Core::Memory(store) => group
                .batches
                .iter()
                .map(|batch| batch.check().map(|()| store.apply(batch)))
                .collect(),
        };
        if !group.batches.is_empty() {
            let (batches, ops, bytes) = (group.batches.len(), group.ops, group.bytes);
            self.metrics.note(begin.elapsed(), batches, ops, bytes);
            let refused = verdicts.iter().filter(|verdict| verdict.is_err()).count();
            let written = verdicts.len() - refused;
            self.metrics.note_failed(refused as u64, written as u64);
        }
        // Who learns of it has room again.
        group.charges.clear();
        let tokens = group.batches.iter().map(|batch| batch.token);
        for ((token, on_done), verdict) in tokens.zip(&group.waiting).zip(verdicts) {
            on_done(match verdict {
                Ok(()) => StoreDone::Committed { token },
                Err(error) => StoreDone::Failed { token, error },
            });
        }
        for to in group.views.drain(..) {
            let snapshot = match &mut self.core {
                Core::Disk(engine) => engine.snapshot(),
                Core::Memory(_) => Err(StoreError::Closed),
            };
            // Without a receiver, it is given up.
            let _ = to.send(snapshot);
        }
        let after = core::mem::take(&mut group.after);
        *group = Group {
            closing: group.closing,
            ..Group::default()
        };
        for pending in after {
            self.answer(pending);
        }
    }

    /// Answers a request that is not a write.
    fn answer(&mut self, mut pending: Pending) {
        let Some(request) = pending.request.take() else {
            return;
        };
        let token = request.token();
        let on_done = pending.on_done.clone();
        if let Err(error) = request.check() {
            return on_done(StoreDone::Failed { token, error });
        }
        match (&mut self.core, request) {
            (Core::Memory(store), request) => on_done(store.handle(&request)),
            (Core::Disk(engine), Request::Load { seqs, .. }) => {
                let load = match engine.reader() {
                    Ok(reader) => Load {
                        reader,
                        token,
                        seqs,
                        on_done,
                    },
                    Err(error) => return on_done(StoreDone::Failed { token, error }),
                };
                if let Some(loads) = &self.loads
                    && let Err(refused) = loads.send(load)
                {
                    let error = StoreError::Closed;
                    (refused.0.on_done)(StoreDone::Failed { token, error });
                }
            }
            (Core::Disk(engine), _) => on_done(match engine.flush() {
                Ok(()) => StoreDone::Committed { token },
                Err(error) => StoreDone::Failed { token, error },
            }),
        }
    }
}
