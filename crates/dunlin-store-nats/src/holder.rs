//! Who holds a lease, or waits for it: a thread with a connection of its own, so that
//! nothing that the log or the copy does holds up a renewal.
//!
//! A holder whose renewal is refused reads the key before it believes anything: the server
//! may refuse to replace the newest value. One that cannot renew goes on; the log says when
//! that ends. It takes a lease that is gone only as long as the log is its own.
//!
//! One that took the lease from another and then not the log gives it back to that one: where
//! it were free, a standby would take the log from an owner that is well.

use core::sync::atomic::{AtomicBool, Ordering};
use core::time::Duration;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use tokio::sync::{Notify, oneshot, watch};
use tokio::time::{Instant, sleep, timeout};

use crate::api::AskError;
use crate::config::NatsConfig;
use crate::error::OpenError;
use crate::lease::{Bucket, Holder, Key, Seen, Written};
use crate::limits::{
    ASK_AGAIN, LEASE_AGAIN, LEASE_ANSWER_WAIT, LEASE_HINTED_EVERY, LEASE_HINTED_LOOKS,
    LEASE_LOOK_EVERY, LEASE_TRIES_MAX,
};
use crate::role::LeaseSeen;

/// How a lease is wanted.
pub(crate) enum Want {
    /// From the one that has it.
    Now,
    /// When it is free; what is done then.
    WhenFree(Box<dyn FnOnce() + Send>),
}

/// What the thread shares with others.
#[derive(Debug)]
struct Shared {
    held: watch::Sender<bool>,
    /// The log is this owner's.
    serves: AtomicBool,
    /// Another one has the lease.
    lost: Notify,
    seen: Arc<LeaseSeen>,
}

impl Default for Shared {
    fn default() -> Self {
        Self {
            held: watch::Sender::new(false),
            serves: AtomicBool::new(false),
            lost: Notify::new(),
            seen: Arc::default(),
        }
    }
}

/// A lease that is held or waited for. Dropping it gives it back: before [`Lease::serves`],
/// one that was seized to the one that it was taken from.
#[derive(Debug)]
pub(crate) struct Lease {
    shared: Arc<Shared>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Lease {
    pub(crate) fn start(config: NatsConfig, owner: u64, want: Want) -> Result<Self, OpenError> {
        let shared = Arc::new(Shared::default());
        let (stop, stopped) = oneshot::channel();
        let of_thread = Arc::clone(&shared);
        let thread = thread::Builder::new()
            .name("store-lease".to_owned())
            .spawn(move || run(&config, owner, want, of_thread, stopped))
            .map_err(OpenError::Thread)?;
        Ok(Self {
            shared,
            stop: Some(stop),
            thread: Some(thread),
        })
    }

    /// Whether it is held, as far as is known.
    pub(crate) fn held(&self) -> watch::Receiver<bool> {
        self.shared.held.subscribe()
    }

    /// What else is known of it.
    pub(crate) fn seen(&self) -> Arc<LeaseSeen> {
        Arc::clone(&self.shared.seen)
    }

    /// Waits until it is held, and no longer than an answer may take: without it, the log
    /// decides alone.
    pub(crate) async fn held_soon(&self) {
        let mut held = self.held();
        // Late or never is the same here.
        let _ = timeout(LEASE_ANSWER_WAIT, held.wait_for(|held| *held)).await;
    }

    /// The log is this owner's from here on.
    pub(crate) fn serves(&self) {
        self.shared.serves.store(true, Ordering::Relaxed);
    }

    /// Another one has it now. May be dropped and called again.
    pub(crate) async fn lost(&self) {
        self.shared.lost.notified().await;
    }

    /// Begins to give it back.
    pub(crate) fn release(&mut self) {
        if let Some(stop) = self.stop.take() {
            // Without a receiver, the thread has ended.
            let _ = stop.send(());
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.release();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn run(
    config: &NatsConfig,
    owner: u64,
    want: Want,
    shared: Arc<Shared>,
    mut stopped: oneshot::Receiver<()>,
) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => return tracing::error!("no lease: {error}"),
    };
    runtime.block_on(async {
        let hints = matches!(want, Want::WhenFree(_));
        let bucket = tokio::select! {
            bucket = open(config, hints) => bucket,
            _ = &mut stopped => return,
        };
        let mut keeper = Keeper {
            key: bucket,
            owner,
            renew_every: config.renew_every(),
            revision: 0,
            former: Holder::Free,
            shared,
        };
        tokio::select! {
            () = keeper.run(want) => {}
            _ = &mut stopped => {}
        }
        keeper.shared.held.send_replace(false);
        if let Err(error) = keeper.release().await {
            tracing::debug!("the lease is not given back: {error}");
        }
    });
}

/// The bucket, when there is one.
async fn open(config: &NatsConfig, hints: bool) -> Bucket {
    loop {
        match Bucket::open(config, hints).await {
            Ok(bucket) => return bucket,
            Err(error) => tracing::warn!("no lease: {error}; trying again"),
        }
        sleep(config.renew_every()).await;
    }
}

/// What a renewal came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Renewed {
    Held,
    /// Another one has it, or the log is another's.
    Lost,
    /// The server refuses, and shows this owner's value: it is to be tried again.
    Unclear,
}

/// A lease and who wants it.
struct Keeper<K> {
    key: K,
    owner: u64,
    renew_every: Duration,
    /// The value that the next one replaces.
    revision: u64,
    /// Who had it when it was seized.
    former: Holder,
    shared: Arc<Shared>,
}

impl<K: Key> Keeper<K> {
    /// Gets it, and keeps it for as long as the log is this owner's.
    async fn run(&mut self, want: Want) {
        match want {
            Want::Now => self.seize().await,
            Want::WhenFree(then) => {
                self.wait_until_free().await;
                self.key.no_hints();
                then();
            }
        }
        loop {
            self.shared.held.send_replace(true);
            self.hold().await;
            self.shared.held.send_replace(false);
            self.shared.seen.note_other(true);
            tracing::warn!("another one has the lease of the log");
            self.shared.lost.notify_one();
            self.wait_for_own().await;
        }
    }

