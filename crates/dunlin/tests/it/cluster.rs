//! One broker on three nodes: what is published at one arrives at another, also when one of
//! them has died. Without a server of NATS, each test says so and passes.

use core::time::Duration;
use std::path::PathBuf;
use std::time::Instant;

use dunlin_client::{Client, Message, Messages, Publish, QoS, Will};
#[cfg(unix)]
use serde_json::{Value, json};

use crate::nats::Broker;
use crate::nats_server::{Server, Sync};
use crate::support::{PATIENCE, run};

/// Between two attempts of a client to reach a node that begins again.
const AGAIN: Duration = Duration::from_millis(100);

/// Servers of NATS, and the secret of the nodes.
pub(crate) struct Cluster {
    server: Server,
    secret: PathBuf,
    _dir: tempfile::TempDir,
}

impl Cluster {
    pub(crate) fn start() -> Option<Self> {
        let server = Server::start(Sync::Always)?;
        let dir = tempfile::tempdir().expect("a directory");
        let secret = dir.path().join("secret");
        std::fs::write(&secret, "what all nodes of this test know").expect("written");
        Some(Self {
            server,
            secret,
            _dir: dir,
        })
    }

    /// Starts a node, and waits until it serves.
    fn node(&self, name: &str, shards: u16) -> Broker {
        self.node_with(name, shards, &self.secret)
    }

    /// With a lease and links that are not lost by a machine that is slow for a moment.
    fn node_with(&self, name: &str, shards: u16, secret: &std::path::Path) -> Broker {
        Broker::start(shards, &self.store(name, secret))
    }

    /// Its configuration from `[store.nats]` on.
    fn store(&self, name: &str, secret: &std::path::Path) -> String {
        format!(
            "urls = ['{}']\nsystem_urls = ['{}']\nreplicas = 1\nlease = '9s'\n\
             [cluster]\nname = '{name}'\nlink_silence = '8s'\nsecret_file = '{}'\n",
            self.server.url("dl:d"),
            self.server.url("sys:s"),
            secret.display(),
        )
    }

    /// The configuration of a node from `[store.nats]` on.
    pub(crate) fn config(&self, name: &str) -> String {
        self.store(name, &self.secret)
    }

    fn nodes(&self) -> [Broker; 3] {
        [("a", 2), ("b", 1), ("c", 2)].map(|(name, shards)| self.node(name, shards))
    }
}

/// What `dunlin ctl cluster` says at a node, a row for each node; nothing: it does not answer.
#[cfg(unix)]
fn rows(node: &Broker) -> Vec<Value> {
    let said = node.ask(&["--json", "cluster"]);
    let text = String::from_utf8(said.stdout).expect("text");
    let rows = text.lines().map(serde_json::from_str);
    rows.collect::<Result<_, _>>().expect("rows")
}

/// Names of the nodes for which a field is this.
#[cfg(unix)]
fn named(rows: &[Value], field: &str, wanted: &Value) -> Vec<String> {
    let found = rows.iter().filter(|row| row[field] == *wanted);
    let mut names: Vec<_> = found.map(|row| row["name"].to_string()).collect();
    names.sort_unstable();
    names
}

fn text(message: &Message) -> String {
    String::from_utf8_lossy(&message.payload).into_owned()
}

/// Connects to a node, which may be about to begin again. The session ends with its
/// connection.
pub(crate) async fn connect(node: &Broker, id: &str) -> (Client, Messages) {
    let begin = Instant::now();
    loop {
        let builder = node.client(id).clean_start(true);
        match builder.session_expiry(Duration::ZERO).connect().await {
            Ok(connected) => return connected,
            Err(error) => assert!(begin.elapsed() < PATIENCE, "{id}: {error}"),
        }
        tokio::time::sleep(AGAIN).await;
    }
}

/// The same with a session that stays.
pub(crate) async fn come_back(node: &Broker, id: &str) -> (Client, Messages) {
    let begin = Instant::now();
    loop {
        match node.client(id).connect().await {
            Ok(connected) => return connected,
            Err(error) => assert!(begin.elapsed() < PATIENCE, "{id}: {error}"),
        }
        tokio::time::sleep(AGAIN).await;
    }
}

