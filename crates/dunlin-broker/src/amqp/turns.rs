//! Links of a connection that have something to send and cannot, by what they wait
//! for. Each goes on in its turn, so that what a frame of the client costs is what
//! it sets free, however many links there are.

use alloc::collections::{BTreeMap, BTreeSet};
use core::ops::Bound;

use dunlin_amqp::{LinkId, SessionId};

/// Links that wait. Bounded by the links of the connection.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    transport: Turns,
    /// By the channel of the session whose window is closed.
    windows: BTreeMap<u16, Turns>,
}

/// Links in turn, each once.
#[derive(Debug, Default)]
struct Turns {
    links: BTreeSet<LinkId>,
    last: Option<LinkId>,
}

impl Waiting {
    /// The link waits until its transport takes more.
    pub(crate) fn for_transport(&mut self, link: LinkId) {
        self.transport.links.insert(link);
    }

    /// The link waits until its session has room for a delivery.
    pub(crate) fn for_window(&mut self, link: LinkId) {
        let turns = self.windows.entry(link.channel()).or_default();
        turns.links.insert(link);
    }

    /// Takes the next link that waits for the transport.
    pub(crate) fn next_of_transport(&mut self) -> Option<LinkId> {
        self.transport.next()
    }

    /// Takes the next link that waits for the window of a session.
    pub(crate) fn next_of_window(&mut self, session: SessionId) -> Option<LinkId> {
        self.windows.get_mut(&session.channel())?.next()
    }

    /// Whether a link waits for the window of its session.
    pub(crate) fn waits_for_window(&self, link: LinkId) -> bool {
        let turns = self.windows.get(&link.channel());
        turns.is_some_and(|turns| turns.links.contains(&link))
    }

    /// The window of a session is open and the transport takes nothing: its links
    /// wait for that.
    pub(crate) fn wait_on(&mut self, session: SessionId) {
        if let Some(turns) = self.windows.get_mut(&session.channel()) {
            self.transport.links.append(&mut turns.links);
        }
    }

    /// A link has gone.
    pub(crate) fn remove(&mut self, link: LinkId) {
        self.transport.links.remove(&link);
        if let Some(turns) = self.windows.get_mut(&link.channel()) {
            turns.links.remove(&link);
        }
    }
}

impl Turns {
    /// Takes the one whose turn it is.
    fn next(&mut self) -> Option<LinkId> {
        let after = self.last.map_or(Bound::Unbounded, Bound::Excluded);
        let mut later = self.links.range((after, Bound::Unbounded));
        let next = later.next().or_else(|| self.links.first()).copied()?;
        self.links.remove(&next);
        self.last = Some(next);
        Some(next)
    }
}
