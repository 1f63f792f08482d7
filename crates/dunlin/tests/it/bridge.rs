//! Bridges between brokers of this process: which messages come where, once, in which
//! order, and what becomes of them while one side is away.

use core::time::Duration;
use std::path::Path;

use dunlin::auth::passwords::{Change, changed};
use dunlin::bridge::VIA;
use dunlin::certs::{self, Purpose};
use dunlin::config::Config;
use dunlin::daemon::Daemon;
use dunlin_base::transport::Transport;
use dunlin_client::{Client, Messages, Publish, PublishError, QoS, ReasonCode, Subscribe, Version};

use crate::control::ctl;
use crate::metrics::{get, sum};
use crate::support::{ALL, Broker, PATIENCE, free_port, run, subscribe};

/// A wait in which a message that must not come would have come.
pub(crate) const QUIET: Duration = Duration::from_millis(400);

/// Topics both ways.
const BOTH: &str = "{ pattern = 'b/#', direction = 'both', qos = 2 }";

/// The override that configures one bridge.
fn bridge(name: &str, url: &str, topics: &str, more: &str) -> String {
    format!(
        "bridge=[{{ name = '{name}', url = '{url}', \
         connection = {{ reconnect_min = '20ms', reconnect_max = '100ms' }}, \
         topic = [{topics}]{more} }}]"
    )
}

pub(crate) fn tcp(broker: &Broker) -> String {
    format!("mqtt://{}", broker.addr(Transport::Tcp))
}

/// A broker with a bridge to another one, which is there already.
fn joined(remote: &Broker, topics: &str, more: &str) -> Broker {
    let bridge = bridge("up", &tcp(remote), topics, more);
    Broker::start_with(2, &[&bridge, "metrics.address=127.0.0.1:0"])
}

/// Waits until the bridge has all its connections and has subscribed: a message comes
/// through it.
pub(crate) async fn ready(from: &Client, topic: &str, to: &mut Messages) {
    let mut number = 0;
    loop {
        let probe = Publish::new(topic, format!("probe {number}")).qos(QoS::AtLeastOnce);
        from.publish(probe).await.expect("published");
        number += 1;
        if let Some(message) = next_within(to, Duration::from_millis(100)).await {
            assert!(message.starts_with("probe"), "{message}");
            break;
        }
    }
    while let Some(message) = next_within(to, QUIET).await {
        assert!(message.starts_with("probe"), "{message}");
    }
}

pub(crate) async fn next_within(messages: &mut Messages, time: Duration) -> Option<String> {
    let message = tokio::time::timeout(time, messages.next()).await.ok()?;
    let message = message.expect("connected");
    Some(String::from_utf8_lossy(&message.payload).into_owned())
}

pub(crate) async fn client(broker: &Broker) -> (Client, Messages) {
    let connected = broker.client(Transport::Tcp).connect().await;
    connected.expect("connected")
}

pub(crate) async fn subscriber(broker: &Broker, filter: &str) -> (Client, Messages) {
    let (client, messages) = client(broker).await;
    let how = Subscribe::new(QoS::ExactlyOnce).retain_as_published(true);
    client.subscribe(filter, how).await.expect("subscribed");
    (client, messages)
}

async fn payload(messages: &mut Messages) -> String {
    let message = messages.next().await.expect("a message");
    String::from_utf8_lossy(&message.payload).into_owned()
}

pub(crate) async fn publish(client: &Client, topic: &str, payload: &str) {
    let publish = Publish::new(topic, payload).qos(QoS::AtLeastOnce);
    client.publish(publish).await.expect("published");
}

