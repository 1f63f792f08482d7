//! A client and a server in virtual time: datagrams take a while, get lost,
//! come from other addresses, and are copied by those who see them.

mod acks;
mod binding;
mod lone;
mod paths;
mod windows;

use core::net::SocketAddr;
use core::time::Duration;
use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};

use dunlin_base::transport::{NetEvent, NetEventKind};
use dunlin_base::{ConnId, Instant, Random, SendBuf, ShardId, StreamId, Text};
use rcgen::{CertifiedKey, generate_simple_self_signed};

use crate::datagram::{Datagram, DatagramSender, Transmit};
use crate::{
    AcksMut, ClientTls, Clock, Counters, Cx, Dial, EndpointKeys, Handled, QuicConn, QuicEndpoint,
    QuicLimits, QuicSettings, QuicTuning, ServerTls, ServerTlsOptions, UsedTokens,
};

/// The serial of every connection here: an endpoint has one.
const SERIAL: u64 = 7;

pub(super) fn addr(host: u8, port: u16) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, host], port))
}

pub(super) fn limits() -> QuicLimits {
    QuicLimits {
        bidi_streams: 17,
        uni_streams: 16,
        receive_window: 256 << 10,
        stream_receive_window: 128 << 10,
        send_window: 256 << 10,
        datagram_receive_bytes: 64 << 10,
        datagram_queue_bytes: 64 << 10,
        tokens: 0,
        token_lifetime: Duration::ZERO,
        idle_timeout_max: Duration::from_secs(600),
        first_bytes_timeout: Duration::from_secs(10),
        close_linger: Duration::from_secs(5),
        read_budget_bytes: 256 << 10,
        backlog_bytes_max: 64 << 20,
        unread_answers_bytes_max: 4 << 20,
    }
}

/// What a connection sends, by address.
#[derive(Default)]
struct Port(Vec<(SocketAddr, Vec<u8>)>);

impl DatagramSender for Port {
    fn is_blocked(&mut self) -> bool {
        false
    }

    fn max_segments(&self) -> usize {
        10
    }

    fn marks_ecn(&self) -> bool {
        false
    }

    fn send(&mut self, transmit: Transmit, contents: &[u8], _: &mut Counters) {
        let contents = &contents[..transmit.size];
        let size = transmit.segment_size.unwrap_or(transmit.size).max(1);
        let datagrams = contents.chunks(size).map(<[u8]>::to_vec);
        self.0.extend(datagrams.map(|d| (transmit.destination, d)));
    }
}

/// One end.
pub(super) struct Side {
    clock: Clock,
    settings: QuicSettings,
    endpoint: QuicEndpoint,
    pub(super) conn: Option<QuicConn>,
    pub(super) counters: Counters,
    pub(super) received: Vec<u8>,
    /// Bytes received, by stream.
    by_stream: BTreeMap<StreamId, usize>,
    pub(super) opened: bool,
    pub(super) migrated: Vec<SocketAddr>,
    /// What the connection said that it is bound by.
    pub(super) bound: Option<Bytes>,
    out: Vec<(SocketAddr, Vec<u8>)>,
    /// Datagrams and their bytes that it has sent.
    pub(super) sent: (usize, usize),
    /// What it answers in the turn in which it is sent something.
    pub(super) answer: &'static [u8],
}

impl Side {
    fn new(clock: Clock, seed: u64, endpoint: impl FnOnce(&QuicSettings) -> QuicEndpoint) -> Self {
        let keys = EndpointKeys {
            shard: ShardId(0),
            shards: 1,
            first: ShardId(0),
            known: None,
            cid: [1; 16],
            reset: &[2; 32],
            token: &[3; 32],
            lb: None,
        };
        let used = Arc::new(UsedTokens::default());
        let mut settings = QuicSettings::new(&keys, limits(), &used, None).unwrap();
        settings.draw_from(seed);
        let endpoint = endpoint(&settings);
        Self {
            clock,
            settings,
            endpoint,
            conn: None,
            counters: Counters::default(),
            received: Vec::new(),
            by_stream: BTreeMap::new(),
            opened: false,
            migrated: Vec::new(),
            bound: None,
            out: Vec::new(),
            sent: (0, 0),
            answer: &[],
        }
    }

