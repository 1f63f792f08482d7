//! Calls that have come, to nodes and links of this shard.

use alloc::boxed::Box;

use dunlin_base::ShardId;

use crate::front;
use crate::io::NotTaken;
use crate::messages::publish;
use crate::owners::Owners;
use crate::owners::pending::{Pending, Promise, Work};
use crate::queues::calls::{Call, Expiring};
use crate::queues::{credit, making, manage, nodes, retiring, termini};

/// A link or node of the shard `from` says something.
pub(crate) fn handle(own: &mut Owners, from: ShardId, call: Call) {
    match call {
        Call::Attach(attach) => nodes::handle_attach(own, from, *attach),
        Call::Make {
            address,
            user,
            token,
        } => making::handle_make(own, &address, user.as_ref(), token.map(|it| (from, it))),
        Call::Credit {
            place,
            limit,
            drain,
        } => credit::handle_credit(own, from, place, limit, drain),
        Call::Want { place, sent } => credit::handle_want(own, from, place, sent),
        Call::Outcome {
            place,
            key,
            outcome,
            annotations,
            answer,
        } => {
            if let Some(annotations) = annotations {
                credit::annotate(own, from, place, key, &annotations);
            }
            credit::handle_outcome(own, from, place, key, outcome, answer);
            if let Some(s) = own.sessions.resolve(place.node) {
                nodes::check_left(own, s, place.end);
                nodes::check_empty(own, s);
            }
        }
        Call::Retire {
            place,
            token,
            outcomes,
        } => {
            let mut work = Work::default();
            let taken = retiring::prepare(own, from, place, &outcomes, &mut work);
            let refused = (!taken).then_some(NotTaken::NotFound);
            promise(own, (from, token), work, refused);
        }
        Call::Leave {
            place,
            sent,
            closed,
            keeps,
            expires,
        } => nodes::handle_leave(own, from, place, (sent, &keeps), (closed, expires)),
        Call::Expire(Expiring::Node(place)) => nodes::handle_expire(own, from, place),
        Call::Expire(Expiring::Terminus { name, link }) => {
            termini::handle_expire(own, from, link, &name);
        }
        Call::Again { place, keys } => credit::handle_again(own, from, place, &keys),
        Call::Claim { link, name, keeps } => termini::handle_claim(own, (from, link), name, keeps),
        Call::Release { link, name, left } => {
            termini::handle_release(own, (from, link), name, left);
        }
        call @ (Call::Attached { .. }
        | Call::Refused { .. }
        | Call::Allow { .. }
        | Call::Deliver { .. }
        | Call::Drained { .. }
        | Call::Settled { .. }
        | Call::Granted { .. }
        | Call::Stolen { .. }
        | Call::Gone { .. }
        | Call::Answered { .. }) => front::handle_call(own, from, call),
        Call::Ask(ask) => manage::handle(own, *ask),
    }
}

/// Answers what a transaction of another shard takes. Where the store was asked to
/// note how often a message has failed, it has to have done so before that shard
/// has it remove the message.
fn promise(own: &mut Owners, from: (ShardId, u64), mut work: Work, refused: Option<NotTaken>) {
    let mut retired = work.transacted_mut().retired.iter();
    if !retired.any(|it| it.delivery.failed > 0) {
        return publish::promise(own, from, work, refused, None);
    }
    let token = own.commits.token();
    let promised = Promise {
        from,
        work,
        refused,
    };
    let pending = Pending::Promise(Box::new(promised));
    own.commits.when_stored(token, pending);
}
