//! Orders of clients about the queues of this shard: made, shown, changed, deleted,
//! emptied. What is durable is answered when the store has it.

use alloc::boxed::Box;
use alloc::vec::Vec;

use dunlin_base::Text;
use dunlin_store::{SessionKey, StoreOp};

use crate::ids::{SessionIdx, SessionRef};
use crate::owners::Owners;
use crate::owners::common::Standing;
use crate::owners::node::{BINDING, Change, Node, Stage};
use crate::owners::pending::{Pending, PendingBinding, Purge};
use crate::queues::addresses;
use crate::queues::answers::{answer, is_configured, view};
use crate::queues::calls::{Create, Refusal};
use crate::queues::nodes::Owner;
use crate::queues::options::{Kept, Life};
use crate::queues::orders::{Answer, Ask, Asked, Asker, Changes, Order, Problem};
use crate::queues::{delivering, nodes};
use crate::sessions::subscriptions;

/// Messages that are removed before the store is asked to follow.
const PURGE_MAX: usize = 1024;

/// A client wants something of the queues here.
pub(crate) fn handle(own: &mut Owners, ask: Ask) {
    let Ask {
        asked,
        asker,
        order,
    } = ask;
    let outcome = match order {
        Order::Create(address, changes) => create(own, asked, &asker, address, &changes),
        Order::Read(address) => {
            find(own, &address).map(|s| view(own, s).map(|view| Answer::Queue(Box::new(view))))
        }
        Order::Update(address, changes) => update(own, asked, &address, &changes),
        Order::Delete(address) => delete(own, asked, &address),
        Order::Purge(address, max) => find(own, &address).map(|s| {
            purge(own, asked, s, max);
            None
        }),
        Order::List { rows } => Ok(Some(list(own, &asker, rows))),
    };
    match outcome {
        Ok(Some(done)) => answer(own, asked, done),
        // It is on its way.
        Ok(None) => {}
        Err(problem) => answer(own, asked, Answer::Refused(problem)),
    }
}

/// Tells who asked; what comes later is `None`.
type Outcome = Result<Option<Answer>, Problem>;

/// A queue that is ready.
pub(crate) fn find(own: &mut Owners, address: &str) -> Result<SessionIdx, Problem> {
    let s = own.sessions.find_node(address).ok_or(Problem::NotFound)?;
    let node = own.sessions.node_mut(s).ok_or(Problem::NotFound)?;
    match node.is_ready() {
        true => Ok(s),
        false => Err(Problem::Busy),
    }
}

/// As [`find`], one that may be changed from outside.
fn find_own(own: &mut Owners, address: &str) -> Result<SessionIdx, Problem> {
    let s = find(own, address)?;
    if is_configured(own, address) {
        return Err(Problem::Configured);
    }
    let node = own.sessions.node_mut(s).ok_or(Problem::NotFound)?;
    // A batch that has the record as it is now could be stored after the change.
    let is_stored = matches!(node.stage, Stage::Ready) && !node.taken.is_recording();
    match is_stored && node.change.is_none() {
        true => Ok(s),
        false => Err(Problem::Busy),
    }
}

/// The queues that a client may know of, in the order of their addresses.
fn list(own: &Owners, asker: &Asker, rows: usize) -> Answer {
    let nodes = own.sessions.all_nodes();
    let mut found: Vec<(&Text, SessionIdx)> = nodes
        .filter(|(address, _)| addresses::is_queue(address))
        .filter(|(address, _)| asker.may_read(&own.access, address))
        .collect();
    found.sort_unstable();
    found.truncate(rows);
    let found: Vec<SessionIdx> = found.into_iter().map(|(_, s)| s).collect();
    let views = found.into_iter().filter_map(|s| view(own, s));
    Answer::List(views.collect())
}

fn create(
    own: &mut Owners,
    asked: Asked,
    asker: &Asker,
    address: Text,
    changes: &Changes,
) -> Outcome {
    if own.sessions.find_node(&address).is_some() {
        return Err(Problem::Exists);
    }
    let owner = Owner {
        user: asker.user.as_ref(),
        client_id: &asker.client_id,
        rules: asker.rules.as_deref(),
    };
    if !nodes::has_room(own, owner) {
        return Err(Problem::NoRoom);
    }
    let kept = Kept {
        options: changes.of(&own.config.queues.options),
        life: Life::Kept,
        ..Kept::default()
    };
    let new = Create {
        kept,
        filter: None,
        standing: Standing::Server,
        rules: None,
    };
    let s = nodes::insert(own, address, asker.user.clone(), new);
    if let Some(node) = own.sessions.node_mut(s) {
        let topics = changes.topics.iter().flatten().cloned();
        node.bindings = topics.map(|filter| (filter, BINDING)).collect();
        node.change = Some(Box::new(Change { asked, to: None }));
    }
    nodes::store(own, s);
    Ok(None)
}