    fn dial(&mut self, tls: &ClientTls, to: SocketAddr, tuning: &QuicTuning, now: Instant) {
        let dial = Dial {
            addr: to,
            server_name: "localhost",
            tls,
            protocols: &[Text::from_static("mqtt")],
            early_data: false,
            tickets: None,
            tokens: None,
            tuning,
            qlog: None,
        };
        let prepared = self.settings.prepare(&dial).unwrap();
        let std_now = self.clock.to_std(now);
        let begun = self.endpoint.connect(prepared, &dial, std_now).unwrap();
        self.begin(begun, now);
    }

    fn begin(&mut self, begun: crate::Begun, now: Instant) {
        self.endpoint.bind_serial(begun.handle(), SERIAL);
        let id = ConnId::new(ShardId(0), SERIAL);
        let until = now + Duration::from_secs(10);
        self.conn = Some(QuicConn::new(begun, id, now, until, &limits()));
    }

    fn datagram(&mut self, from: SocketAddr, data: &[u8], now: Instant) {
        let std_now = self.clock.to_std(now);
        let datagram = Datagram {
            remote: from,
            local_ip: None,
            ecn: None,
            data: BytesMut::from(data),
        };
        let mut buf = Vec::new();
        match self.endpoint.handle(std_now, datagram, &mut buf) {
            Handled::Conn(_, input) => {
                if let Some(conn) = &mut self.conn {
                    conn.on_input(input, Some(None), now);
                }
            }
            Handled::New(incoming) => {
                let ip = from.ip();
                let accepted =
                    self.endpoint
                        .accept(incoming, ip, std_now, None, &limits(), &mut buf);
                self.begin(accepted.unwrap(), now);
            }
            Handled::Answer(transmit) => {
                self.out.push((from, buf[..transmit.size].to_vec()));
            }
            Handled::Nothing => {}
        }
    }

    /// Runs the connection and sends what it has to say.
    fn run(&mut self, timer: bool, now: Instant) {
        let Some(conn) = &mut self.conn else {
            return;
        };
        let mut gather = Vec::new();
        let by_stream = &mut self.by_stream;
        let (received, migrated, opened) =
            (&mut self.received, &mut self.migrated, &mut self.opened);
        let bound = &mut self.bound;
        let before = received.len();
        let mut out = |event: NetEvent<&[u8]>| match event.kind {
            NetEventKind::Bytes { stream, data } => {
                *by_stream.entry(stream).or_default() += data.len();
                received.extend_from_slice(data);
            }
            NetEventKind::Migrated { addr } => migrated.push(addr),
            NetEventKind::Opened { .. } => *opened = true,
            NetEventKind::ChannelBinding { data } => *bound = Some(data),
            _ => {}
        };
        let limits = limits();
        let mut cx = Cx {
            now,
            clock: &self.clock,
            limits: &limits,
            counters: &mut self.counters,
            gather: &mut gather,
            out: &mut out,
        };
        if timer {
            conn.on_timer(&mut cx);
        } else {
            conn.run(&mut cx);
        }
        if received.len() > before && !self.answer.is_empty() {
            let mut data = SendBuf::new();
            data.put_slice(self.answer);
            let _ = conn.send(StreamId::CONTROL, &mut data, &limits, &mut self.counters);
        }
        let mut port = Port::default();
        loop {
            conn.exchange(&mut self.endpoint);
            let mut acks = AcksMut::of(conn);
            if acks.in_vain().is_some() {
                acks.leave();
            }
            let mut buf = Vec::new();
            let sent = conn.transmit(&self.clock, now, &mut port, &mut buf, &mut self.counters);
            if !sent.is_some_and(|sent| sent.has_more()) {
                break;
            }
        }
        self.sent.0 += port.0.len();
        self.sent.1 += port.0.iter().map(|(_, data)| data.len()).sum::<usize>();
        self.out.append(&mut port.0);
    }

    pub(super) fn send(&mut self, bytes: &[u8]) {
        self.send_on(StreamId::CONTROL, bytes);
    }

    pub(super) fn open(&mut self) -> Option<StreamId> {
        self.conn.as_mut()?.streams().open(true)
    }

    pub(super) fn read_only(&mut self, stream: Option<StreamId>) {
        if let Some(conn) = &mut self.conn {
            conn.streams().read_only(stream, &limits());
        }
    }

    /// Whether something that came on a stream is kept by quinn-proto.
    pub(super) fn has_unread(&mut self) -> bool {
        let streams: Vec<_> = self.by_stream.keys().copied().collect();
        let conn = self.conn.as_mut();
        conn.is_some_and(|conn| streams.into_iter().any(|s| conn.streams().peek(s)))
    }

