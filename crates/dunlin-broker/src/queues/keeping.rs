//! Deliveries that a client has not settled, in the store: named values beside the
//! sessions, one for each delivery.
//!
//! One that the broker sends is written before it leaves, under the key of its node;
//! one that it received, in the batch of its message. Both go when the delivery is
//! settled, or what is kept of the link ends. A value that names a message that is not
//! in its queue any more says nothing: that delivery was settled.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use bytes::Bytes;
use dunlin_base::Text;
use dunlin_queue::{Delivery, Outcome, Settled};
use dunlin_store::{Recovered, SessionKey, StoreOp};

use crate::ids::SessionIdx;
use crate::owners::pending::{Acquired, Pending};
use crate::owners::{Owners, away};
use crate::queues::calls::{Keep, Outcomes};

/// In front of the name of a value about a delivery that was sent.
const SENT: &str = "unsettled/sent/";

/// Likewise, one that was received.
const RECEIVED: &str = "unsettled/received/";

/// Of both kinds of values.
const VERSION: u8 = 1;

fn name_of_sent(node: SessionKey, key: u32, link: &str) -> Text {
    Text::from(format!("{SENT}{:016x}/{key:08x}/{link}", node.0))
}

/// A delivery that was sent, as the store has it.
#[derive(Debug)]
struct Sent {
    node: SessionKey,
    key: u32,
    seq: u64,
    keep: Keep,
}

impl Sent {
    fn parse(name: &str, value: &[u8]) -> Option<Self> {
        let (node, rest) = name.strip_prefix(SENT)?.split_once('/')?;
        let (key, link) = rest.split_once('/')?;
        let (version, value) = value.split_first()?;
        let (seq, value) = value.split_first_chunk()?;
        let (secs, _) = value.split_first_chunk()?;
        (*version == VERSION).then_some(Self {
            node: SessionKey(u64::from_str_radix(node, 16).ok()?),
            key: u32::from_str_radix(key, 16).ok()?,
            seq: u64::from_le_bytes(*seq),
            keep: Keep {
                name: Text::from(link),
                secs: u32::from_le_bytes(*secs),
                durable: true,
                serial: 0,
            },
        })
    }
}

/// Has the store know the key of a message before it leaves.
pub(crate) fn record(own: &mut Owners, acquired: Acquired) {
    let Some(s) = own.sessions.resolve(acquired.node) else {
        return;
    };
    let Some(node) = own.sessions.node_mut(s) else {
        return;
    };
    let Some((at, seq)) = away::acquired(node, &acquired.name, acquired.key) else {
        return;
    };
    let of = node.key;
    let end = node.at(at).and_then(|end| end.keep.as_ref());
    let secs = end.map_or(0, |keep| keep.secs);
    let mut value = alloc::vec![VERSION];
    value.extend_from_slice(&seq.to_le_bytes());
    value.extend_from_slice(&secs.to_le_bytes());
    own.commits.write(StoreOp::PutMeta {
        key: name_of_sent(of, acquired.key, &acquired.name),
        value: Bytes::from(value),
    });
    let token = own.commits.token();
    let pending = Pending::Acquired(Box::new(acquired));
    own.commits.when_stored(token, pending);
}

/// A message leaves its link at the node: the store forgets its key.
pub(crate) fn settle(
    own: &mut Owners,
    s: SessionIdx,
    at: usize,
    key: u32,
    outcome: Outcome,
) -> Settled {
    let Some(node) = own.sessions.node_mut(s) else {
        return Settled::Unknown;
    };
    let of = node.key;
    let keep = node.at(at).and_then(|end| end.keep.as_ref());
    let link = keep.map(|keep| keep.name.clone());
    let settled = node.settle(at, key, outcome);
    let (Settled::Done { key_stored, .. }
    | Settled::Requeued { key_stored }
    | Settled::Returned { key_stored, .. }) = settled
    else {
        return settled;
    };
    if let Some(link) = link.filter(|_| key_stored) {
        let key = name_of_sent(of, key, &link);
        own.commits.write(StoreOp::DeleteMeta { key });
    }
    settled
}

/// A node ends: what links had of it is forgotten.
pub(crate) fn forget(own: &mut Owners, s: SessionIdx) {
    let Some(node) = own.sessions.node_mut(s) else {
        return;
    };
    let of = node.key;
    let durable = node.ends().filter_map(|(at, end)| {
        let keep = end.keep.as_ref().filter(|keep| keep.durable)?;
        Some((node.unsettled(at), keep.name.clone()))
    });
    let all: Vec<_> = durable.collect();
    for (keys, link) in all {
        for key in keys {
            let key = name_of_sent(of, key, &link);
            own.commits.write(StoreOp::DeleteMeta { key });
        }
    }
}

/// What links had of a node when an earlier process ended.
#[derive(Debug, Default)]
pub(crate) struct Had {
    /// By place in the store.
    by_seq: BTreeMap<u64, (u32, Keep)>,
    found: BTreeMap<Text, (Keep, Vec<(u32, Delivery)>)>,
}

