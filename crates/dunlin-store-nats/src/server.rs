//! What a server has to be: new enough, with JetStream, with room for a record, and one
//! that syncs before it acknowledges. Knows no stream.

use std::collections::BTreeMap;

use async_nats::Client;
use futures_util::StreamExt as _;
use serde_json::Value;
use tokio::time::{Instant, timeout_at};

use crate::error::OpenError;
use crate::limits::{RECORD_BYTES_MAX, SERVERS_WAIT};
use crate::record::OVERHEAD_BYTES;
use crate::version::ServerVersion;

/// Asks every server of a cluster; answered in the system account only.
const ASK_JETSTREAM: &str = "$SYS.REQ.SERVER.PING.JSZ";

/// Room that the headers of a record take.
const HEADERS_BYTES: usize = 256;

/// Looks at what the server said when it was connected to.
pub(crate) fn check(client: &Client) -> Result<(), OpenError> {
    let info = client.server_info();
    let new_enough = ServerVersion::parse(&info.version).is_some_and(|v| v >= ServerVersion::LEAST);
    if !new_enough {
        let found = info.version;
        return Err(OpenError::OldServer { found });
    }
    if !info.jetstream {
        return Err(OpenError::NoJetStream);
    }
    let needed = RECORD_BYTES_MAX + OVERHEAD_BYTES + HEADERS_BYTES;
    if info.max_payload < needed {
        let found = info.max_payload;
        return Err(OpenError::SmallPayload { found, needed });
    }
    Ok(())
}

/// By name, whether a server syncs before it acknowledges; all of `wanted` as far as they
/// answer. Without a cluster there is no name to want, and one server.
pub(crate) async fn syncing(
    system: &Client,
    wanted: &[String],
) -> Result<BTreeMap<String, bool>, OpenError> {
    let unknown = |error: String| OpenError::SyncUnknown(error);
    let inbox = system.new_inbox();
    let subscribed = system.subscribe(inbox.clone()).await;
    let mut answers = subscribed.map_err(|error| unknown(error.to_string()))?;
    let question = bytes::Bytes::from_static(br#"{"config":true}"#);
    let asked = system
        .publish_with_reply(ASK_JETSTREAM, inbox, question)
        .await;
    asked.map_err(|error| unknown(error.to_string()))?;
    let until = Instant::now() + SERVERS_WAIT;
    let mut found = BTreeMap::new();
    while let Ok(Some(message)) = timeout_at(until, answers.next()).await {
        let Ok(answer) = serde_json::from_slice::<Value>(&message.payload) else {
            continue;
        };
        if let Some(name) = answer["server"]["name"].as_str() {
            let always = &answer["data"]["config"]["sync_always"];
            found.insert(name.to_owned(), always.as_bool().unwrap_or(false));
        }
        let own = [system.server_info().server_name];
        let wanted = if wanted.is_empty() { &own } else { wanted };
        if wanted.iter().all(|name| found.contains_key(name)) {
            break;
        }
    }
    if found.is_empty() {
        return Err(unknown("no server answered there".to_owned()));
    }
    Ok(found)
}

/// Whether all servers that have a copy of a stream sync.
pub(crate) fn all_sync(
    found: &BTreeMap<String, bool>,
    servers: &[String],
) -> Result<(), OpenError> {
    if servers.is_empty() {
        return match found.iter().find(|(_, syncs)| !**syncs) {
            Some((server, _)) => Err(OpenError::Unsynced {
                server: server.clone(),
            }),
            None => Ok(()),
        };
    }
    for server in servers {
        match found.get(server) {
            Some(true) => {}
            Some(false) => {
                let server = server.clone();
                return Err(OpenError::Unsynced { server });
            }
            None => return Err(OpenError::SyncUnknown(format!("{server} did not answer"))),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_server_of_a_stream_has_to_sync() {
        let found: BTreeMap<_, _> = [("a", true), ("b", true), ("c", false)]
            .map(|(name, syncs)| (name.to_owned(), syncs))
            .into();
        let of = |names: &[&str]| names.iter().map(|n| (*n).to_owned()).collect::<Vec<_>>();
        assert!(all_sync(&found, &of(&["a", "b"])).is_ok());
        let refused = |names: &[&str]| all_sync(&found, &of(names)).expect_err("refused");
        assert!(matches!(refused(&["a", "c"]), OpenError::Unsynced { server } if server == "c"));
        assert!(matches!(refused(&["d"]), OpenError::SyncUnknown(_)));
        assert!(matches!(refused(&[]), OpenError::Unsynced { .. }));
    }
}
