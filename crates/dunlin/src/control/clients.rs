//! Clients: listed, found, shown, disconnected. What the session's shard and the
//! socket's shard know of one is put together here.

use core::time::Duration;
use std::time::Instant;

use dunlin_base::transport::ShownAddr;
use dunlin_base::{ShardId, Text};
use dunlin_broker::control::values as shard;
use dunlin_net::{ConnStats, QuicStats};

use super::plane::{Outcome, Plane, silent};
use super::values::{
    Client, ClientFilter, Code, Failure, Page, PageOf, Protocol, ROWS_MAX, Reply, Tls,
    WHY_BYTES_MAX,
};
use crate::metrics::Shards;

/// How long containers of AMQP are looked for: their names are in no table.
const FIND_TIME: Duration = Duration::from_secs(2);

/// One page of connected clients.
pub(super) fn list(plane: &Plane, filter: &ClientFilter, page: &PageOf) -> Outcome {
    let filter = wanted(filter);
    let ask = |at, limit| shard::Request::Clients {
        filter: filter.clone(),
        at,
        limit,
    };
    let (found, next) = plane.walk(page, ask, views)?;
    let views: Vec<_> = found.into_iter().map(|(_, view)| view).collect();
    let rows = described(&plane.shards, &views);
    Ok(Reply::Clients(Page { rows, next }))
}

/// One client: its session, or a connection of its container.
pub(super) fn show(plane: &Plane, client_id: &str) -> Outcome {
    let mut found = find(plane, client_id)?.into_iter();
    let (_, view) = found.next().ok_or_else(|| unknown(client_id))?;
    let mut rows = described(&plane.shards, &[view]).into_iter();
    let row = rows.next().ok_or_else(|| unknown(client_id))?;
    Ok(Reply::Client(Box::new(row)))
}

/// Ends the connections of a client.
pub(super) fn disconnect(plane: &Plane, client_id: &str, why: &str) -> Outcome {
    let ending = ending(shard::EndingKind::Ordered, why)?;
    let mut done = 0;
    for (at, view) in find(plane, client_id)? {
        let Some(conn) = view.conn else {
            continue;
        };
        let ending = ending.clone();
        let request = shard::Request::End { conn, ending };
        match plane.shards.control(at, request) {
            Some(shard::Reply::Ended { count, .. }) => done += count as u64,
            _ => return Err(silent()),
        }
    }
    match done {
        0 => {
            let text = format!("no client {client_id:?} is connected");
            Err(Failure::new(Code::NotFound, text))
        }
        count => Ok(Reply::Done { count, next: None }),
    }
}

pub(super) fn unknown(client_id: &str) -> Failure {
    let text = format!("no client {client_id:?} is connected or has a session");
    Failure::new(Code::NotFound, text)
}

/// How connections are ended, with a reason that fits into a packet.
pub(super) fn ending(kind: shard::EndingKind, why: &str) -> Result<shard::Ending, Failure> {
    if why.len() > WHY_BYTES_MAX || why.chars().any(char::is_control) {
        let text = format!("a reason has at most {WHY_BYTES_MAX} bytes and no control characters");
        return Err(Failure::new(Code::BadRequest, text));
    }
    let why = Text::from(why);
    Ok(shard::Ending { kind, why })
}

/// As shards understand it.
pub(super) fn wanted(filter: &ClientFilter) -> shard::ClientFilter {
    shard::ClientFilter {
        client_id: Text::from(filter.client_id.as_str()),
        user: filter.user.as_deref().map(Text::from),
        network: filter.address.map(|range| range.0),
        mqtt: filter.protocol.map(|protocol| protocol == Protocol::Mqtt),
        banned: false,
    }
}

/// The session with this client identifier, or else the connections of this
/// container; each with the shard that has it.
fn find(plane: &Plane, client_id: &str) -> Result<Vec<(ShardId, shard::ClientView)>, Failure> {
    let id = Text::from(client_id);
    let mut silence = false;
    for (at, reply) in plane
        .shards
        .control_all(&shard::Request::Client(id.clone()))
    {
        match reply {
            Some(shard::Reply::Client(Some(view))) => return Ok(vec![(at, *view)]),
            Some(_) => {}
            None => silence = true,
        }
    }
    if silence {
        return Err(silent());
    }
    find_containers(plane, id)
}

fn find_containers(plane: &Plane, id: Text) -> Result<Vec<(ShardId, shard::ClientView)>, Failure> {
    let deadline = Instant::now() + FIND_TIME;
    let filter = shard::ClientFilter {
        client_id: id.clone(),
        mqtt: Some(false),
        ..shard::ClientFilter::default()
    };
    let ask = |at, limit| shard::Request::Clients {
        filter: filter.clone(),
        at,
        limit,
    };
    let (mut found, mut page) = (Vec::new(), PageOf::default());
    loop {
        let (rows, next) = plane.walk(&page, ask, views)?;
        found.extend(rows.into_iter().filter(|(_, view)| view.client_id == id));
        page.after = next;
        if page.after.is_none() || found.len() >= ROWS_MAX {
            return Ok(found);
        }
        if Instant::now() >= deadline {
            let text = "there are too many connections of AMQP to look through";
            return Err(Failure::new(Code::Busy, text));
        }
    }
}

