//! Conversations with the daemon over real QUIC, packet by packet, in the
//! notation of the simulator's scripts: what a client library would not send.
//!
//! `a@4 > PACKET` sends on stream 4 of client `a` (`a@d`: in a datagram, `hex
//! BYTES`: as they are), `a@4 < PACKET` waits for it, `a@4 finish` and `a@4
//! reset 0x…` end a stream, `a cut` closes the connection without a word. A
//! client connects when it first sends, and again after a `cut`. Unlike in the
//! simulator, packets of different streams have no order here, so a line that
//! reads takes the first of its stream; without `@` that is control. `<~`
//! takes the packet from wherever it is in its stream: where several streams
//! led to it.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use dunlin_base::transport::{CloseCause, NetEvent, NetEventKind, Transport};
use dunlin_base::{ConnId, SendBuf, StreamId};
use dunlin_mqtt::flow::FlowHeader;
use dunlin_mqtt_codec::{Version, decode, peek};
use dunlin_net::{ClientTls, Clock, DialConfig, Net, NetConfig};
use dunlin_sim::{encode, show};

use crate::support::{Broker, PATIENCE};

/// What lines call stream `d`.
const DATAGRAM: StreamId = StreamId(u64::MAX);

/// Longest stay of a client's datagram in its queue.
const AGE_MAX: Duration = Duration::from_secs(10);

/// One turn of the client's loop.
const TURN: Duration = Duration::from_millis(5);

#[derive(Default)]
struct Peer {
    conn: Option<ConnId>,
    is_open: bool,
    opened: BTreeSet<StreamId>,
    partial: BTreeMap<StreamId, Vec<u8>>,
    headed: BTreeSet<StreamId>,
    reset: BTreeSet<StreamId>,
    unread: BTreeMap<StreamId, VecDeque<String>>,
}

/// Clients that speak as scripted.
pub(crate) struct Wire {
    net: Net,
    dial: DialConfig,
    peers: BTreeMap<String, Peer>,
}

impl Wire {
    pub(crate) fn new(broker: &Broker, protocol: &str) -> Self {
        let tls = ClientTls::builder()
            .ca_pem_file(&broker.ca())
            .expect("a certificate")
            .build()
            .expect("settings of TLS");
        let addr = broker.addr(Transport::Quic);
        let mut dial = DialConfig::new(Transport::Quic, addr, "localhost");
        dial.tls = Some(Arc::new(tls));
        dial.protocols = vec![protocol.into()];
        let config = NetConfig::client(Clock::new()).expect("settings");
        Self {
            net: Net::new(config).expect("a loop"),
            dial,
            peers: BTreeMap::new(),
        }
    }

