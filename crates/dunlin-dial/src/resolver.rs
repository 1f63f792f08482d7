//! What blocks before a connection: looking up names and reading certificate
//! files. Done on threads of its own, so that the event loop never waits.

use core::net::{IpAddr, SocketAddr};
use std::io;
use std::net::ToSocketAddrs;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use dunlin_net::ClientTls;

use crate::error::DialError;
use crate::race::RaceMemory;
use crate::tls::TlsOptions;

/// Lookups at a time: each may block for as long as the resolver is patient.
const THREADS_MAX: usize = 4;

/// Lookups waiting for a thread. One link has one lookup at a time.
const WAITING_MAX: usize = 65_536;

/// Names a link towards the loop that it shares with others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(pub u64);

/// Addresses of a name, and TLS where it was asked for.
pub type Resolved = Result<(Vec<SocketAddr>, Option<Arc<ClientTls>>), DialError>;

/// Takes what was looked up for an attempt of a link, on any thread; `false`:
/// the event loop is gone.
type Deliver = dyn Fn(Key, u64, Resolved) -> bool + Send + Sync;

/// A lookup.
pub(crate) struct Job {
    pub(crate) key: Key,
    /// Which attempt of the link it is for.
    pub(crate) attempt: u64,
    pub(crate) host: String,
    pub(crate) port: u16,
    /// TLS options to make ready.
    pub(crate) tls: Option<TlsOptions>,
}

/// What a thread is asked to do.
enum Work {
    LookUp(Box<Job>),
    Save(RaceMemory),
}

/// Threads that look up, started as they are needed.
pub struct Resolver {
    deliver: Arc<Deliver>,
    threads: usize,
    jobs: SyncSender<Work>,
    take: Arc<Mutex<Receiver<Work>>>,
}

impl Resolver {
    /// Answers go to `deliver`, on a thread of the resolver; it gives them to
    /// [`Link::resolved`](crate::Link::resolved) of the link with this key, and
    /// answers `false` when the event loop is gone.
    pub fn new(deliver: impl Fn(Key, u64, Resolved) -> bool + Send + Sync + 'static) -> Self {
        let (jobs, take) = sync_channel(WAITING_MAX);
        Self {
            deliver: Arc::new(deliver),
            threads: 0,
            jobs,
            take: Arc::new(Mutex::new(take)),
        }
    }

    /// Starts a lookup; its end is delivered.
    pub(crate) fn start(&mut self, job: Job) -> Result<(), DialError> {
        let host = job.host.clone();
        let fail = |error: io::Error| DialError::Resolve {
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
    pub(crate) fn save(&mut self, memory: &RaceMemory) {
        if memory.has_file() && self.jobs.try_send(Work::Save(memory.clone())).is_ok() {
            // Without a thread it is remembered by this process only.
            let _ = self.start_thread();
        }
    }

    fn start_thread(&mut self) -> io::Result<()> {
        if self.threads < THREADS_MAX {
            let (take, deliver) = (Arc::clone(&self.take), Arc::clone(&self.deliver));
            let started = thread::Builder::new()
                .name("dunlin-resolve".into())
                .spawn(move || work(&take, &*deliver));
            started?;
            self.threads += 1;
        }
        Ok(())
    }
}

/// Looks up until the event loop is gone.
fn work(take: &Mutex<Receiver<Work>>, deliver: &Deliver) {
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
        if !deliver(job.key, job.attempt, resolve(&job)) {
            return;
        }
    }
}

fn resolve(job: &Job) -> Resolved {
    let tls = match &job.tls {
        Some(options) => {
            let built = options.build();
            Some(built.map_err(|error| DialError::Tls(Arc::new(error)))?)
        }
        None => None,
    };
    if let Ok(ip) = job.host.parse::<IpAddr>() {
        return Ok((vec![SocketAddr::new(ip, job.port)], tls));
    }
    let fail = |error: io::Error| DialError::Resolve {
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
