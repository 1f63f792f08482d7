//! The clients of a shard, one by one, for people who look: who they are and
//! what waits for them. A call looks at a bounded piece of a table; not for the data
//! path.

use alloc::vec::Vec;

use crate::control::values::{ClientFilter, ClientView, Page, Place};
use crate::ids::ConnIdx;
use crate::owners::Owners;
use crate::owners::conn::Conn;
use crate::owners::session::Session;

/// Entries of tables that one call looks at, links of AMQP included: what a shard
/// does in well under 2 ms.
pub(crate) const EXAMINED_MAX: usize = 1024;

/// Connections that one call ends: each takes some 10 µs here, and 20 µs of its transport.
pub(crate) const ENDED_MAX: usize = 32;

/// The session with this client identifier, if it is on this shard.
pub(crate) fn client(own: &Owners, client_id: &str) -> Option<ClientView> {
    let s = own.sessions.find(client_id)?;
    own.sessions.get(s).map(|session| view(own, session))
}

/// Connected clients that match, from a place in the table of connections on.
pub(crate) fn clients(
    own: &Owners,
    filter: &ClientFilter,
    at: Place,
    limit: usize,
) -> Page<ClientView> {
    page(own.conns.from(at), limit, |_, conn| {
        let view = matches(own, filter, conn).then(|| view_conn(own, conn));
        let view = view.flatten();
        let links = view.as_ref().and_then(|view| view.links);
        (links.unwrap_or(0), view)
    })
}

/// As [`clients`], where their connections are, which are to be ended; without the
/// broker's own bridges.
pub(crate) fn places(
    own: &Owners,
    filter: &ClientFilter,
    at: Place,
    limit: usize,
) -> Page<ConnIdx> {
    let cost = if filter.banned { own.bans.cost() } else { 0 };
    let limit = limit.min(ENDED_MAX);
    page(own.conns.from(at), limit, |c, conn| {
        let is_own = own.config.bridges.is_own(&conn.peer);
        (cost, (!is_own && matches(own, filter, conn)).then_some(c))
    })
}

/// Rows of a table, of which `look` says what more they cost than one look.
pub(crate) fn page<E, R>(
    entries: impl Iterator<Item = (Place, Option<E>)>,
    limit: usize,
    mut look: impl FnMut(Place, E) -> (usize, Option<R>),
) -> Page<R> {
    let (mut rows, mut examined) = (Vec::new(), 0);
    for (place, entry) in entries {
        if rows.len() >= limit || examined >= EXAMINED_MAX {
            let next = Some(place);
            return Page { rows, next };
        }
        examined += 1;
        if let Some(entry) = entry {
            let (more, row) = look(place, entry);
            examined += more;
            rows.extend(row);
        }
    }
    Page { rows, next: None }
}

/// Whether a connection is one of a client that was let in, with its session here.
pub(crate) fn is_client(conn: &Conn) -> bool {
    conn.session().is_some() || conn.links().is_some()
}

/// Whether a connection is that of a client that is meant.
fn matches(own: &Owners, filter: &ClientFilter, conn: &Conn) -> bool {
    let of_session = conn.session().and_then(|s| own.sessions.peek(s));
    let (is_mqtt, client_id, user) = match (of_session, conn.who()) {
        (Some(session), _) => (true, &session.client_id, session.user.as_ref()),
        (None, Some(who)) if conn.links().is_some() => (false, &who.client_id, who.user.as_ref()),
        _ => return false,
    };
    let address = conn.peer.addr.ip().to_canonical();
    client_id.starts_with(&*filter.client_id)
        && filter.mqtt.is_none_or(|mqtt| mqtt == is_mqtt)
        && filter.user.as_ref().is_none_or(|it| user == Some(it))
        && filter.network.is_none_or(|it| it.contains(address))
        && (!filter.banned || own.bans.has(client_id, user, address, own.now))
}

fn view_conn(own: &Owners, conn: &Conn) -> Option<ClientView> {
    if let Some(s) = conn.session() {
        return own.sessions.peek(s).map(|session| view(own, session));
    }
    let (links, who) = (conn.links()?, conn.who()?);
    let mut view = ClientView {
        client_id: who.client_id.clone(),
        user: who.user.clone(),
        conn: Some(conn.id),
        peer: Some(conn.peer.clone()),
        version: 0,
        links: Some(links.len()),
        expiry_secs: 0,
        subscriptions: 0,
        queued: 0,
        queued_bytes: 0,
        in_flight: 0,
        receiving: 0,
        backlog_bytes: conn.backlog(),
    };
    for link in links.into_iter().filter_map(|s| own.sessions.peek(s)) {
        view.subscriptions += link.subscriptions_len();
        view.queued += link.queue().len();
        view.queued_bytes += link.queue().bytes();
        view.in_flight += link.in_flight();
    }
    Some(view)
}

pub(crate) fn view(own: &Owners, session: &Session) -> ClientView {
    let conn = session.conn.and_then(|c| own.conns.get(c));
    ClientView {
        client_id: session.client_id.clone(),
        user: session.user.clone(),
        conn: conn.map(|conn| conn.id),
        peer: conn.map(|conn| conn.peer.clone()),
        version: session.version(),
        links: None,
        expiry_secs: session.expiry_secs(),
        subscriptions: session.subscriptions_len(),
        queued: session.queue().len(),
        queued_bytes: session.queue().bytes(),
        in_flight: session.in_flight(),
        receiving: session.receiving(),
        backlog_bytes: conn.map_or(0, |conn| conn.backlog()),
    }
}
