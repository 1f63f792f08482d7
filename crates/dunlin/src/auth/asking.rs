//! Servers that are asked: threads that ask, a bounded number of questions that wait for
//! them, each for a bounded time, and what is done without an answer.

use core::fmt;
use core::time::Duration;
use std::io;
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use dunlin_broker::auth::{AuthAnswer, AuthRequest, Grant};

use super::{Asked, Door, Job, Proof};
use crate::config::WhenDown;

/// Most questions about clients that wait for a thread; the next one is answered
/// [`AuthAnswer::Busy`].
pub(super) const QUEUE_MAX: usize = 1024;

/// Threads that ask, and how many questions wait for them for how long.
#[derive(Clone, Copy, Debug)]
pub(super) struct Threads {
    pub(super) name: &'static str,
    pub(super) count: u32,
    pub(super) queue_max: usize,
    /// What has waited for longer is over: who asked has gone, and so would those behind.
    pub(super) patience: Duration,
}

/// Threads that ask. They end when this is dropped.
pub(super) struct Pool<Q> {
    questions: SyncSender<(Q, Instant)>,
}

impl<Q: Send + 'static> Pool<Q> {
    /// Each thread has what `handler` gives it, which takes a question and whether that
    /// has waited for too long.
    pub(super) fn start<H>(threads: Threads, mut handler: impl FnMut() -> H) -> io::Result<Self>
    where
        H: FnMut(Q, bool) + Send + 'static,
    {
        let (questions, queue) = sync_channel::<(Q, Instant)>(threads.queue_max);
        let queue = Arc::new(Mutex::new(queue));
        for _ in 0..threads.count {
            let (queue, mut handle) = (Arc::clone(&queue), handler());
            let run = move || {
                loop {
                    // The lock is held while waiting: the others wait for the lock then.
                    let next = queue.lock().unwrap_or_else(PoisonError::into_inner).recv();
                    let Ok((question, since)) = next else {
                        return;
                    };
                    handle(question, since.elapsed() > threads.patience);
                }
            };
            let thread = std::thread::Builder::new().name(threads.name.into());
            thread.spawn(run)?;
        }
        Ok(Self { questions })
    }

    /// Asks; never waits. The question comes back where there is no room for it.
    pub(super) fn submit(&self, question: Q) -> Result<(), Q> {
        let outcome = self.questions.try_send((question, Instant::now()));
        outcome.map_err(|error| match error {
            TrySendError::Full((question, _)) | TrySendError::Disconnected((question, _)) => {
                question
            }
        })
    }
}

/// What a server says of a client.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Allow(Box<Grant>),
    Deny,
    /// It does not know the client.
    Ignore,
}

/// A server that knows clients, as one thread asks it.
pub(super) trait Knows: Send + 'static {
    /// Why there is no answer.
    type Error: fmt::Display;

    /// What it says of a client.
    ///
    /// # Errors
    /// It does not answer, or not as it should.
    fn ask(&mut self, request: &AuthRequest) -> Result<Verdict, Self::Error>;
}

/// How such a server is asked.
#[derive(Clone, Copy, Debug)]
pub(super) struct Manner {
    /// Its section of the configuration.
    pub(super) key: &'static str,
    /// Name of the threads.
    pub(super) thread: &'static str,
    pub(super) timeout: Duration,
    pub(super) connections: u32,
    pub(super) when_down: WhenDown,
}

/// Threads that ask about clients. What they hear goes to the client, or through `door`.
pub(super) fn about_clients<K: Knows>(
    manner: Manner,
    door: &Door,
    mut server: impl FnMut() -> K,
) -> io::Result<Pool<Box<Asked>>> {
    let threads = Threads {
        name: manner.thread,
        count: manner.connections,
        queue_max: QUEUE_MAX,
        patience: 2 * manner.timeout,
    };
    Pool::start(threads, || {
        let (mut server, door) = (server(), door.clone());
        let mut log = Log::new(manner.key);
        move |asked: Box<Asked>, is_late| {
            let verdict = match is_late {
                true => Err(None),
                false => server.ask(&asked.request).map_err(Some),
            };
            match &verdict {
                Err(Some(error)) => log.note(error),
                Err(None) => log.note(&TOO_MANY),
                Ok(_) => {}
            }
            conclude(asked, verdict.ok(), manner.when_down, &door);
        }
    })
}

/// Said where a question has waited for too long.
pub(super) const TOO_MANY: &str = "too many questions wait";

/// Gives a verdict to who waits for it; `None`: there is none.
fn conclude(asked: Box<Asked>, verdict: Option<Verdict>, when_down: WhenDown, door: &Door) {
    let (answer, right) = match (verdict, when_down) {
        (Some(Verdict::Allow(grant)), _) => (AuthAnswer::Granted(grant), Some(true)),
        (Some(Verdict::Deny), _) => (AuthAnswer::Refuse, Some(false)),
        (None, WhenDown::Deny) => (AuthAnswer::Busy, None),
        (Some(Verdict::Ignore), _) | (None, WhenDown::Next) => {
            if let Err(Job::Ask(asked)) = door.try_send(Job::Ask(asked)) {
                (asked.reply)(AuthAnswer::Busy);
            }
            return;
        }
    };
    if let (Some(right), Some((user, address))) = (right, asked.login()) {
        // Where the queue is full that is left out.
        let _ = door.try_send(Job::Note(Proof {
            user,
            address,
            right,
        }));
    }
    (asked.reply)(answer);
}

/// Says that a server does not answer, once in a while.
pub(super) struct Log {
    /// Which server.
    key: &'static str,
    last: Option<Instant>,
}

impl Log {
    pub(super) const fn new(key: &'static str) -> Self {
        Self { key, last: None }
    }

    pub(super) fn note(&mut self, error: &dyn fmt::Display) {
        const EVERY: Duration = Duration::from_secs(10);
        if self.last.is_none_or(|last| last.elapsed() >= EVERY) {
            self.last = Some(Instant::now());
            let key = self.key;
            tracing::warn!(%error, "the server of {key} does not answer as it should");
        }
    }
}