    /// Its congestion window.
    pub(super) fn window(&mut self) -> u64 {
        let conn = self.conn.as_mut();
        conn.map_or(0, |conn| conn.quic_stats().congestion_window)
    }

    pub(super) fn abort(&mut self, code: u64, now: Instant) {
        if let Some(conn) = &mut self.conn {
            conn.abort(Some(code), &self.clock, now);
        }
    }

    pub(super) fn pause_stream(&mut self, stream: StreamId, paused: bool) {
        if let Some(conn) = &mut self.conn {
            conn.streams().pause(stream, paused);
        }
    }

    /// Bytes received on some streams.
    pub(super) fn received_on(&self, on: impl Fn(StreamId) -> bool) -> usize {
        let some = self.by_stream.iter().filter(|(stream, _)| on(**stream));
        some.map(|(_, bytes)| bytes).sum()
    }

    pub(super) fn send_on(&mut self, stream: StreamId, bytes: &[u8]) {
        let mut data = SendBuf::new();
        data.put_slice(bytes);
        if let Some(conn) = &mut self.conn {
            let _ = conn.send(stream, &mut data, &limits(), &mut self.counters);
        }
    }

    fn deadline(&mut self) -> Instant {
        let clock = self.clock;
        let conn = self.conn.as_mut();
        conn.map_or(Instant::FAR_FUTURE, |conn| conn.next_deadline(&clock))
    }
}

/// A datagram on its way.
struct Flying {
    at: Instant,
    up: bool,
    from: SocketAddr,
    data: Vec<u8>,
}

/// Both ends and the network between them.
pub(super) struct World {
    pub(super) now: Instant,
    pub(super) client: Side,
    pub(super) server: Side,
    pub(super) server_addr: SocketAddr,
    /// Where the client's datagrams seem to come from.
    pub(super) nat: SocketAddr,
    /// Addresses at which it receives.
    pub(super) open: Vec<SocketAddr>,
    /// From one end to the other.
    pub(super) delay: Duration,
    /// Of 1,000 datagrams so many are lost.
    pub(super) loss: u64,
    /// Copies of what the client sends come first, from there.
    pub(super) copier: Option<SocketAddr>,
    /// Bytes that the server sent, and got, by address.
    pub(super) sent_to: BTreeMap<SocketAddr, usize>,
    pub(super) got_from: BTreeMap<SocketAddr, usize>,
    pub(super) random: Random,
    flying: Vec<Flying>,
}

impl World {
    /// A connection over a path with this delay.
    pub(super) fn connected(delay: Duration, seed: u64) -> Self {
        Self::tuned(delay, seed, &QuicTuning::default())
    }

    /// As [`World::connected`], where both ends behave like this.
    pub(super) fn tuned(delay: Duration, seed: u64, tuning: &QuicTuning) -> Self {
        let mut world = Self::begun_with(delay, seed, tuning);
        world.touch_client();
        world.pass(delay * 8);
        assert!(world.client.opened, "a connection");
        world.client.send(b"hello");
        world.touch_client();
        world.pass(delay * 8 + Duration::from_millis(200));
        assert_eq!(world.server.received, b"hello");
        world
    }

    /// A client that has sent nothing yet.
    pub(super) fn begun(delay: Duration, seed: u64) -> Self {
        Self::begun_with(delay, seed, &QuicTuning::default())
    }

    fn begun_with(delay: Duration, seed: u64, tuning: &QuicTuning) -> Self {
        let names = vec!["localhost".to_owned()];
        let CertifiedKey { cert, signing_key } = generate_simple_self_signed(names).unwrap();
        let (cert, key) = (cert.pem(), signing_key.serialize_pem());
        let tls = ServerTls::new(&ServerTlsOptions::new(cert.clone().into(), key.into())).unwrap();
        let protocols = [Text::from_static("mqtt")];
        let clock = Clock::new();
        let now = clock.now();
        let server = Side::new(clock, 2 * seed, |settings| {
            let tuning = tuning.clone();
            QuicEndpoint::listening(0, &tls, &protocols, tuning, settings, true).unwrap()
        });
        let mut client = Side::new(clock, 2 * seed + 1, |settings| {
            QuicEndpoint::dialling(tuning.clone(), settings, true)
        });
        let client_tls = ClientTls::builder().ca_pem(cert.as_bytes()).unwrap();
        let server_addr = addr(1, 14567);
        client.dial(&client_tls.build().unwrap(), server_addr, tuning, now);
        let nat = addr(2, 1000);
        Self {
            now,
            client,
            server,
            server_addr,
            nat,
            open: vec![nat],
            delay,
            loss: 0,
            copier: None,
            sent_to: BTreeMap::new(),
            got_from: BTreeMap::new(),
            random: Random::new(seed),
            flying: Vec::new(),
        }
    }

