//! `$SYS/broker/…` as mosquitto names it, for programs that read that: figures of all
//! shards. Those of the others are as old as their last round.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::{String, ToString};

use dunlin_base::Instant;

use crate::io::{BusMessage, ShardFigures};
use crate::owners::Owners;
use crate::owners::figures::Counts;
use crate::reports::census::Tally;
use crate::reports::sys::{self, CLIENTS};

/// Publishes the figures of all shards, or sends those of this one to the shard that does.
pub(crate) fn round(own: &mut Owners, tally: &Tally, started: Instant) {
    let counts = count(own, tally);
    let first = own.members.homes().first;
    if own.config.shard != first {
        let figures = ShardFigures(Box::new(counts));
        return own.outbox.bus(first, BusMessage::Figures(figures));
    }
    own.figures.note(first, counts);
    let all = own.figures.sum(own.now, started);
    publish(own, started, &all);
}

fn count(own: &Owners, tally: &Tally) -> Counts {
    let (stats, census) = (&own.stats, tally.census(own));
    Counts {
        sessions: tally.named as u64,
        connected: tally.connected as u64,
        subscriptions: census.subscribed as u64,
        queued: census.queued as u64,
        queued_bytes: census.queued_bytes as u64,
        connections: stats.connections,
        clients: stats.clients_accepted,
        received: stats.messages_received(),
        sent: stats.messages_sent(),
        dropped: stats.messages_dropped_slow + stats.messages_dropped_full,
        bytes_received: stats.bytes_received,
        bytes_sent: stats.bytes_sent,
    }
}

fn publish(own: &mut Owners, started: Instant, all: &Counts) {
    let retained = own.routing.retained.len() as u64;
    let (total, connected) = (all.sessions.max(all.connected), all.connected);
    let away = total - connected;
    let [t, c, d, m, a, i] = CLIENTS;
    let values: [(String, u64); 18] = [
        (format!("clients/{t}"), total),
        (format!("clients/{c}"), connected),
        (format!("clients/{d}"), away),
        (format!("clients/{m}"), own.figures.connected_max),
        (format!("clients/{a}"), connected),
        (format!("clients/{i}"), away),
        ("messages/received".into(), all.received),
        ("messages/sent".into(), all.sent),
        ("messages/stored".into(), all.queued + retained),
        ("publish/messages/received".into(), all.received),
        ("publish/messages/sent".into(), all.sent),
        ("publish/messages/dropped".into(), all.dropped),
        ("bytes/received".into(), all.bytes_received),
        ("bytes/sent".into(), all.bytes_sent),
        ("subscriptions/count".into(), all.subscriptions),
        ("retained messages/count".into(), retained),
        ("store/messages/count".into(), all.queued + retained),
        ("store/messages/bytes".into(), all.queued_bytes),
    ];
    for (name, value) in values {
        sys::publish_named(own, &name, value.to_string());
    }
    let uptime = (own.now - started).as_secs();
    sys::publish_named(own, "uptime", format!("{uptime} seconds"));
    let version = concat!("dunlin version ", env!("CARGO_PKG_VERSION"));
    sys::publish_named(own, "version", version.into());
    let loads = own.figures.loads();
    let loads: alloc::vec::Vec<_> = loads
        .map(|(name, minutes, load)| (format!("load/{name}/{minutes}min"), format!("{load:.2}")))
        .collect();
    for (name, load) in loads {
        sys::publish_named(own, &name, load);
    }
}