#[test]
fn every_qos_goes_both_ways_once_over_every_transport() {
    let remote = Broker::start(2);
    let ca = remote.ca();
    let tls = format!(", tls = {{ ca = '{}' }}", ca.display());
    for transport in ALL {
        let port = remote.addr(transport).port();
        let url = format!("{}://localhost:{port}", dunlin_client::scheme(transport));
        let topics = "{ pattern = 'b/#', direction = 'both', qos = 2, remote_prefix = 'far/' }";
        let local = Broker::start_with(2, &[&bridge("up", &url, topics, &tls)]);
        run(async {
            let (near, mut at_near) = subscriber(&local, "b/#").await;
            let (far, mut at_far) = subscriber(&remote, "far/b/#").await;
            ready(&near, "b/probe", &mut at_far).await;
            while next_within(&mut at_near, QUIET).await.is_some() {}
            for qos in [QoS::AtMostOnce, QoS::AtLeastOnce, QoS::ExactlyOnce] {
                for (from, topic, other) in [(&near, "b/x", "far/b/x"), (&far, "far/b/x", "b/x")] {
                    let message = Publish::new(topic, "m").qos(qos).content_type("text/plain");
                    from.publish(message).await.expect("published");
                    for at in [&mut at_near, &mut at_far] {
                        let got = at.next().await.expect("a message");
                        assert_eq!(got.qos, qos, "{transport:?}");
                        assert!([topic, other].contains(&got.topic.as_str()));
                        let properties = got.properties.expect("properties");
                        assert_eq!(properties.content_type.as_deref(), Some("text/plain"));
                    }
                }
            }
            // Neither gets its own message back.
            for at in [&mut at_near, &mut at_far] {
                assert_eq!(next_within(at, QUIET).await, None, "{transport:?}");
            }
        });
    }
}

#[test]
fn retained_messages_are_retained_at_the_other_broker() {
    let remote = Broker::start(1);
    let topics = "{ pattern = 'o/#', direction = 'out' }, { pattern = 'i/#', direction = 'in' }";
    run(async {
        let (far, _messages) = client(&remote).await;
        let kept = Publish::new("i/before", "in").retain(true);
        far.publish(kept.qos(QoS::AtLeastOnce)).await.expect("kept");
        let local = joined(&remote, topics, "");
        let (near, _messages) = client(&local).await;
        let kept = Publish::new("o/later", "out").retain(true);
        near.publish(kept.qos(QoS::AtLeastOnce))
            .await
            .expect("kept");
        for (broker, filter, want) in [(&local, "i/#", "in"), (&remote, "o/#", "out")] {
            let retained = async {
                loop {
                    let (_client, mut messages) = subscriber(broker, filter).await;
                    if let Some(found) = next_within(&mut messages, QUIET).await {
                        break found;
                    }
                }
            };
            assert_eq!(retained.await, want);
        }
    });
}

#[test]
fn what_is_published_while_the_other_broker_is_away_arrives_in_order() {
    let port = free_port();
    let listener = format!("listener.1.address=127.0.0.1:{port}");
    let url = format!("mqtt://127.0.0.1:{port}");
    let topics = "{ pattern = 'q/#', direction = 'out' }";
    let bridge = bridge("up", &url, topics, ", max_in_flight = 4");
    let mut remote = Broker::start_with(1, &[&listener]);
    let mut local = Broker::start_with(2, &[&bridge]);
    run(async {
        let (near, _messages) = client(&local).await;
        let (_far, mut at_far) = subscriber(&remote, "q/#").await;
        ready(&near, "q/probe", &mut at_far).await;
        remote.stop();
        for number in 0..20 {
            publish(&near, "q/x", &format!("{number}")).await;
        }
        let lossy = Publish::new("q/x", "lossy");
        near.publish(lossy).await.expect("published");
        near.disconnect().await;
        // The queue is on disk.
        local.start_again(2, &[&bridge]);
        let (near, _messages) = client(&local).await;
        for number in 20..30 {
            publish(&near, "q/x", &format!("{number}")).await;
        }
        remote.start_again(1, &[&listener]);
        let (_far, mut at_far) = subscriber(&remote, "q/#").await;
        // The bridge may be there before this subscriber, but not wait for it.
        publish(&near, "q/x", "end").await;
        let mut got = Vec::new();
        loop {
            let message = payload(&mut at_far).await;
            if message == "end" {
                break;
            }
            got.push(message.parse::<u32>().expect("a number"));
        }
        assert!(got.is_sorted(), "{got:?}");
        let lost = got.first().copied().unwrap_or(30);
        let want: Vec<u32> = (lost..30).collect();
        assert_eq!(got, want, "none is missing from the first that came on");
    });
}

