//! Why an owner gave up, and who is to hear of it.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::error::GaveUp;

/// What is done when an owner gives up.
pub(crate) type Then = Box<dyn FnOnce(GaveUp) + Send>;

#[derive(Default)]
struct State {
    cause: Option<GaveUp>,
    then: Option<Then>,
}

/// Whether an owner gave up.
#[derive(Default)]
pub(crate) struct Ended(Mutex<State>);

impl core::fmt::Debug for Ended {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_tuple("Ended").field(&self.cause()).finish()
    }
}

impl Ended {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Why; `None`: it did not.
    pub(crate) fn cause(&self) -> Option<GaveUp> {
        self.lock().cause.clone()
    }

    /// It gives up, once.
    pub(crate) fn set(&self, cause: GaveUp) {
        let mut state = self.lock();
        state.cause = Some(cause.clone());
        let then = state.then.take();
        drop(state);
        if let Some(then) = then {
            then(cause);
        }
    }

    /// Calls `then` when it gives up, or now if it did. Only the last one counts.
    pub(crate) fn then(&self, then: Then) {
        let mut state = self.lock();
        let Some(cause) = state.cause.clone() else {
            state.then = Some(then);
            return;
        };
        drop(state);
        then(cause);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn the_end_is_said_once_before_and_after_it() {
        let ended = Arc::new(Ended::default());
        let (said, causes) = channel();
        let say = |said: &std::sync::mpsc::Sender<GaveUp>| -> Then {
            let said = said.clone();
            Box::new(move |cause| said.send(cause).expect("waited for"))
        };
        ended.then(say(&said));
        assert!(causes.try_recv().is_err());
        ended.set(GaveUp::TakenOver);
        assert_eq!(causes.try_iter().collect::<Vec<_>>(), [GaveUp::TakenOver]);
        ended.then(say(&said));
        assert_eq!(causes.try_iter().collect::<Vec<_>>(), [GaveUp::TakenOver]);
    }
}
