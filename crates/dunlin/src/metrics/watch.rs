//! Connections of clients on `$SYS`, for those who have subscribed to them: a
//! thread asks the shards who is watched, and writes the pages. Nothing is
//! written that is not read.

use core::time::Duration;
use std::io;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;

use dunlin_base::Text;
use dunlin_broker::control::values::{Reply, Request};

use super::shards::Shards;
use crate::control::clients;
use crate::daemon::mailbox::Addresses;
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
    pub(crate) fn start(shards: Addresses, interval: Duration) -> io::Result<Self> {
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
        let mut next = Some(0);
        while let Some(at) = next {
            let limit = CLIENTS_MAX;
            let reply = shards.control(shard, Request::Watched { at, limit });
            let Some(Reply::Clients(page)) = reply else {
                break;
            };
            for client in clients::described(shards, &page.rows) {
                let payload = serde_json::to_string(&client).unwrap_or_default();
                let client_id = Text::from(client.client_id);
                shards.mail(shard, Query::Publish { client_id, payload });
            }
            next = page.next;
        }
    }
}
