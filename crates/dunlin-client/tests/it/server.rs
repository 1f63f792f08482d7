//! A server that does what its script says. Packets are short lines, such as
//! `PUBLISH 7 q1 dup a/b` and `PUBACK 7 0x87`.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread::{self, JoinHandle};

use dunlin_client::{Backoff, Builder, Client, QoS, Version};
use dunlin_mqtt::codec::{
    Ack, Auth, AuthProperties, ConnAck, Connect, Disconnect, Packet, PacketId, Publish, ReasonCode,
    ReasonCodes, SubAck, UnsubAck, decode_from_client, peek,
};

use super::{Duration, PATIENCE};

/// A running script.
pub(crate) struct Server {
    port: u16,
    script: Option<JoinHandle<()>>,
}

impl Server {
    /// Runs a script, which accepts connections from the listener.
    pub(crate) fn run(script: impl FnOnce(Listener) + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let script = thread::spawn(move || script(Listener(listener)));
        Self {
            port,
            script: Some(script),
        }
    }

    /// A client of this server that reconnects at once.
    pub(crate) fn client(&self) -> Builder {
        Client::builder(format!("mqtt://127.0.0.1:{}", self.port))
            .expect("a URL")
            .client_id("c")
            .reconnect(Backoff {
                min: Duration::ZERO,
                max: Duration::ZERO,
                jitter: 0.0,
            })
    }

    /// Waits for the end of the script and passes on its failure.
    pub(crate) fn end(mut self) {
        if let Err(panic) = self.script.take().expect("once").join() {
            std::panic::resume_unwind(panic);
        }
    }
}

/// Where clients arrive.
pub(crate) struct Listener(TcpListener);

impl Listener {
    /// The next connection.
    pub(crate) fn accept(&self) -> Peer {
        let (stream, _) = self.0.accept().expect("a client");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        stream.set_nodelay(true).expect("no delay");
        Peer {
            stream,
            version: Version::V5,
            buffer: Vec::new(),
        }
    }

    /// The next connection, its CONNECT read and answered.
    pub(crate) fn accept_session(&self, session_present: bool) -> Peer {
        let mut peer = self.accept();
        peer.expect("CONNECT c");
        peer.send_packet(&Packet::ConnAck(ConnAck {
            session_present,
            ..ConnAck::default()
        }));
        peer
    }
}

/// A client, as the server sees it.
pub(crate) struct Peer {
    stream: TcpStream,
    version: Version,
    buffer: Vec<u8>,
}

