//! Connections of clients on `$SYS`, for those who have subscribed to them: a
//! thread asks the shards who is watched, and writes the pages. Nothing is
//! written that is not read.

use core::time::Duration;
use std::io;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;

use dunlin_broker::ClientView;

use super::page;
use super::shards::Shards;
use crate::daemon::mailbox::Address;
use crate::daemon::query::Query;

/// Clients looked at between two batches of a shard.
const CLIENTS_MAX: usize = 1000;

/// A running thread. Dropping it stops it.
#[derive(Debug)]
pub(crate) struct Watch {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Watch {
    /// Begins to tell, once in so long.
    pub(crate) fn start(shards: Vec<Address>, interval: Duration) -> io::Result<Self> {
        let (stop, stopped) = channel();
        let shards = Shards::new(shards);
        let thread = std::thread::Builder::new()
            .name("sys".into())
            .spawn(move || {
                while stopped.recv_timeout(interval) == Err(RecvTimeoutError::Timeout) {
                    tell(&shards);
                }
            })?;
        Ok(Self {
            stop: Some(stop),
            thread: Some(thread),
        })
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// One round over all shards.
fn tell(shards: &Shards) {
    for shard in shards.ids() {
        let mut after = None;
        loop {
            let query = |reply| Query::Watched {
                after,
                limit: CLIENTS_MAX,
                reply,
            };
            let Some((views, next)) = shards.ask::<(Vec<ClientView>, _)>(shard, query) else {
                break;
            };
            let stats = shards.stats(&views);
            for view in &views {
                let at = view
                    .conn
                    .and_then(|conn| stats.binary_search_by_key(&conn, |(conn, _)| *conn).ok());
                let stats = at.and_then(|at| stats.get(at)).map(|(_, stats)| stats);
                let client_id = view.client_id.clone();
                let payload = page::client(view, stats).to_string();
                shards.mail(shard, Query::Publish { client_id, payload });
            }
            if next.is_none() {
                break;
            }
            after = next;
        }
    }
}
