//! The entry of this node: a free number is taken, the entry is renewed, and it is found out
//! that it is there no more. Reads the entries of all on the way. Knows no link.

use std::collections::BTreeSet;
use std::sync::Arc;

use async_nats::Client;
use bytes::Bytes;
use tokio::sync::mpsc::{Receiver, Sender};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};

use crate::authority::Authority;
use crate::config::Config;
use crate::error::{Expelled, JoinError};
use crate::ids::{Incarnation, NodeId};
use crate::kv::{AskError, Bucket, Item};
use crate::limits::{ASK_AGAIN, JOIN_TRIES_MAX, LOOK_LEAST, RECONNECT_AFTER, RENEW_EVERY};
use crate::member::{Encoding, Member};
use crate::roster::{Listed, Listing};

/// What the task is to do besides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// Read the entries now.
    Look,
    /// End this node's entry, if it was not changed since this revision.
    Evict(NodeId, u64),
    /// End the own entry, and the task.
    Leave,
}

/// What the task found.
#[derive(Debug)]
pub(crate) enum Report {
    Listing(Listing),
    Evicted(NodeId),
    Expelled(Expelled),
    /// The own entry has ended, as was ordered.
    Left,
}

/// The entry of this node in the bucket.
pub(crate) struct Entry {
    bucket: Bucket,
    client: Client,
    pub(crate) member: Arc<Member>,
    value: Bytes,
    ttl: core::time::Duration,
    revision: u64,
    /// When the last renewal that the server acknowledged was sent.
    fresh: Instant,
    reconnected: Instant,
}

fn node_of(key: &str) -> Option<NodeId> {
    key.parse().ok().and_then(NodeId::new)
}

/// Numbers that no node has.
fn free(items: &[Item]) -> Vec<NodeId> {
    let used = items.iter().filter(|item| item.value.is_some());
    let used: BTreeSet<_> = used.filter_map(|item| node_of(&item.key)).collect();
    NodeId::all().filter(|node| !used.contains(node)).collect()
}

/// A member that a node with this encoding does not understand, or that does not understand it.
fn misfit(items: &[Item], own: Encoding, authority: &Authority) -> Option<Member> {
    let mut members = items.iter().filter_map(|item| {
        let (node, value) = (node_of(&item.key)?, item.value.as_ref()?);
        Member::decode(node, value, authority).ok()
    });
    members.find(|member| !own.fits(member.about.encoding))
}

/// Whether a value is of this membership.
fn is_own(item: &Item, value: &Bytes) -> bool {
    item.value.as_ref() == Some(value)
}

impl Entry {
    /// Takes a free number: the wanted one, or the lowest; when another node was faster, any.
    pub(crate) async fn take(
        client: &Client,
        bucket: &Bucket,
        config: &Config,
        authority: &Authority,
        incarnation: Incarnation,
    ) -> Result<Self, JoinError> {
        let until = Instant::now() + config.patience;
        let mut random = dunlin_base::Random::new(incarnation.0);
        for attempt in 0..JOIN_TRIES_MAX {
            let items = match bucket.list().await {
                Ok((items, _)) => items,
                Err(AskError::Silent(_)) if Instant::now() < until => {
                    sleep(ASK_AGAIN).await;
                    continue;
                }
                Err(error) => return Err(JoinError::Server(error.to_string())),
            };
            let ours = config.about.encoding;
            if let Some(member) = misfit(&items, ours, authority) {
                return Err(JoinError::encoding(member, ours));
            }
            let free = free(&items);
            let wanted = config.wanted.filter(|node| free.contains(node));
            let at = random.below(free.len() as u64);
            let node = match attempt {
                0 => wanted.or_else(|| free.first().copied()),
                _ => usize::try_from(at)
                    .ok()
                    .and_then(|at| free.get(at).copied()),
            };
            let member = Member {
                node: node.ok_or(JoinError::Full)?,
                incarnation,
                about: config.about.clone(),
            };
            let mut entry = Self {
                bucket: bucket.clone(),
                client: client.clone(),
                value: Bytes::from(member.encode(authority)),
                member: Arc::new(member),
                ttl: config.timing.ttl,
                revision: 0,
                fresh: Instant::now(),
                reconnected: Instant::now(),
            };
            match entry.write_first(&items).await {
                Ok(true) => return Ok(entry),
                Err(error) if Instant::now() >= until => {
                    return Err(JoinError::Server(error.to_string()));
                }
                Ok(false) | Err(_) => {}
            }
        }
        Err(JoinError::Full)
    }

