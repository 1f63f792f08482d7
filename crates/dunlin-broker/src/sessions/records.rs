//! Records of sessions in the store, and what waits until one is gone.

use alloc::sync::Arc;

use dunlin_base::{QoS, StreamId, Text};
use dunlin_queue::{Content, Delivery, Identifiers};
use dunlin_store::{QueuedRef, SessionKey, StoreOp};

use crate::control::values::Reply;
use crate::io::BusMessage;
use crate::owners::Owners;
use crate::owners::elsewhere::Free;
use crate::owners::pending::Pending;

/// Has the store forget a session that has ended: what it keeps would come
/// back with a restart.
pub(crate) fn forget(own: &mut Owners, session: SessionKey, client_id: Text) {
    own.commits.write(StoreOp::DeleteSession { key: session });
    let token = own.commits.token();
    let pending = Pending::Forget { session, client_id };
    own.commits.when_stored(token, pending);
}

/// The store has forgotten a session.
pub(crate) fn forgotten(own: &mut Owners, client_id: &Text) {
    for free in own.sessions.end_forget(client_id) {
        say(own, client_id, free);
    }
}

/// Says something to another shard once the store has forgotten all sessions of
/// a client here.
pub(crate) fn when_forgotten(own: &mut Owners, client_id: &Text, free: Free) {
    if let Some(free) = own.sessions.when_forgotten(client_id, free) {
        say(own, client_id, free);
    }
}

fn say(own: &mut Owners, client_id: &Text, free: Free) {
    let client_id = client_id.clone();
    match free {
        Free::Left(home, token) => {
            let message = BusMessage::Left { token, client_id };
            own.outbox.bus(home, message);
        }
        Free::Operator(number) => {
            own.outbox.reply(number, Reply::Stored(true));
        }
        Free::Granted(shard, token) => {
            let entry = own.sessions.elsewhere_mut(&client_id);
            let entry = entry.filter(|entry| (entry.shard, entry.token) == (shard, token));
            let wanted = entry.is_some_and(|entry| {
                entry.granted = true;
                !entry.waiting.is_empty()
            });
            let message = BusMessage::Granted {
                token,
                client_id: client_id.clone(),
            };
            own.outbox.bus(shard, message);
            if wanted {
                let message = BusMessage::Evict { token, client_id };
                own.outbox.bus(shard, message);
            }
        }
    }
}

/// A message in the queue of a session as the store kept it.
pub(crate) fn delivery(queued: &QueuedRef) -> Delivery {
    Delivery {
        content: Content::Stored {
            cost: u32::try_from(queued.cost()).unwrap_or(u32::MAX),
            expires: queued.expires(),
        },
        seq: Some(queued.seq().0),
        qos: queued.qos(),
        retain: queued.retain(),
        identifiers: queued
            .identifiers()
            .iter()
            .copied()
            .collect::<Identifiers>(),
        share: queued
            .shared()
            .map(|share: &Text| Arc::from(share.as_str())),
        stream: StreamId::CONTROL,
        // Its topic is not known here, and nothing of the same topic may
        // overtake it.
        level: u8::MAX,
        maybe_sent: queued.qos() == QoS::AtLeastOnce,
        failed: 0,
        added: None,
    }
}