    async fn put(&mut self, seen: Seen) -> Result<bool, AskError> {
        let written = self.key.write(seen.revision, Some(self.owner)).await?;
        let Written::At(revision) = written else {
            return Ok(false);
        };
        self.revision = revision;
        self.shared.seen.note_renewed();
        Ok(true)
    }

    /// Takes it from the one that has it.
    async fn seize(&mut self) {
        loop {
            let taken = match self.key.read().await {
                Ok(seen) => {
                    // A write of before had no answer: it is known already.
                    if seen.holder != Holder::Owner(self.owner) {
                        self.former = seen.holder;
                    }
                    self.put(seen).await
                }
                Err(error) => Err(error),
            };
            match taken {
                Ok(true) => return,
                Ok(false) => sleep(ASK_AGAIN).await,
                Err(error) => {
                    tracing::debug!("the lease: {error}; trying again");
                    sleep(LEASE_AGAIN).await;
                }
            }
        }
    }

    /// Takes it when it was given back, or has been gone for a while.
    async fn wait_until_free(&mut self) {
        let mut gone = None;
        let mut hinted = 0;
        loop {
            let seen = self.key.read().await;
            if let Ok(seen) = seen {
                let is_other = matches!(seen.holder, Holder::Owner(owner) if owner != self.owner);
                self.shared.seen.note_other(is_other);
            }
            let free = match &seen {
                Ok(seen) => match seen.holder {
                    Holder::Gone => {
                        gone.get_or_insert_with(Instant::now).elapsed() >= self.renew_every
                    }
                    Holder::Free => true,
                    // A write of before that was refused, or had no answer.
                    Holder::Owner(owner) => {
                        gone = None;
                        owner == self.owner
                    }
                },
                Err(error) => {
                    tracing::debug!("the lease: {error}; looking again");
                    gone = None;
                    false
                }
            };
            if let Ok(seen) = seen
                && free
                && self.put(seen).await.unwrap_or(false)
            {
                return;
            }
            let pause = if hinted > 0 {
                LEASE_HINTED_EVERY
            } else {
                LEASE_LOOK_EVERY
            };
            tokio::select! {
                () = self.key.hint() => hinted = LEASE_HINTED_LOOKS,
                () = sleep(pause) => hinted = hinted.saturating_sub(1),
            }
        }
    }

    /// Renews it until another one has it.
    async fn hold(&mut self) {
        let mut pause = self.renew_every;
        loop {
            sleep(pause).await;
            pause = match self.renew().await {
                Ok(Renewed::Held) => self.renew_every,
                Ok(Renewed::Unclear) => LEASE_AGAIN,
                Ok(Renewed::Lost) => return,
                Err(error) => {
                    tracing::debug!("the lease is not renewed: {error}; trying again");
                    LEASE_AGAIN
                }
            };
        }
    }

