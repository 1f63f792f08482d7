//! `auth.topics` in a whole broker: a server that allows, refuses, is slow and is down.

use core::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};

use dunlin_base::transport::Transport;
use dunlin_client::{Client, Publish, QoS};

use crate::control::rows;
use crate::support::{Broker, PATIENCE, run};
use crate::web::{Answer, Web};

/// Holds up answers until it is opened.
#[derive(Clone, Default)]
struct Gate(Arc<(Mutex<bool>, Condvar)>);

impl Gate {
    fn open(&self) {
        *self.0.0.lock().expect("no panic") = true;
        self.0.1.notify_all();
    }

    fn pass(&self) {
        let open = self.0.0.lock().expect("no panic");
        let waited = self.0.1.wait_timeout_while(open, PATIENCE, |open| !*open);
        drop(waited.expect("no panic"));
    }
}

/// A broker that asks this server, and a list that allows one topic without asking.
fn broker(server: &Web, dir: &tempfile::TempDir, more: &str) -> Broker {
    let acl = dir.path().join("acl");
    std::fs::write(&acl, "topic readwrite listed/#\n").expect("written");
    let url = server.url("/topics");
    let topics = format!("auth.topics={{url={url:?},{more}}}");
    let acl = format!("auth.acl_file={:?}", acl.display().to_string());
    Broker::start_with(2, &[&topics, &acl])
}

async fn connect(broker: &Broker, id: &str) -> (Client, dunlin_client::Messages) {
    let builder = broker.client(Transport::Tcp).client_id(id);
    builder.connect().await.expect("connected")
}

/// Whether a message may be published.
async fn may(client: &Client, topic: &str) -> bool {
    let publish = Publish::new(topic, "x").qos(QoS::AtLeastOnce);
    let answered = client.publish(publish).await;
    matches!(answered, Ok(reason) if !reason.is_error())
}

#[test]
fn a_server_says_which_topics_clients_may_use() {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let server = Web::start(move |line, content| {
        assert!(line.starts_with("POST /topics "), "{line}");
        count.fetch_add(1, Ordering::Relaxed);
        let result = match content.contains(r#""topic":"allowed/"#) {
            true => "allow",
            false => "deny",
        };
        Answer::Ok(format!(r#"{{"result":"{result}"}}"#))
    });
    let dir = tempfile::tempdir().expect("a directory");
    let broker = broker(&server, &dir, "cache=\"1h\",cache_denied=\"1h\"");
    run(async {
        let (client, mut messages) = connect(&broker, "c").await;
        client
            .subscribe("allowed/#", QoS::AtLeastOnce)
            .await
            .expect("allowed");
        let refused = client.subscribe("refused/#", QoS::AtLeastOnce).await;
        refused.expect_err("refused");
        for _ in 0..3 {
            assert!(may(&client, "allowed/1").await);
            assert!(!may(&client, "refused/1").await);
            assert!(may(&client, "listed/1").await);
        }
        let message = messages.next().await.expect("a message");
        assert_eq!(message.topic, "allowed/1");
        // Two subscriptions and two topics; what was said counts for a while.
        assert_eq!(asked.load(Ordering::Relaxed), 4);
        client.disconnect().await;
    });
    // Without a list's line about it, it is for the server.
    let rights = rows(&broker, &["acl", "explain", "-", "allowed/1"]);
    let why = rights[0]["why"].as_str().expect("text");
    assert!(why.contains("auth.topics"), "{why}");
}

#[test]
fn who_waits_for_an_answer_holds_up_no_other() {
    let gate = Gate::default();
    let held = gate.clone();
    let server = Web::start(move |_, content| {
        if content.contains(r#""topic":"slow/"#) {
            held.pass();
        }
        Answer::Ok(r#"{"result":"allow"}"#.into())
    });
    let dir = tempfile::tempdir().expect("a directory");
    let broker = broker(&server, &dir, "timeout=\"15s\"");
    run(async {
        let (slow, _first) = connect(&broker, "slow").await;
        let (quick, _second) = connect(&broker, "quick").await;
        let waits = may(&slow, "slow/1");
        let others = async {
            // Both come to the end while the other one waits.
            assert!(may(&quick, "quick/1").await);
            assert!(may(&quick, "listed/1").await);
            gate.open();
        };
        let (allowed, ()) = tokio::join!(waits, others);
        assert!(allowed);
    });
}

#[test]
fn without_an_answer_the_rule_for_that_holds() {
    for (rule, allowed) in [("deny", false), ("allow", true)] {
        let server = Web::start(|_, content| match content.contains("hangs/") {
            true => Answer::Nothing,
            false => Answer::Status(503, ""),
        });
        let dir = tempfile::tempdir().expect("a directory");
        let more = format!("timeout=\"300ms\",when_down={rule:?}");
        let broker = broker(&server, &dir, &more);
        run(async {
            let (client, _messages) = connect(&broker, "c").await;
            assert_eq!(may(&client, "hangs/1").await, allowed, "{rule}");
            assert_eq!(may(&client, "fails/1").await, allowed, "{rule}");
            assert!(may(&client, "listed/1").await, "{rule}");
            let subscribed = client.subscribe("hangs/#", QoS::AtMostOnce).await;
            assert_eq!(subscribed.is_ok(), allowed, "{rule}");
        });
    }
}

#[test]
fn what_was_said_last_may_count_when_the_server_is_down() {
    let down = Arc::new(core::sync::atomic::AtomicBool::new(false));
    let is_down = Arc::clone(&down);
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let server = Web::start(move |_, _| {
        count.fetch_add(1, Ordering::Relaxed);
        match is_down.load(Ordering::Relaxed) {
            true => Answer::Status(500, ""),
            // What counts for no time is asked again each time.
            false => Answer::Ok(r#"{"result":"allow","expires_in":0}"#.into()),
        }
    });
    let dir = tempfile::tempdir().expect("a directory");
    let broker = broker(&server, &dir, "when_down=\"last\"");
    run(async {
        let (client, _messages) = connect(&broker, "c").await;
        assert!(may(&client, "known/1").await);
        down.store(true, Ordering::Relaxed);
        assert!(may(&client, "known/1").await, "as it said last");
        assert!(!may(&client, "unknown/1").await, "it said nothing");
    });
    assert!(asked.load(Ordering::Relaxed) >= 3);
}
