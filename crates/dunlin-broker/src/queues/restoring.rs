//! Nodes after a restart: those that the store kept, and those of the configuration.

use alloc::boxed::Box;
use alloc::format;
use alloc::vec::Vec;

use dunlin_base::Text;
use dunlin_store::{Recovered, RecoveredSession, StoreOp};

use crate::io::InterestChange;
use crate::owners::common::{SessionCore, Standing};
use crate::owners::node::{BINDING, Node, PROTOCOL, Stage};
use crate::owners::{Owners, away};
use crate::queues::addresses::{self, QUEUES};
use crate::queues::calls::Create;
use crate::queues::keeping::Had;
use crate::queues::options::{Kept, Life};
use crate::queues::{delivering, manage, nodes, termini, waiting};
use crate::sessions::{records, subscriptions};

/// Takes over the nodes of this shard; what those of the others are bound to is known.
pub(crate) fn restore(own: &mut Owners, recovered: &Recovered) {
    let mut had = Had::all(recovered);
    for from in &recovered.sessions {
        let had = had.remove(&from.key).unwrap_or_default();
        let home = own.members.home(&from.record.client_id);
        if from.record.version == PROTOCOL && home == own.config.shard {
            restore_node(own, from, had);
        }
    }
    // Of nodes that there are not any more.
    for (node, had) in had {
        if own.config.shard == own.members.together().first {
            drop(had.finish(own, node));
        }
    }
    termini::restore(own, recovered);
    configure(own);
}

fn restore_node(own: &mut Owners, from: &RecoveredSession, mut had: Had) {
    let address = &from.record.client_id;
    // The removal of a node that was made again was lost.
    if let Some(old) = own.sessions.find_node(address) {
        nodes::forget(own, old);
    }
    // What a later release wrote stays as it is, but for limits of this one.
    let kept = Kept::decode(&from.record.options).unwrap_or_default();
    let client_id = match kept.client_id.is_empty() {
        true => address.clone(),
        false => kept.client_id.clone(),
    };
    let mut core = SessionCore::new(from.key, client_id);
    core.user = from.record.user_name.clone();
    core.standing = match (
        addresses::is_subscription(address),
        from.record.owner.is_empty(),
    ) {
        (false, _) => Standing::Server,
        (true, true) => Standing::Open,
        (true, false) => Standing::Listed,
    };
    let mut node = Node::new(core, address.clone(), kept);
    node.stage = Stage::Ready;
    let publishes = node.delayed.publishes;
    if publishes {
        node.kept.options = waiting::options(&own.config);
    }
    for queued in &from.queue {
        let mut delivery = records::delivery(queued);
        delivery.level = node.kept.options.level(queued.priority());
        delivery.failed = queued.failed();
        delivery.added = queued.added().cloned();
        let Some(delivery) = had.take(delivery) else {
            continue;
        };
        let until = queued.not_before();
        match until.filter(|at| *at > own.now) {
            Some(until) => node.delayed.insert(until, delivery),
            None if publishes => node.delayed.insert(own.now, delivery),
            None => node.queue.push(delivery),
        }
    }
    let now = own.now;
    for (keep, had) in had.finish(own, from.key) {
        let at = away::restore(&mut node, keep, had);
        away::expire(&mut node, at, now);
    }
    let filters = from.subscriptions.iter().map(|(filter, ..)| filter.clone());
    let binding = node.binding();
    node.bindings = filters.map(|filter| (filter, binding)).collect();
    let bindings: Vec<Text> = node.bindings.keys().cloned().collect();
    own.budget.holders.moved(None, node.user.as_ref());
    let s = own.sessions.insert_node(Box::new(node));
    for filter in bindings {
        // The other shards found this in the store as well.
        let _ = own.routing.insert(s, &filter, binding);
    }
    own.count_in(s);
    nodes::expire_unattached(own, s);
    delivering::remind(own, s);
}

/// Makes the queues of the configuration that are not there, and has those that are
/// follow it.
fn configure(own: &mut Owners) {
    let named = own.config.queues.named.clone();
    for queue in named {
        let address = Text::from(format!("{QUEUES}{}", queue.name));
        let home = own.members.home(&address);
        if home != own.config.shard {
            for filter in &queue.topics {
                let change = InterestChange::Add(filter.clone());
                own.routing.handle_interest(home, &change);
            }
            continue;
        }
        let kept = Kept {
            options: queue.options,
            life: Life::Kept,
            ..Kept::default()
        };
        let Some(s) = own.sessions.find_node(&address) else {
            let new = Create {
                kept,
                filter: None,
                standing: Standing::Server,
                rules: None,
            };
            let s = nodes::insert(own, address, None, new);
            if let Some(node) = own.sessions.node_mut(s) {
                let topics = queue.topics.into_iter();
                node.bindings = topics.map(|filter| (filter, BINDING)).collect();
            }
            nodes::store(own, s);
            continue;
        };
        follow(own, s, kept, &queue.topics);
    }
}

/// Has a queue that was kept follow its configuration.
fn follow(own: &mut Owners, s: usize, kept: Kept, topics: &[Text]) {
    let Some(node) = own.sessions.node_mut(s) else {
        return;
    };
    let key = node.key;
    let same = node.kept == kept;
    node.kept = kept;
    let record = node.record();
    let (gone, new) = node.rebound(topics);
    let topics_of = topics.iter().cloned();
    node.bindings = topics_of.map(|filter| (filter, BINDING)).collect();
    if !same {
        own.commits.write(StoreOp::PutSession { key, record });
    }
    let mut changes = Vec::new();
    manage::write_bindings(own, key, &gone, &new);
    for filter in gone {
        changes.extend(own.routing.remove(s, &filter));
    }
    for filter in new {
        changes.extend(own.routing.insert(s, &filter, BINDING));
    }
    subscriptions::announce(own, 0, &changes);
    own.weigh(s);
}