    /// The client's NAT forgets it: what it sends comes from another address,
    /// and nothing that is sent to the former one gets there.
    pub(super) fn rebind(&mut self, to: SocketAddr) {
        self.nat = to;
        self.open = vec![to];
    }

    /// The client's address is another, and the client knows.
    pub(super) fn move_client(&mut self, to: SocketAddr) {
        let only_port = to.ip() == self.nat.ip();
        self.rebind(to);
        let now = self.client.clock.to_std(self.now);
        if let Some(conn) = &mut self.client.conn {
            conn.path_mut().on_moved(only_port, now);
        }
    }

    fn is_lost(&mut self) -> bool {
        self.random.below(1000) < self.loss
    }

    /// Brings what the client has to say on its way.
    pub(super) fn touch_client(&mut self) {
        self.client.run(false, self.now);
        self.take_client();
    }

    /// As [`World::touch_client`] for the server.
    pub(super) fn touch_server(&mut self) {
        self.server.run(false, self.now);
        self.take_server();
    }

    fn take_client(&mut self) {
        for (_, data) in core::mem::take(&mut self.client.out) {
            if let Some(from) = self.copier {
                let at = self.now + (self.delay - Duration::from_micros(10));
                let data = data.clone();
                let up = true;
                self.flying.push(Flying { at, up, from, data });
            }
            if !self.is_lost() {
                let (at, from, up) = (self.now + self.delay, self.nat, true);
                self.flying.push(Flying { at, up, from, data });
            }
        }
    }

    fn take_server(&mut self) {
        for (to, data) in core::mem::take(&mut self.server.out) {
            *self.sent_to.entry(to).or_default() += data.len();
            if self.open.contains(&to) && !self.is_lost() {
                let (at, from, up) = (self.now + self.delay, self.server_addr, false);
                self.flying.push(Flying { at, up, from, data });
            }
        }
    }

    /// A datagram comes to the server from there.
    pub(super) fn inject(&mut self, from: SocketAddr, data: &[u8]) {
        *self.got_from.entry(from).or_default() += data.len();
        self.server.datagram(from, data, self.now);
        self.touch_server();
    }

    /// What the client would send now, without sending it.
    pub(super) fn intercept(&mut self) -> Vec<Vec<u8>> {
        self.client.run(false, self.now);
        let out = core::mem::take(&mut self.client.out);
        out.into_iter().map(|(_, data)| data).collect()
    }

    /// Lets time go by.
    pub(super) fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        while self.step(end) {}
        self.now = end;
    }

    /// Lets time go by until something holds; how long it took.
    pub(super) fn until(
        &mut self,
        most: Duration,
        mut holds: impl FnMut(&mut Self) -> bool,
    ) -> Duration {
        let (start, end) = (self.now, self.now + most);
        while !holds(self) && self.step(end) {}
        self.now.saturating_duration_since(start)
    }

    /// The next thing that happens before `end`; `false`: nothing does.
    fn step(&mut self, end: Instant) -> bool {
        let (client, server) = (self.client.deadline(), self.server.deadline());
        let first = self
            .flying
            .iter()
            .enumerate()
            .min_by_key(|(n, f)| (f.at, *n));
        let first = first.map(|(n, f)| (f.at, n));
        let at = client.min(server).min(first.map_or(end, |(at, _)| at));
        if at >= end {
            return false;
        }
        self.now = at.max(self.now);
        match first {
            Some((due, n)) if due <= at => {
                let Flying { up, from, data, .. } = self.flying.remove(n);
                if up {
                    self.inject(from, &data);
                } else {
                    self.client.datagram(from, &data, self.now);
                    self.touch_client();
                }
            }
            _ if client <= at => {
                self.client.run(true, self.now);
                self.take_client();
            }
            _ => {
                self.server.run(true, self.now);
                self.take_server();
            }
        }
        true
    }
}
