//! Nodes and their links: made, attached to, left, ended.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::time::Duration;

use dunlin_base::{ShardId, Text};
use dunlin_queue::Outcome;
use dunlin_store::StoreOp;

use crate::access::OwnRules;
use crate::ids::{SessionIdx, SessionRef};
use crate::memory::Part;
use crate::owners::common::SessionCore;
use crate::owners::node::{BINDING, Node, Stage, binding_bytes};
use crate::owners::pending::{Pending, PendingBinding};
use crate::owners::timers::Timers;
use crate::owners::{Owners, away};
use crate::queues::calls::{Attach, Call, Create, Found, Place, Refusal, Use};
use crate::queues::options::Life;
use crate::queues::{addresses, answers, credit, delivering, keeping, making};
use crate::quotas::Subject;
use crate::sessions::{lifecycle, records, subscriptions};
use crate::wants::Wants;

/// A link wants a node.
pub(crate) fn handle_attach(own: &mut Owners, from: ShardId, attach: Attach) {
    let search = attach.search.as_ref().map_or(0, Wants::bytes);
    if search > 0 && subscriptions::check_room(own, search).is_err() {
        return refuse(own, from, attach.link, Refusal::NoRoom);
    }
    let Some(s) = own.sessions.find_node(&attach.address) else {
        return create(own, from, attach);
    };
    let Some(node) = own.sessions.node_mut(s) else {
        return;
    };
    if addresses::is_subscription(&attach.address) && node.user != attach.user {
        return refuse(own, from, attach.link, Refusal::NotYours);
    }
    if let Stage::Making(waiting) = &mut node.stage {
        return waiting.push((from, attach));
    }
    if let Some(wanted) = &attach.create
        && let Some(filter) = &wanted.filter
    {
        let same = node.kept.filter == wanted.kept.filter;
        if !same || !node.bindings.contains_key(filter.as_bytes()) {
            if node.links() > 0 && !node.kept.exclusive {
                return refuse(own, from, attach.link, Refusal::InUse);
            }
            // A subscription to something else is another one.
            end(own, s, Refusal::Stolen);
            return create(own, from, attach);
        }
        let life = core::mem::replace(&mut node.kept.life, wanted.kept.life);
        if life != node.kept.life && node.kept.options.durable {
            let (key, record) = (node.key, node.record());
            own.commits.write(StoreOp::PutSession { key, record });
        }
    }
    admit(own, s, from, attach);
}

fn refuse(own: &mut Owners, to: ShardId, link: SessionRef, why: Refusal) {
    own.call(to, Call::Refused { link, why });
}

/// Attaches a link to a node that is ready.
fn admit(own: &mut Owners, s: SessionIdx, from: ShardId, attach: Attach) {
    let Some(node) = own.sessions.node_mut(s) else {
        return;
    };
    let keep = attach.keep.as_ref();
    let known = keep.and_then(|keep| away::find_kept(node, &keep.name));
    let end = known.and_then(|at| node.at(at)?.keep.as_ref());
    if end.is_some_and(|end| keep.is_some_and(|keep| keep.serial < end.serial)) {
        // A later link of its name came first.
        return refuse(own, from, attach.link, Refusal::Stolen);
    }
    node.expires = None;
    if node.kept.exclusive && matches!(attach.wants, Use::Take { .. }) {
        let others = node.ends().map(|(at, _)| at);
        let others: Vec<usize> = others.filter(|at| Some(*at) != known).collect();
        for at in others {
            expel(own, s, at, Refusal::Stolen);
        }
    }
    let first_key = own.random.next() as u32;
    let Some(node) = own.sessions.node_mut(s) else {
        return;
    };
    let link = attach.link;
    let search = attach.search;
    let (end, stolen) = match (known, attach.keep.clone()) {
        (Some(at), Some(keep)) => {
            let stolen = away::resume(node, at, (from, link), attach.wants, keep);
            node.set_search(at, search);
            (at, stolen)
        }
        (_, keep) => {
            let is_kept = keep.is_some();
            let at = node.attach((from, link), attach.wants, search, keep);
            if let Some(end) = node.at(at).filter(|_| is_kept) {
                // Its client may know keys from before a restart.
                end.begin_at(first_key);
            }
            (at, None)
        }
    };
    let last_key = node.at(end).map_or(0, |end| end.last_key());
    let unsettled = attach.keep.as_ref().map(|_| away::had(node, end));
    let filter = match addresses::is_subscription(&node.address) {
        true => node.bindings.keys().next().cloned(),
        false => None,
    };
    let node = node.reference(s);
    let place = Place { node, end, link };
    let found = Box::new(Found {
        filter,
        last_key,
        limit: credit::begin(own, s, end, attach.wants),
        unsettled,
    });
    let attached = Box::new(Call::Attached { place, found });
    match attach.keep.is_some() {
        true => say_attached(own, from, attached),
        false => own.call(from, *attached),
    }
    if let Some((shard, link)) = stolen {
        own.call(shard, Call::Stolen { link });
    }
    own.weigh(s);
    delivering::remind(own, s);
}

