//! Bytes that no client should send, on real sockets: each gets its answer,
//! and others do not notice.

use std::io::{Read, Write};
use std::net::TcpStream;

use dunlin_base::transport::Transport;
use dunlin_client::{Publish, QoS};

use crate::support::{Broker, PATIENCE, run};

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
            let (client, mut messages) = broker
                .client(Transport::Quic)
                .connect()
                .await
                .expect("connected");
            client
                .subscribe("still/here", QoS::AtLeastOnce)
                .await
                .expect("subscribed");

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
