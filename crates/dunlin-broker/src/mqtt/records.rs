//! Records of sessions in the store, and their wills.

use alloc::vec::Vec;

use dunlin_store::StoreOp;

use crate::ids::SessionIdx;
use crate::mqtt::conn::Phase;
use crate::mqtt::waiting::MqttPending;
use crate::owners::Owners;
use crate::owners::pending::Record;
use crate::sessions::records;

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

/// As [`put`], of a session that the store has.
pub(crate) fn put_lasting(own: &mut Owners, s: SessionIdx) {
    let session = own.sessions.mqtt(s);
    if session.is_some_and(|session| session.stored) && own.commits.is_durable() {
        put(own, s);
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
        own.commits
            .when_stored(token, MqttPending::Connect { conn }.into());
    }
    alloc::vec![StoreOp::PutSession { key, record }]
}

/// The batch of a will was stored, or refused.
pub(crate) fn after_will(own: &mut Owners, record: Record, stored: bool) {
    match record {
        Record::Delete(_, client_id) if stored => records::forgotten(own, &client_id),
        Record::Delete(key, client_id) => records::forget(own, key, client_id),
        Record::Put(session) if !stored => {
            if let Some(s) = own.sessions.resolve(session) {
                put(own, s);
            }
        }
        Record::Put(_) => {}
    }
}
