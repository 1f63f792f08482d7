//! Several loops that one thread waits for together.

use core::time::Duration;
use std::io;
use std::os::fd::AsRawFd as _;

use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token};

use crate::net::pause;
use crate::{Net, NetError};

/// Loops reported by one wait at most; the next wait reports the others.
const EVENTS_MAX: usize = 64;

/// Waits for several [`Net`]s at once.
///
/// A round of the thread that owns them: [`Net::poll`] with a timeout of zero
/// for each loop that has something to do, [`Net::prepare_wait`] for all, then
/// [`NetSet::wait`] for the shortest of the times that those returned.
#[derive(Debug)]
pub struct NetSet {
    poll: Poll,
    events: Events,
}

impl NetSet {
    /// A set without loops.
    ///
    /// # Errors
    /// The system has no event queue left.
    pub fn new() -> Result<Self, NetError> {
        Ok(Self {
            poll: Poll::new().map_err(NetError::Loop)?,
            events: Events::with_capacity(EVENTS_MAX),
        })
    }

    /// Adds a loop, which is reported as `key`.
    ///
    /// # Errors
    /// The system refuses, or the loop is in a set already.
    pub fn insert(&mut self, key: usize, net: &Net) -> Result<(), NetError> {
        let queue = net.queue().as_raw_fd();
        let registry = self.poll.registry();
        registry
            .register(&mut SourceFd(&queue), Token(key), Interest::READABLE)
            .map_err(NetError::Loop)
    }

    /// Takes a loop out.
    ///
    /// # Errors
    /// The loop is not in the set.
    pub fn remove(&mut self, net: &Net) -> Result<(), NetError> {
        let queue = net.queue().as_raw_fd();
        let registry = self.poll.registry();
        registry
            .deregister(&mut SourceFd(&queue))
            .map_err(NetError::Loop)
    }

    /// Waits at most `timeout`, the first `gather` of it in any case, and gives `ready`
    /// the key of each loop for which the kernel has something since the last time.
    ///
    /// # Errors
    /// The event queue failed; the set cannot go on.
    pub fn wait(
        &mut self,
        timeout: Option<Duration>,
        gather: Duration,
        mut ready: impl FnMut(usize),
    ) -> io::Result<()> {
        let timeout = pause(gather, timeout);
        match self.poll.poll(&mut self.events, timeout) {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => return Ok(()),
            result => result?,
        }
        for event in &self.events {
            ready(event.token().0);
        }
        Ok(())
    }
}