pub(crate) async fn publish(client: &Client, topic: &str, payload: &str, qos: QoS) {
    let message = Publish::new(topic, payload.to_owned()).qos(qos);
    client.publish(message).await.expect("acknowledged");
}

pub(crate) async fn expect(messages: &mut Messages, payloads: &[&str]) {
    let mut found = Vec::new();
    while found.len() < payloads.len() {
        let next = tokio::time::timeout(PATIENCE, messages.next()).await;
        found.push(text(&next.expect("in time").expect("a message")));
    }
    assert_eq!(found, payloads);
}

#[test]
fn what_is_published_at_one_node_arrives_at_every_other() {
    let Some(cluster) = Cluster::start() else {
        return;
    };
    let nodes = cluster.nodes();
    run(async {
        let mut all = Vec::new();
        for (at, node) in nodes.iter().enumerate() {
            let (client, messages) = connect(node, &format!("c{at}")).await;
            let filter = "all/#";
            let subscribed = client.subscribe(filter, QoS::ExactlyOnce).await;
            subscribed.expect("subscribed");
            all.push((client, messages));
        }
        for at in 0..all.len() {
            for qos in [QoS::AtMostOnce, QoS::AtLeastOnce, QoS::ExactlyOnce] {
                let payload = format!("{at} {qos:?}");
                publish(&all[at].0, "all/x", &payload, qos).await;
                for (_, messages) in &mut all {
                    expect(messages, &[&payload]).await;
                }
            }
        }
        // What is retained is everywhere, and what a session keeps is kept by the home.
        let (first, _) = &all[1];
        let kept = Publish::new("kept/x", "kept").qos(QoS::AtLeastOnce);
        first.publish(kept.retain(true)).await.expect("kept");
        for (at, node) in nodes.iter().enumerate() {
            let (client, mut messages) = connect(node, &format!("r{at}")).await;
            let subscribed = client.subscribe("kept/#", QoS::AtLeastOnce).await;
            subscribed.expect("subscribed");
            expect(&mut messages, &["kept"]).await;
            client.disconnect().await;
        }
    });
}

/// An edge when it has heard everything; one that has no home, as with another secret, never.
#[test]
fn a_node_wants_clients_when_it_serves() {
    let Some(cluster) = Cluster::start() else {
        return;
    };
    let mut nodes = cluster.nodes();
    for node in &mut nodes {
        node.wait_until("ready", |it| it.get("/readyz").starts_with("HTTP/1.1 200"));
    }
    let other = cluster.secret.with_file_name("other");
    std::fs::write(&other, "what no other node knows").expect("written");
    let mut stranger = Broker::begin(1, &cluster.store("d", &other));
    stranger.wait_until("there", |it| it.get("/healthz").contains("standby"));
    let ready = stranger.get("/readyz");
    assert!(ready.starts_with("HTTP/1.1 503"), "{ready}");
    assert!(ready.contains("linked to no home"), "{ready}");
    #[cfg(unix)]
    {
        let rows = rows(&stranger);
        assert_eq!(
            named(&rows, "role", &json!("standby")),
            ["\"d\""],
            "{rows:?}"
        );
        assert_eq!(rows.len(), 1, "the others are no members for it");
    }
    stranger.signal("-TERM");
    assert_eq!(stranger.end().code(), Some(0));
}