impl Had {
    /// All that the store kept, by node.
    pub(crate) fn all(recovered: &Recovered) -> BTreeMap<SessionKey, Self> {
        let mut all: BTreeMap<_, Self> = BTreeMap::new();
        for (name, value) in &recovered.meta {
            if let Some(sent) = Sent::parse(name, value) {
                let had = all.entry(sent.node).or_default();
                had.by_seq.insert(sent.seq, (sent.key, sent.keep));
            }
        }
        all
    }

    /// Takes a message of the queue that a link had; gives others back.
    pub(crate) fn take(&mut self, delivery: Delivery) -> Option<Delivery> {
        let seq = delivery.seq;
        let Some((key, keep)) = seq.and_then(|seq| self.by_seq.remove(&seq)) else {
            return Some(delivery);
        };
        let name = keep.name.clone();
        let (_, had) = self.found.entry(name).or_insert((keep, Vec::new()));
        had.push((key, delivery));
        None
    }

    /// What was found of each link. Of the rest the store forgets the keys.
    pub(crate) fn finish(
        self,
        own: &mut Owners,
        node: SessionKey,
    ) -> impl Iterator<Item = (Keep, Vec<(u32, Delivery)>)> {
        for (key, keep) in self.by_seq.into_values() {
            let key = name_of_sent(node, key, &keep.name);
            own.commits.write(StoreOp::DeleteMeta { key });
        }
        self.found.into_values()
    }
}

/// The name of a link among all, from what its client says: who sends, who it is, its
/// container and its own name of the link.
pub(crate) fn name_of_link(sends: bool, user: Option<&str>, container: &str, name: &str) -> Text {
    let escape = |text: &str| text.replace('%', "%25").replace('/', "%2F");
    let role = match sends {
        true => "s",
        false => "r",
    };
    let user = user.map_or_else(Default::default, escape);
    let container = escape(container);
    Text::from(format!("{role}/{user}/{container}/{name}"))
}

/// The value about a message that a link has sent and not settled.
pub(crate) fn received(link: &str, tag: &[u8], secs: u32) -> StoreOp {
    let mut value = alloc::vec![VERSION];
    value.extend_from_slice(&secs.to_le_bytes());
    StoreOp::PutMeta {
        key: name_of_received(link, tag),
        value: Bytes::from(value),
    }
}

/// A message is settled that a link has sent.
pub(crate) fn forget_received(own: &mut Owners, link: &str, tag: &[u8]) {
    let key = name_of_received(link, tag);
    own.commits.write(StoreOp::DeleteMeta { key });
}

fn name_of_received(link: &str, tag: &[u8]) -> Text {
    let mut name = String::from(RECEIVED);
    for byte in tag {
        name.push_str(&format!("{byte:02x}"));
    }
    name.push('/');
    name.push_str(link);
    Text::from(name)
}

/// What links that sent have not settled, by their names, with the time that it is kept.
pub(crate) fn all_received(recovered: &Recovered) -> BTreeMap<Text, (u32, Outcomes)> {
    let mut all: BTreeMap<_, (u32, Outcomes)> = BTreeMap::new();
    for (name, value) in &recovered.meta {
        if let Some((link, tag, secs)) = parse_received(name, value) {
            let (kept, outcomes) = all.entry(link).or_default();
            *kept = secs;
            outcomes.push((tag, true));
        }
    }
    all
}

fn parse_received(name: &str, value: &[u8]) -> Option<(Text, Bytes, u32)> {
    let (tag, link) = name.strip_prefix(RECEIVED)?.split_once('/')?;
    let (version, value) = value.split_first()?;
    let (secs, _) = value.split_first_chunk()?;
    let byte = |at: usize| u8::from_str_radix(tag.get(at..at + 2)?, 16).ok();
    let tag: Option<Vec<u8>> = (0..tag.len()).step_by(2).map(byte).collect();
    let known = *version == VERSION;
    known.then_some((
        Text::from(link),
        Bytes::from(tag?),
        u32::from_le_bytes(*secs),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_store_keeps_is_read_again() {
        let link = name_of_link(false, Some("a/b"), "c%", "d/e");
        assert_eq!(&*link, "r/a%2Fb/c%25/d/e");
        let name = name_of_sent(SessionKey(7), 0xffff_fffe, &link);
        let mut value = alloc::vec![VERSION];
        value.extend_from_slice(&9_u64.to_le_bytes());
        value.extend_from_slice(&60_u32.to_le_bytes());
        let sent = Sent::parse(&name, &value).expect("known");
        let keep = Keep {
            name: link.clone(),
            secs: 60,
            durable: true,
            serial: 0,
        };
        let all = (sent.node, sent.key, sent.seq, sent.keep);
        assert_eq!(all, (SessionKey(7), 0xffff_fffe, 9, keep));
        value[0] = VERSION + 1;
        assert!(Sent::parse(&name, &value).is_none(), "of a later release");
        for tag in [&b""[..], b"\x00\xff", &[7; 32]] {
            let StoreOp::PutMeta { key, value } = received(&link, tag, 5) else {
                panic!("a named value");
            };
            let (of, found, secs) = parse_received(&key, &value).expect("known");
            assert_eq!((&of, &found[..], secs), (&link, tag, 5));
            assert!(parse_received(&key, &value[..4]).is_none());
        }
    }
}
