//! Bytes that no client should send, on real sockets: each gets its answer,
//! and others do not notice.

use std::io::{Read, Write};
use std::net::TcpStream;

use dunlin_base::transport::Transport;
use dunlin_client::{Publish, QoS};

use crate::metrics::{get, sum};
use crate::support::{Broker, PATIENCE, connect, run, subscribe};
use crate::wire::Wire;

/// CONNECT of MQTT 5.0, keep alive 0, client identifier `h`.
const CONNECT: &[u8] = &[
    0x10, 14, 0, 4, b'M', b'Q', b'T', b'T', 5, 2, 0, 0, 0, 0, 1, b'h',
];

/// Sends bytes, returns everything until the broker closes.
fn answer(broker: &Broker, bytes: &[u8]) -> Vec<u8> {
    let mut socket = TcpStream::connect(broker.addr(Transport::Tcp)).expect("connected");
    socket.set_read_timeout(Some(PATIENCE)).expect("set");
    socket.write_all(bytes).expect("written");
    let mut answer = Vec::new();
    let _ = socket.read_to_end(&mut answer);
    answer
}

/// A DISCONNECT with this reason at the end.
fn ends_with_reason(answer: &[u8], reason: u8) -> bool {
    answer.ends_with(&[0xe0, 2, reason, 0]) || answer.ends_with(&[0xe0, 1, reason])
}

#[test]
fn hostile_bytes_get_their_reason_and_others_do_not_notice() {
    for shards in [1, 2] {
        let broker = Broker::start_with(shards, &["limits.connect_timeout=\"1s\""]);
        let with_connect = |bytes: &[u8]| [CONNECT, bytes].concat();
        run(async {
            let (client, mut messages) = connect(broker.client(Transport::Quic)).await;
            subscribe(&client, "still/here", QoS::AtLeastOnce).await;

            // Nothing at all, half a CONNECT, something that is not MQTT.
            assert!(answer(&broker, b"").is_empty());
            assert!(answer(&broker, &CONNECT[..7]).is_empty());
            assert!(answer(&broker, b"GET / HTTP/1.1\r\n\r\n").is_empty());

            // Malformed, forbidden, too large.
            let cases: [(&[u8], u8); 6] = [
                (&[0x00, 0], 0x81),
                (&[0x30, 0xff, 0xff, 0xff, 0xff, 0x7f], 0x81),
                (&[0x36, 3, 0, 1, b't'], 0x81),
                (CONNECT, 0x82),
                (&[0x30, 0xff, 0xff, 0xff, 0x7f], 0x95),
                (&[0x82, 7, 0, 1, 0, 0, 2, b'a', b'#', 0], 0x81),
            ];
            for (bytes, reason) in cases {
                let answer = answer(&broker, &with_connect(bytes));
                assert!(answer.starts_with(&[0x20]), "{bytes:x?}: {answer:x?}");
                let known = ends_with_reason(&answer, reason)
                    || (reason == 0x81 && ends_with_reason(&answer, 0x8f));
                assert!(known, "{bytes:x?}: {answer:x?}");
            }

            // A SUBSCRIBE cut anywhere, then silence: the connection only waits.
            let subscribe = [0x82, 7, 0, 1, 0, 0, 1, b'a', 0];
            for cut in 1..subscribe.len() {
                let mut socket =
                    TcpStream::connect(broker.addr(Transport::Tcp)).expect("connected");
                socket
                    .write_all(&with_connect(&subscribe[..cut]))
                    .expect("written");
            }

            client
                .publish(Publish::new("still/here", "yes").qos(QoS::AtLeastOnce))
                .await
                .expect("published");
            assert_eq!(
                messages.next().await.expect("delivered").topic,
                "still/here"
            );
        });
    }
}

#[test]
fn a_busy_port_and_a_second_broker_on_the_data_are_refused() {
    use dunlin::config::Config;
    use dunlin::daemon::Daemon;
    for shards in [1, 2] {
        let broker = Broker::start(shards);
        let addr = broker.addr(Transport::Tcp);
        let dir = tempfile::tempdir().expect("a directory");
        let mut config = Config::default();
        config.shards = shards;
        config.data_dir = dir.path().to_owned();
        let set = format!("listener=[{{transport=\"tcp\",address=\"{addr}\"}}]");
        let config = config.overridden(&set).expect("valid");
        let error = Daemon::start(config).expect_err("busy").to_string();
        assert!(error.contains(&addr.to_string()), "{error}");
    }
}