    async fn renew(&mut self) -> Result<Renewed, AskError> {
        for _ in 0..LEASE_TRIES_MAX {
            let own = Seen {
                revision: self.revision,
                holder: Holder::Owner(self.owner),
            };
            if self.put(own).await? {
                return Ok(Renewed::Held);
            }
            let seen = self.key.read().await?;
            match seen.holder {
                Holder::Owner(owner) if owner == self.owner => {}
                Holder::Owner(_) => return Ok(Renewed::Lost),
                // Not renewed in time: nothing is lost, unless the log is.
                Holder::Gone | Holder::Free if self.may_take().await? => {}
                Holder::Gone | Holder::Free => return Ok(Renewed::Lost),
            }
            self.revision = seen.revision;
        }
        Ok(Renewed::Unclear)
    }

    /// Whether a lease that is free may be this owner's: not when another has the log.
    async fn may_take(&self) -> Result<bool, AskError> {
        if !self.shared.serves.load(Ordering::Relaxed) {
            return Ok(true);
        }
        self.key.is_log_of(self.owner).await
    }

    /// Who has the lease did not take the log, and is gone.
    async fn wait_for_own(&mut self) {
        loop {
            sleep(self.renew_every).await;
            if self.try_own().await.unwrap_or(false) {
                return;
            }
        }
    }

    async fn try_own(&mut self) -> Result<bool, AskError> {
        let seen = self.key.read().await?;
        match seen.holder {
            Holder::Owner(owner) if owner != self.owner => Ok(false),
            _ if !self.key.is_log_of(self.owner).await? => Ok(false),
            _ => self.put(seen).await,
        }
    }

