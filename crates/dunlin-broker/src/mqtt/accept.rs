//! A CONNECT whose client is known: its session, what both sides agree on, and
//! CONNACK.

use alloc::boxed::Box;

use dunlin_base::transport::NetCommandKind;
use dunlin_base::transport::Transport;
use dunlin_base::{Repeat, StreamId, Text};
use dunlin_mqtt::close_code;
use dunlin_mqtt::codec::Connect;
use dunlin_mqtt::scram::{METHOD, METHOD_PLUS};
use dunlin_mqtt::server::connect::{Accepted, Announced};
use dunlin_mqtt::server::link::Offer;
use dunlin_mqtt::server::session::{Lifetime, Will};

use crate::access;
use crate::ids::{ConnIdx, SessionIdx};
use crate::io::{AccessKind, Event};
use crate::mqtt::conn::{MqttConn, Phase, Voucher};
use crate::mqtt::flows::resets;
use crate::mqtt::waiting::MqttPending;
use crate::mqtt::{acks, ending, lifetime, pace, pump, records, send, subscribe, topics};
use crate::owners::common::{Identity, Standing};
use crate::owners::timers::Timer;
use crate::owners::{Later, Owners};
use crate::reports::audit;
use crate::sessions::{rights, subscriptions};
use crate::topics::Client;

/// The client is authenticated and has its client identifier: gives it its
/// session. `claim`: the token under which its home granted it, or 0.
pub(crate) fn accept(
    own: &mut Owners,
    c: ConnIdx,
    connect: &Connect<'_>,
    assigned: Option<Text>,
    identity: Identity,
    claim: u64,
) {
    let client_id = assigned
        .clone()
        .unwrap_or_else(|| Text::from(connect.client_id));
    let (s, session_present) = take_session(own, c, connect, &client_id, identity.user.as_ref());
    let expiry = Lifetime::asked(connect, own.config.sessions.session_expiry_secs_max);
    let will = will(own, c, connect, &client_id, identity.user.as_deref());
    let accepted = Accepted {
        session_present,
        assigned,
        server_keep_alive: negotiate(own, c, connect),
        auth_data: identity.data,
        ..Accepted::of(connect, expiry)
    };
    let mount = own.conns.mqtt(c).map(|conn| conn.peer.listener);
    let mount = own.config.topics.mount(mount.unwrap_or_default());
    let Some(session) = own.sessions.mqtt_mut(s) else {
        return;
    };
    session.mount = (!mount.is_empty()).then(|| mount.into());
    session.mqtt.version = connect.version;
    let before = core::mem::replace(&mut session.user, identity.user);
    let new_user = session.user != before;
    let holders = &mut own.budget.holders;
    holders.moved(before.as_ref(), session.user.as_ref());
    session.standing = identity.standing;
    let new_rules = session.rules != identity.rules;
    session.rules = identity.rules;
    let outlived = session.is_persistent();
    session.mqtt.lifetime.handle_connected(expiry, will);
    let changed = outlived != session.is_persistent();
    session.conn = Some(c);
    session.claim = claim;
    session.full = false;
    match session_present {
        true => own.charge_client(s),
        false => own.count_in(s),
    }
    if session_present && (new_user || new_rules) {
        rights::handle_new_user(own, s);
    }
    if changed && session_present {
        subscriptions::lifetime_changed(own, s);
    }
    let pace = pace::of(own, c, s);
    if let Some(conn) = own.conns.mqtt_mut(c) {
        conn.pace = pace;
        let expires = identity.expires;
        let voucher = identity.by.map(|by| Voucher { by, expires });
        conn.voucher = voucher.map(Box::new);
        conn.phase = Phase::Storing(s, Box::new(accepted));
    }
    store(own, c, s, !session_present);
}

