//! Sessions of MQTT, connected or not: listed, and ended for good.

use dunlin_base::Text;
use dunlin_broker::control::values as shard;
use dunlin_broker::is_bridge_name;

use super::clients::{described, ending, unknown, views};
use super::plane::{Outcome, Plane, silent};
use super::topics::stored;
use super::values::{Code, Failure, Page, PageOf, Reply, SessionFilter};

/// One page of sessions.
pub(super) fn list(plane: &Plane, filter: &SessionFilter, page: &PageOf) -> Outcome {
    let text = |text: &String| Text::from(text.as_str());
    let filter = shard::SessionFilter {
        client_id: text(&filter.client_id),
        user: filter.user.as_ref().map(text),
        connected: filter.connected,
        persistent: filter.persistent,
        subscribed: filter.subscribed.as_ref().map(text),
    };
    let ask = |at, limit| shard::Request::Sessions {
        filter: filter.clone(),
        at,
        limit,
    };
    let (found, next) = plane.walk(page, ask, views)?;
    let views: Vec<_> = found.into_iter().map(|(_, view)| view).collect();
    let rows = described(&plane.shards, &views);
    Ok(Reply::Clients(Page { rows, next }))
}

/// Ends a session, and the connection of its client.
pub(super) fn delete(plane: &Plane, client_id: &str, why: &str) -> Outcome {
    if is_bridge_name(client_id) {
        let text = "that is the session of a bridge, with what waits for the other broker: \
                    pause the bridge, remove it, or take it out of the configuration";
        return Err(Failure::new(Code::BadRequest, text));
    }
    end(plane, client_id, why)
}

/// As [`delete`], also of a session of a bridge.
pub(super) fn end(plane: &Plane, client_id: &str, why: &str) -> Outcome {
    let request = shard::Request::EndSession {
        client_id: Text::from(client_id),
        ending: ending(shard::EndingKind::Ordered, why)?,
    };
    let (mut count, mut silence) = (0, false);
    for (_, reply) in plane.shards.control_all(&request) {
        match reply {
            Some(shard::Reply::Client(_)) => {}
            None => silence = true,
            reply => {
                stored(reply)?;
                count += 1;
            }
        }
    }
    match (count, silence) {
        (0, true) => Err(silent()),
        (0, false) => Err(unknown(client_id)),
        _ => Ok(Reply::Done { count, next: None }),
    }
}