    /// Writes the entry where there is none; whether it is there then.
    async fn write_first(&mut self, items: &[Item]) -> Result<bool, AskError> {
        let key = self.member.node.to_string();
        let mark = items.iter().find(|item| item.key == key);
        let last = mark.map_or(0, |item| item.revision);
        let put = self.bucket.put(&key, self.value.clone(), last, self.ttl);
        if let Ok(revision) = put.await {
            self.revision = revision;
            return Ok(true);
        }
        // It may be there although no answer came.
        match self.bucket.get(&key).await? {
            Some(item) if is_own(&item, &self.value) => {
                self.revision = item.revision;
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    /// Renews the entry and reads those of all, until the node is expelled or leaves.
    pub(crate) async fn keep(mut self, mut orders: Receiver<Order>, reports: Sender<Report>) {
        let mut ticks = interval(RENEW_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut looked = Instant::now();
        loop {
            let order = tokio::select! {
                order = orders.recv() => Some(order.unwrap_or(Order::Leave)),
                _ = ticks.tick() => None,
            };
            let report = match order {
                Some(Order::Leave) => {
                    self.leave().await;
                    // Without a receiver, nothing wants it.
                    let _ = reports.send(Report::Left).await;
                    return;
                }
                Some(Order::Evict(node, revision)) => {
                    let ended = self.bucket.delete(&node.to_string(), revision).await;
                    if ended.is_ok() && reports.send(Report::Evicted(node)).await.is_err() {
                        return;
                    }
                    self.look(&mut looked).await
                }
                Some(Order::Look) if looked.elapsed() < LOOK_LEAST => None,
                Some(Order::Look) => self.look(&mut looked).await,
                None => {
                    let report = self.look(&mut looked).await;
                    if let Err(cause) = self.renew().await {
                        let _ = reports.send(Report::Expelled(cause)).await;
                        return;
                    }
                    report
                }
            };
            if let Some(report) = report
                && reports.send(report).await.is_err()
            {
                return;
            }
        }
    }

    /// The entries of all, unless the server that answered is behind what this node knows.
    async fn look(&self, looked: &mut Instant) -> Option<Report> {
        let (items, up_to) = self.bucket.list().await.ok()?;
        *looked = Instant::now();
        let own = self.member.node.to_string();
        let is_current = |item: &Item| item.key == own && item.revision >= self.revision;
        if !items.iter().any(is_current) {
            return None;
        }
        let entries = items.into_iter().filter_map(|item| {
            Some(Listed {
                node: node_of(&item.key)?,
                revision: item.revision,
                value: item.value,
            })
        });
        Some(Report::Listing(Listing {
            entries: entries.collect(),
            up_to,
        }))
    }

    async fn renew(&mut self) -> Result<(), Expelled> {
        let key = self.member.node.to_string();
        let sent = Instant::now();
        // Before anything is asked: this process may have stood still.
        if self.fresh.elapsed() >= self.ttl {
            return Err(Expelled::Silent);
        }
        let put = self
            .bucket
            .put(&key, self.value.clone(), self.revision, self.ttl)
            .await;
        match put {
            Ok(revision) => {
                self.revision = revision;
                self.fresh = sent;
                return Ok(());
            }
            Err(error) => tracing::debug!("the entry of this node is not renewed: {error}"),
        }
        // A refusal is no proof: an entry may have been renewed without an answer, and a server
        // was seen to refuse the revision that it had given.
        match self.bucket.get(&key).await {
            Ok(Some(item)) if is_own(&item, &self.value) => self.revision = item.revision,
            Ok(Some(Item { value: Some(_), .. })) => return Err(Expelled::Taken),
            Ok(_) => return Err(Expelled::Ended),
            Err(_) if self.fresh.elapsed() >= self.ttl => return Err(Expelled::Silent),
            Err(_) => self.reconnect().await,
        }
        Ok(())
    }

    /// Has the client look for another server, when this one has been silent for long.
    async fn reconnect(&mut self) {
        let silent = self.fresh.elapsed().min(self.reconnected.elapsed());
        if silent >= RECONNECT_AFTER {
            self.reconnected = Instant::now();
            let _ = self.client.force_reconnect().await;
        }
    }

    /// Ends the entry, if the server answers.
    async fn leave(&mut self) {
        let key = self.member.node.to_string();
        for _ in 0..2 {
            match self.bucket.delete(&key, self.revision).await {
                Err(error) if error.is_wrong_last() => match self.bucket.get(&key).await {
                    Ok(Some(item)) if is_own(&item, &self.value) => self.revision = item.revision,
                    _ => return,
                },
                _ => return,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::member::About;

    #[test]
    fn a_member_of_a_release_that_is_not_understood_is_found() {
        let authority = Authority::new(b"a secret of sixteen", "dl");
        let stranger = Authority::new(b"another secret of it", "dl");
        let item = |node: u16, encoding, by: &Authority| {
            let member = Member {
                node: NodeId::new(node).expect("a number"),
                incarnation: Incarnation(7),
                about: About {
                    name: format!("node-{node}"),
                    version: "0.9.0".to_owned(),
                    encoding,
                    ..About::default()
                },
            };
            Item {
                key: node.to_string(),
                revision: 1,
                value: Some(Bytes::from(member.encode(by))),
            }
        };
        let of = |version, least, oldest| Encoding {
            version,
            least,
            oldest,
        };
        let (own, next, later) = (of(2, 2, 1), of(3, 2, 2), of(5, 5, 4));
        let ended = Item {
            value: None,
            ..item(4, later, &authority)
        };
        let mut items = vec![
            item(1, own, &authority),
            item(2, next, &authority),
            item(3, later, &stranger),
            ended,
        ];
        assert_eq!(misfit(&items, own, &authority), None);
        items.push(item(5, later, &authority));
        let found = misfit(&items, own, &authority).expect("one that does not fit");
        let text = JoinError::encoding(found, own).to_string();
        for part in [
            "node 5",
            "node-5, release 0.9.0",
            "writes version 5",
            "reads 1 to 2",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }
}
