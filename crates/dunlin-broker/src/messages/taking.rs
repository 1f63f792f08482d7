//! What other shards post to this home, whose store is another than theirs: it is stored
//! with how far that is, in one batch, and seen then.

use alloc::vec::Vec;

use dunlin_base::ShardId;
use dunlin_store::limits::BATCH_OPS_MAX;

use crate::io::{BusMessage, Missed};
use crate::messages::source::Source;
use crate::messages::{deliver, finding, posts, retained, settle, shared};
use crate::owners::Owners;
use crate::owners::pending::{InStore, Pending, PendingPublish, Work};
use crate::owners::posts::{Post, Trial, Tried};
use crate::owners::routing::Scope;

/// Posts of another shard have come.
pub(crate) fn handle_posts(own: &mut Owners, from: ShardId, after: u64, posts: Vec<Post>) {
    own.commits.posts.accept(from, after, posts);
    take(own, from, false);
}

/// Tries once more what receivers had no room for.
pub(crate) fn try_again(own: &mut Owners, from: ShardId) {
    own.commits.posts.end_reminder(from);
    take(own, from, true);
    take(own, from, false);
}

/// Stores what has come, unless some of it is being stored. A post for which a receiver
/// has no room waits, and those of its topic behind it.
fn take(own: &mut Owners, from: ShardId, again: bool) {
    if let Some(trial) = own.commits.posts.begin_taking(from, again) {
        attempt(own, from, trial);
    }
    if own.commits.posts.remind(from) {
        own.retry_later(Pending::Untaken(from));
    }
    posts::weigh(own);
}

fn attempt(own: &mut Owners, from: ShardId, trial: Trial) {
    let Trial {
        posts,
        mut closed,
        tried,
    } = trial;
    let token = own.commits.token();
    let mut publish = PendingPublish::new(None, false);
    let mut untaken = Vec::new();
    for post in posts {
        if post.message.is_expired(own.now) {
            own.stats.messages_expired += 1;
        } else if closed.is_before(&post) || !place(own, token, &post, &mut publish) {
            closed.add(&post);
            untaken.push(post);
        }
    }
    store(own, (from, token), publish, (tried, untaken));
}

/// Stores what follows from posts, with how far they are taken then.
fn store(
    own: &mut Owners,
    (from, token): (ShardId, u64),
    mut publish: PendingPublish,
    (tried, untaken): (Tried, Vec<Post>),
) {
    let here = own.config.shard;
    let Some(taken) = own.commits.posts.leave((here, from), tried, untaken) else {
        return;
    };
    let rest = publish.rest_mut();
    (rest.transacted, rest.taken) = (true, Some(from));
    rest.work.ops.insert(0, taken);
    settle::line_up(own, token, publish);
}

/// Gives a message to who gets it here when it is stored; `false`: one of them, or the
/// index of retained messages, has no room for it.
fn place(own: &mut Owners, token: u64, post: &Post, publish: &mut PendingPublish) -> bool {
    let (message, purpose) = (&post.message, &post.purpose);
    let mut work = Work::default();
    if purpose.retain && !retained::prepare_retained(own, message, &mut work) {
        return false;
    }
    let mut source = Source::of(message, own.now).transacted();
    let scope = Scope {
        plain: purpose.plain,
        shares: &purpose.shares,
    };
    let mut found = finding::find(own, &source, None, Some(&scope));
    let fits = deliver::deliver_hits(own, &mut source, &mut found.hits, &mut work);
    let shares = core::mem::take(&mut found.missed);
    own.routing.recycle(found);
    if !fits {
        return false;
    }
    publish.add_work(work);
    if !shares.is_empty() {
        // Without room for it there, all of these are off and come again one by one.
        let message = source.message();
        let missed = Missed { message, shares };
        shared::choose_again(own, &missed, token, publish);
    }
    true
}

/// What was posted is stored, or not: the store has refused it, or another home with that
/// store has no room for one of them.
pub(crate) fn end(own: &mut Owners, from: ShardId, in_store: InStore) {
    if in_store == InStore::No
        && let Some((tried, post)) = own.commits.posts.set_aside(from)
    {
        let token = own.commits.token();
        let publish = PendingPublish::new(None, false);
        store(own, (from, token), publish, (tried, alloc::vec![post]));
        return take(own, from, false);
    }
    own.commits.posts.end_taking(from, in_store.is_yes());
    match in_store.is_yes() {
        true => {
            say_taken(own, from, false);
            take(own, from, false);
        }
        false => own.retry_later(Pending::Take(from)),
    }
    posts::weigh(own);
}

/// Has the store forget what it has refused: some of that may be there all the same.
pub(crate) fn undo(own: &mut Owners, from: ShardId) {
    let ops = own.commits.posts.undo(own.config.shard, from);
    let token = own.commits.token();
    if ops.len() <= BATCH_OPS_MAX {
        // A part of it would have some of them taken twice, or not at all.
        return own.commits.write_whole(ops, token, Pending::Take(from));
    }
    for op in ops {
        own.commits.write_together(op);
    }
    own.commits.when_stored(token, Pending::Take(from));
}

/// Has a shard give again what the store has refused.
pub(crate) fn ask_again(own: &mut Owners, from: ShardId) {
    own.commits.posts.end_refusing(from);
    say_taken(own, from, true);
}

/// Says to a shard how far what it posts is stored here.
pub(crate) fn say_taken(own: &mut Owners, to: ShardId, again: bool) {
    if let Some((numbers, topics)) = own.commits.posts.untaken(to, again) {
        own.outbox.bus(to, BusMessage::Untaken { numbers, topics });
    }
    let up_to = own.commits.posts.taken(to);
    own.outbox.bus(to, BusMessage::Taken { up_to, again });
}