/// Tells a link what it has of its node, once the store has removed the rest.
pub(crate) fn say_attached(own: &mut Owners, to: ShardId, call: Box<Call>) {
    let token = own.commits.token();
    own.commits.when_removed(token, Pending::Attached(to, call));
}

/// Takes a node from a link.
fn expel(own: &mut Owners, s: SessionIdx, at: usize, why: Refusal) {
    if let Some((shard, link)) = dismiss(own, s, at) {
        refuse(own, shard, link, why);
    }
}

/// Gives what a link has to others, and forgets the link: at once, or when the store
/// knows the keys that it is being asked to keep. Its holder comes out.
fn dismiss(own: &mut Owners, s: SessionIdx, at: usize) -> Option<(ShardId, SessionRef)> {
    release(own, s, at, None, &[]);
    let node = own.sessions.node_mut(s)?;
    let holder = node.at(at).map(|end| (end.shard, end.link));
    match node.unsettled(at).is_empty() {
        true => drop(node.remove(at)),
        false => away::give_up(node, at),
    }
    holder
}

/// Makes a node for a link, if it says how.
fn create(own: &mut Owners, from: ShardId, mut attach: Attach) {
    let link = attach.link;
    let Some(new) = attach.create.take() else {
        return refuse(own, from, link, Refusal::NotFound);
    };
    let owner = Owner {
        user: attach.user.as_ref(),
        client_id: &new.kept.client_id,
        rules: new.rules.as_deref(),
    };
    if !has_room(own, owner) {
        return refuse(own, from, link, Refusal::NoRoom);
    }
    let filter = new.filter.as_ref().map_or(0, |it| binding_bytes(it));
    let wants = new.kept.wants(attach.user.as_ref());
    let wants = wants.map_or(0, |it| it.bytes());
    if subscriptions::check_room(own, filter + wants).is_err() {
        return refuse(own, from, link, Refusal::NoRoom);
    }
    let (address, user) = (attach.address.clone(), attach.user.clone());
    let s = insert(own, address, user, new);
    if let Some(node) = own.sessions.node_mut(s) {
        node.holder = Some((from, link));
        if let Some(filter) = node.bindings.keys().next().cloned() {
            node.walks.start(filter);
        }
        node.stage = Stage::Making(alloc::vec![(from, attach)]);
    }
    store(own, s);
}

/// Who is to have a node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Owner<'a> {
    pub(crate) user: Option<&'a Text>,
    /// Empty where it is not known.
    pub(crate) client_id: &'a str,
    pub(crate) rules: Option<&'a OwnRules>,
}