#[cfg(unix)]
#[test]
fn every_node_shows_all_nodes_links_and_the_lease() {
    let Some(cluster) = Cluster::start() else {
        return;
    };
    let mut nodes = cluster.nodes();
    let home = ["\"a\""];
    let edges = ["\"b\"", "\"c\""];
    for (at, node) in nodes.iter_mut().enumerate() {
        node.wait_until("linked to all", |it| {
            let rows = rows(it);
            let is_complete = rows.len() == 3
                && named(&rows, "link", &json!("linked")).len() == 2
                && named(&rows, "role", &json!("home")) == home
                && named(&rows, "role", &json!("edge")) == edges;
            // An edge sees the lease as a standby, which looks at it now and then.
            is_complete && named(&rows, "lease", &json!(true)) == home
        });
        let rows = rows(node);
        let here = rows.iter().filter(|row| row["here"] == true);
        let here: Vec<_> = here.collect();
        assert_eq!(here.len(), 1, "{rows:?}");
        assert_eq!(here[0]["name"], ["a", "b", "c"][at], "{rows:?}");
        assert_eq!(here[0]["link"], Value::Null, "{rows:?}");
        assert_eq!(here[0]["shards"], [2, 1, 2][at], "{rows:?}");
        for row in &rows {
            assert_eq!(row["version"], env!("CARGO_PKG_VERSION"), "{rows:?}");
            assert!(row["since"].as_u64() > Some(1_700_000_000), "{rows:?}");
            let address = row["addresses"][0].as_str();
            assert!(address.is_some_and(|it| it.starts_with("tcp://127.0.0.1:")));
        }
        let table = String::from_utf8(node.ask(&["cluster"]).stdout).expect("text");
        assert!(table.starts_with("NODE"), "{table}");
        assert_eq!(table.lines().count(), 4, "{table}");
        let role = ["home", "edge", "edge"][at];
        node.wait_until("counted", |it| {
            let text = it.get("/metrics");
            let has = |line: &str| text.lines().any(|it| it == line);
            // More where a link was lost and made again.
            let introductions = text
                .lines()
                .find_map(|it| it.strip_prefix("dunlin_cluster_introductions_total "));
            let introduced = introductions.and_then(|count| count.parse::<u32>().ok());
            has("dunlin_cluster_members 3")
                && has("dunlin_cluster_links 2")
                && has("dunlin_cluster_nodes{role=\"edge\"} 2")
                && has(&format!("dunlin_cluster_role{{role=\"{role}\"}} 1"))
                && has("dunlin_cluster_shards_waiting 0")
                && introduced >= Some(2)
                && has(&format!("dunlin_store_log_owner {}", u8::from(at == 0)))
                && text.contains("dunlin_store_log_lease_age_seconds ") == (at == 0)
        });
    }
    // One that has died has no link, and is then no member.
    nodes[2].kill();
    for node in &mut nodes[..2] {
        node.wait_until("without the dead node", |it| rows(it).len() == 2);
    }
    // The next home has the lease.
    nodes[0].kill();
    nodes[1].wait_until("the home, alone", |it| {
        let rows = rows(it);
        rows.len() == 1 && rows[0]["role"] == "home" && rows[0]["lease"] == true
    });
}

#[test]
fn a_session_is_the_same_at_every_node() {
    let Some(cluster) = Cluster::start() else {
        return;
    };
    let nodes = cluster.nodes();
    run(async {
        for round in 0..nodes.len() {
            let (first, second, third) = (
                &nodes[round],
                &nodes[(round + 1) % nodes.len()],
                &nodes[(round + 2) % nodes.len()],
            );
            let id = format!("sensor-{round}");
            let topic = format!("own/{round}");
            let (client, _messages) = come_back(first, &id).await;
            let subscribed = client.subscribe(&topic, QoS::ExactlyOnce).await;
            subscribed.expect("subscribed");
            client.disconnect().await;
            let (writer, _messages) = connect(second, &format!("w{round}")).await;
            publish(&writer, &topic, "1", QoS::AtLeastOnce).await;
            publish(&writer, &topic, "2", QoS::ExactlyOnce).await;
            let (client, mut messages) = come_back(third, &id).await;
            expect(&mut messages, &["1", "2"]).await;
            // With the second of these, all that was acknowledged before has arrived.
            for number in ["first", "second"] {
                publish(&client, "other", number, QoS::AtLeastOnce).await;
            }
            // It is taken over from another node.
            let (again, mut messages_again) = come_back(first, &id).await;
            assert!(messages.next().await.is_none(), "it is disconnected");
            publish(&writer, &topic, "3", QoS::ExactlyOnce).await;
            expect(&mut messages_again, &["3"]).await;
            again.disconnect().await;
            drop(client);
        }
    });
}

