//! Bridges to other brokers: listed, shown, paused, resumed, begun again.

use std::time::UNIX_EPOCH;

use dunlin_base::Text;
use dunlin_broker::control::values as shard;

use super::inventory::hide;
use super::plane::{Outcome, Plane};
use super::values::{Bridge, BridgeState, Code, Failure, Page, Reply, Request};
use crate::bridge::route::Way;
use crate::bridge::stats::{View, Wanted};

/// One function for each request about bridges.
pub(super) fn carry_out(plane: &Plane, request: &Request) -> Outcome {
    let order = |name: &str, change: fn(&mut Wanted)| {
        let view = find(plane, name)?;
        view.wanted.send_modify(change);
        Ok(Reply::Bridge(Box::new(shown(plane, view))))
    };
    match request {
        Request::Bridge { name } => Ok(Reply::Bridge(Box::new(shown(plane, find(plane, name)?)))),
        Request::PauseBridge { name } => order(name, |wanted| wanted.paused = true),
        Request::ResumeBridge { name } => order(name, |wanted| wanted.paused = false),
        Request::ReconnectBridge { name } => order(name, |wanted| {
            wanted.attempt = wanted.attempt.wrapping_add(1);
        }),
        _ => {
            let rows = plane.bridges().iter().map(|view| shown(plane, view));
            let rows = rows.collect();
            Ok(Reply::Bridges(Page { rows, next: None }))
        }
    }
}

fn find<'a>(plane: &'a Plane, name: &str) -> Result<&'a View, Failure> {
    let found = plane.bridges().iter().find(|view| *view.name == *name);
    found.ok_or_else(|| {
        let text = format!("there is no bridge {name:?}");
        Failure::new(Code::NotFound, text)
    })
}

fn shown(plane: &Plane, view: &View) -> Bridge {
    let (stats, name) = (&view.stats, &*view.name);
    let config = plane.config.bridge.iter().find(|it| it.name == *name);
    let topics = config.iter().flat_map(|config| &config.topic);
    let topics = topics.map(|topic| {
        let way = match (topic.is_in(), topic.is_out()) {
            (true, true) => "both",
            (true, false) => "in",
            _ => "out",
        };
        let (here, there) = (topic.local_filter(), topic.remote_filter());
        match here == there {
            true => format!("{way} {here}"),
            false => format!("{way} {here} as {there}"),
        }
    });
    let error = stats.error();
    let at = error.as_ref().and_then(|(at, _)| {
        let at = at.duration_since(UNIX_EPOCH).ok()?;
        Some(at.as_secs())
    });
    Bridge {
        name: name.to_owned(),
        state: match (view.wanted.borrow().paused, stats.is_connected()) {
            (true, _) => BridgeState::Paused,
            (false, true) => BridgeState::Connected,
            (false, false) => BridgeState::Connecting,
        },
        url: config.map_or_else(String::new, |config| hide("url", config.url.clone())),
        connections: config.map_or(0, |config| config.connections),
        topics: topics.collect(),
        waiting_messages: waiting(plane, view),
        connects: stats.connects(),
        messages_out: stats.messages(Way::Out),
        messages_in: stats.messages(Way::In),
        messages_dropped: stats.messages_dropped(),
        round_trip_us: stats.rtt_micros(),
        last_error: error.map(|(_, text)| text),
        last_error_at: at,
    }
}

/// Messages in the session of a bridge, if it has one and the shards answer.
fn waiting(plane: &Plane, view: &View) -> Option<u64> {
    let session = Text::from(view.session.as_deref()?);
    let replies = plane.shards.control_all(&shard::Request::Client(session));
    replies.into_iter().find_map(|(_, reply)| match reply {
        Some(shard::Reply::Client(Some(view))) => Some((view.queued + view.in_flight) as u64),
        _ => None,
    })
}
