//! Clients that do not wait for CONNACK before they go on.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use dunlin_base::transport::Transport;

use crate::support::{Broker, PATIENCE};

/// A client's WebSocket frame; a key of zeros leaves the bytes as they are.
fn frame(payload: &[u8]) -> Vec<u8> {
    let len = u8::try_from(payload.len()).expect("short");
    let mut frame = vec![0x82, 0x80 | len, 0, 0, 0, 0];
    frame.extend_from_slice(payload);
    frame
}

/// CONNECT of MQTT 3.1.1 that keeps its session.
fn connect(client_id: &str) -> Vec<u8> {
    let len = u8::try_from(client_id.len()).expect("short");
    let mut packet = vec![0x10, 12 + len, 0, 4];
    packet.extend_from_slice(b"MQTT\x04\x00\x00\x3c\x00");
    packet.push(len);
    packet.extend_from_slice(client_id.as_bytes());
    packet
}

/// The connection moves to the shard of its session at CONNECT; frames that
/// came with it are events of their own.
#[test]
fn packets_that_came_with_connect_are_answered_wherever_the_session_is() {
    const SUBSCRIBE: &[u8] = b"\x82\x06\x00\x01\x00\x01t\x00";
    const PINGREQ: &[u8] = b"\xc0\x00";
    const CONNACK: &[u8] = b"\x20\x02\x00\x00";
    const SUBACK: &[u8] = b"\x90\x03\x00\x01\x00";
    const PINGRESP: &[u8] = b"\xd0\x00";
    let broker = Broker::start(2);
    for number in 0..16 {
        let mut socket = TcpStream::connect(broker.addr(Transport::Ws)).expect("connected");
        socket.set_read_timeout(Some(PATIENCE)).expect("set");
        let upgrade = "GET /mqtt HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\n\
             Connection: Upgrade\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
             Sec-WebSocket-Version: 13\r\nSec-WebSocket-Protocol: mqtt\r\n\r\n";
        socket.write_all(upgrade.as_bytes()).expect("written");
        let mut answer = Vec::new();
        let mut byte = [0];
        while !answer.ends_with(b"\r\n\r\n") {
            socket.read_exact(&mut byte).expect("an answer");
            answer.push(byte[0]);
        }
        assert!(answer.starts_with(b"HTTP/1.1 101"), "upgraded");
        let mut flight = frame(&connect(&format!("eager-{number}")));
        flight.extend(frame(SUBSCRIBE));
        flight.extend(frame(PINGREQ));
        socket.write_all(&flight).expect("written");
        let mut packets = Vec::new();
        while packets.len() < 4 + 5 + 2 {
            let mut head = [0; 2];
            socket.read_exact(&mut head).expect("a frame");
            let mut payload = vec![0; usize::from(head[1])];
            socket.read_exact(&mut payload).expect("all of it");
            packets.extend(payload);
        }
        let rest = packets.strip_prefix(CONNACK).expect("CONNACK first");
        // SUBACK may wait for the other shard.
        let answers = [[SUBACK, PINGRESP].concat(), [PINGRESP, SUBACK].concat()];
        assert!(answers.iter().any(|answer| answer == rest), "{rest:?}");
    }
}
