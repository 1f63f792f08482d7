//! What blocks before a connection: looking up names and reading certificate
//! files. Done on threads of its own, so that the event loop never waits.

use core::net::{IpAddr, SocketAddr};
use std::io;
use std::net::ToSocketAddrs;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread;

use dunlin_net::TlsError;

use crate::command::{Command, Key, Queue, Resolved};
use crate::error::DisconnectCause;
use crate::race::RaceMemory;
use crate::tls::TlsOptions;

/// Lookups at a time: each may block for as long as the resolver is patient.
const THREADS_MAX: usize = 4;

/// Lookups waiting for a thread. One client has one lookup at a time.
const WAITING_MAX: usize = 65_536;

/// A lookup.
pub(super) struct Job {
    pub(super) key: Key,
    /// Which attempt of the client it is for.
    pub(super) attempt: u64,
    pub(super) host: String,
    pub(super) port: u16,
    /// TLS options to make ready.
    pub(super) tls: Option<TlsOptions>,
}

/// What a thread is asked to do.
enum Work {
    LookUp(Box<Job>),
    Save(RaceMemory),
}

/// Threads that look up, started as they are needed.
pub(super) struct Resolver {
    queue: Weak<Queue>,
    threads: usize,
    jobs: SyncSender<Work>,
    take: Arc<Mutex<Receiver<Work>>>,
}

impl Resolver {
    pub(super) fn new(queue: &Arc<Queue>) -> Self {
        let (jobs, take) = sync_channel(WAITING_MAX);
        Self {
            queue: Arc::downgrade(queue),
            threads: 0,
            jobs,
            take: Arc::new(Mutex::new(take)),
        }
    }

    /// Starts a lookup; its end arrives as [`Command::Resolved`].
    pub(super) fn start(&mut self, job: Job) -> Result<(), DisconnectCause> {
        let host = job.host.clone();
        let fail = |error: io::Error| DisconnectCause::Resolve {
            host: host.into(),
            error: Arc::new(error),
        };
        match self.jobs.try_send(Work::LookUp(Box::new(job))) {
            Ok(()) => {}
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => {
                return Err(fail(io::Error::other("too many lookups at a time")));
            }
        }
        match self.start_thread() {
            Err(error) if self.threads == 0 => Err(fail(error)),
            _ => Ok(()),
        }
    }

    /// Has what was learned about networks written down.
    pub(super) fn save(&mut self, memory: &RaceMemory) {
        if memory.has_file() && self.jobs.try_send(Work::Save(memory.clone())).is_ok() {
            // Without a thread it is remembered by this process only.
            let _ = self.start_thread();
        }
    }

    fn start_thread(&mut self) -> io::Result<()> {
        if self.threads < THREADS_MAX {
            let (take, queue) = (Arc::clone(&self.take), Weak::clone(&self.queue));
            let started = thread::Builder::new()
                .name("dunlin-resolve".into())
                .spawn(move || work(&take, &queue));
            started?;
            self.threads += 1;
        }
        Ok(())
    }
}

/// Looks up until the event loop is gone.
fn work(take: &Mutex<Receiver<Work>>, queue: &Weak<Queue>) {
    loop {
        // The lock is held while waiting: the others wait for the lock then.
        let job = take.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let job = match job {
            Ok(Work::LookUp(job)) => *job,
            Ok(Work::Save(memory)) => {
                if let Err(error) = memory.save() {
                    tracing::warn!(%error, "cannot write down which networks carry QUIC");
                }
                continue;
            }
            Err(_) => return,
        };
        let resolved = resolve(&job);
        let Some(queue) = queue.upgrade() else {
            return;
        };
        queue.push(Command::Resolved(job.key, job.attempt, resolved));
    }
}

fn resolve(job: &Job) -> Resolved {
    let tls = match &job.tls {
        Some(options) => Some(
            options
                .build()
                .map_err(|error: TlsError| DisconnectCause::Tls(Arc::new(error)))?,
        ),
        None => None,
    };
    if let Ok(ip) = job.host.parse::<IpAddr>() {
        return Ok((vec![SocketAddr::new(ip, job.port)], tls));
    }
    let fail = |error: io::Error| DisconnectCause::Resolve {
        host: job.host.as_str().into(),
        error: Arc::new(error),
    };
    let addrs: Vec<_> = (job.host.as_str(), job.port)
        .to_socket_addrs()
        .map_err(fail)?
        .collect();
    if addrs.is_empty() {
        return Err(fail(io::Error::other("it has no address")));
    }
    Ok((addrs, tls))
}
