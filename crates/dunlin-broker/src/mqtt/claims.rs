//! Where a session lives when its client connects to another shard than the
//! one that its client identifier hashes to (its home).
//!
//! A session that ends with its connection and begins empty lives where its
//! connection is. Its home only knows where, so that a client identifier has
//! one session: the accepting shard claims the identifier, home ends what has
//! it now, wherever that is, and grants. A claim is named by its shard and
//! token.

use alloc::boxed::Box;
use alloc::collections::VecDeque;

use dunlin_base::{ConnId, ShardId, Text};
use dunlin_mqtt::close_code;
use dunlin_mqtt::codec::{Connect, Packet, ReasonCode, Version, decode};
use dunlin_mqtt::server::delivery;

use crate::bridges::is_bridge_name;
use crate::ids::{ConnIdx, SessionIdx};
use crate::io::BusMessage;
use crate::mqtt::conn::{Claiming, MqttConn, PendingConnect, Phase};
use crate::mqtt::fault::Fault;
use crate::mqtt::waiting::MqttPending;
use crate::mqtt::{accept, ending, lifetime};
use crate::owners::common::Identity;
use crate::owners::elsewhere::{Claimant, Elsewhere, Free, Place};
use crate::owners::pending::{FrontPending, Pending};
use crate::owners::{Owners, note_unasked};
use crate::sessions::{records, rights};

/// The client is authenticated: gets its session, at once or when the one that
/// has its identifier on another shard has ended.
pub(crate) fn accept(
    own: &mut Owners,
    c: ConnIdx,
    connect: &Connect<'_>,
    pending: PendingConnect,
    identity: Identity,
) {
    let user = identity.user.as_deref();
    let is_own = |conn: &MqttConn| own.config.bridges.is_own(&conn.peer);
    if user.is_some_and(is_bridge_name) && !own.conns.mqtt(c).is_some_and(is_own) {
        let cause = "the name of one of the broker's own bridges";
        return ending::refuse(own, c, Fault::new(ReasonCode::NotAuthorized, cause));
    }
    let client_id = pending.client_id(connect);
    if own.is_banned(c, &client_id, identity.user.as_ref()) {
        return ending::refuse_banned(own, c);
    }
    let home = own.members.home(&client_id);
    let is_home = home == own.config.shard;
    if is_home && !rights::may_have(own, &client_id, identity.user.as_ref()) {
        return refuse(own, c);
    }
    let will = connect.will.as_ref();
    let will_bytes = will.map_or(0, |will| delivery::will_message(will).cost());
    if let Some(no_room) = own.lacks_room(&client_id, will_bytes, &identity, c) {
        return ending::refuse(own, c, no_room.into());
    }
    if is_home && own.sessions.elsewhere(&client_id).is_none() {
        return accept::accept(own, c, connect, pending.assigned, identity, 0);
    }
    if !own.members.has(home) {
        let cause = "the shard that grants the client identifier is away";
        let fault = Fault::new(ReasonCode::ServerUnavailable, cause);
        return ending::refuse(own, c, fault);
    }
    let Some(conn) = own.conns.mqtt_mut(c) else {
        return;
    };
    let id = conn.id;
    let user = identity.user.clone();
    conn.phase = Phase::Claiming(Box::new(Claiming { pending, identity }));
    if is_home {
        let at = Place::Here(id);
        return claim(own, &client_id, Claimant { user, at });
    }
    let token = own.commits.token();
    own.commits
        .wait(token, MqttPending::Claim { conn: id }.into());
    own.members.expect(home, token);
    let message = BusMessage::Claim {
        token,
        client_id,
        user,
    };
    own.outbox.bus(home, message);
}

/// The session with this client identifier belongs to another user.
fn refuse(own: &mut Owners, c: ConnIdx) {
    let cause = "the session belongs to another user";
    let fault = Fault::new(ReasonCode::ClientIdentifierNotValid, cause);
    ending::refuse(own, c, fault);
}

/// What another shard says of client identifiers.
pub(crate) fn handle_bus(own: &mut Owners, from: ShardId, message: BusMessage) {
    match message {
        BusMessage::Claim {
            token,
            client_id,
            user,
        } => handle_claim(own, from, token, &client_id, user),
        BusMessage::Denied { token } if own.members.answer(from, token) => {
            handle_denied(own, token);
        }
        BusMessage::Granted { token, client_id } if own.members.answer(from, token) => {
            handle_granted(own, from, token, client_id);
        }
        BusMessage::Evict { token, client_id } => handle_evict(own, token, &client_id),
        BusMessage::Left { token, client_id } => handle_left(own, from, token, &client_id),
        _ => own.outbox.note_missing(),
    }
}

/// The connection whose CONNECT waits under a token.
fn take_claim(own: &mut Owners, token: u64) -> Option<ConnId> {
    match own.commits.take(token) {
        Some(Pending::Front(FrontPending::Mqtt(MqttPending::Claim { conn }))) => Some(conn),
        Some(other) => {
            own.outbox.note_missing();
            own.commits.wait(token, other);
            None
        }
        None => {
            note_unasked(own);
            None
        }
    }
}

/// Home has refused a claim.
fn handle_denied(own: &mut Owners, token: u64) {
    if let Some(conn) = take_claim(own, token)
        && let Some(c) = own.conns.find(conn)
    {
        refuse(own, c);
    }
}

/// Another shard wants a client identifier whose home is here.
fn handle_claim(own: &mut Owners, from: ShardId, token: u64, client_id: &Text, user: Option<Text>) {
    let at = Place::There(from, token);
    claim(own, client_id, Claimant { user, at });
}