#[test]
fn a_large_packet_before_connack_ends_the_connection_at_once() {
    let settings = [
        "metrics.address=127.0.0.1:0",
        "limits.connect_timeout=\"60s\"",
    ];
    let broker = Broker::start_with(1, &settings);
    // CONNECT of 1 MiB, and of 64 KiB and one byte.
    for head in [&[0x10, 0x80, 0x80, 0x40], &[0x10, 0xfe, 0xff, 0x03]] {
        let _ = answer(&broker, head);
    }
    let (_, text) = get(&broker, "/metrics");
    let counted = sum(&text, "dunlin_connects_too_large_total", "");
    assert!((counted - 2.0).abs() < 0.1, "{text}");
    // After it the limit is another.
    let payload = vec![b'x'; 200_000];
    run(async {
        let (client, mut messages) = broker.client(Transport::Tcp).connect().await.expect("open");
        subscribe(&client, "t", QoS::AtLeastOnce).await;
        client
            .publish(Publish::new("t", payload.clone()).qos(QoS::AtLeastOnce))
            .await
            .expect("published");
        let message = messages.next().await.expect("a message");
        assert_eq!(message.payload.len(), payload.len());
        client.disconnect().await;
    });
}

/// Status line of the answer to a WebSocket request.
fn upgrade(broker: &Broker, host: &str, origin: &str) -> String {
    let mut socket = TcpStream::connect(broker.addr(Transport::Ws)).expect("connected");
    socket.set_read_timeout(Some(PATIENCE)).expect("set");
    let request = format!(
        "GET /mqtt HTTP/1.1\r\nHost: {host}\r\n{origin}Upgrade: websocket\r\n\
         Connection: Upgrade\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
         Sec-WebSocket-Protocol: mqtt\r\nSec-WebSocket-Version: 13\r\n\r\n"
    );
    socket.write_all(request.as_bytes()).expect("written");
    let mut answer = [0; 12];
    socket.read_exact(&mut answer).expect("an answer");
    String::from_utf8_lossy(&answer).into_owned()
}

#[test]
fn pages_connect_only_where_credentials_or_the_operator_let_them() {
    let (page, app) = (
        "Origin: http://evil.example\r\n",
        "Origin: https://app.example\r\n",
    );
    let cases: [(&[&str], &str, &str); 6] = [
        (&[], "", "101"),
        (&[], page, "403"),
        (&[], "Origin: http://localhost:1\r\n", "101"),
        (&["auth.anonymous=never"], page, "101"),
        (&["auth.anonymous=always"], page, "403"),
        (
            &["listener.3.origins=[\"https://app.example\"]"],
            app,
            "101",
        ),
    ];
    for (settings, origin, status) in cases {
        let broker = Broker::start_with(1, settings);
        let got = upgrade(&broker, "localhost:1", origin);
        assert!(got.ends_with(status), "{settings:?} {origin}: {got}");
    }
}

/// Sixteen streams with 0.95 MB each of a packet that never comes whole.
#[test]
fn unfinished_packets_hold_little_and_go_with_their_connection() {
    /// What all streams hold together, one packet, and what one read brings.
    const MOST: f64 = (256 * 1024 + 1_000_000 + 256 * 1024) as f64;
    let mut packet = String::from("30 C0 84 3D");
    packet.push_str(&" 00".repeat(950_000));
    for shards in [1, 2] {
        let broker = Broker::start_with(shards, &["metrics.address=127.0.0.1:0"]);
        let held = || sum(&get(&broker, "/metrics").1, "dunlin_unfinished_bytes{", "");
        let mut wire = Wire::new(&broker, "mqtt");
        wire.run("a > CONNECT a clean\na < CONNACK");
        for n in 1..=16 {
            wire.run(&format!("a@{} > hex {packet}", 4 * n));
            wire.run("a > PINGREQ\na < PINGRESP");
        }
        let mut most = 0.0_f64;
        let start = std::time::Instant::now();
        let mut looks = 0;
        while looks < 10 || most < 950_000.0 && start.elapsed() < PATIENCE {
            looks += 1;
            // Control is read all the time.
            wire.run("a > PINGREQ\na < PINGRESP");
            most = most.max(held());
        }
        println!("{shards} shards: at most {most} bytes");
        assert!(most >= 950_000.0, "one stream is read: {most}");
        assert!(most <= MOST, "{most} bytes");
        wire.run("a cut");
        let start = std::time::Instant::now();
        while held() > 0.0 {
            assert!(start.elapsed() < PATIENCE, "{} bytes", held());
        }
    }
}