#[test]
fn what_a_dead_edge_had_is_released() {
    let Some(cluster) = Cluster::start() else {
        return;
    };
    let home = cluster.node("home", 2);
    let mut edge = cluster.node("edge", 2);
    let other = cluster.node("other", 1);
    run(async {
        let (watcher, mut wills) = connect(&other, "watcher").await;
        let subscribed = watcher.subscribe("will/#", QoS::AtLeastOnce).await;
        subscribed.expect("subscribed");
        let will = Publish::new("will/x", "gone").qos(QoS::AtLeastOnce);
        let builder = edge.client("device").will(Will::new(will));
        let (device, _messages) = builder.connect().await.expect("connected");
        let subscribed = device.subscribe("orders", QoS::ExactlyOnce).await;
        subscribed.expect("subscribed");
        edge.kill();
        expect(&mut wills, &["gone"]).await;
        publish(&watcher, "orders", "turn", QoS::ExactlyOnce).await;
        let (_device, mut orders) = come_back(&home, "device").await;
        expect(&mut orders, &["turn"]).await;
    });
}

/// A client whose session is at the home hears of it, too, and waits for nothing.
#[test]
fn an_edge_that_is_stopped_disconnects_its_clients() {
    let Some(cluster) = Cluster::start() else {
        return;
    };
    let home = cluster.node("home", 1);
    let mut edge = cluster.node("edge", 1);
    run(async {
        let (sensor, mut messages) = come_back(&edge, "sensor").await;
        let subscribed = sensor.subscribe("own/#", QoS::ExactlyOnce).await;
        subscribed.expect("subscribed");
        let begin = Instant::now();
        edge.signal("-TERM");
        assert!(messages.next().await.is_none(), "it is disconnected");
        assert_eq!(edge.end().code(), Some(0));
        println!("the edge ended after {:?}", begin.elapsed());
        let (_sensor, mut messages) = come_back(&home, "sensor").await;
        let (writer, _messages) = connect(&home, "writer").await;
        publish(&writer, "own/x", "kept", QoS::AtLeastOnce).await;
        expect(&mut messages, &["kept"]).await;
    });
}

#[test]
fn an_edge_becomes_the_home_when_that_is_killed() {
    let Some(cluster) = Cluster::start() else {
        return;
    };
    let mut home = cluster.node("home", 1);
    let edges = [cluster.node("b", 2), cluster.node("c", 1)];
    run(async {
        let (sensor, _messages) = come_back(&edges[0], "sensor").await;
        let subscribed = sensor.subscribe("own/#", QoS::ExactlyOnce).await;
        subscribed.expect("subscribed");
        sensor.disconnect().await;
        let (writer, _messages) = connect(&edges[1], "writer").await;
        for number in 0..20 {
            let qos = [QoS::AtLeastOnce, QoS::ExactlyOnce][number % 2];
            publish(&writer, "own/x", &number.to_string(), qos).await;
        }
        home.kill();
        let (_sensor, mut messages) = come_back(&edges[0], "sensor").await;
        let mut found = Vec::new();
        while found.len() < 20 {
            let next = tokio::time::timeout(PATIENCE, messages.next()).await;
            let next = next.expect("in time").expect("a message");
            found.push(text(&next).parse::<u32>().expect("a number"));
        }
        found.sort_unstable();
        assert!(found.iter().copied().eq(0..20), "{found:?}");
        // The other one is an edge of the new home.
        let (writer, _messages) = connect(&edges[1], "writer").await;
        let begin = Instant::now();
        loop {
            let message = Publish::new("own/x", "20").qos(QoS::AtLeastOnce);
            match writer.publish(message).await {
                Ok(_) => break,
                Err(error) => assert!(begin.elapsed() < PATIENCE, "{error}"),
            }
            tokio::time::sleep(AGAIN).await;
        }
        expect(&mut messages, &["20"]).await;
    });
}
