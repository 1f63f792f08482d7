//! `dunlin test` as a program: what it finds out about this broker, and that no
//! server makes it hang.

use core::time::Duration;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Output;
use std::time::Instant;

use dunlin_base::transport::Transport;
use dunlin_client::QoS;
use serde_json::Value;

use crate::support::{ALL, Broker, dunlin, run};

const FEATURES: [&str; 13] = [
    "mqtt5",
    "mqtt311",
    "qos0",
    "qos1",
    "qos2",
    "retained",
    "wildcards",
    "shared",
    "session",
    "will",
    "subscription-ids",
    "no-local",
    "properties",
];

const QUIC: [&str; 12] = [
    "quic",
    "quic-versions",
    "alpn",
    "idle-timeout",
    "stream-limits",
    "datagrams",
    "path-mtu",
    "tickets",
    "early-data",
    "rebind",
    "migration",
    "data-streams",
];

/// The program with arguments, words separated by single spaces.
fn test(args: &str) -> Output {
    dunlin(&format!("test {args}")).output().expect("started")
}

fn report(args: &str) -> (Value, Option<i32>) {
    let output = test(&format!("{args} --json"));
    let json = serde_json::from_slice(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    (
        json.unwrap_or_else(|error| panic!("{args}: {error}: {errors}")),
        output.status.code(),
    )
}

fn at(broker: &Broker, transport: Transport, scheme: &str) -> String {
    let port = broker.addr(transport).port();
    let patience = "--check-time 20 -W 600";
    match transport.is_encrypted() {
        true => format!(
            "{scheme}://localhost:{port} {patience} --cafile {}",
            broker.ca().display()
        ),
        false => format!("{scheme}://localhost:{port} {patience}"),
    }
}

#[test]
fn this_broker_has_everything_over_every_transport_and_keeps_nothing() {
    let broker = Broker::start_with(2, &["metrics.address=127.0.0.1:0"]);
    for transport in ALL {
        let at = at(&broker, transport, dunlin_client::scheme(transport));
        let mut names = FEATURES.to_vec();
        if transport == Transport::Quic {
            names.extend(QUIC);
            names.extend(["uni-streams", "datagram-publish"]);
        }
        if transport.is_encrypted() {
            names.extend(["tls", "certificate"]);
        }
        let (json, code) = report(&format!("{at} --require {}", names.join(",")));
        assert_eq!(code, Some(0), "{transport:?}: {json:#}");
        for (name, check) in json["checks"].as_object().expect("checks") {
            let outcome = check["outcome"].as_str().expect("an outcome");
            assert!(
                ["yes", "no"].contains(&outcome),
                "{transport:?} {name}: {check}"
            );
        }
        assert_eq!(json["checks"]["receive-maximum"]["value"], 1024);
        assert_eq!(json["checks"]["mqtt31"]["outcome"], "no");
    }
    run(async {
        let builder = broker.client(Transport::Tcp);
        let (client, mut messages) = builder.connect().await.expect("connected");
        let _ = client
            .subscribe("#", QoS::AtMostOnce)
            .await
            .expect("subscribed");
        let left = tokio::time::timeout(Duration::from_millis(300), messages.next()).await;
        assert!(left.is_err(), "{left:?}");
        // This client has one.
        while sessions(broker.metrics()) != 1.0 {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    });
}

/// Sessions that the broker has, by its metrics.
fn sessions(addr: core::net::SocketAddr) -> f64 {
    let mut stream = TcpStream::connect(addr).expect("connected");
    let request = "GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    stream.write_all(request.as_bytes()).expect("written");
    let mut page = String::new();
    stream.read_to_string(&mut page).expect("read");
    let lines = page
        .lines()
        .filter(|line| line.starts_with("dunlin_sessions{"));
    let values = lines.filter_map(|line| line.split(' ').nth(1));
    values
        .map(|value| value.parse::<f64>().expect("a number"))
        .sum()
}

#[test]
fn amqp_is_asked_for_what_it_offers() {
    let broker = Broker::start(1);
    for (transport, scheme) in [(Transport::Tcp, "amqp"), (Transport::Quic, "amqp+quic")] {
        let at = at(&broker, transport, scheme);
        let (json, code) = report(&format!("{at} --require amqp,sasl,capabilities"));
        assert_eq!(code, Some(0), "{json:#}");
        let has = |name: &str, what: &str| {
            let list = json["checks"][name]["value"].as_array().expect("a list");
            list.iter().any(|entry| entry == what)
        };
        assert!(
            has("sasl", "ANONYMOUS") && has("capabilities", "ANONYMOUS-RELAY"),
            "{json:#}"
        );
        assert!(json["checks"]["frame-size"]["value"].as_u64() >= Some(512));
    }
}

#[test]
fn what_is_missing_or_not_allowed_is_no_yes() {
    let broker = Broker::start_with(
        1,
        &[
            "limits.receive_maximum=7",
            "limits.max_packet_size=\"2KiB\"",
        ],
    );
    let tcp = at(&broker, Transport::Tcp, "mqtt");
    let (json, code) = report(&format!("{tcp} --require qos2,quic,mqtt31"));
    assert_eq!(code, Some(2), "{json:#}");
    assert_eq!(json["missing"], serde_json::json!(["quic", "mqtt31"]));
    assert_eq!(json["checks"]["receive-maximum"]["value"], 7);
    assert_eq!(json["checks"]["packet-size"]["value"], 2048);
    let closed = Broker::start_with(1, &["auth.anonymous=\"never\""]);
    let tcp = at(&closed, Transport::Tcp, "mqtt");
    let (json, code) = report(&format!("{tcp} --require mqtt5"));
    assert_eq!(code, Some(2));
    assert_eq!(json["checks"]["mqtt5"]["outcome"], "failed");
    assert_eq!(json["checks"]["qos1"]["outcome"], "skipped");
    for (wrong, words) in [
        ("mqtt://h --require qos3", "qos2"),
        ("auto://h", "name one transport"),
        ("mqtt://h --cafile f", "not encrypted"),
        ("mqtt://nothing.invalid", "nothing.invalid"),
        ("mqtt://h --prefix a/#", "--prefix"),
    ] {
        let output = test(wrong);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{wrong}: {stderr}");
        assert!(stderr.contains(words), "{wrong}: {stderr}");
    }
}

/// What a server does to each connection.
type Act = fn(TcpStream);

/// Reads CONNECT and accepts it, as 5.0 does.
fn accept(stream: &mut TcpStream) {
    let mut buffer = [0; 512];
    let _ = stream.read(&mut buffer);
    let _ = stream.write_all(&[0x20, 3, 0, 0, 0]);
}

/// Reads until the end.
fn swallow(mut stream: TcpStream) {
    let _ = std::io::copy(&mut stream, &mut std::io::sink());
}

#[test]
fn no_server_makes_it_hang() {
    let servers: [(&str, Act); 7] = [
        ("closes at once", drop),
        ("says nothing", swallow),
        ("speaks something else", |mut stream| {
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
            swallow(stream);
        }),
        ("accepts and says nothing more", |mut stream| {
            accept(&mut stream);
            swallow(stream);
        }),
        ("announces a packet of 256 MB", |mut stream| {
            accept(&mut stream);
            let _ = stream.write_all(&[0x30, 0xff, 0xff, 0xff, 0x7f]);
            swallow(stream);
        }),
        ("sends messages without end", |mut stream| {
            accept(&mut stream);
            let message = [&[0x30, 0x7f, 0, 1, b'x'][..], &[0; 124]].concat();
            while stream.write_all(&message).is_ok() {}
        }),
        ("sends a byte now and then", |mut stream| {
            while stream.write_all(&[0x30]).is_ok() {
                std::thread::sleep(Duration::from_millis(50));
            }
        }),
    ];
    for (name, act) in servers {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("an address").port();
        // Ends with the process of the tests.
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                std::thread::spawn(move || act(stream));
            }
        });
        let begun = Instant::now();
        let (json, code) = report(&format!(
            "mqtt://127.0.0.1:{port} --check-time 1 -W 4 --require qos1"
        ));
        assert_eq!(code, Some(2), "{name}: {json:#}");
        assert_ne!(json["checks"]["qos1"]["outcome"], "yes", "{name}");
        // 4 s, and the time to take away what a check has left, on a machine that
        // is busy.
        assert!(
            begun.elapsed() < Duration::from_secs(30),
            "{name}: {:?}",
            begun.elapsed()
        );
    }
}
