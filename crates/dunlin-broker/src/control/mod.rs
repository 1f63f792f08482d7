//! What operators ask of this shard is looked up or done here, a bounded piece at a
//! time; what waits for the store is answered when that has it.

mod queues;
mod sessions;
mod topics;
pub mod values;

use alloc::boxed::Box;

use crate::front;
use crate::owners::Owners;
use crate::reports::{clients, sys};
use values::{ClientFilter, Ending, Place, Reply, Request};

/// Carries out a request.
pub(crate) fn handle(own: &mut Owners, number: u64, request: Request) {
    let reply = match request {
        Request::Sessions { filter, at, limit } => {
            Reply::Clients(sessions::list(own, &filter, at, limit))
        }
        Request::EndSession { client_id, ending } => {
            match sessions::end(own, number, &client_id, &ending) {
                Some(reply) => reply,
                None => return,
            }
        }
        Request::Subscriptions {
            client_id,
            after,
            limit,
        } => sessions::subscriptions(own, &client_id, after.as_deref().unwrap_or(""), limit),
        Request::Rights { client_id, topic } => sessions::rights(own, &client_id, &topic),
        Request::Receivers { topic, limit } => sessions::receivers(own, &topic, limit),
        Request::Retained {
            filter,
            after,
            limit,
        } => topics::retained(own, &filter, after.as_deref(), limit),
        Request::Leave => {
            own.shutting_down = true;
            Reply::Stored(true)
        }
        Request::Ban(bans) => {
            own.bans = bans;
            Reply::Stored(true)
        }
        Request::Forget(topics) => return topics::forget(own, number, topics),
        Request::Publish(message) => return topics::publish(own, number, &message),
        about @ (Request::Queues { .. }
        | Request::Queue(_)
        | Request::CreateQueue(..)
        | Request::ChangeQueue(..)
        | Request::DeleteQueue(_)
        | Request::Purge(..)
        | Request::Peek { .. }
        | Request::Move { .. }) => match queues::handle(own, number, about) {
            Some(reply) => reply,
            None => return,
        },
        Request::Clients { filter, at, limit } => {
            Reply::Clients(clients::clients(own, &filter, at, limit))
        }
        Request::Watched { at, limit } => Reply::Clients(sys::watched_clients(own, at, limit)),
        Request::Client(client_id) => Reply::Client(clients::client(own, &client_id).map(Box::new)),
        Request::End { conn, ending } => {
            let c = own.conns.find(conn);
            let c = c.filter(|c| own.conns.get(*c).is_some_and(clients::is_client));
            if let Some(c) = c {
                front::end(own, c, &ending);
            }
            let count = usize::from(c.is_some());
            Reply::Ended { count, next: None }
        }
        Request::EndAll {
            filter,
            at,
            limit,
            ending,
        } => end_all(own, &filter, at, limit, &ending),
    };
    own.outbox.reply(number, reply);
}

fn end_all(
    own: &mut Owners,
    filter: &ClientFilter,
    at: Place,
    limit: usize,
    ending: &Ending,
) -> Reply {
    let page = clients::places(own, filter, at, limit);
    let count = page.rows.len();
    for c in page.rows {
        front::end(own, c, ending);
    }
    let next = page.next;
    Reply::Ended { count, next }
}