/// Whether the quota of an owner lets it have one session, link or node more.
fn is_within_quota(own: &Owners, owner: Owner<'_>) -> bool {
    let quota = own.config.quotas.of(&Subject {
        client_id: owner.client_id,
        user: owner.user.map(|user| &**user),
        listener: None,
        rules: owner.rules,
        acl: own.access.acl.as_deref(),
    });
    let max = quota.map_or(0, |quota| quota.sessions_max);
    let user = owner.user;
    user.is_none_or(|user| own.budget.holders.has_room(user, max))
}

/// Whether there is room for another node, of this owner.
pub(crate) fn has_room(own: &mut Owners, owner: Owner<'_>) -> bool {
    let user = owner.user;
    own.budget.look();
    let (all, of_user) = own.sessions.nodes(user);
    let limits = &own.config.queues;
    let full = all >= limits.max || of_user >= limits.of_user_max;
    if let Some(holder) = own.budget.holders.full(user, None) {
        own.note_full_holder(holder, 1);
        return false;
    }
    let room = own.budget.has_room(Part::Sessions, 0, usize::MAX);
    let full = full || !is_within_quota(own, owner);
    if full || !room || !own.budget.has_room_for_session() {
        own.note_refused(Part::Sessions, 1);
        return false;
    }
    true
}

/// Adds a node that is not ready.
pub(crate) fn insert(
    own: &mut Owners,
    address: Text,
    user: Option<Text>,
    new: Create,
) -> SessionIdx {
    let key = own.sessions.next_key();
    let client_id = match new.kept.client_id.is_empty() {
        true => address.clone(),
        false => new.kept.client_id.clone(),
    };
    let mut core = SessionCore::new(key, client_id);
    own.budget.holders.moved(None, user.as_ref());
    core.user = user;
    core.standing = new.standing;
    core.rules = new.rules;
    let mut node = Node::new(core, address, new.kept);
    let binding = node.binding();
    node.bindings = new
        .filter
        .into_iter()
        .map(|filter| (filter, binding))
        .collect::<BTreeMap<_, _>>();
    let s = own.sessions.insert_node(Box::new(node));
    own.count_in(s);
    s
}

/// Has the store keep a new node; it goes on when it does.
pub(crate) fn store(own: &mut Owners, s: SessionIdx) {
    let Some(node) = own.sessions.node_mut(s) else {
        return;
    };
    let (key, reference) = (node.key, node.reference(s));
    if !node.kept.options.durable {
        return bind(own, reference);
    }
    let record = node.record();
    let bindings: Vec<Text> = node.bindings.keys().cloned().collect();
    own.commits.write(StoreOp::PutSession { key, record });
    for filter in bindings {
        own.commits.write(StoreOp::PutSubscription {
            key,
            filter,
            options: BINDING.options,
            identifier: None,
        });
    }
    let token = own.commits.token();
    own.commits.when_stored(token, Pending::Node(reference));
}

/// The store has, or has not, the record of a node.
pub(crate) fn handle_stored(own: &mut Owners, node: SessionRef, stored: bool) {
    if stored {
        return bind(own, node);
    }
    if let Some(s) = own.sessions.resolve(node)
        && !making::keep(own, s, node)
    {
        end(own, s, Refusal::NoRoom);
    }
}

/// Has messages of its filters come to a node. Who made it waits until all shards
/// know.
fn bind(own: &mut Owners, node: SessionRef) {
    let Some(entry) = own.sessions.resolve_mut(node) else {
        return;
    };
    let subscriptions = entry.subscriptions();
    let mut changes = Vec::new();
    for (filter, value) in subscriptions {
        changes.extend(subscriptions::place(own, node.at, &filter, value));
    }
    let pending = PendingBinding {
        node,
        waiting: match changes.is_empty() {
            true => 0,
            false => own.members.others().len(),
        },
    };
    let token = own.commits.token();
    if !changes.is_empty() {
        subscriptions::announce(own, token, &changes);
    }
    own.weigh(node.at);
    advance(own, token, pending);
}

