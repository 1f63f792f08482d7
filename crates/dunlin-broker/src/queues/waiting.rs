//! Messages that are published later: where they wait for their time, a node of each
//! shard which no link attaches to.

use alloc::format;
use core::num::NonZeroU64;

use dunlin_base::Text;

use crate::config::Config;
use crate::ids::SessionIdx;
use crate::owners::Owners;
use crate::owners::common::Standing;
use crate::owners::node::{BINDING, Stage, WAITING};
use crate::owners::routing::{Hit, Matches};
use crate::queues::calls::Create;
use crate::queues::nodes;
use crate::queues::options::{Kept, Life, Overflow, QueueOptions};

/// Where a message waits that came to this shard: nowhere on an edge.
pub(crate) fn find(own: &mut Owners) -> Matches {
    let mut found = Matches::default();
    if own.members.is_edge() {
        return found;
    }
    let s = node(own);
    found.hits.push(Hit::new(s, &BINDING, None));
    found
}

/// Whether a client may have another message of this cost wait here: none has all of the
/// room.
pub(crate) fn has_share(own: &Owners, sender: NonZeroU64, cost: usize) -> bool {
    if own.members.is_edge() {
        return true;
    }
    let node = own.sessions.find_node(&address(&own.config));
    let node = node.and_then(|s| own.sessions.get(s)?.node());
    let (messages, bytes) = node.map_or((0, 0), |node| node.delayed.of(sender));
    let delays = &own.config.topics.delays;
    messages < delays.client_messages_max && bytes.saturating_add(cost) <= delays.client_bytes_max
}

/// The node of this shard, which is made when there is none.
fn node(own: &mut Owners) -> SessionIdx {
    let address = address(&own.config);
    if let Some(s) = own.sessions.find_node(&address) {
        return s;
    }
    let kept = Kept {
        options: options(&own.config),
        life: Life::Kept,
        ..Kept::default()
    };
    let new = Create {
        kept,
        filter: None,
        standing: Standing::Server,
        rules: None,
    };
    let s = nodes::insert(own, address, None, new);
    nodes::store(own, s);
    // What waits there is stored in one batch with it, or refused with it.
    if let Some(node) = own.sessions.node_mut(s) {
        node.stage = Stage::Ready;
    }
    s
}

/// The first address that belongs to the shard.
fn address(config: &Config) -> Text {
    let mut all = (0_u32..).map(|number| format!("{WAITING}{number}"));
    let first = all.find(|it| config.homes().of(it) == config.shard);
    Text::from(first.unwrap_or_default())
}

/// What such a node is like.
pub(crate) fn options(config: &Config) -> QueueOptions {
    let delays = &config.topics.delays;
    QueueOptions {
        messages_max: delays.messages_max,
        bytes_max: delays.bytes_max,
        overflow: Overflow::Reject,
        levels: 1,
        durable: config.durable,
        ..QueueOptions::default()
    }
}