pub(super) fn views(reply: shard::Reply) -> Option<shard::Page<shard::ClientView>> {
    match reply {
        shard::Reply::Clients(page) => Some(page),
        _ => None,
    }
}

/// Clients with what is known of their connections.
pub(crate) fn described(shards: &Shards, views: &[shard::ClientView]) -> Vec<Client> {
    let stats = shards.stats(views);
    let row = |view: &shard::ClientView| {
        let at = view.conn.and_then(|conn| {
            let found = stats.binary_search_by_key(&conn, |(conn, _)| *conn);
            found.ok()
        });
        let stats = at.and_then(|at| stats.get(at)).map(|(_, stats)| stats);
        describe(view, stats)
    };
    views.iter().map(row).collect()
}

/// One client.
fn describe(view: &shard::ClientView, stats: Option<&ConnStats>) -> Client {
    let peer = view.peer.as_ref();
    let address = stats
        .map(|stats| stats.addr)
        .or_else(|| peer.map(|peer| peer.addr));
    let text = |text: &str| text.to_owned();
    Client {
        client_id: text(&view.client_id),
        user: view.user.as_deref().map(text),
        connection: view.conn.map(|conn| conn.to_string()),
        // The address now, or else the one it came from.
        address: address.map(|address| ShownAddr(address).to_string()),
        transport: peer.map(|peer| text(peer.transport.name())),
        listener: peer.map(|peer| peer.listener),
        certificate: peer.and_then(|peer| peer.identity.as_deref()).map(text),
        protocol: match view.version {
            0 => Protocol::Amqp,
            _ => Protocol::Mqtt,
        },
        mqtt_version: match view.version {
            0 => None,
            4 => Some(text("3.1.1")),
            _ => Some(text("5.0")),
        },
        links: view.links,
        session_expiry_seconds: (view.expiry_secs < u32::MAX).then_some(view.expiry_secs),
        subscriptions: view.subscriptions,
        queued_messages: view.queued,
        queued_bytes: view.queued_bytes,
        inflight_messages: view.in_flight,
        receiving_messages: view.receiving,
        backlog_bytes: view.backlog_bytes,
        tls: stats.map(tls).unwrap_or_default(),
        quic: stats.and_then(|stats| stats.quic.as_ref()).map(|quic| {
            let values = quic_values(quic).into_iter();
            values.map(|(name, value)| (text(name), value)).collect()
        }),
    }
}

fn tls(stats: &ConnStats) -> Tls {
    let alpn = stats.protocol.as_deref();
    Tls {
        alpn: alpn.map(|alpn| String::from_utf8_lossy(alpn).into_owned()),
        cipher_suite: stats.cipher_suite.map(str::to_owned),
        key_exchange: stats.key_exchange.map(str::to_owned),
        resumed: stats.resumed,
    }
}

/// What is known of a QUIC connection, by name; times in microseconds.
fn quic_values(stats: &QuicStats) -> [(&'static str, u64); 22] {
    let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
    [
        ("rtt_us", micros(stats.rtt)),
        ("rtt_min_us", micros(stats.rtt_min)),
        ("congestion_window_bytes", stats.congestion_window),
        ("congestion_events", stats.congestion_events),
        ("packets_sent", stats.packets_out),
        ("packets_lost", stats.lost_packets),
        ("bytes_lost", stats.lost_bytes),
        ("mtu_bytes", u64::from(stats.mtu)),
        ("black_holes", stats.black_holes),
        ("udp_datagrams_sent", stats.udp_out),
        ("udp_datagrams_received", stats.udp_in),
        ("udp_bytes_sent", stats.udp_bytes_out),
        ("udp_bytes_received", stats.udp_bytes_in),
        ("ecn_capable", u64::from(stats.ecn)),
        ("ecn_marked_received", stats.ecn_marked_in),
        ("datagram_frames_sent", stats.datagrams_out),
        ("datagram_frames_received", stats.datagrams_in),
        ("streams_peer_bidirectional", stats.streams_peer.0),
        ("streams_peer_unidirectional", stats.streams_peer.1),
        ("streams_sending", stats.streams_sending),
        ("migrations", stats.migrations),
        ("early_data", u64::from(stats.early_data)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_known_of_a_connection_is_in_the_book() {
        let book = include_str!("../../../../docs/book/src/observability.md");
        for (name, _) in quic_values(&QuicStats::default()) {
            assert!(book.contains(&format!("`{name}`")), "{name}");
        }
    }
}
