//! Records of sessions in the store, and what waits until one is gone.

use alloc::vec::Vec;

use dunlin_base::Text;
use dunlin_store::{SessionKey, StoreOp};

use crate::ids::SessionIdx;
use crate::io::BusMessage;
use crate::owners::Owners;
use crate::owners::conn::Phase;
use crate::owners::elsewhere::Free;
use crate::owners::pending::{Pending, Record};

/// Writes the record of a session, unless it is written with its will.
pub(crate) fn put(own: &mut Owners, s: SessionIdx) {
    let Some(session) = own.sessions.mqtt(s) else {
        return;
    };
    if session.will_under_way.is_none() {
        let (key, record) = (session.key, session.record());
        own.commits.write(StoreOp::PutSession { key, record });
    }
}

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

/// What is stored in one batch with a will.
pub(crate) fn with_will(own: &mut Owners, token: u64, record: &Record) -> Vec<StoreOp> {
    let session = match record {
        Record::Delete(key, _) => return alloc::vec![StoreOp::DeleteSession { key: *key }],
        Record::Put(session) => own.sessions.resolve_mqtt(*session),
    };
    // A later will of the session may be under way.
    let Some(session) = session.filter(|session| session.will_under_way == Some(token)) else {
        return Vec::new();
    };
    session.will_under_way = None;
    let (key, record) = (session.key, session.record());
    // Its client has come back meanwhile, and CONNACK waits for the record.
    if let Some(conn) = session.conn.and_then(|c| own.conns.mqtt(c))
        && matches!(conn.phase, Phase::Storing(..))
    {
        let conn = conn.id;
        let token = own.commits.token();
        own.commits.when_stored(token, Pending::Connect { conn });
    }
    alloc::vec![StoreOp::PutSession { key, record }]
}

/// The batch of a will was stored, or refused.
pub(crate) fn after_will(own: &mut Owners, record: Record, stored: bool) {
    match record {
        Record::Delete(_, client_id) if stored => forgotten(own, &client_id),
        Record::Delete(key, client_id) => forget(own, key, client_id),
        Record::Put(session) if !stored => {
            if let Some(s) = own.sessions.resolve(session) {
                put(own, s);
            }
        }
        Record::Put(_) => {}
    }
}