#[test]
fn nothing_is_lost_where_the_other_broker_keeps_a_session_for_its_reader() {
    let port = free_port();
    let listener = format!("listener.1.address=127.0.0.1:{port}");
    let url = format!("mqtt://127.0.0.1:{port}");
    let topics = "{ pattern = 'q/#', direction = 'out', qos = 2 }";
    let bridge = bridge("up", &url, topics, ", max_in_flight = 4, connections = 3");
    let mut remote = Broker::start_with(1, &[&listener]);
    let local = Broker::start_with(2, &[&bridge]);
    run(async {
        let reader = |broker: &Broker| {
            let builder = broker.client(Transport::Tcp).client_id("reader");
            builder.clean_start(false).session_expiry(Duration::MAX)
        };
        let (far, _messages) = reader(&remote).connect().await.expect("connected");
        subscribe(&far, "q/#", QoS::ExactlyOnce).await;
        far.disconnect().await;
        let (near, _messages) = client(&local).await;
        for round in 0..3 {
            remote.stop();
            for number in 0..20 {
                let (topic, text) = (
                    format!("q/{}", number % 5),
                    format!("{}", 20 * round + number),
                );
                let message = Publish::new(topic, text).qos(QoS::ExactlyOnce);
                near.publish(message).await.expect("published");
            }
            remote.start_again(1, &[&listener]);
        }
        let (_far, mut at_far) = reader(&remote).connect().await.expect("connected");
        let mut got = Vec::new();
        while got.len() < 60 {
            let number: u32 = payload(&mut at_far).await.parse().expect("a number");
            got.push(number);
        }
        for topic in 0..5 {
            let of_topic: Vec<u32> = got.iter().copied().filter(|n| n % 5 == topic).collect();
            assert!(of_topic.is_sorted(), "{of_topic:?}");
        }
        got.sort_unstable();
        assert_eq!(got, (0..60).collect::<Vec<u32>>());
        assert_eq!(next_within(&mut at_far, QUIET).await, None);
    });
}

#[test]
fn a_full_queue_does_what_its_policy_says() {
    for (full, want_refused, want) in [
        ("reject", true, [0, 1, 2, 3]),
        ("drop-newest", false, [0, 1, 2, 3]),
        ("drop-oldest", false, [0, 7, 8, 9]),
    ] {
        let port = free_port();
        let listener = format!("listener.1.address=127.0.0.1:{port}");
        let url = format!("mqtt://127.0.0.1:{port}");
        let topics = "{ pattern = 'q/#', direction = 'out' }";
        let more = format!(", max_in_flight = 1, max_messages = 3, full = '{full}'");
        let bridge = bridge("up", &url, topics, &more);
        let mut remote = Broker::start_with(1, &[&listener]);
        run(async {
            let reader = |broker: &Broker| {
                let builder = broker.client(Transport::Tcp).client_id("reader");
                builder.clean_start(false).session_expiry(Duration::MAX)
            };
            let (far, _messages) = reader(&remote).connect().await.expect("connected");
            subscribe(&far, "q/#", QoS::AtLeastOnce).await;
            far.disconnect().await;
            remote.stop();
            let local = Broker::start_with(1, &[&bridge, "metrics.address=127.0.0.1:0"]);
            let (near, _messages) = client(&local).await;
            let waiting = |broker: &Broker| {
                let (_, text) = get(broker, "/metrics");
                sum(&text, "dunlin_bridge_waiting_messages", "up") as usize
            };
            // The first one is on its way before the others come: the subscription is
            // there, and the broker has sent it.
            while waiting(&local) == 0 {
                publish(&near, "q/x", "0").await;
                tokio::time::sleep(Duration::from_millis(1100)).await;
            }
            let mut refused = false;
            for number in 1..10 {
                let message = Publish::new("q/x", format!("{number}")).qos(QoS::AtLeastOnce);
                match near.publish(message).await {
                    Ok(_) => {}
                    Err(PublishError::Refused { reason }) => {
                        assert_eq!(reason, ReasonCode::QuotaExceeded);
                        refused = true;
                    }
                    Err(other) => panic!("{other}"),
                }
            }
            assert_eq!(refused, want_refused, "{full}");
            remote.start_again(1, &[&listener]);
            let (_far, mut at_far) = reader(&remote).connect().await.expect("connected");
            for number in want {
                assert_eq!(payload(&mut at_far).await, number.to_string(), "{full}");
            }
            assert_eq!(next_within(&mut at_far, QUIET).await, None, "{full}");
        });
    }
}