    /// Gives it back, if it is this owner's: to the one that it was taken from, as long as
    /// the log was not taken, too.
    async fn release(&self) -> Result<(), AskError> {
        let next = match self.former {
            _ if self.shared.serves.load(Ordering::Relaxed) => None,
            Holder::Free => None,
            Holder::Owner(owner) => Some(owner),
            // The owner of the log may be late: it has the time of a key that is gone.
            Holder::Gone => return Ok(()),
        };
        for _ in 0..LEASE_TRIES_MAX {
            let seen = self.key.read().await?;
            if seen.holder != Holder::Owner(self.owner) {
                return Ok(());
            }
            if let Written::At(_) = self.key.write(seen.revision, next).await? {
                return Ok(());
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use core::cell::{Cell, RefCell};
    use std::collections::VecDeque;
    use std::rc::Rc;

    use super::*;
    use crate::limits::{LEASE, LEASE_PARTS};

    /// A key without a server. A value is forgotten after a while, as there.
    #[derive(Default)]
    struct Memory {
        revision: Cell<u64>,
        value: Cell<Option<(Seen, Instant)>>,
        /// What comes of the next writes, in the place of what is right.
        refusals: RefCell<VecDeque<Result<Written, ()>>>,
        log: Cell<u64>,
    }

    impl Memory {
        fn seen(&self) -> Seen {
            match self.value.get() {
                Some((seen, at)) if at.elapsed() < LEASE => seen,
                _ => Seen {
                    revision: 0,
                    holder: Holder::Gone,
                },
            }
        }

        fn set(&self, owner: Option<u64>) -> u64 {
            let revision = self.revision.get() + 1;
            self.revision.set(revision);
            let holder = owner.map_or(Holder::Free, Holder::Owner);
            let seen = Seen { revision, holder };
            self.value.set(Some((seen, Instant::now())));
            revision
        }
    }

    impl Key for Rc<Memory> {
        async fn read(&self) -> Result<Seen, AskError> {
            Ok(self.seen())
        }

        async fn write(&self, expected: u64, owner: Option<u64>) -> Result<Written, AskError> {
            match self.refusals.borrow_mut().pop_front() {
                Some(Ok(written)) => return Ok(written),
                Some(Err(())) => return Err(AskError::Silent("test".to_owned())),
                None => {}
            }
            if self.seen().revision != expected {
                return Ok(Written::Refused);
            }
            Ok(Written::At(self.set(owner)))
        }

        async fn is_log_of(&self, owner: u64) -> Result<bool, AskError> {
            Ok(self.log.get() == owner)
        }

        async fn hint(&mut self) {
            core::future::pending().await
        }
    }

    fn keeper(key: &Rc<Memory>, owner: u64) -> Keeper<Rc<Memory>> {
        Keeper {
            key: Rc::clone(key),
            owner,
            renew_every: LEASE / LEASE_PARTS,
            revision: 0,
            former: Holder::Free,
            shared: Arc::default(),
        }
    }

    /// In virtual time.
    fn run(test: impl Future<Output = ()>) {
        tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .expect("a runtime")
            .block_on(test);
    }

    #[test]
    fn a_refusal_of_the_newest_revision_loses_nothing() {
        run(async {
            let key = Rc::new(Memory::default());
            let mut a = keeper(&key, 1);
            a.seize().await;
            key.log.set(1);
            a.shared.serves.store(true, Ordering::Relaxed);
            // Refused although it is right, without an answer, and without one although
            // it was written.
            key.refusals.borrow_mut().extend([Ok(Written::Refused); 3]);
            assert_eq!(a.renew().await.ok(), Some(Renewed::Held));
            key.refusals.borrow_mut().extend([Err(())]);
            assert!(a.renew().await.is_err());
            key.set(Some(1));
            assert_eq!(a.renew().await.ok(), Some(Renewed::Held));
            // For longer than it is tried at once.
            key.refusals
                .borrow_mut()
                .extend([Ok(Written::Refused); LEASE_TRIES_MAX]);
            assert_eq!(a.renew().await.ok(), Some(Renewed::Unclear));
            assert_eq!(a.renew().await.ok(), Some(Renewed::Held));
        });
    }

    #[test]
    fn of_two_that_wait_one_gets_it() {
        run(async {
            let key = Rc::new(Memory::default());
            key.set(None);
            let (mut a, mut b) = (keeper(&key, 1), keeper(&key, 2));
            let winner = tokio::select! {
                () = a.wait_until_free() => 1,
                () = b.wait_until_free() => 2,
            };
            assert_eq!(key.seen().holder, Holder::Owner(winner));
            let loser = if winner == 1 { &mut b } else { &mut a };
            let waits = timeout(LEASE, loser.wait_until_free()).await;
            assert!(waits.is_err(), "both have it");
        });
    }

    #[test]
    fn one_that_is_not_renewed_is_free_after_a_while() {
        run(async {
            let key = Rc::new(Memory::default());
            let (mut a, mut b) = (keeper(&key, 1), keeper(&key, 2));
            a.seize().await;
            let held = async {
                tokio::select! {
                    () = a.hold() => {}
                    () = sleep(10 * LEASE) => {}
                }
            };
            let begin = Instant::now();
            tokio::select! {
                () = b.wait_until_free() => panic!("it is held"),
                () = held => {}
            }
            assert!(begin.elapsed() >= 10 * LEASE);
            let begin = Instant::now();
            b.wait_until_free().await;
            let slack = LEASE_LOOK_EVERY + Duration::from_millis(10);
            assert!(begin.elapsed() <= LEASE + LEASE / LEASE_PARTS + slack);
        });
    }

    /// One that stood still finds that another has lease and log, or had them.
    #[test]
    fn a_former_owner_takes_nothing_back() {
        run(async {
            let key = Rc::new(Memory::default());
            let mut a = keeper(&key, 1);
            a.seize().await;
            a.shared.serves.store(true, Ordering::Relaxed);
            key.set(Some(2));
            key.log.set(2);
            assert_eq!(a.renew().await.ok(), Some(Renewed::Lost));
            sleep(2 * LEASE).await;
            assert_eq!(key.seen().holder, Holder::Gone);
            assert_eq!(a.renew().await.ok(), Some(Renewed::Lost));
            assert_eq!(a.try_own().await.ok(), Some(false));
            assert!(a.release().await.is_ok());
            assert_eq!(key.seen().holder, Holder::Gone);
            // Where the other one did not come to take the log, it is as before.
            key.log.set(1);
            assert_eq!(a.try_own().await.ok(), Some(true));
            assert_eq!(key.seen().holder, Holder::Owner(1));
            assert!(a.release().await.is_ok());
            assert_eq!(key.seen().holder, Holder::Free);
        });
    }

    /// One that seizes the lease and cannot take the log leaves it as it was.
    #[test]
    fn a_take_over_that_failed_frees_no_lease() {
        run(async {
            let key = Rc::new(Memory::default());
            let (mut a, mut b) = (keeper(&key, 1), keeper(&key, 2));
            a.seize().await;
            key.log.set(1);
            a.shared.serves.store(true, Ordering::Relaxed);
            b.seize().await;
            // As after a write that was stored and had no answer.
            b.seize().await;
            assert_eq!(a.renew().await.ok(), Some(Renewed::Lost));
            assert!(b.release().await.is_ok());
            assert_eq!(key.seen().holder, Holder::Owner(1));
            assert_eq!(a.try_own().await.ok(), Some(true));
            // With the log, it is free at the end.
            b.seize().await;
            b.shared.serves.store(true, Ordering::Relaxed);
            assert!(b.release().await.is_ok());
            assert_eq!(key.seen().holder, Holder::Free);
            // Without a former one, it is gone in time.
            sleep(2 * LEASE).await;
            let mut c = keeper(&key, 3);
            c.seize().await;
            assert!(c.release().await.is_ok());
            assert_eq!(key.seen().holder, Holder::Owner(3));
        });
    }
}