/// Home has granted a claim.
fn handle_granted(own: &mut Owners, from: ShardId, token: u64, client_id: Text) {
    let Some(conn) = take_claim(own, token) else {
        return;
    };
    if !establish(own, conn, token) {
        // The connection has ended meanwhile.
        own.outbox.bus(from, BusMessage::Left { token, client_id });
    }
}

/// Home wants a session ended that was granted to this shard. Home learns
/// of its end as of any other; one that has ended already was.
fn handle_evict(own: &mut Owners, token: u64, client_id: &Text) {
    if let Some(s) = own.sessions.find(client_id)
        && own.sessions.mqtt(s).is_some_and(|s| s.claim == token)
    {
        take_over(own, s);
    }
}

/// A session on another shard has ended: the next claimant gets its client
/// identifier.
fn handle_left(own: &mut Owners, from: ShardId, token: u64, client_id: &Text) {
    let entry = own.sessions.elsewhere(client_id);
    if entry.is_none_or(|entry| (entry.shard, entry.token) != (from, token)) {
        return note_unasked(own);
    }
    let ended = own.sessions.remove_elsewhere(client_id);
    for claimant in ended.into_iter().flat_map(|ended| ended.waiting) {
        claim(own, client_id, claimant);
    }
}

/// A shard is gone: its sessions have ended, and it claims nothing more.
pub(crate) fn handle_gone(own: &mut Owners, shard: ShardId) {
    for client_id in own.sessions.take_claimants(shard) {
        let ended = own.sessions.remove_elsewhere(&client_id);
        for claimant in ended.into_iter().flat_map(|ended| ended.waiting) {
            claim(own, &client_id, claimant);
        }
    }
}

/// Whether a connection cannot go on without a home: its session is there, or its client
/// identifier is granted there.
pub(crate) fn depends_on(own: &Owners, c: ConnIdx, home: ShardId) -> bool {
    let Some(conn) = own.conns.peek_mqtt(c) else {
        return false;
    };
    match &conn.phase {
        Phase::HandedOver(to) => *to == home,
        Phase::Claiming(_) => {
            let who = conn.who.as_ref();
            who.is_some_and(|who| own.members.home(&who.client_id) == home)
        }
        _ => {
            let session = conn.session().and_then(|s| own.sessions.mqtt(s));
            session.is_some_and(|it| it.claim != 0 && own.members.home(&it.client_id) == home)
        }
    }
}

/// Gives a client identifier to who claims it, or has the one end that has it
/// on another shard.
fn claim(own: &mut Owners, client_id: &Text, claimant: Claimant) {
    if !rights::may_have(own, client_id, claimant.user.as_ref()) {
        return match claimant.at {
            Place::Here(conn) => own
                .conns
                .find(conn)
                .into_iter()
                .for_each(|c| refuse(own, c)),
            Place::There(shard, token) => own.outbox.bus(shard, BusMessage::Denied { token }),
        };
    }
    if let Some(entry) = own.sessions.elsewhere_mut(client_id) {
        let first = entry.waiting.is_empty();
        entry.waiting.push_back(claimant);
        if first && entry.granted {
            let (to, token) = (entry.shard, entry.token);
            let client_id = client_id.clone();
            own.outbox.bus(to, BusMessage::Evict { token, client_id });
        }
        return;
    }
    match claimant.at {
        Place::Here(conn) => {
            establish(own, conn, 0);
        }
        Place::There(shard, token) => {
            let entry = Elsewhere {
                shard,
                token,
                user: claimant.user,
                granted: false,
                waiting: VecDeque::new(),
            };
            own.sessions.insert_elsewhere(client_id.clone(), entry);
            if let Some(s) = own.sessions.find(client_id) {
                take_over(own, s);
            }
            // The disconnection may have ended the session.
            if let Some(s) = own.sessions.find(client_id) {
                //= mqtt5#[MQTT-3.1.2-4]
                lifetime::end_session(own, s);
            }
            // Of two sessions in the store, a restart might bring back this one.
            records::when_forgotten(own, client_id, Free::Granted(shard, token));
        }
    }
}

/// Another connection gets the client identifier of a session: the one that
/// has it gets DISCONNECT with 0x8E.
fn take_over(own: &mut Owners, s: SessionIdx) {
    if let Some(c) = own.sessions.mqtt(s).and_then(|session| session.conn) {
        ending::take_over(own, c);
    }
}

/// Goes on with a CONNECT that waited for its client identifier. `false` if
/// its connection has ended, or its client was banned meanwhile.
fn establish(own: &mut Owners, conn: ConnId, claim: u64) -> bool {
    let Some(c) = own.conns.find(conn) else {
        return false;
    };
    let Some(conn) = own.conns.mqtt_mut(c) else {
        return false;
    };
    let claiming = match core::mem::replace(&mut conn.phase, Phase::ExpectConnect) {
        Phase::Claiming(claiming) => *claiming,
        other => {
            conn.phase = other;
            return false;
        }
    };
    let Claiming { pending, identity } = claiming;
    // It decoded before.
    let Ok(Packet::Connect(connect)) = decode(&pending.packet, Version::V5) else {
        own.outbox.note_missing();
        ending::close(own, c, close_code::NO_ERROR);
        return false;
    };
    let client_id = pending.client_id(&connect);
    if own.is_banned(c, &client_id, identity.user.as_ref()) {
        ending::refuse_banned(own, c);
        return false;
    }
    accept::accept(own, c, &connect, pending.assigned, identity, claim);
    true
}
