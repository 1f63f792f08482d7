//! What other shards post to this home, whose store is another than theirs: it is stored
//! with how far that is, in one batch, and seen then.

use alloc::vec::Vec;

use dunlin_base::ShardId;

use crate::io::{BusMessage, Missed};
use crate::messages::source::Source;
use crate::messages::{deliver, finding, posts, retained, settle, shared};
use crate::owners::Owners;
use crate::owners::pending::{Pending, PendingPublish, Work};
use crate::owners::posts::{Post, taken_op};
use crate::owners::routing::Scope;

/// Posts of another shard have come.
pub(crate) fn handle_posts(own: &mut Owners, from: ShardId, after: u64, posts: Vec<Post>) {
    own.commits.posts.accept(from, after, posts);
    take(own, from);
    posts::weigh(own);
}

/// Stores what has come, unless some of it is being stored.
fn take(own: &mut Owners, from: ShardId) {
    let Some((posts, up_to)) = own.commits.posts.begin_taking(from) else {
        return;
    };
    let token = own.commits.token();
    let mut publish = PendingPublish::new(None, true);
    let rest = publish.rest_mut();
    (rest.transacted, rest.taken) = (true, Some((from, up_to)));
    let ops = &mut rest.work.ops;
    ops.push(taken_op(own.config.shard, from, up_to));
    for post in &posts {
        place(own, token, post, &mut publish);
    }
    settle::line_up(own, token, publish);
}

/// Gives a message to who gets it here when it is stored. It is acknowledged to its
/// publisher: a receiver without room goes without.
fn place(own: &mut Owners, token: u64, post: &Post, publish: &mut PendingPublish) {
    let (message, purpose) = (&post.message, &post.purpose);
    let mut work = Work::default();
    if purpose.retain {
        // Without room it is counted.
        let _ = retained::prepare_retained(own, message, &mut work);
    }
    let mut source = Source::of(message, own.now).transacted().lossy();
    let scope = Scope {
        plain: purpose.plain,
        shares: &purpose.shares,
    };
    let mut found = finding::find(own, &source, None, Some(&scope));
    // A receiver without room goes without, so that nothing is refused.
    let _ = deliver::deliver_hits(own, &mut source, &mut found.hits, &mut work);
    let shares = core::mem::take(&mut found.missed);
    own.routing.recycle(found);
    publish.add_work(work);
    if !shares.is_empty() {
        let message = source.message();
        let missed = Missed { message, shares };
        shared::choose_again(own, &missed, token, publish);
    }
}

/// What was posted is stored, or the store has refused it.
pub(crate) fn end(own: &mut Owners, from: ShardId, stored: bool) {
    own.commits.posts.end_taking(from, stored);
    match stored {
        true => {
            say_taken(own, from, false);
            take(own, from);
        }
        false => own.retry_later(Pending::Take(from)),
    }
    posts::weigh(own);
}

/// Has the store forget what it has refused: some of that may be there all the same.
pub(crate) fn undo(own: &mut Owners, from: ShardId) {
    for op in own.commits.posts.undo(own.config.shard, from) {
        own.commits.write_together(op);
    }
    let token = own.commits.token();
    own.commits.when_stored(token, Pending::Take(from));
}

/// Has a shard give again what the store has refused.
pub(crate) fn ask_again(own: &mut Owners, from: ShardId) {
    own.commits.posts.end_refusing(from);
    say_taken(own, from, true);
}

/// Says to a shard how far what it posts is stored here.
pub(crate) fn say_taken(own: &mut Owners, to: ShardId, again: bool) {
    let up_to = own.commits.posts.taken(to);
    own.outbox.bus(to, BusMessage::Taken { up_to, again });
}