/// As many shards as `waiting` do not know yet what a node is bound to.
pub(crate) fn advance(own: &mut Owners, token: u64, pending: PendingBinding) {
    if pending.waiting > 0 {
        return own.commits.wait(token, Pending::Binding(pending));
    }
    let Some(s) = own.sessions.resolve(pending.node) else {
        return;
    };
    let Some(node) = own.sessions.node_mut(s) else {
        return;
    };
    let stage = core::mem::replace(&mut node.stage, Stage::Ready);
    if let Stage::Making(waiting) = stage {
        for (from, attach) in waiting {
            handle_attach(own, from, attach);
            if !own.members.has(from) {
                // The node may have ended with it.
                let s = own.sessions.resolve(pending.node);
                s.into_iter().for_each(|s| leave_all(own, s, from));
            }
        }
        if own.sessions.resolve(pending.node).is_none() {
            return;
        }
    }
    answers::finish(own, s);
    delivering::pump(own, s);
}

/// A link is gone; its messages after the key `sent` never left, and the outcome of
/// those that it keeps is still to come.
pub(crate) fn handle_leave(
    own: &mut Owners,
    from: ShardId,
    place: Place,
    (sent, keeps): (u32, &[u32]),
    how: (bool, bool),
) {
    let Some(s) = credit::find(own, from, place) else {
        return;
    };
    let Some(node) = own.sessions.node_mut(s) else {
        return;
    };
    if matches!(node.kept.life, Life::Detached(_)) {
        node.holder = Some((from, place.link));
    }
    let is_kept = !how.0 && node.at(place.end).is_some_and(|end| end.keep.is_some());
    if is_kept && away::may_go_away(node, place.end) {
        return go_away(own, s, place.end, sent, how);
    }
    // The link takes what it keeps for its own.
    let keeps = if is_kept { &[] } else { keeps };
    release(own, s, place.end, Some(sent), keeps);
    if let Some(node) = own.sessions.node_mut(s) {
        node.leave(place.end, how);
    }
    delivering::pump(own, s);
    check_left(own, s, place.end);
}

/// A shard is gone, with its links.
pub(crate) fn handle_gone(own: &mut Owners, shard: ShardId) {
    let mut nodes: Vec<(Text, SessionIdx)> = own
        .sessions
        .all_nodes()
        .map(|(address, s)| (address.clone(), s))
        .collect();
    nodes.sort_unstable();
    for (address, s) in nodes {
        if own.sessions.find_node(&address) == Some(s) {
            leave_all(own, s, shard);
        }
    }
}

/// All links of a shard that is gone leave a node, as when their connections are lost. It
/// is not known what of theirs has reached a client: all of it counts as sent.
fn leave_all(own: &mut Owners, s: SessionIdx, shard: ShardId) {
    let Some(node) = own.sessions.node_mut(s) else {
        return;
    };
    let reference = node.reference(s);
    let ends = node.ends().filter(|(_, end)| end.shard == shard);
    let ends: Vec<_> = ends
        .map(|(end, it)| {
            let place = Place {
                node: reference,
                end,
                link: it.link,
            };
            (place, it.last_key(), it.is_away())
        })
        .collect();
    for (place, last_key, is_away) in ends {
        if own.sessions.resolve(reference).is_none() {
            return;
        }
        match is_away {
            true => handle_expire(own, shard, place),
            false => handle_leave(own, shard, place, (last_key, &[]), (false, true)),
        }
    }
    // It may have waited for the end of a connection there.
    let Some(s) = own.sessions.resolve(reference) else {
        return;
    };
    let node = own.sessions.node_mut(s);
    let holder = node.and_then(|node| node.holder).filter(|it| it.0 == shard);
    if let Some((_, link)) = holder {
        let place = Place {
            node: reference,
            end: usize::MAX,
            link,
        };
        handle_expire(own, shard, place);
    }
}

