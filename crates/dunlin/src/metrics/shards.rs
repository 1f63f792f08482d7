//! Asking shards from other threads: questions go as mail, answers are waited
//! for, but not for long.

use core::time::Duration;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Instant;

use dunlin_base::{ConnId, ShardId};
use dunlin_broker::control::values::{ClientView, Reply, Request};
use dunlin_net::ConnStats;

use super::report::ShardReport;
use crate::daemon::mailbox::{Addresses, Mail};
use crate::daemon::query::Query;

/// Time for shards to answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);

/// Whether the shards answer.
#[derive(Debug)]
pub struct Pulse(Shards);

impl Pulse {
    pub(crate) const fn new(shards: Addresses) -> Self {
        Self(Shards::new(shards))
    }

    /// Of a process without shards.
    #[cfg(feature = "cluster")]
    pub(crate) fn of_none() -> Self {
        Self::new(Addresses::default())
    }

    /// All of them do, within two seconds.
    #[must_use]
    pub fn is_there(&self) -> bool {
        self.0.answering() == self.0.count()
    }
}

/// The shards, by their addresses.
#[derive(Clone, Debug)]
pub(crate) struct Shards(Addresses);

impl Shards {
    pub(crate) const fn new(shards: Addresses) -> Self {
        Self(shards)
    }

    pub(crate) fn count(&self) -> usize {
        self.0.len()
    }

    /// Their numbers.
    pub(crate) fn ids(&self) -> impl Iterator<Item = ShardId> + use<> {
        self.0.ids()
    }

    /// The number of the first one.
    pub(crate) const fn first(&self) -> ShardId {
        self.0.first()
    }

    /// Which of them owns what is durable under a name.
    pub(crate) fn home(&self, name: &str) -> ShardId {
        self.0.home(name)
    }

    /// Whether a shard is one of them.
    pub(crate) fn has(&self, shard: ShardId) -> bool {
        self.0.place(shard).is_some()
    }

    /// How many of them answer in time.
    pub(crate) fn answering(&self) -> usize {
        let nothing = |reply| Query::Conns {
            conns: Vec::new(),
            reply,
        };
        self.ask_all(nothing).len()
    }

    /// Sends a question.
    pub(crate) fn mail(&self, shard: ShardId, query: Query) {
        if let Some(address) = self.0.get(shard) {
            address.send(Mail::Query(query));
        }
    }

    /// Asks one shard; `None`: it does not answer in time.
    pub(crate) fn ask<T>(
        &self,
        shard: ShardId,
        query: impl FnOnce(Sender<T>) -> Query,
    ) -> Option<T> {
        let (reply, answer) = channel();
        self.mail(shard, query(reply));
        answer.recv_timeout(ANSWER_TIMEOUT).ok()
    }

    /// Asks all shards; those that do not answer in time are left out.
    pub(crate) fn ask_all<T>(&self, query: impl Fn(Sender<T>) -> Query) -> Vec<T> {
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

    /// Asks one shard as an operator; `None`: it does not answer in time.
    pub(crate) fn control(&self, shard: ShardId, request: Request) -> Option<Reply> {
        self.ask(shard, |reply| Query::Control { request, reply })
    }

    /// Asks all shards as an operator, by shard; `None`: it does not answer in time.
    pub(crate) fn control_all(&self, request: &Request) -> Vec<(ShardId, Option<Reply>)> {
        let ask = |shard| {
            let (reply, answer) = channel();
            let request = request.clone();
            self.mail(shard, Query::Control { request, reply });
            (shard, answer)
        };
        let waiting: Vec<_> = self.ids().map(ask).collect();
        let deadline = Instant::now() + ANSWER_TIMEOUT;
        let waiting = waiting.into_iter();
        waiting
            .map(|(shard, answer)| (shard, within(deadline, &answer)))
            .collect()
    }

    /// Counters of the shards that answer in time.
    pub(crate) fn reports(&self) -> Vec<ShardReport> {
        self.ask_all(Query::Report)
    }

    /// What the shards of their sockets know, in the order of connections.
    pub(crate) fn stats(&self, views: &[ClientView]) -> Vec<(ConnId, ConnStats)> {
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
    let waiting = waiting.iter();
    waiting
        .filter_map(|answer| within(deadline, answer))
        .collect()
}

fn within<T>(deadline: Instant, answer: &Receiver<T>) -> Option<T> {
    let left = deadline.saturating_duration_since(Instant::now());
    answer.recv_timeout(left).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::daemon::mailbox::Inbox;
    use crate::daemon::mailbox::tests::event_loop;

    #[test]
    fn a_shard_that_does_not_answer_is_noticed() {
        assert!(Pulse::new(Addresses::default()).is_there());
        let net = event_loop();
        let (_inbox, address) = Inbox::new(net.waker());
        assert!(!Pulse::new(Addresses::new(ShardId(0), vec![address])).is_there());
    }
}
