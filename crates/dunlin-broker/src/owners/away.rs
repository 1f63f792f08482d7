//! Links of a node that are detached and may come back: what their clients have not
//! settled stays theirs until then, or until its time is over.

use alloc::sync::Arc;
use alloc::vec::Vec;

use dunlin_base::{Instant, Message, ShardId};
use dunlin_queue::{Delivery, Next, State};
use dunlin_store::SessionKey;

use crate::ids::SessionRef;
use crate::owners::end::{Away, End};
use crate::owners::node::Node;
use crate::queues::calls::{Keep, Use};

/// Links of one node that are away; what further ones have not settled is given to
/// others.
pub(crate) const AWAY_MAX: usize = 256;

/// What a link that is away takes besides its name.
const AWAY_BYTES: usize = 512;

impl Node {
    /// What is due for a link: nothing waits for its credit.
    pub(super) fn next_due(&mut self, now: Instant) -> Option<(usize, Next<u32>)> {
        while let Some(at) = self.behind.front().copied() {
            let is_behind = |end: &End| end.away.is_none() && end.consumer.is_behind();
            if self.ends.get(at).is_some_and(is_behind) {
                // What is being loaded is due still.
                let next = self.with(at, |end, queue| end.poll(queue, now, 0))?;
                return Some((at, next));
            }
            self.behind.pop_front();
        }
        None
    }

    /// A message came from the store that a link is to have once more.
    pub(super) fn handle_loaded_due(&mut self, seq: u64, message: Option<&Arc<Message>>) -> bool {
        let behind = self.ends.iter().filter(|(_, end)| end.consumer.is_behind());
        let behind: Vec<usize> = behind.map(|(at, _)| at).collect();
        behind.into_iter().any(|at| {
            let taken = self.with(at, |end, _| {
                Some(end.consumer.handle_loaded_due(seq, message))
            });
            taken == Some(true)
        })
    }

    /// Bytes that links take that are away.
    pub(super) fn away_bytes(&self) -> usize {
        let away = self.ends.iter().filter(|(_, end)| end.away.is_some());
        let names = away.map(|(_, end)| end.keep.as_ref().map_or(0, |keep| keep.name.len()));
        names.map(|name| AWAY_BYTES + name).sum()
    }
}

/// The link of this name, attached or away.
pub(crate) fn find_kept(node: &Node, name: &str) -> Option<usize> {
    let mut ends = node.ends.iter();
    let found = ends.find(|(_, end)| {
        let keep = end.keep.as_ref().filter(|_| end.left.is_none());
        keep.is_some_and(|keep| *keep.name == *name)
    });
    found.map(|(at, _)| at)
}

/// A link is back, or another one has its name now. Who had it before comes out.
pub(crate) fn resume(
    node: &mut Node,
    at: usize,
    (shard, link): (ShardId, SessionRef),
    wants: Use,
    keep: Keep,
) -> Option<(ShardId, SessionRef)> {
    rest(node, at);
    let end = node.ends.get_mut(at)?;
    let before = (end.shard, end.link);
    let stolen = end.away.take().is_none().then_some(before);
    (end.shard, end.link, end.wants) = (shard, link, wants);
    end.consumer.set_recording(keep.durable);
    end.keep = Some(keep);
    stolen
}

/// Whether what a link has stays its own when it is detached.
pub(crate) fn may_go_away(node: &Node, at: usize) -> bool {
    let is_kept = node.ends.get(at).is_some_and(|end| end.keep.is_some());
    let away = node.ends.iter().filter(|(_, end)| end.away.is_some());
    is_kept && away.count() < AWAY_MAX
}

/// A link is detached and may come back.
pub(crate) fn go_away(node: &mut Node, at: usize) {
    rest(node, at);
    if let Some(end) = node.ends.get_mut(at) {
        end.away = Some(Away::default());
    }
}

/// A link does not come back; it stays until the store has answered about its keys.
pub(crate) fn give_up(node: &mut Node, at: usize) {
    node.leave(at, (false, false));
    if let Some(end) = node.ends.get_mut(at) {
        end.away = Some(Away::default());
    }
}

/// The time of a link that is away runs.
pub(crate) fn expire(node: &mut Node, at: usize, now: Instant) {
    if let Some(end) = node.ends.get_mut(at)
        && let (Some(away), Some(keep)) = (&mut end.away, &end.keep)
        && keep.secs < u32::MAX
    {
        let time = core::time::Duration::from_secs(u64::from(keep.secs));
        away.expires.get_or_insert(now + time);
    }
}

