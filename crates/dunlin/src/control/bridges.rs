//! Bridges to other brokers: listed, shown, added, changed, removed, paused, resumed, begun
//! again.

use std::time::UNIX_EPOCH;

use dunlin_base::Text;
use dunlin_broker::control::values as shard;

use super::plane::{Outcome, Plane};
use super::sessions;
use super::values::{Bridge, BridgeState, Code, Failure, Leftover, Page, Reply, Request};
use crate::bridge::Bridges;
use crate::bridge::route::Way;
use crate::bridge::stats::{View, Wanted};
use crate::config::shown::hide;

/// One function for each request about bridges.
pub(super) fn carry_out(plane: &Plane, request: &Request) -> Outcome {
    plane.check_home()?;
    let order = |name: &str, change: fn(&mut Wanted)| {
        let view = find(plane, name)?;
        view.wanted.send_modify(change);
        Ok(one(plane, &view))
    };
    match request {
        Request::Bridge { name } => Ok(one(plane, &find(plane, name)?)),
        Request::AddBridge { bridge, password } => {
            let added = all(plane)?.add((**bridge).clone(), password.as_deref());
            added.map(|view| one(plane, &view))
        }
        Request::ChangeBridge { bridge, password } => {
            let changed = all(plane)?.change((**bridge).clone(), password.as_deref());
            changed.map(|view| one(plane, &view))
        }
        Request::RemoveBridge { name, waiting } => remove(plane, name, *waiting),
        Request::PauseBridge { name } => order(name, |wanted| wanted.paused = true),
        Request::ResumeBridge { name } => order(name, |wanted| wanted.paused = false),
        Request::ReconnectBridge { name } => order(name, |wanted| {
            wanted.attempt = wanted.attempt.wrapping_add(1);
        }),
        _ => {
            let views = views(plane);
            let rows = views.iter().map(|view| shown(plane, view)).collect();
            Ok(Reply::Bridges(Page { rows, next: None }))
        }
    }
}

fn all(plane: &Plane) -> Result<&Bridges, Failure> {
    let starting = || Failure::new(Code::Unavailable, "the bridges have not started yet");
    plane.bridges().ok_or_else(starting)
}

fn views(plane: &Plane) -> Vec<View> {
    plane.bridges().map(Bridges::views).unwrap_or_default()
}

fn find(plane: &Plane, name: &str) -> Result<View, Failure> {
    let found = views(plane).into_iter().find(|view| *view.name == *name);
    found.ok_or_else(|| {
        let text = format!("there is no bridge {name:?}");
        Failure::new(Code::NotFound, text)
    })
}

fn one(plane: &Plane, view: &View) -> Reply {
    Reply::Bridge(Box::new(shown(plane, view)))
}

/// Removes a bridge, with its session here unless that is kept.
fn remove(plane: &Plane, name: &str, leftover: Leftover) -> Outcome {
    let session = find(plane, name).ok().and_then(|view| view.session);
    let count = all(plane)?.remove(name, leftover, |view| waiting(plane, view))?;
    if let Some(session) = session
        && leftover != Leftover::Keep
    {
        match sessions::end(plane, &session, "") {
            // It may have ended with its connection.
            Err(failure) if failure.code != Code::NotFound => return Err(failure),
            _ => {}
        }
    }
    Ok(Reply::Done { count, next: None })
}

fn shown(plane: &Plane, view: &View) -> Bridge {
    let (stats, config) = (&view.stats, &view.config);
    let topics = config.topic.iter().map(|topic| {
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
        name: view.name.to_string(),
        configured: !view.is_added,
        state: match (view.is_paused(), stats.is_connected()) {
            (true, _) => BridgeState::Paused,
            (false, true) => BridgeState::Connected,
            (false, false) => BridgeState::Connecting,
        },
        url: hide("url", &config.url),
        connections: config.connections,
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
    let mut is_known = true;
    for (_, reply) in plane.shards.control_all(&shard::Request::Client(session)) {
        match reply {
            Some(shard::Reply::Client(Some(view))) => {
                return Some((view.queued + view.in_flight) as u64);
            }
            reply => is_known &= reply.is_some(),
        }
    }
    // A bridge that has just begun has no session yet.
    is_known.then_some(0)
}
