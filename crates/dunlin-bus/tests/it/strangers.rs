//! What has no part in the cluster, and is in the same account.

use core::time::Duration;
use std::time::Instant;

use async_nats::{Client, HeaderMap};
use bytes::Bytes;
use dunlin_base::Random;
use dunlin_bus::{Dropped, Event};
use dunlin_store_nats::{Servers, connect};
use futures_util::StreamExt as _;
use tokio::runtime::Runtime;

use crate::node::{Node, config, link_all};
use crate::server::{Server, Sync, WAIT};

fn client(server: &Server) -> (Runtime, Client) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let runtime = runtime.expect("a runtime");
    let urls = [server.url("dl:d")];
    let servers = Servers {
        urls: &urls,
        tls_ca: None,
        patience: WAIT,
    };
    let client = runtime.block_on(connect(&servers)).expect("connected");
    (runtime, client)
}

fn to_string(bytes: &Bytes) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A request, and its answer.
pub(crate) fn ask(server: &Server, subject: &str, question: &str) -> String {
    let (runtime, client) = client(server);
    let answer = client.request(subject.to_owned(), Bytes::from(question.to_owned()));
    to_string(&runtime.block_on(answer).expect("an answer").payload)
}

/// Writes a value, or anything else, and waits for the answer of the stream.
pub(crate) fn publish(server: &Server, subject: &str, body: &[u8]) {
    let answer = ask(server, subject, &String::from_utf8_lossy(body));
    assert!(answer.contains("\"seq\""), "{answer}");
}

/// Ends a key, as a tool of NATS does.
pub(crate) fn end_key(server: &Server, key: &str) {
    let (runtime, client) = client(server);
    let mut headers = HeaderMap::new();
    headers.insert("KV-Operation", "DEL");
    let answer = client.request_with_headers(key.to_owned(), headers, Bytes::new());
    let answer = runtime.block_on(answer).expect("an answer");
    assert!(to_string(&answer.payload).contains("\"seq\""));
}

/// All that is sent is recorded and sent again, whole and altered, and random bytes besides:
/// links live, and every batch comes once.
#[test]
fn bytes_of_strangers_have_no_effect() {
    let Some(server) = Server::start(Sync::Default) else {
        return;
    };
    let (runtime, client) = client(&server);
    // From before the greetings on.
    let mut heard = runtime
        .block_on(client.subscribe("dl.node.>"))
        .expect("subscribed");
    runtime.block_on(client.flush()).expect("flushed");
    let mut nodes: Vec<_> = ["a", "b"]
        .map(|name| Node::join(config(&server.url("dl:d"), name)))
        .into();
    link_all(&mut nodes);
    let (a, b) = (nodes[0].id(), nodes[1].id());
    let links = |nodes: &[Node]| (nodes[0].peers[&b].id(), nodes[1].peers[&a].id());
    let before = links(&nodes);
    let mut random = Random::new(1);
    let mut recorded = Vec::new();
    for _ in 0..100 {
        assert!(nodes[0].send(b, 200) && nodes[1].send(a, 200));
        let sends = async {
            let wait = tokio::time::sleep(Duration::from_millis(5));
            tokio::pin!(wait);
            loop {
                tokio::select! {
                    message = heard.next() => {
                        let message = message.expect("subscribed");
                        if recorded.len() < 300 && !message.payload.is_empty() {
                            recorded.push((message.subject, message.payload));
                        }
                    }
                    () = &mut wait => break,
                }
            }
            for _ in 0..20 {
                let pick = random.below(recorded.len().max(1) as u64) as usize;
                let Some((subject, bytes)) = recorded.get(pick) else {
                    break;
                };
                let mut bytes = bytes.to_vec();
                match random.below(4) {
                    0 => bytes.truncate(random.below(bytes.len() as u64) as usize),
                    1 => {
                        let at = random.below(bytes.len() as u64) as usize;
                        bytes[at] ^= 1 << random.below(8);
                    }
                    2 => bytes.fill_with(|| random.next() as u8),
                    _ => {}
                }
                let sent = client.publish(subject.clone(), bytes.into()).await;
                sent.expect("sent");
            }
            client.flush().await.expect("flushed");
        };
        runtime.block_on(sends);
    }
    nodes[0].received_from(b, 100);
    nodes[1].received_from(a, 100);
    assert_eq!(links(&nodes), before, "the same links");
    for node in &nodes {
        let totals = node.bus.metrics().totals();
        assert_eq!(totals.lost, [0; 9]);
        for cause in [
            Dropped::Garbage,
            Dropped::Repeated,
            Dropped::Secret,
            Dropped::Stale,
        ] {
            assert!(totals.dropped_by(cause) > 0, "{cause:?} {totals:?}");
        }
    }
}

#[test]
fn a_node_with_another_secret_is_no_member() {
    let Some(server) = Server::start(Sync::Default) else {
        return;
    };
    let mut node = Node::join(config(&server.url("dl:d"), "a"));
    let mut config = config(&server.url("dl:d"), "b");
    config.secret = b"another secret of it".to_vec();
    let mut other = Node::join(config);
    assert_ne!(other.id(), node.id(), "both have a number");
    let until = Instant::now() + WAIT;
    let dropped = |node: &Node| node.bus.metrics().totals().dropped_by(Dropped::Secret);
    while dropped(&node) < 2 || dropped(&other) < 2 {
        assert!(Instant::now() < until);
        for node in [&mut node, &mut other] {
            let event = node.look(Duration::from_millis(20));
            assert!(event.is_none(), "{event:?}");
        }
    }
    assert!(node.members.is_empty() && other.members.is_empty());
}

/// One cluster a prefix, also with the same secret.
#[test]
fn another_prefix_is_another_cluster() {
    let Some(server) = Server::start(Sync::Default) else {
        return;
    };
    let mut nodes = Vec::new();
    for (name, prefix) in [("a", "one"), ("b", "one"), ("c", "two"), ("d", "two")] {
        let mut config = config(&server.url("dl:d"), name);
        config.prefix = prefix.to_owned();
        nodes.push(Node::join(config));
    }
    link_all(&mut nodes[..2]);
    link_all(&mut nodes[2..]);
    for node in &mut nodes {
        while let Some(event) = node.look(Duration::from_millis(10)) {
            assert!(!matches!(event, Event::Joined(_)));
        }
        assert_eq!(node.members.len(), 1);
    }
}
