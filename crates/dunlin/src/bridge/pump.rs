//! Carries messages one way: from the messages of one client to others that publish
//! them. A message is acknowledged to its source when its target has acknowledged it, in
//! the order in which messages came, so that nothing acknowledged is lost.

use core::hash::{BuildHasher as _, BuildHasherDefault};
use core::time::Duration;
use std::collections::hash_map::DefaultHasher;
use std::sync::Arc;
use std::time::Instant;

use dunlin_client::{
    Client, CommandError, Delivery, Message, Messages, Publish, PublishError, QoS, ReasonCode,
};
use tokio::sync::{Mutex, OwnedSemaphorePermit, Semaphore, mpsc, watch};
use tokio::task::JoinSet;

use super::route::{Dropped, Route, Way};
use super::stats::Stats;

/// Wait before a message that its target had no room for is published again.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Bytes of messages on their way in one direction, after which the source is not read.
const BYTES_MAX: usize = 16 << 20;

/// Messages that are carried. Their client acknowledges what it receives when this is
/// dropped, so that it is kept until the client has ended.
pub(super) type Source = Arc<Mutex<Messages>>;

/// Why a task of a bridge has ended.
#[derive(Debug)]
pub(super) enum Ended {
    /// It was asked to, or has nothing more to do.
    Done,
    /// One of the clients is closed: the bridge begins again.
    Closed,
}

/// One way of a bridge.
pub(super) struct Pump {
    pub(super) route: Route,
    pub(super) stats: Arc<Stats>,
    /// Most messages on their way.
    pub(super) window: usize,
    /// For bytes of them.
    pub(super) room: Arc<Semaphore>,
}

/// A message on its way to a target.
struct Item {
    publish: Publish,
    qos: QoS,
    message: Message,
    /// Its part of the room.
    _room: OwnedSemaphorePermit,
}

impl Item {
    /// As the server takes it, if that is known: some have no QoS 2, or no retained
    /// messages.
    fn fitted(&self, target: &Client) -> Publish {
        let publish = self.publish.clone();
        match target.negotiated() {
            Some(terms) => publish
                .qos(self.qos.min(terms.maximum_qos))
                .retain(self.message.retain && terms.retain_available),
            None => publish,
        }
    }
}

/// One that was handed over to the target's client.
struct Sent {
    item: Item,
    delivery: Delivery,
    at: Instant,
}

impl Pump {
    /// Room for bytes of one direction.
    pub(super) fn room() -> Arc<Semaphore> {
        Arc::new(Semaphore::new(BYTES_MAX))
    }

    /// Begins to carry; the tasks end with the first client that is closed, or when all
    /// that was taken from the source is settled after `stop`.
    pub(super) fn start(
        self,
        source: Source,
        targets: Vec<Client>,
        stop: watch::Receiver<bool>,
        tasks: &mut JoinSet<Ended>,
    ) {
        let pump = Arc::new(self);
        let mut lanes = Vec::new();
        for target in targets {
            let (to_send, items) = mpsc::channel(pump.window);
            let (to_settle, sent) = mpsc::channel(pump.window);
            tasks.spawn(send(target.clone(), items, to_settle));
            tasks.spawn(settle(Arc::clone(&pump), target.clone(), sent));
            lanes.push(Lane { target, to_send });
        }
        tasks.spawn(read(pump, source, lanes, stop));
    }

    /// Room for a message, as soon as there is; a lossy one does not wait.
    async fn room_for(&self, message: &Message, is_lossy: bool) -> Option<OwnedSemaphorePermit> {
        let properties = message.properties.as_ref().map_or(0, |it| it.cost());
        let bytes = message.topic.len() + message.payload.len() + properties;
        let bytes = u32::try_from(bytes.min(BYTES_MAX)).unwrap_or(u32::MAX);
        let room = Arc::clone(&self.room);
        match is_lossy {
            true => room.try_acquire_many_owned(bytes).ok(),
            false => room.acquire_many_owned(bytes).await.ok(),
        }
    }

    fn leave_out(&self, message: Message, why: Dropped) {
        tracing::debug!(
            way = self.route.way.name(),
            cause = why.name(),
            "a message was not carried"
        );
        self.stats.dropped(why);
        message.acknowledge();
    }
}

/// A client that publishes, and what it is to publish.
struct Lane {
    target: Client,
    to_send: mpsc::Sender<Item>,
}