#[test]
fn what_waits_at_the_other_broker_comes_in_after_a_restart() {
    let remote = Broker::start(1);
    let topics = "{ pattern = 'i/#', direction = 'in', qos = 2, local_prefix = 'from/' }";
    let bridge = bridge("down", &tcp(&remote), topics, "");
    let mut local = Broker::start_with(2, &[&bridge]);
    run(async {
        let (far, _messages) = client(&remote).await;
        let (_near, mut at_near) = subscriber(&local, "from/i/#").await;
        ready(&far, "i/probe", &mut at_near).await;
        drop(at_near);
        let reader = |broker: &Broker| {
            let builder = broker.client(Transport::Tcp).client_id("reader");
            builder.clean_start(false).session_expiry(Duration::MAX)
        };
        let (near, _messages) = reader(&local).connect().await.expect("connected");
        subscribe(&near, "from/#", QoS::ExactlyOnce).await;
        near.disconnect().await;
        local.stop();
        for number in 0..10 {
            let message = Publish::new("i/x", format!("{number}")).qos(QoS::ExactlyOnce);
            far.publish(message).await.expect("published");
        }
        local.start_again(2, &[&bridge]);
        let (_near, mut at_near) = reader(&local).connect().await.expect("connected");
        for number in 0..10 {
            assert_eq!(payload(&mut at_near).await, number.to_string());
        }
        assert_eq!(next_within(&mut at_near, QUIET).await, None);
    });
}

#[test]
fn nothing_is_lost_while_the_other_broker_refuses_a_subscription() {
    const MESSAGES: u32 = 400;
    let dir = tempfile::tempdir().expect("a directory");
    let acl = dir.path().join("acl");
    std::fs::write(&acl, "topic readwrite o/#\n").expect("written");
    let remote = Broker::start_with(1, &[&format!("auth.acl_file={}", acl.display())]);
    let topics = "{ pattern = 'o/#', direction = 'out' }, { pattern = 'i/#', direction = 'in' }";
    run(async {
        let (_far, mut at_far) = subscriber(&remote, "o/#").await;
        // It begins again and again, in the middle of what it carries.
        let local = joined(&remote, topics, ", max_in_flight = 64");
        let (near, _messages) = client(&local).await;
        ready(&near, "o/probe", &mut at_far).await;
        let sent = async {
            for number in 0..MESSAGES {
                publish(&near, "o/x", &number.to_string()).await;
            }
        };
        let arrived = async {
            let mut missing: std::collections::BTreeSet<u32> = (0..MESSAGES).collect();
            while !missing.is_empty() {
                let text = payload(&mut at_far).await;
                missing.remove(&text.parse().unwrap_or(MESSAGES));
            }
        };
        tokio::join!(sent, arrived);
    });
}

