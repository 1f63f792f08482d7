//! What a server has to be: new enough, with JetStream, with room for a record, and one
//! that syncs before it acknowledges.

use std::collections::BTreeMap;

use async_nats::Client;
use futures_util::StreamExt as _;
use serde_json::Value;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep, timeout_at};

use crate::api::Api;
use crate::error::OpenError;
use crate::limits::{RECORD_BYTES_MAX, SERVERS_WAIT, SYNC_ASK_EVERY, SYNC_LOOK_EVERY};
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

/// Whether the servers that have a copy of a stream sync: no answer may say otherwise, and
/// most have to answer. Gives those that did not, as a server that is down does not.
pub(crate) fn all_sync(
    found: &BTreeMap<String, bool>,
    servers: &[String],
) -> Result<Vec<String>, OpenError> {
    let counts = |name: &String| servers.is_empty() || servers.contains(name);
    let unsynced = found.iter().find(|(name, syncs)| !**syncs && counts(name));
    if let Some((server, _)) = unsynced {
        let server = server.clone();
        return Err(OpenError::Unsynced { server });
    }
    let silent = servers.iter().filter(|name| !found.contains_key(*name));
    let silent: Vec<_> = silent.cloned().collect();
    if !silent.is_empty() && silent.len() * 2 >= servers.len() {
        let silent = silent.join(", ");
        return Err(OpenError::SyncUnknown(format!("no answer of {silent}")));
    }
    Ok(silent)
}

/// Asks the servers that have a copy of the stream again and again, as one that is started
/// again may have another configuration. The first one that says that it does not sync comes
/// out, and then nothing more.
pub(crate) fn keep_asking(
    api: Api,
    system: Client,
    mut servers: Vec<String>,
    mut silent: bool,
) -> oneshot::Receiver<String> {
    let (found, receiver) = oneshot::channel();
    tokio::spawn(async move {
        while !found.is_closed() {
            sleep(if silent {
                SYNC_ASK_EVERY
            } else {
                SYNC_LOOK_EVERY
            })
            .await;
            // A stream may have been moved to other servers.
            if let Ok(info) = api.info().await {
                servers = info.servers;
            }
            let answers = syncing(&system, &servers).await;
            match answers.and_then(|answers| all_sync(&answers, &servers)) {
                Err(OpenError::Unsynced { server }) => {
                    // Without a receiver, nothing wants it.
                    let _ = found.send(server);
                    return;
                }
                Ok(missing) => silent = !missing.is_empty(),
                Err(_) => silent = true,
            }
        }
    });
    receiver
}

/// What comes of [`keep_asking`]; may be dropped and called again.
pub(crate) async fn unsynced(asked: &mut Option<oneshot::Receiver<String>>) -> String {
    if let Some(receiver) = asked {
        let found = receiver.await;
        *asked = None;
        if let Ok(server) = found {
            return server;
        }
    }
    core::future::pending().await
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
        assert_eq!(all_sync(&found, &of(&["a", "b"])).expect("sync"), of(&[]));
        // One of three may be down.
        assert_eq!(
            all_sync(&found, &of(&["a", "b", "d"])).expect("most"),
            of(&["d"])
        );
        let refused = |names: &[&str]| all_sync(&found, &of(names)).expect_err("refused");
        assert!(matches!(refused(&["a", "c"]), OpenError::Unsynced { server } if server == "c"));
        assert!(matches!(refused(&["d"]), OpenError::SyncUnknown(_)));
        assert!(matches!(refused(&["a", "d"]), OpenError::SyncUnknown(_)));
        assert!(matches!(
            refused(&["a", "d", "e"]),
            OpenError::SyncUnknown(_)
        ));
        assert!(matches!(refused(&[]), OpenError::Unsynced { .. }));
    }
}
