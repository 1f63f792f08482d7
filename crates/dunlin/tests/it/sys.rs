//! `$SYS` as an MQTT client sees it: counters of shards, connections of
//! clients.

use std::collections::BTreeMap;

use dunlin_base::transport::Transport;
use dunlin_client::{Messages, Publish, QoS};
use serde_json::Value;

use crate::support::{Broker, connect, run};

/// The next message of each of these topics, as JSON.
async fn await_all(messages: &mut Messages, topics: &[&str]) -> BTreeMap<String, Value> {
    let mut found = BTreeMap::new();
    while found.len() < topics.len() {
        let message = messages.next().await.expect("a message");
        let topic: &str = &message.topic;
        if topics.contains(&topic) {
            let value = serde_json::from_slice(&message.payload).expect("JSON");
            found.insert(topic.to_owned(), value);
        }
    }
    found
}

#[test]
fn clients_and_shards_are_published_to_subscribers() {
    let settings = ["sys.interval=50ms", "sys.clients=true"];
    let broker = Broker::start_with(2, &settings);
    run(async {
        let (watcher, mut messages) =
            connect(broker.client(Transport::Tcp).client_id("watcher")).await;
        let mut clients = Vec::new();
        // Homes of these are on both shards.
        for id in ["a/b", "c+d", "e"] {
            let builder = broker.client(Transport::Quic).client_id(id);
            let (client, _) = builder.connect().await.expect("connected");
            let message = Publish::new("t", "x").qos(QoS::AtLeastOnce);
            client.publish(message).await.expect("published");
            clients.push(client);
        }
        let one = "$SYS/broker/clients/a%2Fb";
        watcher.subscribe(one, QoS::AtMostOnce).await.expect("done");
        let found = await_all(&mut messages, &[one]).await;
        let page = found.get(one).expect("found");
        assert_eq!(page["client_id"], "a/b");
        assert_eq!(page["transport"], "quic");
        let quic = &page["quic"];
        for key in [
            "rtt_us",
            "congestion_window_bytes",
            "packets_sent",
            "mtu_bytes",
            "udp_datagrams_received",
        ] {
            assert!(quic[key].as_u64() > Some(0), "{key}: {quic:#}");
        }
        for key in [
            "packets_lost",
            "migrations",
            "early_data",
            "ecn_capable",
            "ecn_marked_received",
            "datagram_frames_received",
            "streams_peer_bidirectional",
        ] {
            assert!(quic[key].is_u64(), "{key}: {quic:#}");
        }
        #[cfg(target_os = "linux")]
        assert_eq!(quic["ecn_capable"], 1, "{quic:#}");
        watcher
            .subscribe("$SYS/#", QoS::AtMostOnce)
            .await
            .expect("done");
        let topics = [
            one,
            "$SYS/broker/clients/c%2Bd",
            "$SYS/broker/clients/e",
            "$SYS/broker/clients/watcher",
            "$SYS/broker/shard/0/connections/current",
            "$SYS/broker/shard/1/uptime_seconds",
        ];
        let found = await_all(&mut messages, &topics).await;
        let watcher_page = &found["$SYS/broker/clients/watcher"];
        assert_eq!(watcher_page["quic"], Value::Null, "it came by TCP");
        for client in clients {
            client.disconnect().await;
        }
        watcher.disconnect().await;
    });
}
