//! Asking shards from other threads: questions go as mail, answers are waited
//! for, but not for long.

use core::time::Duration;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Instant;

use dunlin_base::{ConnId, ShardId};
use dunlin_broker::ClientView;
use dunlin_net::ConnStats;

use crate::daemon::mailbox::{Address, Mail};
use crate::daemon::query::Query;

/// Time for shards to answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);

/// The shards, by their addresses.
pub(super) struct Shards(Vec<Address>);

impl Shards {
    pub(super) const fn new(shards: Vec<Address>) -> Self {
        Self(shards)
    }

    pub(super) const fn count(&self) -> usize {
        self.0.len()
    }

    /// Their numbers.
    pub(super) fn ids(&self) -> impl Iterator<Item = ShardId> + use<> {
        (0..u16::try_from(self.0.len()).unwrap_or(u16::MAX)).map(ShardId)
    }

    /// Sends a question.
    pub(super) fn mail(&self, shard: ShardId, query: Query) {
        if let Some(address) = self.0.get(usize::from(shard.0)) {
            address.send(Mail::Query(query));
        }
    }

    /// Asks one shard; `None`: it does not answer in time.
    pub(super) fn ask<T>(
        &self,
        shard: ShardId,
        query: impl FnOnce(Sender<T>) -> Query,
    ) -> Option<T> {
        let (reply, answer) = channel();
        self.mail(shard, query(reply));
        answer.recv_timeout(ANSWER_TIMEOUT).ok()
    }

    /// Asks all shards; those that do not answer in time are left out.
    pub(super) fn ask_all<T>(&self, query: impl Fn(Sender<T>) -> Query) -> Vec<T> {
        let waiting: Vec<Receiver<T>> = self
            .ids()
            .map(|shard| {
                let (reply, answer) = channel();
                self.mail(shard, query(reply));
                answer
            })
            .collect();
        collect(&waiting)
    }
    /// What the shards of their sockets know, in the order of connections.
    pub(super) fn stats(&self, views: &[ClientView]) -> Vec<(ConnId, ConnStats)> {
        let mut found = Vec::new();
        let mut waiting = Vec::new();
        for shard in self.ids() {
            let of_shard = views.iter().filter_map(|view| view.conn);
            let conns: Vec<ConnId> = of_shard.filter(|conn| conn.shard() == shard).collect();
            if !conns.is_empty() {
                let (reply, answer) = channel();
                self.mail(shard, Query::Conns { conns, reply });
                waiting.push(answer);
            }
        }
        for answer in collect(&waiting) {
            found.extend(answer);
        }
        found.sort_by_key(|(conn, _)| *conn);
        found
    }
}

/// Answers that come in time.
fn collect<T>(waiting: &[Receiver<T>]) -> Vec<T> {
    let deadline = Instant::now() + ANSWER_TIMEOUT;
    let within = |answer: &Receiver<T>| {
        let left = deadline.saturating_duration_since(Instant::now());
        answer.recv_timeout(left).ok()
    };
    waiting.iter().filter_map(within).collect()
}
