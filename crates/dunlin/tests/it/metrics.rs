//! Metrics and connections over HTTP, as Prometheus and people with curl see
//! them.

use std::io::{Read, Write};
use std::net::TcpStream;

use dunlin_base::transport::Transport;
use dunlin_client::{Publish, QoS};
use serde_json::Value;

use crate::support::{Broker, PATIENCE, run};

/// Status and body of an answer to what was sent.
fn exchange(broker: &Broker, request: &str) -> (String, String) {
    let mut stream = TcpStream::connect(broker.metrics()).expect("connected");
    stream.set_read_timeout(Some(PATIENCE)).expect("set");
    // A server that refuses early may close before everything is sent.
    let _ = stream.write_all(request.as_bytes());
    let mut answer = String::new();
    let _ = stream.read_to_string(&mut answer);
    let (head, body) = answer.split_once("\r\n\r\n").expect("an answer");
    let status = head.lines().next().expect("a status");
    (status.to_owned(), body.to_owned())
}

pub(crate) fn get(broker: &Broker, target: &str) -> (String, String) {
    exchange(
        broker,
        &format!("GET {target} HTTP/1.1\r\nHost: localhost\r\n\r\n"),
    )
}

fn json(broker: &Broker, target: &str) -> Value {
    let (status, body) = get(broker, target);
    assert_eq!(status, "HTTP/1.1 200 OK", "{body}");
    serde_json::from_str(&body).expect("JSON")
}

/// Sum of the samples that begin with `family` and carry `label`.
pub(crate) fn sum(text: &str, family: &str, label: &str) -> f64 {
    text.lines()
        .filter(|line| line.starts_with(family) && line.contains(label))
        .filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok())
        .sum()
}

#[test]
fn traffic_shows_in_metrics_and_clients_in_connections() {
    let broker = Broker::start_with(2, &["metrics.address=127.0.0.1:0"]);
    run(async {
        let mut clients = Vec::new();
        for (transport, id) in [
            (Transport::Quic, "a quic/client"),
            (Transport::Quic, "b"),
            (Transport::Tls, "c"),
        ] {
            let builder = broker.client(transport).client_id(id);
            let (client, _) = builder.connect().await.expect("connected");
            let message = Publish::new("t", "x").qos(QoS::AtLeastOnce);
            client.publish(message).await.expect("published");
            clients.push(client);
        }
        let (_, text) = get(&broker, "/metrics");
        let received = sum(&text, "dunlin_messages_received_total", "qos=\"1\"");
        assert!((received - 3.0).abs() < 0.1, "{text}");
        let quic = sum(&text, "dunlin_net_connections{", "transport=\"quic\"");
        assert!((quic - 2.0).abs() < 0.1, "{text}");
        assert!(
            sum(&text, "dunlin_quic_rtt_seconds_count", "") >= 2.0,
            "{text}"
        );
        assert!(sum(&text, "dunlin_net_quic_packets_sent_total", "") >= 4.0);

        let all = json(&broker, "/connections");
        assert_eq!(all["connections"].as_array().expect("rows").len(), 3);
        let mut seen = Vec::new();
        let mut target = "/connections?limit=1".to_owned();
        while seen.len() < 4 {
            let page = json(&broker, &target);
            for row in page["connections"].as_array().expect("rows") {
                seen.push(row["client_id"].as_str().expect("an id").to_owned());
            }
            let Some(next) = page["next"].as_str() else {
                break;
            };
            target = format!("/connections?limit=1&after={next}");
        }
        seen.sort();
        assert_eq!(seen, ["a quic/client", "b", "c"]);

        let one = json(&broker, "/connections/a%20quic/client");
        assert_eq!(
            (&one["transport"], &one["alpn"]),
            (&"quic".into(), &"mqtt".into())
        );
        assert!(one["quic"]["mtu_bytes"].as_u64() >= Some(1200), "{one:#}");
        let one = json(&broker, "/connections/c");
        assert!(
            one["cipher_suite"]
                .as_str()
                .is_some_and(|s| s.starts_with("TLS13")),
            "{one:#}"
        );
        assert_eq!(one["quic"], Value::Null);
        for client in clients {
            client.disconnect().await;
        }
    });
    for target in ["/healthz", "/readyz"] {
        assert_eq!(
            get(&broker, target),
            ("HTTP/1.1 200 OK".into(), "2 of 2 shards answer\n".into())
        );
    }
}