#[test]
fn a_ban_of_this_machine_is_none_of_its_bridges() {
    let remote = Broker::start(1);
    let topics = "{ pattern = 'i/#', direction = 'in' }";
    let local = joined(&remote, topics, "");
    run(async {
        let (far, _messages) = client(&remote).await;
        let (_near, mut at_near) = subscriber(&local, "i/#").await;
        ready(&far, "i/probe", &mut at_near).await;
        local.order(r#"{"request":"ban","whom":{"address":"127.0.0.0/8"}}"#);
        let connects = |broker: &Broker| {
            let (_, text) = get(broker, "/metrics");
            let carried = sum(&text, "dunlin_bridge_messages_total", "in");
            (sum(&text, "dunlin_bridge_connects_total", "up"), carried)
        };
        let before = connects(&local).1;
        publish(&far, "i/x", "after").await;
        while connects(&local).1 <= before {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        assert_eq!(connects(&local).0, 1.0);
        let refused = local.client(Transport::Tcp).connect().await;
        let reason = refused.expect_err("banned").reason();
        assert_eq!(reason, Some(ReasonCode::Banned));
    });
}

#[test]
fn loops_end() {
    // Two brokers, each with a bridge to the other, and one with a bridge to itself.
    let port = free_port();
    let listener = format!("listener.1.address=127.0.0.1:{port}");
    let to_first = bridge("back", &format!("mqtt://127.0.0.1:{port}"), BOTH, "");
    let second = Broker::start_with(1, &[&to_first]);
    let port_of_second = second.addr(Transport::Tcp).port();
    let to_second = bridge(
        "forth",
        &format!("mqtt://127.0.0.1:{port_of_second}"),
        BOTH,
        "",
    );
    let first = Broker::start_with(1, &[&listener, &to_second]);
    let own_port = free_port();
    let own_listener = format!("listener.1.address=127.0.0.1:{own_port}");
    let to_itself = bridge("self", &format!("mqtt://127.0.0.1:{own_port}"), BOTH, "");
    let alone = Broker::start_with(1, &[&own_listener, &to_itself]);
    run(async {
        // Each bridge carries a message once each way at most.
        for (from, at, most) in [(&first, &second, 2), (&alone, &alone, 3)] {
            let (publisher, _messages) = client(from).await;
            let (_subscriber, mut messages) = subscriber(at, "b/#").await;
            ready(&publisher, "b/probe", &mut messages).await;
            publish(&publisher, "b/x", "once").await;
            let mut copies = 0;
            while next_within(&mut messages, QUIET).await.is_some() {
                copies += 1;
            }
            assert_eq!(copies, most);
        }
    });
}

#[test]
fn a_message_passes_no_more_bridges_than_it_may() {
    let remote = Broker::start(1);
    let topics = "{ pattern = 'b/#', direction = 'out' }";
    let local = joined(&remote, topics, ", max_hops = 2");
    run(async {
        let (near, _messages) = client(&local).await;
        let (_far, mut at_far) = subscriber(&remote, "b/#").await;
        ready(&near, "b/probe", &mut at_far).await;
        for (hops, passes) in [(1, true), (2, false)] {
            let mut message = Publish::new("b/x", "m").qos(QoS::AtLeastOnce);
            for hop in 0..hops {
                message = message.user_property(VIA, format!("other {hop}"));
            }
            near.publish(message).await.expect("published");
            let got = next_within(&mut at_far, QUIET).await;
            assert_eq!(got.is_some(), passes, "{hops}");
        }
        let (_, text) = get(&local, "/metrics");
        let dropped = sum(
            &text,
            "dunlin_bridge_messages_dropped_total",
            "cause=\"hops\"",
        );
        assert!((dropped - 1.0).abs() < 0.1, "{text}");
    });
}

#[test]
fn its_state_shows_on_topics_and_in_metrics() {
    let mut remote = Broker::start(1);
    let topics = "{ pattern = 'b/#', direction = 'out' }";
    let more = ", status_topic = 'status/up'";
    let bridge = bridge("up", &tcp(&remote), topics, more);
    let mut local = Broker::start_with(2, &[&bridge, "metrics.address=127.0.0.1:0"]);
    run(async {
        let (near, mut at_near) = subscriber(&local, "$SYS/broker/bridge/up/state").await;
        while payload(&mut at_near).await != "1" {}
        let (_far, mut at_far) = subscriber(&remote, "#").await;
        assert_eq!(payload(&mut at_far).await, "1", "the status is retained");
        ready(&near, "b/probe", &mut at_far).await;
        let (_, text) = get(&local, "/metrics");
        for (family, least) in [
            ("dunlin_bridge_connected", 1.0),
            ("dunlin_bridge_connects_total", 1.0),
            (
                "dunlin_bridge_messages_total{bridge=\"up\",direction=\"out\"}",
                1.0,
            ),
            ("dunlin_bridge_payload_bytes_total", 7.0),
            ("dunlin_bridge_round_trip_seconds", 0.000_001),
        ] {
            assert!(sum(&text, family, "up") >= least, "{family}: {text}");
        }
        local.stop();
        assert_eq!(payload(&mut at_far).await, "0");
        local.start_again(1, &[&bridge]);
        assert_eq!(payload(&mut at_far).await, "1");
        let (_near, mut at_near) = subscriber(&local, "$SYS/broker/bridge/up/state").await;
        while payload(&mut at_near).await != "1" {}
        remote.stop();
        assert_eq!(payload(&mut at_near).await, "0");
    });
}

/// What `dunlin ctl` shows of the bridge.
fn shown(broker: &Broker) -> serde_json::Value {
    let text = ctl(broker, &["--json", "bridge", "show", "up"]);
    serde_json::from_str(&text).expect("JSON")
}

#[test]
fn an_operator_pauses_a_bridge_and_what_it_would_carry_waits() {
    let remote = Broker::start(1);
    let local = joined(&remote, BOTH, "");
    let is = |state: &str| {
        let since = std::time::Instant::now();
        while shown(&local)["state"] != state {
            assert!(since.elapsed() < PATIENCE, "{}", shown(&local));
            std::thread::sleep(Duration::from_millis(10));
        }
    };
    run(async {
        let (near, _messages) = client(&local).await;
        let (_far, mut at_far) = subscriber(&remote, "b/#").await;
        ready(&near, "b/probe", &mut at_far).await;
        is("connected");
        let list = ctl(&local, &["bridge", "list"]);
        assert!(
            list.contains("connected") && list.contains("mqtt://"),
            "{list}"
        );
        assert_eq!(shown(&local)["topics"], serde_json::json!(["both b/#"]));

        ctl(&local, &["bridge", "pause", "up"]);
        is("paused");
        for number in 0..20 {
            publish(&near, "b/1", &format!("m{number}")).await;
        }
        // What was under way has ended by then.
        while shown(&local)["waiting_messages"] != 20 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert_eq!(next_within(&mut at_far, QUIET).await, None);
        let session = ctl(&local, &["--json", "session", "show", "$bridge:up"]);
        assert!(
            session.contains("\"session_expiry_seconds\":null"),
            "{session}"
        );

        ctl(&local, &["bridge", "resume", "up"]);
        for number in 0..20 {
            assert_eq!(payload(&mut at_far).await, format!("m{number}"));
        }
        is("connected");
        let connects = shown(&local)["connects"].as_u64().expect("a number");
        ctl(&local, &["bridge", "reconnect", "up"]);
        while shown(&local)["connects"].as_u64() == Some(connects) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        is("connected");
        publish(&near, "b/1", "last").await;
        assert_eq!(payload(&mut at_far).await, "last");
    });
    drop(remote);
    is("connecting");
    let since = std::time::Instant::now();
    while shown(&local)["last_error"].is_null() {
        assert!(since.elapsed() < PATIENCE, "{}", shown(&local));
    }
    let (_, none) = crate::control::fail(&local, &["bridge", "pause", "other"]);
    assert!(none.contains("there is no bridge"), "{none}");
}

#[test]
fn access_rules_let_a_bridge_do_what_its_topics_say_and_give_its_name_to_no_one() {
    let dir = tempfile::tempdir().expect("a directory");
    let acl = dir.path().join("acl");
    std::fs::write(&acl, "topic readwrite #\nuser other\n").expect("written");
    let remote = Broker::start(1);
    let topics = "{ pattern = 'o/#', direction = 'out' }, { pattern = 'i/#', direction = 'in' }";
    let bridge = bridge("up", &tcp(&remote), topics, "");
    let overrides = [&*bridge, &format!("auth.acl_file={}", acl.display())];
    let local = Broker::start_with(2, &overrides);
    run(async {
        let (near, mut at_near) = subscriber(&local, "i/#").await;
        let (far, mut at_far) = subscriber(&remote, "o/#").await;
        ready(&near, "o/probe", &mut at_far).await;
        ready(&far, "i/probe", &mut at_near).await;
        local.reload().expect("reloaded");
        publish(&near, "o/x", "after").await;
        assert_eq!(payload(&mut at_far).await, "after");
        for version in [Version::V5, Version::V311] {
            let thief = local.client(Transport::Tcp).client_id("$bridge:up");
            let refused = thief.version(version).connect().await;
            let reason = refused.expect_err("refused").reason();
            assert_eq!(reason, Some(ReasonCode::ClientIdentifierNotValid));
        }
        publish(&near, "o/x", "still").await;
        assert_eq!(payload(&mut at_far).await, "still");
    });
}

#[test]
fn mqtt_3_1_1_carries_both_ways_without_echo() {
    let remote = Broker::start(1);
    let topics = "{ pattern = 'b/#', direction = 'both' }";
    let local = joined(&remote, topics, ", version = '3.1.1'");
    run(async {
        let (near, mut at_near) = subscriber(&local, "b/#").await;
        let (far, mut at_far) = subscriber(&remote, "b/#").await;
        ready(&near, "b/probe", &mut at_far).await;
        while next_within(&mut at_near, QUIET).await.is_some() {}
        for from in [&near, &far] {
            publish(from, "b/x", "m").await;
            for at in [&mut at_near, &mut at_far] {
                assert_eq!(payload(at).await, "m");
            }
        }
        for at in [&mut at_near, &mut at_far] {
            assert_eq!(next_within(at, QUIET).await, None);
        }
    });
}

#[test]
fn a_topic_that_is_configured_no_more_is_carried_no_more() {
    let remote = Broker::start(1);
    let url = tcp(&remote);
    let two = "{ pattern = 'a/#', direction = 'out' }, { pattern = 'b/#', direction = 'both' }";
    let mut local = Broker::start_with(1, &[&bridge("up", &url, two, "")]);
    run(async {
        let (near, _messages) = client(&local).await;
        let (_far, mut at_far) = subscriber(&remote, "#").await;
        ready(&near, "a/probe", &mut at_far).await;
        ready(&near, "b/probe", &mut at_far).await;
        near.disconnect().await;
        let one = "{ pattern = 'b/#', direction = 'out' }";
        local.start_again(
            1,
            &[&bridge("up", &url, one, ""), "metrics.address=127.0.0.1:0"],
        );
        let (near, _messages) = client(&local).await;
        ready(&near, "b/probe", &mut at_far).await;
        publish(&near, "a/x", "gone").await;
        assert_eq!(next_within(&mut at_far, QUIET).await, None);
        let (_, text) = get(&local, "/metrics");
        let dropped = sum(&text, "dunlin_bridge_messages_dropped_total", "up");
        assert!(dropped < 0.1, "the subscription has ended: {text}");
    });
}

#[test]
fn a_bridge_proves_who_it_is_by_files() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = |name: &str| dir.path().join(name).display().to_string();
    certs::init(dir.path(), certs::CA_DAYS, &certs::Options::default()).expect("authority");
    let device = certs::Options::default();
    certs::issue(dir.path(), "plant", Purpose::Device, &device).expect("a device");
    let change = Change::Set {
        password: b"wonderland",
        iterations: 4096,
    };
    let users = changed(Path::new("users"), None, "alice", change).expect("a user");
    std::fs::write(path("users"), users).expect("written");
    std::fs::write(path("password"), "wonderland\n").expect("written");
    let server = format!(
        "listener.2.tls={{cert='{}',key='{}',client_ca='{}',require_client_cert=true}}",
        path("server.pem"),
        path("server.key"),
        path("ca.pem"),
    );
    let users = format!("auth.password_file={}", path("users"));
    let remote = Broker::start_with(1, &[&server, &users, "auth.anonymous=never"]);
    let tls = format!("mqtts://localhost:{}", remote.addr(Transport::Tls).port());
    let user = format!(", user = 'alice', password_file = '{}'", path("password"));
    let by_certificate = format!(
        ", tls = {{ ca = '{}', cert = '{}', key = '{}' }}",
        path("ca.pem"),
        path("plant.pem"),
        path("plant.key"),
    );
    for (url, more) in [
        (tcp(&remote), user.clone()),
        (tcp(&remote), format!("{user}, scram = true")),
        (tls, by_certificate),
    ] {
        let local = Broker::start_with(1, &[&bridge("up", &url, BOTH, &more)]);
        run(async {
            let (near, _messages) = client(&local).await;
            let far = remote
                .client(Transport::Tcp)
                .credentials("alice", "wonderland");
            let (far, mut at_far) = far.connect().await.expect("connected");
            subscribe(&far, "b/#", QoS::AtLeastOnce).await;
            ready(&near, "b/probe", &mut at_far).await;
        });
    }
    let missing = ", user = 'alice', password_file = '/nowhere'";
    let missing = bridge("up", &tcp(&remote), BOTH, missing);
    let file = dir.path().join("dunlin.toml");
    std::fs::write(
        &file,
        "[[listener]]\ntransport='tcp'\naddress='127.0.0.1:0'\n",
    )
    .expect("written");
    let mut config = Config::load(Some(&file), &[missing]).expect("valid");
    config.data_dir = dir.path().join("data");
    let error = Daemon::start(config).expect_err("no password").to_string();
    assert!(
        error.contains("bridge up") && error.contains("/nowhere"),
        "{error}"
    );
}