fn update(own: &mut Owners, asked: Asked, address: &str, changes: &Changes) -> Outcome {
    let s = find_own(own, address)?;
    let node = own.sessions.node_mut(s).ok_or(Problem::NotFound)?;
    let options = changes.of(&node.kept.options);
    if options.durable != node.kept.options.durable {
        return Err(Problem::Durable);
    }
    let durable = options.durable;
    let (key, reference) = (node.key, node.reference(s));
    let topics = match &changes.topics {
        Some(topics) => topics.clone(),
        None => node.bindings.keys().cloned().collect(),
    };
    let kept = Kept {
        options,
        ..node.kept.clone()
    };
    // The store has the change before it is in force.
    let before = core::mem::replace(&mut node.kept, kept);
    let record = node.record();
    let kept = core::mem::replace(&mut node.kept, before);
    let (gone, new) = node.rebound(&topics);
    node.change = Some(Box::new(Change {
        asked,
        to: Some((kept, topics)),
    }));
    if !durable {
        apply(own, s);
        return Ok(None);
    }
    own.commits.write(StoreOp::PutSession { key, record });
    write_bindings(own, key, &gone, &new);
    let token = own.commits.token();
    own.commits.when_stored(token, Pending::Change(reference));
    Ok(None)
}

/// Has the store follow the bindings of a node.
pub(crate) fn write_bindings(own: &mut Owners, key: SessionKey, gone: &[Text], new: &[Text]) {
    for filter in gone {
        let filter = filter.clone();
        own.commits
            .write(StoreOp::DeleteSubscription { key, filter });
    }
    for filter in new {
        own.commits.write(StoreOp::PutSubscription {
            key,
            filter: filter.clone(),
            options: BINDING.options,
            identifier: None,
        });
    }
}

/// The store has, or has not, the change of a queue.
pub(crate) fn handle_stored(own: &mut Owners, node: SessionRef, stored: bool) {
    let Some(s) = own.sessions.resolve(node) else {
        return;
    };
    if stored {
        return apply(own, s);
    }
    let change = own.sessions.node_mut(s).and_then(|node| node.change.take());
    if let Some(change) = own.outbox.checked(change) {
        answer(own, change.asked, Answer::Refused(Problem::Store));
    }
}

/// Brings a change into force, on all shards; then it is answered.
fn apply(own: &mut Owners, s: SessionIdx) {
    let Some(node) = own.sessions.node_mut(s) else {
        return;
    };
    let to = node.change.as_ref().and_then(|change| change.to.clone());
    let Some((kept, topics)) = to else {
        return own.outbox.note_missing();
    };
    node.kept = kept;
    let reference = node.reference(s);
    let (gone, new) = node.rebound(&topics);
    node.bindings = topics.into_iter().map(|it| (it, BINDING)).collect();
    let mut changes = Vec::new();
    for filter in gone {
        changes.extend(subscriptions::leave(own, s, &filter));
    }
    for filter in new {
        changes.extend(subscriptions::place(own, s, &filter, BINDING));
    }
    let pending = PendingBinding {
        node: reference,
        waiting: match changes.is_empty() {
            true => 0,
            false => own.members.others().len(),
        },
    };
    let token = own.commits.token();
    if !changes.is_empty() {
        subscriptions::announce(own, token, &changes);
    }
    own.weigh(s);
    nodes::advance(own, token, pending);
}

fn delete(own: &mut Owners, asked: Asked, address: &str) -> Outcome {
    let s = find_own(own, address)?;
    let durable = own.sessions.get(s).is_some_and(|it| it.is_persistent());
    nodes::end(own, s, Refusal::Deleted);
    if !durable {
        return Ok(Some(Answer::Deleted));
    }
    let token = own.commits.token();
    own.commits.when_stored(token, Pending::Delete(asked));
    Ok(None)
}

/// The store has, or has not, forgotten a queue; it is asked again if not.
pub(crate) fn handle_deleted(own: &mut Owners, asked: Asked, stored: bool) {
    let done = match stored {
        true => Answer::Deleted,
        false => Answer::Refused(Problem::Store),
    };
    answer(own, asked, done);
}

/// Removes what waits in a queue now, so many at most and some of it at a time: the store
/// sets the pace.
fn purge(own: &mut Owners, asked: Asked, s: SessionIdx, max: usize) {
    if let Some(node) = own.sessions.node_mut(s) {
        let purge = Purge {
            asked,
            node: node.reference(s),
            left: node.waiting().min(max),
            removed: 0,
        };
        go_on_purging(own, Box::new(purge));
    }
}

fn go_on_purging(own: &mut Owners, mut purge: Box<Purge>) {
    let node = purge.node;
    let Some(s) = own.sessions.resolve(node) else {
        return answer(own, purge.asked, Answer::Refused(Problem::NotFound));
    };
    for _ in 0..PURGE_MAX.min(purge.left) {
        let removed = own.sessions.node_mut(s).map(Node::remove_next);
        let Some(delivery) = removed.flatten() else {
            purge.left = 0;
            break;
        };
        own.dequeue(node.key, delivery.seq);
        purge.left -= 1;
        purge.removed += 1;
    }
    delivering::pump(own, s);
    let token = own.commits.token();
    own.commits.when_removed(token, Pending::Purge(purge));
}

/// The store has, or has not, removed what was taken out of a queue.
pub(crate) fn handle_purged(own: &mut Owners, purge: Box<Purge>, stored: bool) {
    if !stored {
        return answer(own, purge.asked, Answer::Refused(Problem::Store));
    }
    if purge.left > 0 {
        return go_on_purging(own, purge);
    }
    if let Some(s) = own.sessions.resolve(purge.node) {
        nodes::check_empty(own, s);
    }
    answer(own, purge.asked, Answer::Purged(purge.removed));
}
