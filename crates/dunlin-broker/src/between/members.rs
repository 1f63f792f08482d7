//! Shards come and go. What waits for one that is gone is released here, and what it had
//! is as if each of its connections had been lost.

use alloc::vec::Vec;

use dunlin_base::transport::{CloseCause, NetEventKind};
use dunlin_base::{ShardId, Text};

use crate::between::{apart, bus, introducing};
use crate::config::HomeLost;
use crate::control::values::{Ending, EndingKind};
use crate::front;
use crate::ids::ConnIdx;
use crate::io::{Membership, Output};
use crate::messages::{loans, settle};
use crate::owners::Owners;
use crate::owners::pending::InStore;
use crate::queues::{nodes, termini};
use crate::sessions::groups;

/// Shards come and go.
pub(crate) fn handle(own: &mut Owners, change: Membership) {
    match change {
        Membership::Joined(shards) => joined(own, &shards),
        Membership::Gone(shard) => gone(own, shard),
    }
}

fn joined(own: &mut Owners, shards: &[ShardId]) {
    let mut new = Vec::new();
    for shard in shards {
        if own.members.join(*shard) {
            own.outbox.join(*shard);
            new.push(*shard);
        }
    }
    own.budget.holders.set_shards(own.members.len());
    for shard in new {
        if own.members.is_apart(shard) {
            apart::joined(own, shard);
        }
        introducing::begin(own, shard);
    }
}

fn gone(own: &mut Owners, shard: ShardId) {
    if !own.members.leave(shard) {
        return;
    }
    own.outbox.leave(shard);
    if !own.members.may_go(shard) {
        return lose_home(own, shard);
    }
    own.budget.holders.set_shards(own.members.len());
    own.budget.holders.forget(shard);
    own.figures.forget(shard);
    let is_apart = own.members.is_apart(shard);
    // Its durable sessions still want what they did.
    if !is_apart {
        for share in own.routing.forget(shard) {
            groups::forget_empty(own, &share);
        }
    }
    lose_conns(own, shard);
    front::handle_shard_gone(own, shard);
    nodes::handle_gone(own, shard);
    termini::handle_gone(own, shard);
    // Its publisher was not acknowledged.
    for work in own.commits.take_prepared_of(shard) {
        settle::settle_work(own, work, InStore::No);
    }
    loans::handle_gone(own, shard);
    for (token, answers) in own.members.take_due(shard) {
        for _ in 0..answers {
            bus::release(own, shard, token);
        }
    }
    match is_apart {
        true => apart::gone(own, shard),
        false => introducing::handle_introduced(own, shard),
    }
}

/// Connections of a shard that is gone whose sessions are here have closed.
fn lose_conns(own: &mut Owners, shard: ShardId) {
    let lost = own.conns.iter();
    let lost = lost.filter(|(_, conn)| conn.id.shard() == shard);
    let lost: Vec<ConnIdx> = lost.map(|(c, _)| c).collect();
    for c in lost {
        let cause = CloseCause::failed("the shard of its socket is gone");
        front::handle_event::<&[u8]>(own, c, NetEventKind::Closed { cause });
    }
}

/// How connections end whose shard does.
pub(crate) fn shutting_down() -> Ending {
    Ending {
        kind: EndingKind::ShuttingDown,
        why: Text::default(),
    }
}

/// Without its homes a shard cannot go on: its connections end.
fn lose_home(own: &mut Owners, home: ShardId) {
    if own.shutting_down {
        return;
    }
    own.shutting_down = true;
    let kind = match own.config.nodes.home_lost.clone() {
        HomeLost::ShutDown => EndingKind::ShuttingDown,
        HomeLost::UseAnother(server) => EndingKind::UseAnother(server),
        HomeLost::Moved(server) => EndingKind::Moved(server),
    };
    let why = Text::from_static("the server has lost a part of itself");
    let ending = Ending { kind, why };
    let conns: Vec<ConnIdx> = own.conns.iter().map(|(c, _)| c).collect();
    for c in conns {
        front::force(own, c, &ending);
    }
    own.outbox.push(Output::HomeLost(home));
}
