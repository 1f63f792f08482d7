//! Retained messages still to be delivered for subscriptions of a session.
//!
//! A filter has one walk at most, however often it is subscribed. A walk goes
//! on as the session drains, so that a `#` over a million retained messages
//! needs no memory; QoS, identifier and stream are those of the subscription
//! at that moment.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use dunlin_base::Text;

use crate::ids::SessionRef;

/// Sessions whose walks go on at a time, when there may be memory again.
const GO_ON_MAX: usize = 256;

/// The walks of a session; in a box, as most have none.
#[derive(Debug, Default)]
pub(crate) struct Walks(Option<Box<Under>>);

/// Those under way.
#[derive(Debug, Default)]
struct Under {
    /// By filter the topic that a walk goes on after.
    by_filter: BTreeMap<Text, Option<Text>>,
    /// The session is in [`Waiting`].
    waits: bool,
}

impl Walks {
    /// Starts the walk of a filter, from the beginning if there is one.
    pub(crate) fn start(&mut self, filter: Text) {
        self.under().by_filter.insert(filter, None);
    }

    /// Takes the walk that is next.
    pub(crate) fn take(&mut self) -> Option<(Text, Option<Text>)> {
        let walk = self.0.as_mut()?.by_filter.pop_first();
        self.tidy();
        walk
    }

    /// Puts a walk back, to go on after a topic.
    pub(crate) fn put_back(&mut self, filter: Text, after: Option<Text>) {
        self.under().by_filter.insert(filter, after);
    }

    /// The subscription has ended.
    pub(crate) fn end(&mut self, filter: &str) {
        if let Some(under) = &mut self.0 {
            under.by_filter.remove(filter.as_bytes());
        }
        self.tidy();
    }

    /// They wait for memory; whether they did not before.
    pub(crate) fn begin_waiting(&mut self) -> bool {
        !core::mem::replace(&mut self.under().waits, true)
    }

    /// They go on.
    pub(crate) fn end_waiting(&mut self) {
        if let Some(under) = &mut self.0 {
            under.waits = false;
        }
        self.tidy();
    }

    pub(crate) fn len(&self) -> usize {
        self.0.as_ref().map_or(0, |under| under.by_filter.len())
    }

    fn under(&mut self) -> &mut Under {
        self.0.get_or_insert_default()
    }

    fn tidy(&mut self) {
        self.0
            .take_if(|under| under.by_filter.is_empty() && !under.waits);
    }
}

/// Sessions whose walks wait for memory, in the order in which they go on. Each is in
/// it once; those that have ended are taken out when there are too many of them.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    sessions: VecDeque<SessionRef>,
    /// A reminder is set to let them go on.
    reminded: bool,
}

impl Waiting {
    /// The walks of one more session wait. `is_there`: whether a session has not ended;
    /// there are so many.
    pub(crate) fn push(
        &mut self,
        session: SessionRef,
        sessions: usize,
        is_there: impl Fn(SessionRef) -> bool,
    ) {
        if self.sessions.len() >= 2 * sessions.max(1) {
            self.sessions.retain(|waiting| is_there(*waiting));
        }
        self.sessions.push_back(session);
    }

    /// Takes those that go on first.
    pub(crate) fn take(&mut self) -> Vec<SessionRef> {
        self.reminded = false;
        let count = self.sessions.len().min(GO_ON_MAX);
        self.sessions.drain(..count).collect()
    }

    /// Whether a reminder has to be set.
    pub(crate) fn remind(&mut self) -> bool {
        !self.sessions.is_empty() && !core::mem::replace(&mut self.reminded, true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dunlin_store::SessionKey;

    fn session(number: usize) -> SessionRef {
        SessionRef {
            key: SessionKey(number as u64),
            at: number,
        }
    }

    #[test]
    fn a_session_waits_once_until_it_goes_on() {
        let mut walks = Walks::default();
        walks.start("a".into());
        for first in [true, false, false] {
            assert!(walks.take().is_some());
            walks.put_back("a".into(), None);
            assert_eq!(walks.begin_waiting(), first);
        }
        assert!(walks.take().is_some());
        assert!(!walks.begin_waiting(), "it waits though it has none");
        walks.end_waiting();
        assert_eq!(walks.len(), 0);
        assert!(walks.0.is_none());
    }

    #[test]
    fn sessions_that_have_ended_do_not_fill_the_line() {
        let mut waiting = Waiting::default();
        for number in 0..1_000 {
            waiting.push(session(number), 3, |it| it.at + 3 >= number);
            assert!(waiting.sessions.len() <= 7);
        }
        assert!(waiting.remind());
        assert!(!waiting.remind());
        assert_eq!(waiting.take().last(), Some(&session(999)));
        assert!(!waiting.remind(), "none is left");
    }
}