/// A link is detached and may come back: what it has and has not settled stays its own.
fn go_away(own: &mut Owners, s: SessionIdx, at: usize, sent: u32, how: (bool, bool)) {
    let Some(node) = own.sessions.node_mut(s) else {
        return;
    };
    let unsettled = node.unsettled(at).into_iter();
    let never_left = unsettled.filter(|key| sent.wrapping_sub(*key).cast_signed() < 0);
    let never_left: Vec<u32> = never_left.collect();
    for key in never_left {
        credit::settle(own, s, at, key, Outcome::Released);
    }
    let now = own.now;
    if let Some(node) = own.sessions.node_mut(s) {
        away::go_away(node, at);
        if how.1 {
            away::expire(node, at, now);
        }
    }
    own.weigh(s);
    delivering::pump(own, s);
    delivering::remind(own, s);
    check_end(own, s, false, how);
    check_over(own, s);
}

/// What links have that were away for too long is given to others.
fn check_over(own: &mut Owners, s: SessionIdx) {
    let now = own.now;
    // The node may have ended just now.
    let node = own.sessions.peek(s).and_then(|session| session.node());
    let over = node.map(|node| away::over(node, now)).unwrap_or_default();
    if over.is_empty() {
        return;
    }
    for at in over {
        dismiss(own, s, at);
    }
    bury_stranded(own, s);
    own.weigh(s);
    delivering::pump(own, s);
    check_empty(own, s);
}

/// A link that has left its node is gone when the outcomes are there that it left
/// open.
pub(crate) fn check_left(own: &mut Owners, s: SessionIdx, at: usize) {
    let Some(node) = own.sessions.node_mut(s) else {
        return;
    };
    let left = node.at(at).and_then(|end| end.left);
    let Some(how) = left.filter(|_| node.unsettled(at).is_empty()) else {
        return;
    };
    let Some(end) = node.remove(at) else {
        return own.outbox.note_missing();
    };
    let is_weighed = end.search.is_some() || end.is_away();
    let made = node.holder == Some((end.shard, end.link));
    bury_stranded(own, s);
    if is_weighed {
        own.weigh(s);
    }
    delivering::pump(own, s);
    check_end(own, s, made, how);
}

/// Messages that none of the consumers takes, and those that are dead, are buried.
pub(crate) fn bury_stranded(own: &mut Owners, s: SessionIdx) {
    let Some(node) = own.sessions.node_mut(s) else {
        return;
    };
    for (delivery, death, waits) in node.take_stranded() {
        own.bury(s, delivery, death, waits);
    }
}

/// What a link has and has not settled goes back to where it was, and counts as an
/// attempt that failed if it left.
fn release(own: &mut Owners, s: SessionIdx, at: usize, sent: Option<u32>, keeps: &[u32]) {
    let Some(node) = own.sessions.node_mut(s) else {
        return;
    };
    let mut unsettled = node.unsettled(at);
    unsettled.retain(|key| !keeps.contains(key));
    for key in unsettled {
        let left = sent.is_none_or(|sent| sent.wrapping_sub(key).cast_signed() >= 0);
        let outcome = match left {
            true => Outcome::Modified {
                failed: true,
                undeliverable_here: false,
            },
            false => Outcome::Released,
        };
        credit::settle(own, s, at, key, outcome);
    }
}

/// Whether a node ends with a link that left it.
fn check_end(own: &mut Owners, s: SessionIdx, made: bool, (closed, expires): (bool, bool)) {
    let Some(node) = own.sessions.node_mut(s) else {
        return;
    };
    let (none, empty) = (node.links() == 0, node.is_empty());
    let ends = match node.kept.life {
        Life::Kept => false,
        Life::Close => made,
        Life::NoLinks => none,
        Life::NoMessages => empty,
        Life::NoLinksOrMessages => none && empty,
        Life::Detached(secs) => none && (closed || expires && secs == 0),
    };
    if ends {
        return end(own, s, Refusal::Deleted);
    }
    if none && expires {
        expire_unattached(own, s);
    }
}

