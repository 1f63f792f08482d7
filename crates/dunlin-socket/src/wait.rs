//! Waiting for the driver: threads and tasks that wait for a change of a value,
//! and answers that are given once.

use core::pin::Pin;
use core::task::{Context, Poll, Waker};
use core::time::Duration;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use crate::error::Error;

/// Locks, also where another thread panicked meanwhile: every change of what is
/// shared is one assignment.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How long a call may wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Patience {
    /// `None`: without end.
    pub(crate) limit: Option<Duration>,
    /// Not at all.
    pub(crate) nonblocking: bool,
}

/// `std::net` refuses a limit of zero, too.
pub(crate) fn check_limit(limit: Option<Duration>) -> Result<(), Error> {
    match limit {
        Some(Duration::ZERO) => Err(Error::ZeroLimit(Duration::ZERO)),
        _ => Ok(()),
    }
}

/// Threads and tasks that wait for a change.
#[derive(Debug, Default)]
pub(crate) struct Waiters {
    threads: usize,
    tasks: Vec<Waker>,
}

impl Waiters {
    /// A task waits, too.
    pub(crate) fn register(&mut self, task: &Waker) {
        if !self.tasks.iter().any(|other| other.will_wake(task)) {
            self.tasks.push(task.clone());
        }
    }

    /// Takes those to wake; [`Woken::wake`] follows once the lock is released.
    #[must_use]
    pub(crate) fn take(&mut self) -> Woken {
        Woken {
            threads: self.threads > 0,
            tasks: core::mem::take(&mut self.tasks),
        }
    }
}

/// Those who are to look again.
#[derive(Debug, Default)]
pub(crate) struct Woken {
    threads: bool,
    tasks: Vec<Waker>,
}

impl Woken {
    pub(crate) fn wake(self, changed: &Condvar) {
        if self.threads {
            changed.notify_all();
        }
        for task in self.tasks {
            task.wake();
        }
    }
}

/// Tries until it succeeds or patience is at its end. `waiters` finds those that
/// `changed` wakes.
pub(crate) fn block<T, R>(
    mutex: &Mutex<T>,
    changed: &Condvar,
    patience: Patience,
    waiters: impl Fn(&mut T) -> &mut Waiters,
    mut attempt: impl FnMut(&mut T) -> Option<Result<R, Error>>,
) -> Result<R, Error> {
    let until = patience
        .limit
        .and_then(|limit| Instant::now().checked_add(limit));
    let mut state = lock(mutex);
    loop {
        if let Some(result) = attempt(&mut state) {
            return result;
        }
        if patience.nonblocking {
            return Err(Error::WouldBlock);
        }
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        if left.is_some_and(|left| left.is_zero()) {
            return Err(Error::WouldBlock);
        }
        waiters(&mut state).threads += 1;
        state = match left {
            Some(left) => changed
                .wait_timeout(state, left)
                .map_or_else(|e| e.into_inner().0, |s| s.0),
            None => changed.wait(state).unwrap_or_else(PoisonError::into_inner),
        };
        waiters(&mut state).threads -= 1;
    }
}

/// A request whose answer is awaited by its caller.
pub(crate) struct Asked<T>(Arc<Slot<T>>);

/// The other end of [`Asked`]: to be given once. When it is dropped instead, the
/// caller learns that the driver has ended.
pub(crate) struct Answer<T>(Option<Arc<Slot<T>>>);

struct Slot<T> {
    state: Mutex<SlotState<T>>,
    changed: Condvar,
}

struct SlotState<T> {
    answer: Option<Result<T, Error>>,
    waiters: Waiters,
}

/// A question and its answer.
pub(crate) fn ask<T>() -> (Asked<T>, Answer<T>) {
    let state = SlotState {
        answer: None,
        waiters: Waiters::default(),
    };
    let slot = Arc::new(Slot {
        state: Mutex::new(state),
        changed: Condvar::new(),
    });
    (Asked(Arc::clone(&slot)), Answer(Some(slot)))
}

impl<T> Asked<T> {
    /// Waits for the answer.
    pub(crate) fn wait(self, patience: Patience) -> Result<T, Error> {
        let Slot { state, changed } = &*self.0;
        block(
            state,
            changed,
            patience,
            |state| &mut state.waiters,
            |state| state.answer.take(),
        )
    }
}

impl<T> Future for Asked<T> {
    type Output = Result<T, Error>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = lock(&self.0.state);
        match state.answer.take() {
            Some(answer) => Poll::Ready(answer),
            None => {
                state.waiters.register(context.waker());
                Poll::Pending
            }
        }
    }
}

impl<T> Answer<T> {
    /// Whether the caller still waits.
    pub(crate) fn is_awaited(&self) -> bool {
        let slot = self.0.as_ref();
        slot.is_some_and(|slot| Arc::strong_count(slot) > 1)
    }

    pub(crate) fn give(mut self, answer: Result<T, Error>) {
        self.put(answer);
    }

    fn put(&mut self, answer: Result<T, Error>) {
        if let Some(slot) = self.0.take() {
            let mut state = lock(&slot.state);
            state.answer = Some(answer);
            let woken = state.waiters.take();
            drop(state);
            woken.wake(&slot.changed);
        }
    }
}

impl<T> Drop for Answer<T> {
    fn drop(&mut self) {
        self.put(Err(Error::ended()));
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn an_answer_wakes_its_thread_and_a_lost_one_too() {
        let (asked, answer) = ask();
        let thread = thread::spawn(|| asked.wait(Patience::default()));
        answer.give(Ok(7));
        assert_eq!(thread.join().expect("joined").expect("answered"), 7);
        let (asked, answer) = ask::<()>();
        drop(answer);
        let error = asked.wait(Patience::default()).expect_err("lost");
        assert!(matches!(error, Error::Driver(_)));
    }

    #[test]
    fn patience_ends() {
        let (asked, answer) = ask::<()>();
        assert!(answer.is_awaited());
        let limit = Some(Duration::from_millis(10));
        let patience = Patience {
            limit,
            ..Patience::default()
        };
        assert!(matches!(asked.wait(patience), Err(Error::WouldBlock)));
        assert!(!answer.is_awaited());
        let (asked, _answer) = ask::<()>();
        let patience = Patience {
            nonblocking: true,
            ..Patience::default()
        };
        assert!(matches!(asked.wait(patience), Err(Error::WouldBlock)));
    }
}
