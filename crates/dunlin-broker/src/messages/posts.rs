//! What a publish here has homes with other stores do: it is stored here with the publish,
//! then given to them.

use alloc::sync::Arc;
use alloc::vec::Vec;

use dunlin_base::{Message, QoS, ShardId, Text};
use dunlin_store::{Seq, SessionKey, StoreOp};

use crate::ids::SessionRef;
use crate::io::{BusMessage, Forward, Manner, NotTaken, Output};
use crate::memory::Part;
use crate::owners::pending::{InStore, Pending, PendingPublish, Rest};
use crate::owners::posts::{self, New, Next, Purpose, Waiting};
use crate::owners::session::Session;
use crate::owners::{Later, Owners, note_unreadable_posts};

/// No session: messages that are loaded for posts.
pub(crate) const LOADS: SessionRef = SessionRef {
    key: SessionKey(0),
    at: usize::MAX - 1,
};

/// Has a home with another store do something with a message that is published under this
/// token. With QoS 0 it is sent there at once, and lost if that is not there.
pub(crate) fn add(
    own: &mut Owners,
    (to, token): (ShardId, u64),
    message: &Arc<Message>,
    purpose: Purpose,
    publish: &mut PendingPublish,
) {
    if message.qos == QoS::AtMostOnce {
        let Purpose {
            plain,
            shares,
            retain,
        } = purpose;
        let forward = Forward {
            message: Arc::clone(message),
            plain,
            shares,
            retain,
            queue: false,
            manner: Manner::new(publish.lossy, false),
        };
        let token = None;
        return own.outbox.bus(to, BusMessage::Forward { forward, token });
    }
    let (limits, cost) = (&own.config.nodes.posts, message.cost());
    // Refused there, others of its topic would wait in front of it.
    let is_open = !own.commits.posts.is_closed(to, &message.topic);
    let room = is_open && own.commits.posts.has_room(to, cost, limits);
    let memory = own.has_memory(cost);
    if !memory {
        own.note_refused(Part::Queued, 1);
    }
    if room && memory {
        return add_new(own, to, message, purpose, publish);
    }
    if publish.lossy {
        own.stats.messages_dropped_full += 1;
        return;
    }
    // Publishers of retained messages wait for each other already, until they are stored.
    let waits = memory && is_open && !message.retain;
    let waits = waits && publish.origin.is_some_and(|origin| is_mute(own, origin));
    let message = Arc::clone(message);
    let waiting = Waiting {
        token,
        message,
        purpose,
    };
    match waits && own.commits.posts.wait(to, waiting) {
        true => publish.preparing += 1,
        false => publish.refuse(NotTaken::NoRoom),
    }
    weigh(own);
}

/// A post has room: it is kept for it until its publish is stored.
fn add_new(
    own: &mut Owners,
    to: ShardId,
    message: &Arc<Message>,
    purpose: Purpose,
    publish: &mut PendingPublish,
) {
    need_queue(own, to);
    if posts::add(&mut publish.rest_mut().posts, to, message, purpose) {
        own.commits.posts.reserve(to, message.cost());
    }
}

/// Sees to it that the queue of posts for a home has a key.
fn need_queue(own: &mut Owners, to: ShardId) {
    if !own.commits.posts.has_queue(to) {
        let key = own.sessions.next_key();
        own.commits.posts.add_queue(to, key);
    }
}

/// Whether a publisher has no way to hear of a refusal: cut off, it would send the same
/// again at once, and nothing else.
fn is_mute(own: &Owners, origin: SessionRef) -> bool {
    let session = own.sessions.peek(origin.at);
    session.is_some_and(Session::is_mute)
}

/// Goes on with the next publish that waits for room for its post, if there is some.
pub(crate) fn admit(own: &mut Owners, to: ShardId) {
    let limits = &own.config.nodes.posts;
    let Some(next) = own.commits.posts.next_waiting(to, limits) else {
        return;
    };
    weigh(own);
    let Waiting {
        token,
        message,
        purpose,
    } = next;
    let Some(publish) = own.commits.publish_mut(token) else {
        return own.outbox.note_missing();
    };
    publish.preparing = publish.preparing.saturating_sub(1);
    let is_new = posts::add(&mut publish.rest_mut().posts, to, &message, purpose);
    if is_new {
        own.commits.posts.reserve(to, message.cost());
    }
    own.later.push_back(Later::Admitted(to, token));
}

