//! A shard after a restart: its sessions and the retained messages from what
//! the store kept.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;

use dunlin_base::{ShardId, Text};
use dunlin_store::Recovered;

use crate::access;
use crate::front;
use crate::io::InterestChange;
use crate::memory::Part;
use crate::owners::groups;
use crate::owners::node::PROTOCOL;
use crate::owners::posts;
use crate::owners::stores::{self, RestoreError, StoreHomes};
use crate::owners::{Owners, note_unreadable_posts};
use crate::sessions;

/// Takes over what belongs to this shard, and notes what the sessions of
/// the others want, so that no shard has to wait for another before it may
/// acknowledge a publish. Call it on every shard with everything that was
/// recovered, before any input.
///
/// # Errors
/// The store is not that of this shard. Nothing is taken over then.
pub(crate) fn restore(own: &mut Owners, recovered: &Recovered) -> Result<(), RestoreError> {
    // Each home of the store writes it, before anything else that it writes.
    let made = stores::check(homes_of_store(own), recovered)?;
    made.into_iter().for_each(|op| own.commits.write(op));
    own.commits.skip_seqs(recovered.last_seq);
    own.sessions.skip_keys(recovered.next_session);
    // Earlier versions let clients publish to the server's topics.
    let retained = recovered.retained.iter();
    for message in retained.filter(|message| !access::is_reserved(&message.topic)) {
        own.routing.retained.set(&Arc::new(message.clone()));
        if own.members.is_home_of(&message.topic) {
            own.budget.change(Part::Retained, 0, message.cost());
        }
    }
    restore_posts(own, recovered);
    let mut here = Vec::new();
    let mut members: BTreeMap<(ShardId, Text), u32> = BTreeMap::new();
    for session in &recovered.sessions {
        let home = own.members.home(&session.record.client_id);
        let is_node = home == own.config.shard && session.record.version == PROTOCOL;
        if is_node || session.record.version == groups::PROTOCOL {
            continue;
        }
        if session.record.version == posts::PROTOCOL {
            continue;
        }
        if home == own.config.shard {
            here.push(session);
            continue;
        }
        for (text, ..) in &session.subscriptions {
            if text.starts_with("$share/") {
                *members.entry((home, text.clone())).or_default() += 1;
            } else {
                own.routing
                    .handle_interest(home, &InterestChange::Add(text.clone()));
            }
        }
    }
    for ((home, text), count) in members {
        own.routing
            .handle_interest(home, &InterestChange::Share(text, count));
    }
    front::restore_sessions(own, &here);
    sessions::groups::restore(own, recovered);
    Ok(())
}

/// The homes of the store of this shard, if it is one of several.
fn homes_of_store(own: &Owners) -> Option<StoreHomes> {
    let members = &own.members;
    let (homes, here) = (members.homes(), members.together());
    members.has_apart().then(|| StoreHomes {
        homes: homes.count,
        per_store: own.config.nodes.homes_per_store,
        before: here.first.0.wrapping_sub(homes.first.0),
    })
}

/// Takes back what this shard has posted, and how far it has taken what others have.
fn restore_posts(own: &mut Owners, recovered: &Recovered) {
    let here = own.config.shard;
    let is_first = own.members.together().first == here;
    let posts = &mut own.commits.posts;
    let mut unreadable = 0;
    for (name, value) in &recovered.meta {
        unreadable += posts.restore_taken(here, is_first, name, value);
    }
    let all = recovered.sessions.iter();
    for queue in all.filter(|it| it.record.version == posts::PROTOCOL) {
        unreadable += posts.restore(here, is_first, queue);
    }
    let now = posts.memory();
    let before = core::mem::replace(&mut posts.weighed, now);
    own.budget.change_queue(before, now);
    note_unreadable_posts(own, unreadable);
}
