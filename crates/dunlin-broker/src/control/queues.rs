//! Queues of AMQP, for operators: listed, changed as clients change them by
//! `$management`, looked into.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

use dunlin_base::Text;

use crate::control::values::{
    PEEKED_MAX, Page, Place, QueueAnswer, QueueView, Reply, Request, STEP_BYTES_MAX,
};
use crate::owners::Owners;
use crate::owners::common::Standing;
use crate::queues::orders::{Ask, Asked, Asker, Order};
use crate::queues::{addresses, answers, manage, moving};
use crate::reports::clients;

/// Carries out a request about queues; `None`: it is answered later.
pub(super) fn handle(own: &mut Owners, number: u64, request: Request) -> Option<Reply> {
    let order = match request {
        Request::Queues { at, limit } => return Some(Reply::Queues(list(own, at, limit))),
        Request::Peek { address, limit } => return Some(peek(own, &address, limit)),
        Request::Move { address, to, limit } => {
            return moving::begin(own, number, &address, &to, limit);
        }
        Request::CreateQueue(address, changes) => Order::Create(address, changes),
        Request::ChangeQueue(address, changes) => Order::Update(address, changes),
        Request::DeleteQueue(address) => Order::Delete(address),
        Request::Purge(address, max) => Order::Purge(address, max),
        Request::Queue(address) => Order::Read(address),
        // No other comes here.
        _ => return Some(Reply::Stored(false)),
    };
    carry_out(own, number, order);
    None
}

/// Queues, from a place in the table of sessions on.
fn list(own: &Owners, at: Place, limit: usize) -> Page<QueueView> {
    clients::page(own.sessions.from(at), limit, |_, session| {
        let node = session.node();
        let node = node.filter(|node| addresses::is_queue(&node.address));
        let Some(node) = node else {
            return (0, None);
        };
        let view = QueueView {
            configured: answers::is_configured(own, &node.address),
            ..answers::view_of(node)
        };
        // Names of the configuration are compared one by one, and links are counted.
        let links = node.ends().count() + own.config.queues.named.len();
        (view.topics.len() + links / LINKS_A_LOOK, Some(view))
    })
}

/// Links that are counted in the time of one look.
const LINKS_A_LOOK: usize = 16;

/// Carries out what clients can order too.
fn carry_out(own: &mut Owners, number: u64, order: Order) {
    let ask = Ask {
        asked: Asked {
            shard: own.config.shard,
            link: None,
            number,
        },
        asker: Asker {
            user: None,
            client_id: Text::new(),
            standing: Standing::Server,
            rules: None,
        },
        order,
    };
    manage::handle(own, ask);
}

/// The messages of a queue that leave first. Those that are only in the store are loaded
/// for the next look.
fn peek(own: &mut Owners, address: &str, limit: usize) -> Reply {
    let s = match manage::find(own, address) {
        Ok(s) => s,
        Err(problem) => return Reply::Queue(Box::new(QueueAnswer::Refused(problem))),
    };
    let limit = limit.min(PEEKED_MAX);
    let (mut rows, mut bytes) = (Vec::new(), 0);
    let Some(node) = own.sessions.node_mut(s) else {
        return Reply::Peeked {
            rows,
            loading: false,
        };
    };
    let all = node.queue.len().min(limit);
    let mut waiting = node.queue.browse();
    while rows.len() < all && bytes < STEP_BYTES_MAX {
        let Some(message) = waiting.next().and_then(|delivery| {
            let message = Arc::clone(delivery.held()?);
            Some((message, delivery.failed))
        }) else {
            break;
        };
        bytes += message.0.cost();
        rows.push(message);
    }
    drop(waiting);
    let loading = rows.len() < all && bytes < STEP_BYTES_MAX;
    if loading {
        moving::load(own, s, limit);
    }
    Reply::Peeked { rows, loading }
}
