//! What blocks before a connection: looking up names and reading certificate
//! files. Done on threads of its own, so that the event loop never waits.

use core::net::{IpAddr, SocketAddr};
use std::collections::VecDeque;
use std::io;
use std::net::ToSocketAddrs;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
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

/// Work that waits for a thread. It has no memory before there is some, as most
/// programs have one lookup: a bounded channel of the standard library has 1.5 MiB
/// from its begin.
#[derive(Default)]
struct Jobs {
    waiting: Mutex<Waiting>,
    added: Condvar,
}

#[derive(Default)]
struct Waiting {
    work: VecDeque<Work>,
    /// Threads that wait for work.
    idle: usize,
    /// There will be no more.
    is_over: bool,
}

impl Jobs {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds work, unless too much waits; whether a thread is free for it.
    fn add(&self, work: Work) -> Option<bool> {
        let mut waiting = self.lock();
        if waiting.work.len() >= WAITING_MAX {
            return None;
        }
        waiting.work.push_back(work);
        self.added.notify_one();
        Some(waiting.idle >= waiting.work.len())
    }

    /// There will be no more; what waits is still done.
    fn end(&self) {
        self.lock().is_over = true;
        self.added.notify_all();
    }

    /// The next work; `None`: there will be no more.
    fn take(&self) -> Option<Work> {
        let mut waiting = self.lock();
        loop {
            if let Some(work) = waiting.work.pop_front() {
                return Some(work);
            }
            if waiting.is_over {
                return None;
            }
            waiting.idle += 1;
            let woken = self.added.wait(waiting);
            waiting = woken.unwrap_or_else(PoisonError::into_inner);
            waiting.idle -= 1;
        }
    }
}

/// Threads that look up, started as they are needed.
pub struct Resolver {
    deliver: Arc<Deliver>,
    threads: usize,
    jobs: Arc<Jobs>,
}

impl Resolver {
    /// Answers go to `deliver`, on a thread of the resolver; it gives them to
    /// [`Link::resolved`](crate::Link::resolved) of the link with this key, and
    /// answers `false` when the event loop is gone.
    pub fn new(deliver: impl Fn(Key, u64, Resolved) -> bool + Send + Sync + 'static) -> Self {
        Self {
            deliver: Arc::new(deliver),
            threads: 0,
            jobs: Arc::default(),
        }
    }

    /// Starts a lookup; its end is delivered.
    pub(crate) fn start(&mut self, job: Job) -> Result<(), DialError> {
        let host = job.host.clone();
        let fail = |error: io::Error| DialError::Resolve {
            host: host.into(),
            error: Arc::new(error),
        };
        let Some(is_taken) = self.jobs.add(Work::LookUp(Box::new(job))) else {
            return Err(fail(io::Error::other("too many lookups at a time")));
        };
        match self.start_thread(is_taken) {
            Err(error) if self.threads == 0 => Err(fail(error)),
            _ => Ok(()),
        }
    }

    /// Has what was learned about networks written down.
    pub(crate) fn save(&mut self, memory: &RaceMemory) {
        if memory.has_file()
            && let Some(is_taken) = self.jobs.add(Work::Save(memory.clone()))
        {
            // Without a thread it is remembered by this process only.
            let _ = self.start_thread(is_taken);
        }
    }

    /// Starts a thread for work that no other is free for.
    fn start_thread(&mut self, is_taken: bool) -> io::Result<()> {
        if !is_taken && self.threads < THREADS_MAX {
            let (jobs, deliver) = (Arc::clone(&self.jobs), Arc::clone(&self.deliver));
            let started = thread::Builder::new()
                .name("dunlin-resolve".into())
                .spawn(move || work(&jobs, &*deliver));
            started?;
            self.threads += 1;
        }
        Ok(())
    }
}

impl Drop for Resolver {
    fn drop(&mut self) {
        self.jobs.end();
    }
}

/// Looks up until the event loop is gone.
fn work(jobs: &Jobs, deliver: &Deliver) {
    while let Some(work) = jobs.take() {
        let job = match work {
            Work::LookUp(job) => *job,
            Work::Save(memory) => {
                if let Err(error) = memory.save() {
                    tracing::warn!(%error, "cannot write down which networks carry QUIC");
                }
                continue;
            }
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

#[cfg(test)]
mod tests {
    use super::*;

    fn look_up(attempt: u64) -> Work {
        Work::LookUp(Box::new(Job {
            key: Key(0),
            attempt,
            host: "127.0.0.1".to_owned(),
            port: 1,
            tls: None,
        }))
    }

    #[test]
    fn work_is_bounded_and_what_waits_at_the_end_is_done() {
        let jobs = Jobs::default();
        for attempt in 0..WAITING_MAX as u64 {
            assert_eq!(jobs.add(look_up(attempt)), Some(false));
        }
        assert_eq!(jobs.add(look_up(0)), None);
        jobs.end();
        let seen = core::iter::from_fn(|| jobs.take()).map(|work| match work {
            Work::LookUp(job) => job.attempt,
            Work::Save(_) => u64::MAX,
        });
        assert!(seen.eq(0..WAITING_MAX as u64));
    }

    #[test]
    fn lookups_are_answered_by_as_many_threads_as_are_busy() {
        let (said, answers) = std::sync::mpsc::channel();
        let said = Mutex::new(said);
        let mut resolver = Resolver::new(move |_, attempt, resolved| {
            let said = said.lock().unwrap();
            said.send((attempt, resolved.is_ok())).is_ok()
        });
        for attempt in 0..20 {
            let Work::LookUp(job) = look_up(attempt) else {
                panic!("a lookup");
            };
            resolver.start(*job).unwrap();
            assert_eq!(answers.recv().unwrap(), (attempt, true));
            while resolver.jobs.lock().idle < resolver.threads {
                thread::yield_now();
            }
        }
        assert_eq!(resolver.threads, 1);
    }
}