/// The will of a CONNECT, for the topic that it stands for.
fn will(
    own: &Owners,
    c: ConnIdx,
    connect: &Connect<'_>,
    client_id: &str,
    user: Option<&str>,
) -> Option<Box<Will>> {
    let will = connect.will.as_ref()?;
    let listener = own.conns.mqtt(c)?.peer.listener;
    let client = Client {
        id: client_id,
        user,
    };
    let will = topics::will(own, listener, client, will)?;
    let is_reserved = access::is_reserved(&will.message.topic);
    (!is_reserved).then(|| Box::new(will))
}

/// Has the session's record stored, before CONNACK, and gives one that `is_new` its
/// first subscriptions.
fn store(own: &mut Owners, c: ConnIdx, s: SessionIdx, is_new: bool) {
    let (Some(session), Some(conn)) = (own.sessions.mqtt_mut(s), own.conns.mqtt(c)) else {
        return;
    };
    // A session that was stored stays so although it now ends with its
    // connection: its queue may be only in the store.
    session.stored |= session.is_persistent() || session.mqtt.lifetime.will().is_some();
    let is_stored = session.stored && own.commits.is_durable();
    // A will of before that is under way takes the record with it.
    if is_stored && session.will_under_way.is_none() {
        let (conn, token) = (conn.id, own.commits.token());
        records::put(own, s);
        own.commits
            .when_stored(token, MqttPending::Connect { conn }.into());
    }
    if is_new && !own.config.topics.automatic.is_empty() {
        subscribe::begin(own, c, s);
    }
    if !is_stored {
        connected(own, c);
    }
}

/// CONNACK, then everything that waited for it.
pub(crate) fn connected(own: &mut Owners, c: ConnIdx) {
    let Some(conn) = own.conns.mqtt_mut(c) else {
        return;
    };
    let (s, accepted) = match core::mem::replace(&mut conn.phase, Phase::Closing) {
        Phase::Storing(s, accepted) => (s, accepted),
        other => {
            conn.phase = other;
            return;
        }
    };
    conn.phase = Phase::Connected(s);
    conn.who = None;
    conn.link.keep_alive.heard(own.now);
    let expires = conn.expires();
    let (id, silence) = (conn.id, conn.link.keep_alive.limit());
    let timeout = if silence.is_zero() {
        own.timers.cancel(Timer::Conn(id), &mut conn.alarm);
        own.config.clients.idle_timeout_max
    } else {
        let due = own.now + silence;
        own.timers.remind(due, Timer::Conn(id), &mut conn.alarm);
        // The engine ends it first, with a reason; the transport's own
        // timeout is the net under it.
        silence + silence / 4
    };
    if let Some(due) = expires {
        own.timers.remind(due, Timer::Conn(id), &mut conn.alarm);
    }
    own.outbox.command(id, NetCommandKind::Accept);
    own.outbox
        .command(id, NetCommandKind::SetIdleTimeout { timeout });
    send_connack(own, c, &accepted);
    if own.conns.mqtt(c).and_then(MqttConn::session).is_none() {
        return;
    }
    own.stats.clients_accepted += 1;
    let cause = cause_of(own, c, s, accepted.auth_method.as_deref());
    audit::note(own, c, AccessKind::Accepted, cause);
    let Some(session) = own.sessions.mqtt_mut(s) else {
        return;
    };
    let changes = session
        .mqtt
        .handle_connected(own.now, own.config.clients.receive_maximum);
    let client_id = session.client_id.clone();
    subscribe::apply(own, s, changes);
    own.outbox.event(Event::Connected {
        conn: id,
        client_id,
        resumed: accepted.session_present,
    });
    acks::send_acks(own, s);
    pump::pump(own, s);
    own.later.push_back(Later::Unpark(c));
}

/// What let a client in, for the log.
fn cause_of(own: &Owners, c: ConnIdx, s: SessionIdx, method: Option<&str>) -> &'static str {
    let conn = own.conns.mqtt(c);
    if let Some(voucher) = conn.and_then(|conn| conn.voucher.as_ref()) {
        return voucher.by.name();
    }
    let is_own = conn.is_some_and(|conn| own.config.bridges.is_own(&conn.peer));
    let session = own.sessions.mqtt(s);
    match session.map(|session| (session.standing, session.user.is_some())) {
        Some((Standing::Listed, _)) => match method {
            Some(METHOD_PLUS) => METHOD_PLUS,
            Some(_) => METHOD,
            None => "password",
        },
        Some((_, true)) if is_own => "a bridge of this broker",
        Some((_, true)) => "client certificate",
        _ => "no credentials needed",
    }
}