/// Adds the posts of a publish to what is stored for it.
pub(crate) fn write(own: &mut Owners, rest: &mut Rest) {
    let here = own.config.shard;
    let Rest { posts, work, .. } = rest;
    for post in posts {
        let seq = own.commits.seq();
        own.commits.posts.write(here, post, &mut work.ops, seq);
    }
    weigh(own);
}

/// Posts count as what waits in queues.
pub(crate) fn weigh(own: &mut Owners) {
    let posts = &mut own.commits.posts;
    let now = posts.memory();
    let before = core::mem::replace(&mut posts.weighed, now);
    own.budget.change_queue(before, now);
}

/// The posts of a publish are stored, or it is off.
pub(crate) fn settle(own: &mut Owners, posts: &[New], in_store: InStore) {
    let stored = in_store.is_yes();
    for post in posts {
        if post.number == 0 {
            own.commits.posts.unreserve(post);
            admit(own, post.to);
            continue;
        }
        let refused = own.commits.posts.settle(post.to, post.number, stored);
        // After a restart it would be given, though its publisher gives it again.
        if let Some((session, seq)) = refused.filter(|_| in_store.is_perhaps()) {
            own.commits.write(StoreOp::Dequeue { seq, session });
        }
        own.later.push_back(Later::Post(post.to));
        if !stored {
            admit(own, post.to);
        }
    }
    weigh(own);
}

/// Gives a home what is posted to it, as far as it takes that now.
pub(crate) fn give(own: &mut Owners, to: ShardId) {
    give_now(own, to);
    weigh(own);
}

fn give_now(own: &mut Owners, to: ShardId) {
    let durable = own.commits.is_durable();
    own.budget.look();
    // One by one where memory is short.
    let loads = match own.has_memory(0) {
        true => (usize::MAX, own.budget.common_room(Part::Queued)),
        false => (1, 0),
    };
    loop {
        match own.commits.posts.next(to, durable, loads) {
            Next::Give { after, posts } => {
                own.outbox.bus(to, BusMessage::Posts { after, posts });
            }
            Next::Load(seqs) => {
                let request = own.commits.load(LOADS, seqs);
                return own.outbox.push(Output::Store(request));
            }
            Next::Nothing => return,
        }
    }
}

/// Messages of posts came from the store; none: it could not be read, and is asked again.
pub(crate) fn handle_loaded(own: &mut Owners, messages: &[(u64, Option<Arc<Message>>)]) {
    if !messages.is_empty() {
        let lost = own.commits.posts.handle_loaded(messages);
        weigh(own);
        note_unreadable_posts(own, lost);
        give_all(own);
        let homes: Vec<ShardId> = own.members.homes().iter().collect();
        homes.into_iter().for_each(|home| admit(own, home));
    }
}

/// Messages of posts could not be read, a while ago.
pub(crate) fn load_again(own: &mut Owners) {
    own.commits.posts.load_again();
    give_all(own);
}

fn give_all(own: &mut Owners) {
    let homes = own.members.others().filter(|it| own.members.is_apart(*it));
    own.later.extend(homes.map(Later::Post));
}

/// A home has stored what was posted to it.
pub(crate) fn handle_taken(own: &mut Owners, from: ShardId, up_to: u64, again: bool) {
    need_queue(own, from);
    let taken = own.commits.posts.handle_taken(from, up_to, again);
    weigh(own);
    let (session, seqs) = taken.unwrap_or_default();
    if !seqs.is_empty() {
        remove(own, session, seqs);
    }
    own.later.push_back(Later::Post(from));
    admit(own, from);
}

/// A home has no room for posts with these numbers, nor for others of these topics.
pub(crate) fn handle_untaken(
    own: &mut Owners,
    from: ShardId,
    numbers: Vec<u64>,
    topics: Vec<Text>,
) {
    own.commits.posts.handle_untaken(from, numbers, topics);
}

/// Has the store remove posts that were taken.
pub(crate) fn remove(own: &mut Owners, session: SessionKey, seqs: Vec<Seq>) {
    for seq in &seqs {
        own.commits.write(StoreOp::Dequeue { seq: *seq, session });
    }
    let token = own.commits.token();
    let pending = Pending::Posted(session, seqs);
    own.commits.when_removed(token, pending);
}
