//! The register as one listener of one shard sees it: what TLS asks, and what
//! came of it.

use std::sync::{Arc, Mutex, PoisonError};

use dunlin_base::ShardId;
use rustls::server::StoresServerSessions;

use super::{Refusal, Scope, StrikeId, TicketRegister};

/// Answers TLS from the register, and notes what was asked. TLS asks while a
/// datagram is handled; the loop looks at the notes right after it.
pub(crate) struct Front {
    pub(crate) register: Arc<TicketRegister>,
    pub(crate) scope: Scope,
    pub(crate) shard: ShardId,
    pub(crate) seen: Seen,
}

/// Notes of one shard, shared by the fronts of its listeners.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen(Arc<Mutex<Notes>>);

/// What TLS asked since the last look.
#[derive(Debug, Default)]
pub struct Notes {
    /// The first ticket that was offered: TLS takes early data with no other.
    pub verdict: Option<Verdict>,
    /// Tickets given to clients.
    pub issued: u64,
    /// Tickets given up while good, for want of room.
    pub evicted: u64,
}

/// What came of a ticket.
pub type Verdict = Result<StrikeId, Refusal>;

impl Seen {
    /// The notes, which begin again.
    pub(crate) fn take(&self) -> Notes {
        self.with(core::mem::take)
    }

    fn with<R>(&self, f: impl FnOnce(&mut Notes) -> R) -> R {
        f(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl StoresServerSessions for Front {
    fn put(&self, key: Vec<u8>, value: Vec<u8>) -> bool {
        let evicted = self.register.put(&key, value, self.scope);
        if let Some(evicted) = evicted {
            self.seen.with(|notes| {
                notes.issued += 1;
                notes.evicted += evicted;
            });
        }
        evicted.is_some()
    }

    /// TLS 1.3 never asks this: who gets a session strikes it off.
    fn get(&self, _key: &[u8]) -> Option<Vec<u8>> {
        None
    }

    fn take(&self, key: &[u8]) -> Option<Vec<u8>> {
        let (verdict, session) = match self.register.take(key, &self.scope, self.shard) {
            Ok((strike, session)) => (Ok(strike), Some(session)),
            Err(refusal) => (Err(refusal), None),
        };
        self.seen
            .with(|notes| _ = notes.verdict.get_or_insert(verdict));
        session
    }

    fn can_cache(&self) -> bool {
        true
    }
}

dunlin_base::opaque_debug!(Front);