    /// Runs every line; the message of a failure has its number.
    pub(crate) fn run(&mut self, script: &str) {
        for (number, line) in script.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            if let Err(error) = self.step(line) {
                panic!("line {}: {line}: {error}", number + 1);
            }
        }
        for (name, peer) in &self.peers {
            let unread: Vec<_> = peer.unread.iter().filter(|(_, l)| !l.is_empty()).collect();
            assert!(unread.is_empty(), "{name} has not read {unread:?}");
        }
    }

    fn step(&mut self, line: &str) -> Result<(), String> {
        let (name, rest) = line.split_once(' ').ok_or("no command")?;
        let (name, stream) = match name.split_once('@') {
            None => (name, StreamId::CONTROL),
            Some((name, "d")) => (name, DATAGRAM),
            Some((name, number)) => (name, StreamId(number.parse().expect("a number"))),
        };
        if let Some(packet) = rest.strip_prefix("> ") {
            return self.send(name, stream, &encode(packet, Version::V5));
        }
        if let Some(expected) = rest.strip_prefix("< ") {
            let came = self.read(name, stream)?;
            return match came == expected {
                true => Ok(()),
                false => Err(format!("came instead: {came}")),
            };
        }
        if let Some(expected) = rest.strip_prefix("<~ ") {
            return self.wait(name, |peer| {
                let unread = peer.unread.get_mut(&stream)?;
                let at = unread.iter().position(|line| line == expected)?;
                unread.remove(at).map(drop)
            });
        }
        let conn = self.peer(name).conn.ok_or("not connected")?;
        match rest.strip_prefix("reset 0x") {
            Some(code) => {
                let code = u64::from_str_radix(code, 16).expect("hexadecimal");
                self.net.conn(conn).reset_stream(stream, code);
            }
            None if rest == "finish" => self.net.conn(conn).finish_stream(stream),
            None if rest == "cut" => {
                self.peers.remove(name);
                self.net.close(conn, 0);
            }
            None => return Err("not understood".into()),
        }
        self.net.flush();
        Ok(())
    }

    fn peer(&mut self, name: &str) -> &mut Peer {
        self.peers.entry(name.to_owned()).or_default()
    }

    /// Sends bytes on a stream, which is opened if it is new: streams of a
    /// kind in the order of their numbers.
    pub(crate) fn send(
        &mut self,
        name: &str,
        stream: StreamId,
        bytes: &[u8],
    ) -> Result<(), String> {
        let conn = self.connect(name)?;
        if stream == DATAGRAM {
            let expires = self.net.now() + AGE_MAX;
            let data = Bytes::copy_from_slice(bytes);
            let sent = self.net.conn(conn).send_datagram(data, expires);
            self.net.flush();
            return sent.map_err(|error| error.to_string());
        }
        let theirs = stream.is_server_initiated();
        while !theirs && !self.peer(name).opened.contains(&stream) {
            let opened = self.net.conn(conn).open_stream(!stream.is_unidirectional());
            let opened = opened.ok_or("no credit for a stream")?;
            self.peer(name).opened.insert(opened);
        }
        let mut data = SendBuf::new();
        data.put_slice(bytes);
        let _ = self.net.send(conn, stream, &mut data);
        self.net.flush();
        Ok(())
    }

    fn connect(&mut self, name: &str) -> Result<ConnId, String> {
        if self.peer(name).conn.is_none() {
            let conn = self.net.dial(&self.dial).map_err(|e| e.to_string())?;
            self.peer(name).conn = Some(conn);
        }
        self.wait(name, |peer| peer.is_open.then_some(()))?;
        self.peer(name).conn.ok_or_else(|| "closed".into())
    }

    /// The next packet, or end, of a stream.
    pub(crate) fn read(&mut self, name: &str, stream: StreamId) -> Result<String, String> {
        self.wait(name, |peer| peer.unread.get_mut(&stream)?.pop_front())
    }

    fn wait<T>(
        &mut self,
        name: &str,
        mut done: impl FnMut(&mut Peer) -> Option<T>,
    ) -> Result<T, String> {
        let begun = Instant::now();
        loop {
            if let Some(value) = done(self.peer(name)) {
                return Ok(value);
            }
            if begun.elapsed() > PATIENCE {
                return Err(format!(
                    "nothing came; unread: {:?}",
                    self.peer(name).unread
                ));
            }
            let peers = &mut self.peers;
            let polled = self.net.poll(Some(TURN), &mut |event| take(peers, &event));
            polled.map_err(|error| error.to_string())?;
        }
    }
}

fn take(peers: &mut BTreeMap<String, Peer>, event: &NetEvent<&[u8]>) {
    let conn = event.conn;
    let Some(peer) = peers.values_mut().find(|peer| peer.conn == Some(conn)) else {
        return;
    };
    let (stream, line) = match &event.kind {
        NetEventKind::Bytes { stream, data } => return peer.take_bytes(*stream, data),
        NetEventKind::Datagram { data } => {
            let packet = decode(data, Version::V5).expect("the broker's packets");
            (DATAGRAM, show(&packet, Version::V5))
        }
        // It may come before the end of the connection, or not.
        NetEventKind::StreamFinished { stream } if *stream == StreamId::CONTROL => return,
        NetEventKind::StreamFinished { stream } => (*stream, "finished".into()),
        // A stream that is reset is also to be stopped.
        NetEventKind::StreamReset { stream, .. } if !peer.reset.insert(*stream) => return,
        NetEventKind::StreamReset { stream, code } => (*stream, format!("reset {code:#04x}")),
        NetEventKind::Closed { cause } => {
            // As may the ends of other streams.
            for unread in peer.unread.values_mut() {
                unread.retain(|line| line != "finished");
            }
            let line = match cause {
                CloseCause::Peer { code } => format!("closed {code:#04x}"),
                other => format!("closed: {other}"),
            };
            (StreamId::CONTROL, line)
        }
        _ => {
            peer.is_open = true;
            return;
        }
    };
    peer.unread.entry(stream).or_default().push_back(line);
}

impl Peer {
    fn take_bytes(&mut self, stream: StreamId, data: &[u8]) {
        let partial = self.partial.entry(stream).or_default();
        partial.extend_from_slice(data);
        let unread = self.unread.entry(stream).or_default();
        if stream.is_server_initiated()
            && !self.headed.contains(&stream)
            && let Ok(Some((header, len))) = FlowHeader::parse(partial)
        {
            partial.drain(..len);
            self.headed.insert(stream);
            if let FlowHeader::Data { id, .. } = header {
                unread.push_back(format!("flow {id}"));
            }
        }
        while let Some(frame) = peek(partial, u32::MAX).expect("the broker's packets")
            && frame.total_len <= partial.len()
        {
            let packet: Vec<u8> = partial.drain(..frame.total_len).collect();
            let packet = decode(&packet, Version::V5).expect("the broker's packets");
            unread.push_back(show(&packet, Version::V5));
        }
    }
}
