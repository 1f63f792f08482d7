//! The clients of a shard, one by one, for people who look: who they are and
//! what waits for them. Walks tables; not for the data path.

use alloc::vec::Vec;

use dunlin_base::transport::Peer;
use dunlin_base::{ConnId, Text};

use crate::owners::Owners;
use crate::owners::conn::Conn;
use crate::owners::session::Session;

/// A session of MQTT and the connection that serves it, or a connection of AMQP.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ClientView {
    /// Its client identifier; of AMQP the container id, which several may have.
    pub client_id: Text,
    /// Its user, when it authenticated as one.
    pub user: Option<Text>,
    /// Its connection; `None`: the session waits for its client.
    pub conn: Option<ConnId>,
    /// Who is at the other end of that.
    pub peer: Option<Peer>,
    /// Its MQTT version: 4 for 3.1.1, or 5; 0: it speaks AMQP 1.0.
    pub version: u8,
    /// Its links, if it speaks AMQP.
    pub links: Option<usize>,
    /// How long the session outlives its connection; `u32::MAX`: for ever.
    pub expiry_secs: u32,
    /// Its subscriptions.
    pub subscriptions: usize,
    /// Messages that wait for it.
    pub queued: usize,
    /// Bytes of those that are held in memory.
    pub queued_bytes: usize,
    /// QoS 1 and 2 messages on their way to it.
    pub in_flight: usize,
    /// QoS 2 messages on their way from it.
    pub receiving: usize,
    /// Bytes on their way to it.
    pub backlog_bytes: usize,
}

/// The session of this client, if it is on this shard; or else a connection of
/// this container.
pub(crate) fn client(own: &Owners, client_id: &str) -> Option<ClientView> {
    if let Some(s) = own.sessions.find(client_id) {
        return own.sessions.get(s).map(|session| view(own, session));
    }
    let mut conns = own.conns.iter().map(|(_, conn)| conn);
    let is_it = |conn: &&Conn| conn.who().is_some_and(|who| *who.client_id == *client_id);
    let conn = conns.find(|conn| is_it(conn) && conn.links().is_some())?;
    view_conn(own, conn)
}

/// Connected clients in the order of their connections, those after
/// `after`, at most `limit`.
pub(crate) fn clients(own: &Owners, after: Option<ConnId>, limit: usize) -> Vec<ClientView> {
    let connected = own.conns.iter().map(|(_, conn)| conn);
    let connected = connected.filter(|conn| after < Some(conn.id));
    let mut found: Vec<&Conn> = connected
        .filter(|conn| conn.session().is_some() || conn.links().is_some())
        .collect();
    found.sort_unstable_by_key(|conn| conn.id);
    found.truncate(limit);
    let views = found.into_iter();
    views.filter_map(|conn| view_conn(own, conn)).collect()
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

fn view(own: &Owners, session: &Session) -> ClientView {
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
