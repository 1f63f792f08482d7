//! Homes that have another store than this one. One that is gone comes back with what its
//! store has: what its sessions want is kept until then, and what is for them is posted.

use alloc::vec::Vec;

use dunlin_base::{ShardId, Text};

use crate::control::values::{Ending, EndingKind};
use crate::front;
use crate::ids::ConnIdx;
use crate::io::BusMessage;
use crate::messages::{loans, posts, taking};
use crate::owners::Owners;
use crate::sessions::groups;

/// Such a home is there. What is known of it may have ended meanwhile; it says what has
/// not.
pub(crate) fn joined(own: &mut Owners, home: ShardId) {
    let members = &own.members;
    own.routing.loans.set_away(home, false);
    own.routing
        .suspect(home, |topic| members.home(topic) == home);
    taking::say_taken(own, home, true);
}

/// What one says of posts, either way.
pub(crate) fn handle(own: &mut Owners, from: ShardId, message: BusMessage) {
    if !own.members.is_apart(from) {
        return;
    }
    match message {
        BusMessage::Posts { after, posts } => taking::handle_posts(own, from, after, posts),
        BusMessage::Untaken { numbers, topics } => {
            posts::handle_untaken(own, from, numbers, topics);
        }
        BusMessage::Taken { up_to, again } => posts::handle_taken(own, from, up_to, again),
        _ => {}
    }
}

/// Such a home is gone. Connections that cannot go on without it end, and with them the
/// sessions whose client identifiers it has granted.
pub(crate) fn gone(own: &mut Owners, home: ShardId) {
    own.commits.posts.lose(home);
    posts::weigh(own);
    own.routing.loans.set_away(home, true);
    let ending = Ending {
        kind: EndingKind::Ordered,
        why: Text::from_static("a part of the server is away"),
    };
    let conns: Vec<ConnIdx> = own.conns.iter().map(|(c, _)| c).collect();
    for c in conns {
        if front::depends_on(own, c, home) {
            front::force(own, c, &ending);
        }
    }
}

/// All such homes have said everything: who is a member of which group is known.
pub(crate) fn heard(own: &mut Owners) {
    for (share, orphans) in own.routing.loans.take_orphans() {
        groups::forget_empty(own, &share);
        if own.routing.has_members(&share) {
            loans::keep_orphans(own, orphans);
        }
    }
}

/// Such a home has said everything: what it has not said again has ended.
pub(crate) fn introduced(own: &mut Owners, home: ShardId) {
    for share in own.routing.forget_suspect(home) {
        groups::forget_empty(own, &share);
    }
}
