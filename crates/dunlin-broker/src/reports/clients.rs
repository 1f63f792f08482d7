//! The clients of a shard, one by one, for people who look: who they are and
//! what waits for them. Walks tables; not for the data path.

use alloc::vec::Vec;

use dunlin_base::transport::Peer;
use dunlin_base::{ConnId, Text};

use crate::owners::Owners;
use crate::owners::session::Session;

/// A session, and the connection that serves it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ClientView {
    /// Its client identifier.
    pub client_id: Text,
    /// Its user, when it authenticated as one.
    pub user: Option<Text>,
    /// Its connection; `None`: the session waits for its client.
    pub conn: Option<ConnId>,
    /// Who is at the other end of that.
    pub peer: Option<Peer>,
    /// Its MQTT version: 4 for 3.1.1, or 5.
    pub version: u8,
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

/// The session of this client, if it is on this shard.
pub(crate) fn client(own: &Owners, client_id: &str) -> Option<ClientView> {
    let s = own.sessions.find(client_id)?;
    own.sessions.get(s).map(|session| view(own, session))
}

/// Connected clients in the order of their connections, those after
/// `after`, at most `limit`.
pub(crate) fn clients(own: &Owners, after: Option<ConnId>, limit: usize) -> Vec<ClientView> {
    let connected = own.conns.iter().filter_map(|(_, conn)| {
        let session = own.sessions.peek(conn.session()?)?;
        (after < Some(conn.id)).then_some((conn.id, session))
    });
    let mut found: Vec<(ConnId, &Session)> = connected.collect();
    found.sort_unstable_by_key(|(id, _)| *id);
    found.truncate(limit);
    found
        .into_iter()
        .map(|(_, session)| view(own, session))
        .collect()
}

fn view(own: &Owners, session: &Session) -> ClientView {
    let conn = session.conn.and_then(|c| own.conns.get(c));
    ClientView {
        client_id: session.client_id.clone(),
        user: session.user.clone(),
        conn: conn.map(|conn| conn.id),
        peer: conn.map(|conn| conn.peer.clone()),
        version: session.version(),
        expiry_secs: session.expiry_secs(),
        subscriptions: session.subscriptions_len(),
        queued: session.queue().len(),
        queued_bytes: session.queue().bytes(),
        in_flight: session.in_flight(),
        receiving: session.receiving(),
        backlog_bytes: conn.map_or(0, |conn| conn.backlog()),
    }
}