/// What held up the end of a node has ended itself.
pub(crate) fn handle_expire(own: &mut Owners, from: ShardId, place: Place) {
    let Some(s) = own.sessions.resolve(place.node) else {
        return;
    };
    if credit::find(own, from, place).is_some() {
        let now = own.now;
        if let Some(node) = own.sessions.node_mut(s) {
            away::expire(node, place.end, now);
        }
        delivering::remind(own, s);
        check_over(own, s);
    }
    // A later link may have left it that its end waits for.
    let holder = Some((from, place.link));
    let node = own.sessions.node_mut(s);
    let unused = node.filter(|node| node.links() == 0 && node.holder == holder);
    match unused.map(|node| node.kept.life) {
        Some(Life::Detached(0)) => end(own, s, Refusal::Deleted),
        Some(_) => expire_unattached(own, s),
        None => {}
    }
}

/// Nothing is attached to a node: some end after a while.
pub(crate) fn expire_unattached(own: &mut Owners, s: SessionIdx) {
    let now = own.now;
    if let Some(node) = own.sessions.node_mut(s)
        && let Life::Detached(secs) = node.kept.life
        && secs < u32::MAX
    {
        node.expires = Some(now + Duration::from_secs(u64::from(secs)));
        delivering::remind(own, s);
    }
}

/// A message has left a node: some end when they are empty.
pub(crate) fn check_empty(own: &mut Owners, s: SessionIdx) {
    let Some(node) = own.sessions.node_mut(s) else {
        return;
    };
    let ends = match node.kept.life {
        Life::NoMessages => node.is_empty(),
        Life::NoLinksOrMessages => node.is_empty() && node.links() == 0,
        Life::Kept | Life::Close | Life::NoLinks | Life::Detached(_) => false,
    };
    if ends {
        end(own, s, Refusal::Deleted);
    }
}

/// The time of a node has come: without links it may end, links with filters look
/// further.
pub(crate) fn check_time(own: &mut Owners, s: SessionIdx) {
    let now = own.now;
    let Some(node) = own.sessions.node_mut(s) else {
        return;
    };
    Timers::came(&mut node.alarm);
    if node.expires.is_some_and(|at| at <= now) {
        return end(own, s, Refusal::Deleted);
    }
    if node.is_paused() {
        credit::show_all(own, s);
    }
    delivering::pump(own, s);
    delivering::remind(own, s);
    check_over(own, s);
}

/// Ends a node: its links hear of it, its messages are gone.
pub(crate) fn end(own: &mut Owners, s: SessionIdx, why: Refusal) {
    let Some(node) = own.sessions.node_mut(s) else {
        return;
    };
    let links: Vec<_> = node.ends().map(|(_, end)| (end.shard, end.link)).collect();
    let change = node.change.take();
    let waiting = match core::mem::replace(&mut node.stage, Stage::Ready) {
        Stage::Making(waiting) => waiting,
        Stage::Storing { .. } | Stage::Ready => Vec::new(),
    };
    let waiting = waiting
        .into_iter()
        .map(|(shard, attach)| (shard, attach.link));
    for (shard, link) in links.into_iter().chain(waiting) {
        refuse(own, shard, link, why);
    }
    if let Some(change) = change {
        answers::handle_end(own, *change, why);
    }
    forget(own, s);
}

/// A node ends, and its record with it.
pub(crate) fn forget(own: &mut Owners, s: SessionIdx) {
    let Some(node) = own.sessions.node_mut(s) else {
        return;
    };
    if node.kept.options.durable && own.commits.is_durable() {
        keeping::forget(own, s);
        let Some(node) = own.sessions.node_mut(s) else {
            return;
        };
        let (key, address) = (node.key, node.address.clone());
        own.sessions.begin_forget(&address);
        records::forget(own, key, address);
    }
    lifecycle::end_session(own, s);
}