impl Peer {
    /// Reads one packet and shows it to `look`; `None` at the end.
    pub(crate) fn read<R>(&mut self, look: impl FnOnce(&Packet<'_>) -> R) -> Option<R> {
        loop {
            let frame = peek(&self.buffer, u32::MAX).expect("well-formed");
            if let Some(frame) = frame
                && self.buffer.len() >= frame.total_len
            {
                let bytes: Vec<u8> = self.buffer.drain(..frame.total_len).collect();
                let packet = decode_from_client(&bytes, self.version).expect("well-formed");
                if let Packet::Connect(connect) = &packet {
                    self.version = connect.version;
                }
                return Some(look(&packet));
            }
            let mut bytes = [0; 4096];
            match self.stream.read(&mut bytes) {
                Ok(0) => return None,
                Ok(len) => self.buffer.extend_from_slice(&bytes[..len]),
                // What a client that closes in the middle of things leaves.
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return None,
                Err(error) => unreachable!("nothing to read: {error}"),
            }
        }
    }

    /// Where the client is.
    pub(crate) fn address(&self) -> String {
        let address = self.stream.peer_addr().expect("connected");
        address.ip().to_string()
    }

    /// The next packet, PINGREQ aside, as a line; `end` at the end.
    pub(crate) fn line(&mut self) -> String {
        self.read(show).unwrap_or_else(|| "end".into())
    }

    /// The next packet is this.
    pub(crate) fn expect(&mut self, line: &str) {
        assert_eq!(self.line(), line);
    }

    /// Nothing comes without an answer: looks for a moment only, so that it may
    /// miss what it should not, but never fails without reason.
    pub(crate) fn expect_silence(&mut self) {
        assert!(self.buffer.is_empty(), "more than was expected");
        let moment = Duration::from_millis(50);
        self.stream.set_read_timeout(Some(moment)).expect("timeout");
        let read = self.stream.read(&mut [0; 1]);
        let silent = |error: &std::io::Error| {
            use std::io::ErrorKind::{TimedOut, WouldBlock};
            matches!(error.kind(), WouldBlock | TimedOut)
        };
        assert!(read.is_err_and(|error| silent(&error)), "not silent");
        let patience = Some(PATIENCE);
        self.stream.set_read_timeout(patience).expect("timeout");
    }

    /// The next packet is a CONNECT, to be looked at.
    pub(crate) fn expect_connect<R>(&mut self, look: impl FnOnce(&Connect<'_>) -> R) -> R {
        let looked = self.read(|packet| match packet {
            Packet::Connect(connect) => look(connect),
            other => unreachable!("{other:?} instead of CONNECT"),
        });
        looked.expect("a packet")
    }

    /// Sends a packet, as a line.
    pub(crate) fn send(&mut self, line: &str) {
        self.send_packet(&parse(line));
    }

    pub(crate) fn send_packet(&mut self, packet: &Packet<'_>) {
        let mut bytes = Vec::new();
        packet.encode(self.version, &mut bytes).expect("encoded");
        self.send_bytes(&bytes);
    }

    pub(crate) fn send_bytes(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).expect("sent");
    }
}

fn show(packet: &Packet<'_>) -> String {
    let ack = |name: &str, ack: &Ack<'_>| reason(format!("{name} {}", ack.packet_id), ack.reason);
    match packet {
        Packet::Connect(connect) => format!("CONNECT {}", connect.client_id),
        Packet::Publish(publish) => {
            let mut line = String::from("PUBLISH ");
            if let Some(id) = publish.packet_id {
                line += &format!("{id} q{} ", publish.qos as u8);
            }
            if publish.dup {
                line += "dup ";
            }
            line + publish.topic
        }
        Packet::PubAck(packet) => ack("PUBACK", packet),
        Packet::PubRec(packet) => ack("PUBREC", packet),
        Packet::PubRel(packet) => ack("PUBREL", packet),
        Packet::PubComp(packet) => ack("PUBCOMP", packet),
        Packet::Subscribe(subscribe) => {
            let filters: Vec<_> = subscribe.filters.iter().map(|f| f.filter).collect();
            format!("SUBSCRIBE {} {}", subscribe.packet_id, filters.join(" "))
        }
        Packet::Unsubscribe(unsubscribe) => {
            let filters: Vec<_> = unsubscribe.filters.iter().collect();
            format!(
                "UNSUBSCRIBE {} {}",
                unsubscribe.packet_id,
                filters.join(" ")
            )
        }
        Packet::PingReq => "PINGREQ".into(),
        Packet::Disconnect(disconnect) => {
            let mut line = reason("DISCONNECT".into(), disconnect.reason);
            if let Some(expiry) = disconnect.properties.session_expiry_interval {
                line += &format!(" expiry={expiry}");
            }
            line
        }
        Packet::Auth(auth) => reason("AUTH".into(), auth.reason),
        other => format!("{other:?}"),
    }
}

fn reason(line: String, reason: ReasonCode) -> String {
    match reason {
        ReasonCode::Success => line,
        reason => format!("{line} {:#04x}", reason.to_u8()),
    }
}

fn parse(line: &str) -> Packet<'_> {
    const GRANTED: &[ReasonCode] = &[ReasonCode::GrantedQos1; 8];
    let words: Vec<&str> = line.split(' ').collect();
    let id = words.get(1).and_then(|word| word.parse::<PacketId>().ok());
    let reason = words
        .iter()
        .find_map(|word| word.strip_prefix("0x"))
        .map_or(ReasonCode::Success, |hex| {
            let byte = u8::from_str_radix(hex, 16).expect("hexadecimal");
            ReasonCode::from_u8(byte).expect("a reason code")
        });
    let count = words.get(2).map_or(1, |count| count.parse().unwrap_or(1));
    let ack = || Ack::new(id.expect("a packet identifier"), reason);
    match words[0] {
        "CONNACK" => Packet::ConnAck(ConnAck {
            session_present: words.contains(&"present"),
            reason,
            ..ConnAck::default()
        }),
        "PUBLISH" => Packet::Publish(publish(&words)),
        "PUBACK" => Packet::PubAck(ack()),
        "PUBREC" => Packet::PubRec(ack()),
        "PUBREL" => Packet::PubRel(ack()),
        "PUBCOMP" => Packet::PubComp(ack()),
        "SUBACK" => Packet::SubAck(SubAck {
            packet_id: id.expect("a packet identifier"),
            properties: Default::default(),
            reasons: ReasonCodes::new(&GRANTED[..count]),
        }),
        "UNSUBACK" => Packet::UnsubAck(UnsubAck {
            packet_id: id.expect("a packet identifier"),
            properties: Default::default(),
            reasons: ReasonCodes::new(&[ReasonCode::Success]),
        }),
        "PINGRESP" => Packet::PingResp,
        "DISCONNECT" => Packet::Disconnect(Disconnect {
            reason,
            properties: Default::default(),
        }),
        "AUTH" => Packet::Auth(Auth {
            reason,
            properties: AuthProperties::default(),
        }),
        other => unreachable!("no such packet: {other}"),
    }
}

fn publish<'a>(words: &[&'a str]) -> Publish<'a> {
    let mut publish = Publish {
        payload: b"x",
        ..Publish::default()
    };
    for word in words.iter().skip(1) {
        match *word {
            "q1" => publish.qos = QoS::AtLeastOnce,
            "q2" => publish.qos = QoS::ExactlyOnce,
            "dup" => publish.dup = true,
            word => match word.parse() {
                Ok(id) => publish.packet_id = Some(id),
                Err(_) => publish.topic = word,
            },
        }
    }
    publish
}