#[test]
fn bad_requests_are_refused_and_leave_the_broker_alone() {
    let broker = Broker::start_with(1, &["metrics.address=127.0.0.1:0"]);
    let long = format!("GET /{} HTTP/1.1\r\n\r\n", "x".repeat(9000));
    for (request, status) in [
        ("GET /nothing HTTP/1.1\r\n\r\n", "404"),
        ("PUT /metrics HTTP/1.1\r\n\r\n", "405"),
        ("GET /connections?limit=0 HTTP/1.1\r\n\r\n", "400"),
        ("GET /connections?limit=1001 HTTP/1.1\r\n\r\n", "400"),
        ("GET /connections?after=x HTTP/1.1\r\n\r\n", "400"),
        ("GET /connections/%ff HTTP/1.1\r\n\r\n", "400"),
        ("GET /connections/nobody HTTP/1.1\r\n\r\n", "404"),
        ("\x16\x03\x01 HTTP\r\n\r\n", "400"),
        (long.as_str(), "431"),
    ] {
        let (line, _) = exchange(&broker, request);
        assert!(
            line.starts_with(&format!("HTTP/1.1 {status} ")),
            "{request}: {line}"
        );
    }
    let (status, body) = exchange(&broker, "HEAD /metrics HTTP/1.1\r\n\r\n");
    assert_eq!((status.as_str(), body.as_str()), ("HTTP/1.1 200 OK", ""));
}

#[test]
fn silent_sockets_do_not_shut_the_health_check_out() {
    let broker = Broker::start_with(1, &["metrics.address=127.0.0.1:0"]);
    let mut silent = Vec::new();
    for _ in 0..12 {
        let more = (0..50).map(|_| TcpStream::connect(broker.metrics()).expect("connected"));
        silent.extend(more);
        let (status, _) = get(&broker, "/healthz");
        assert_eq!(status, "HTTP/1.1 200 OK", "with {}", silent.len());
    }
}

#[test]
fn only_names_of_this_machine_are_answered() {
    let settings = [
        "metrics.address=127.0.0.1:0",
        "metrics.hosts=[\"broker.example\"]",
    ];
    let broker = Broker::start_with(1, &settings);
    for (host, status) in [
        ("localhost", "200"),
        ("127.0.0.1:9464", "200"),
        ("[::1]:9464", "200"),
        ("Broker.example:9464", "200"),
        ("evil.example:9464", "421"),
        ("127.0.0.1.evil.example", "421"),
    ] {
        let request = format!("GET /connections HTTP/1.1\r\nHost: {host}\r\n\r\n");
        let (got, _) = exchange(&broker, &request);
        assert!(got.contains(status), "{host}: {got}");
    }
}

/// Names of the logs in a directory.
fn logs(dir: &std::path::Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).expect("a directory");
    let name = |entry: std::io::Result<std::fs::DirEntry>| entry.expect("an entry").file_name();
    let names = entries.map(|entry| name(entry).to_string_lossy().into_owned());
    names.filter(|name| name.ends_with(".sqlog")).collect()
}

#[test]
fn logs_of_connections_can_be_asked_for_while_the_broker_runs() {
    let dir = tempfile::tempdir().expect("a directory");
    let at = format!("qlog.dir={}", dir.path().display());
    let mut broker = Broker::start_with(2, &["metrics.address=127.0.0.1:0", &at]);
    let connect = async |broker: &Broker, id: &str| {
        let builder = broker.client(Transport::Quic).client_id(id);
        builder.connect().await.expect("connected")
    };
    run(async {
        let (early, _messages) = connect(&broker, "early").await;
        let (status, body) = exchange(&broker, "POST /qlog?client_id=early HTTP/1.1\r\n\r\n");
        assert!(status.ends_with("200 OK"), "{body}");
        let foreign = "POST /qlog?one_in=1 HTTP/1.1\r\nOrigin: http://x\r\n\r\n";
        assert!(exchange(&broker, foreign).0.contains(" 403 "));
        // Homes of these are on both shards.
        exchange(&broker, "POST /qlog?client_id=late-* HTTP/1.1\r\n\r\n");
        for id in ["late-1", "late-2", "late-3", "other"] {
            let (client, _messages) = connect(&broker, id).await;
            client.disconnect().await;
        }
        early.disconnect().await;
    });
    let shown = json(&broker, "/qlog");
    assert_eq!(shown["clients"], serde_json::json!(["early", "late-*"]));
    broker.stop();
    let names = logs(dir.path());
    assert_eq!(names.len(), 4, "{names:?}");
    let begun_late = names.iter().filter(|name| name.starts_with("late-"));
    assert_eq!(begun_late.count(), 1, "{names:?}");
}