/// Takes messages from the source and gives each to the lane of its topic.
async fn read(
    pump: Arc<Pump>,
    source: Source,
    lanes: Vec<Lane>,
    mut stop: watch::Receiver<bool>,
) -> Ended {
    let mut messages = source.lock().await;
    loop {
        let next = tokio::select! {
            next = messages.next() => next,
            _ = stop.wait_for(|stop| *stop) => return Ended::Done,
        };
        let Some(message) = next else {
            return Ended::Closed;
        };
        let (publish, qos) = match pump.route.map(&message) {
            Ok(mapped) => mapped,
            Err(why) => {
                pump.leave_out(message, why);
                continue;
            }
        };
        let at = lane_of(publish.topic(), lanes.len());
        let Some(lane) = lanes.get(at) else {
            return Ended::Closed;
        };
        let is_lossy = message.qos == QoS::AtMostOnce;
        if is_lossy && lane.target.transport().is_none() {
            pump.leave_out(message, Dropped::Away);
            continue;
        }
        let Some(room) = pump.room_for(&message, is_lossy).await else {
            pump.leave_out(message, Dropped::Slow);
            continue;
        };
        let item = Item {
            publish,
            qos,
            message,
            _room: room,
        };
        if is_lossy {
            if let Err(mpsc::error::TrySendError::Full(item)) = lane.to_send.try_send(item) {
                pump.leave_out(item.message, Dropped::Slow);
            }
        } else if lane.to_send.send(item).await.is_err() {
            return Ended::Closed;
        }
    }
}

/// Messages of a topic take the same way, so that they keep their order.
fn lane_of(topic: &str, lanes: usize) -> usize {
    if lanes <= 1 {
        return 0;
    }
    let hasher = BuildHasherDefault::<DefaultHasher>::default();
    (hasher.hash_one(topic) % lanes as u64) as usize
}

/// Hands messages over to the client, as far as it takes them.
async fn send(
    target: Client,
    mut items: mpsc::Receiver<Item>,
    to_settle: mpsc::Sender<Sent>,
) -> Ended {
    while let Some(item) = items.recv().await {
        let Ok(delivery) = target.start_publish(item.fitted(&target)).await else {
            return Ended::Closed;
        };
        let at = Instant::now();
        let sent = Sent { item, delivery, at };
        if to_settle.send(sent).await.is_err() {
            return Ended::Closed;
        }
    }
    Ended::Done
}

/// Waits for what became of messages, in their order, and acknowledges them.
async fn settle(pump: Arc<Pump>, target: Client, mut sent: mpsc::Receiver<Sent>) -> Ended {
    while let Some(Sent { item, delivery, at }) = sent.recv().await {
        let mut outcome = delivery.await;
        while let Some(wait) = retry_after(&outcome, &item, &target) {
            tokio::time::sleep(wait).await;
            outcome = target.publish(item.fitted(&target)).await;
        }
        let Item {
            publish, message, ..
        } = item;
        match outcome {
            Ok(_) => {
                if pump.route.way == Way::Out && message.qos != QoS::AtMostOnce {
                    pump.stats.round_trip(at.elapsed());
                }
                pump.stats.carried(pump.route.way, publish.payload().len());
                message.acknowledge();
            }
            Err(PublishError::Closed(_)) => return Ended::Closed,
            Err(error) => {
                tracing::debug!(%error, "a message of a bridge was not taken");
                pump.leave_out(message, Dropped::Refused);
            }
        }
    }
    Ended::Done
}

/// When to publish a message once more: there was no room for it, or it was written before
/// it was known what the server takes.
fn retry_after(
    outcome: &Result<ReasonCode, PublishError>,
    item: &Item,
    target: &Client,
) -> Option<Duration> {
    match outcome {
        Err(PublishError::Refused {
            reason: ReasonCode::QuotaExceeded,
        }) => Some(RETRY_AFTER),
        Err(PublishError::NotSupported(why)) => {
            let Some(terms) = target.negotiated() else {
                return Some(RETRY_AFTER);
            };
            let fits_now = match why {
                CommandError::QosNotSupported => item.qos > terms.maximum_qos,
                CommandError::RetainNotSupported => item.message.retain && !terms.retain_available,
                _ => false,
            };
            fits_now.then_some(Duration::ZERO)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn topics_are_spread_and_keep_their_lane() {
        let lanes: Vec<usize> = (0..64).map(|n| lane_of(&format!("a/{n}"), 4)).collect();
        for lane in 0..4 {
            assert!(lanes.contains(&lane), "{lanes:?}");
        }
        assert!((0..64).all(|n| lane_of(&format!("a/{n}"), 4) == lanes[n]));
        assert_eq!(lane_of("a", 1), 0);
    }
}