/// When the first of those ends that are away.
pub(crate) fn next(node: &Node) -> Option<Instant> {
    let ends = node.ends.iter();
    ends.filter_map(|(_, end)| end.away?.expires).min()
}

/// Links whose time is over.
pub(crate) fn over(node: &Node, now: Instant) -> Vec<usize> {
    let is_over = |away: Away| away.expires.is_some_and(|at| at <= now);
    let ends = node.ends.iter();
    ends.filter(|(_, end)| end.away.is_some_and(is_over))
        .map(|(at, _)| at)
        .collect()
}

/// The store knows a key: its message may leave. Those come out that were on their
/// way when their link was detached, which has not had them.
pub(crate) fn handle_key_stored(node: &mut Node, at: usize, key: u32) -> Vec<u32> {
    let Some(end) = node.ends.get_mut(at) else {
        return Vec::new();
    };
    end.consumer.handle_stored(key);
    let (stored, late) = core::mem::take(&mut end.late)
        .into_iter()
        .partition(|key| end.consumer.state(*key) != Some(State::Acquired));
    end.late = late;
    node.behind.push_back(at);
    stored
}

/// Keys of messages that a link has had and has not settled.
pub(crate) fn had(node: &Node, at: usize) -> Vec<u32> {
    let mut keys = node.unsettled(at);
    if let Some(end) = node.ends.get(at) {
        keys.retain(|key| !end.late.contains(key));
    }
    keys
}

/// A delivery whose key the store is being asked to keep.
pub(crate) fn acquired(node: &Node, name: &str, key: u32) -> Option<(usize, u64)> {
    let mut ends = node.ends.iter();
    ends.find_map(|(at, end)| {
        let keep = end.keep.as_ref()?;
        let is_it = *keep.name == *name && end.consumer.state(key) == Some(State::Acquired);
        let seq = end.consumer.delivery(key)?.seq?;
        is_it.then_some((at, seq))
    })
}

/// The link wants a message once more.
pub(crate) fn resend(node: &mut Node, at: usize, key: u32) {
    if let Some(end) = node.ends.get_mut(at)
        && end.consumer.contains(key)
    {
        end.consumer.resend(key);
        end.again.push(key);
        node.behind.push_back(at);
    }
}

/// Whether the link has had the message of a transfer before.
pub(crate) fn take_again(node: &mut Node, at: usize, key: u32) -> bool {
    let Some(end) = node.ends.get_mut(at) else {
        return false;
    };
    let place = end.again.iter().position(|it| *it == key);
    place.map(|place| end.again.swap_remove(place)).is_some()
}

/// What a link had when an earlier process ended, which is away now.
pub(crate) fn restore(node: &mut Node, keep: Keep, had: Vec<(u32, Delivery)>) -> usize {
    let key = SessionKey(0);
    let unknown = SessionRef {
        key,
        at: usize::MAX,
    };
    let wants = Use::Take { settled: false };
    let at = node.attach((ShardId(0), unknown), wants, None, Some(keep));
    for (key, delivery) in had {
        node.with(at, |end, queue| {
            end.last_key = match end.last_key.wrapping_sub(key).cast_signed() >= 0 {
                true if !end.consumer.is_empty() => end.last_key,
                _ => key,
            };
            end.consumer.restore(queue, key, Some(delivery));
            Some(())
        });
    }
    go_away(node, at);
    at
}

/// Messages that have to be loaded, those aside, else for a link; and the bytes of those
/// for a link.
pub(crate) fn stored_at_front(
    node: &Node,
    at: usize,
    max: usize,
    bytes_max: usize,
) -> (Vec<u64>, usize) {
    let aside = node.aside.stored(max, bytes_max);
    if !aside.is_empty() {
        return (aside, 0);
    }
    let end = node.ends.get(at);
    let seqs = end.map(|end| end.consumer.stored_at_front(&node.queue, max, bytes_max));
    seqs.unwrap_or_default()
}

/// A link takes no more for now.
fn rest(node: &mut Node, at: usize) {
    node.leave(at, (false, false));
    if let Some(end) = node.ends.get_mut(at) {
        end.left = None;
    }
}
