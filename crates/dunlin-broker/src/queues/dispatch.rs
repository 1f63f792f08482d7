//! Calls that have come, to nodes and links of this shard.

use dunlin_base::ShardId;

use crate::front;
use crate::owners::Owners;
use crate::queues::calls::Call;
use crate::queues::{credit, manage, nodes};

/// A link or node of the shard `from` says something.
pub(crate) fn handle(own: &mut Owners, from: ShardId, call: Call) {
    match call {
        Call::Attach(attach) => nodes::handle_attach(own, from, *attach),
        Call::Credit {
            place,
            limit,
            drain,
        } => credit::handle_credit(own, from, place, limit, drain),
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
                nodes::check_empty(own, s);
            }
        }
        Call::Leave {
            place,
            sent,
            closed,
            expires,
        } => nodes::handle_leave(own, from, place, sent, (closed, expires)),
        Call::Expire { node } => nodes::handle_expire(own, node),
        call @ (Call::Attached { .. }
        | Call::Refused { .. }
        | Call::Deliver { .. }
        | Call::Drained { .. }
        | Call::Settled { .. }
        | Call::Answered { .. }) => front::handle_call(own, from, call),
        Call::Ask(ask) => manage::handle(own, *ask),
    }
}