fn send_connack(own: &mut Owners, c: ConnIdx, accepted: &Accepted) {
    let quota = own.conns.mqtt(c).and_then(|conn| conn.pace.as_ref());
    let packet_bytes_max = quota.map_or(u32::MAX, |pace| pace.packet_bytes_max);
    let announced = Announced {
        receive_maximum: own.config.clients.receive_maximum,
        packet_bytes_max: own.config.clients.packet_bytes_max.min(packet_bytes_max),
        topic_alias_maximum: own.config.clients.topic_alias_maximum,
        data_streams_max: own.config.clients.data_streams_max,
    };
    let Some(terms) = own.conns.mqtt(c).map(|conn| conn.link.terms.clone()) else {
        return;
    };
    let sent = accepted.connack(&terms, &announced, |packet| {
        send::send(own, c, StreamId::CONTROL, packet)
    });
    if !sent {
        // The client would wait for it in vain.
        ending::close(own, c, close_code::NO_ERROR);
    }
}

/// Takes over what the client asked for on the connection; returns the
/// Server Keep Alive if it differs.
fn negotiate(own: &mut Owners, c: ConnIdx, connect: &Connect<'_>) -> Option<u16> {
    let config = &own.config;
    let conn = own.conns.mqtt_mut(c)?;
    let offer = Offer {
        quic: conn.peer.transport == Transport::Quic,
        implies_streams: resets::are_agreed(conn),
        datagrams: config.sending.datagrams,
        delivery_streams_max: config.sending.delivery_streams_max,
        keep_alive_secs_max: config.clients.keep_alive_secs_max,
    };
    let agreed = conn.link.handle_connect(connect, &offer);
    let conn = conn.id;
    if agreed.isolate {
        let isolate = true;
        own.outbox
            .command(conn, NetCommandKind::IsolateStreams { isolate });
    }
    if let Some(repeat) = Repeat::granted(agreed.repeat, config.sending.repeat_packets) {
        own.outbox
            .command(conn, NetCommandKind::RepeatPackets { repeat });
    }
    agreed.server_keep_alive
}

/// The session for a CONNECT, and whether it existed. A connection that
/// has it gets DISCONNECT with 0x8E and is closed.
fn take_session(
    own: &mut Owners,
    c: ConnIdx,
    connect: &Connect<'_>,
    client_id: &Text,
    user: Option<&Text>,
) -> (SessionIdx, bool) {
    if let Some(s) = own.sessions.find(client_id) {
        let old = own.sessions.mqtt(s).and_then(|session| session.conn);
        if let Some(old) = old {
            ending::take_over(own, old);
        }
    }
    // The disconnection may have ended the session.
    if let Some(s) = own.sessions.find(client_id) {
        let owner = own.sessions.mqtt(s).and_then(|s| s.user.as_ref());
        let is_own = owner.is_none() || owner == user;
        if !connect.clean_start && is_own && is_mounted_alike(own, c, s) {
            return (s, true);
        }
        //= mqtt5#[MQTT-3.1.2-4]
        lifetime::end_session(own, s);
    }
    let s = own.sessions.create(client_id.clone(), connect.version);
    (s, false)
}

/// Whether a session has its subscriptions where a connection would have them: one below
/// another mount point is another client's.
fn is_mounted_alike(own: &Owners, c: ConnIdx, s: SessionIdx) -> bool {
    let (Some(conn), Some(session)) = (own.conns.mqtt(c), own.sessions.mqtt(s)) else {
        return false;
    };
    let mount = own.config.topics.mount(conn.peer.listener);
    session.mount.as_deref().unwrap_or_default() == mount
}
