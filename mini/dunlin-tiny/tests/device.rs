//! The whole device of the firmware against quinn-proto in virtual time: its
//! application, its frames, its stored tickets, on a network with faults.

#![allow(clippy::unwrap_used)]

#[path = "../sim/mod.rs"]
mod sim;

use core::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use dunlin_mini_device::{
    Address, Board, Device, FRAME, Frame, Input, Interface, Mac, Network, Note, Queues, Settings,
    Smol, Sockets,
};
use dunlin_mini_device::{Failure, OVERTIME_MS};
use dunlin_mqtt_mini::Error;
use dunlin_quic_mini::{Buffers, Client, Pinned};
use quinn_proto::Dir;
use sim::server::{Habits, Identity, Server, tls};
use sim::{Faults, Link, Rng, To, crypto};

const MAC: Mac = [2, 0, 0, 0, 0, 1];
const HOP: Mac = [2, 0, 0, 0, 0, 2];
const DEVICE: [u8; 4] = [10, 0, 0, 5];
const OTHER: [u8; 4] = [10, 0, 0, 6];
const SERVER: [u8; 4] = [192, 0, 2, 1];
const PORT: u16 = 14567;
/// Wakes after which a reading must have arrived, also on a bad network.
const WAKES_MAX: usize = 60;

/// What a broker remembers of one device.
#[derive(Debug, Default)]
struct Broker {
    session: bool,
    readings: Vec<u32>,
    /// A command that waits for its acknowledgement.
    command: Option<Vec<u8>>,
    /// The reason code of all PUBACKs; none, and there are no PUBACKs.
    reason: Option<u8>,
    /// The newest CONNECT.
    connect: Vec<u8>,
}

impl Broker {
    /// Answers to whole packets and takes them.
    fn answer(&mut self, bytes: &mut Vec<u8>) -> Vec<u8> {
        let mut out = Vec::new();
        while let [first, len, ..] = **bytes
            && bytes.len() >= 2 + usize::from(len)
        {
            assert!(len < 0x80, "no packet of the device is that long");
            let packet: Vec<u8> = bytes.drain(..2 + usize::from(len)).collect();
            match first {
                0x10 => {
                    self.connect.clone_from(&packet);
                    out.extend([0x20, 3, u8::from(self.session), 0, 0]);
                    if self.session {
                        self.command(&mut out);
                    }
                }
                0x32 | 0x3a => {
                    assert_eq!(packet[2..6], *b"\0\x02up");
                    let Some(reason) = self.reason else {
                        continue;
                    };
                    out.extend([0x40, 3, packet[6], packet[7], reason]);
                    if reason >= 128 {
                        assert_eq!(first & 8, 0, "it is not a repetition");
                        continue;
                    }
                    let text = core::str::from_utf8(&packet[9..]).unwrap();
                    self.readings.push(text.parse().unwrap());
                }
                0x82 => {
                    self.session = true;
                    out.extend([0x90, 4, packet[2], packet[3], 0, 1]);
                    self.command(&mut out);
                }
                0x40 => self.command = None,
                0xe0 => {}
                _ => panic!("{packet:?}"),
            }
        }
        out
    }

    fn command(&self, out: &mut Vec<u8>) {
        if let Some(payload) = &self.command {
            out.extend([0x32, u8::try_from(9 + payload.len()).unwrap()]);
            out.extend(b"\0\x04down\0\x07\0");
            out.extend(payload);
        }
    }
}

/// A board whose network is a link to a server.
struct World {
    now: u64,
    on: bool,
    link: Link,
    server: Server,
    /// The router next to the device, which speaks for the server.
    hop: Interface,
    frames: VecDeque<Vec<u8>>,
    page: Vec<u8>,
    switched: u8,
    /// Whether frames of others come without end.
    flood: bool,
    /// When the server allows a stream.
    grant_at: Option<u64>,
    notes: Vec<(Note, u32)>,
}

impl World {
    fn new(
        identity: &Identity,
        habits: Habits,
        faults: Faults,
        broker: Rc<RefCell<Broker>>,
    ) -> Self {
        let mut server = Server::new(tls(identity, habits), habits, 1);
        server.answer = Some(Box::new(move |bytes| broker.borrow_mut().answer(bytes)));
        Self {
            now: 0,
            on: false,
            link: Link::new(faults, 3),
            server,
            hop: Interface {
                mac: HOP,
                ip: SERVER,
                port: PORT,
                mask: [0; 4],
                gateway: DEVICE,
                server: DEVICE,
                server_port: 0,
                neighbour: Some(MAC),
            },
            frames: VecDeque::new(),
            page: Vec::new(),
            switched: 0,
            flood: false,
            grant_at: None,
            notes: Vec::new(),
        }
    }

    /// Lets everything happen that is due.
    fn drive(&mut self) {
        if self.grant_at.take_if(|at| *at <= self.now).is_some() {
            for connection in self.server.each() {
                connection.set_max_concurrent_streams(Dir::Bi, 1u8.into());
            }
        }
        self.server.drive(self.now, &mut self.link);
        while let Some((to, port, data)) = self.link.arrived(self.now) {
            match to {
                To::Server => self.server.receive(self.now, port, &data, &mut self.link),
                To::Client if self.on => {
                    self.hop.server_port = port;
                    let mut frame = vec![0; FRAME];
                    frame[42..42 + data.len()].copy_from_slice(&data);
                    let len = self.hop.wrap(&mut frame, data.len());
                    frame.truncate(len);
                    self.frames.push_back(frame);
                }
                To::Client => {}
            }
        }
    }

    fn noted(&self, note: Note) -> Vec<u32> {
        let noted = self.notes.iter().filter(|(of, _)| *of == note);
        noted.map(|(_, value)| *value).collect()
    }
}

impl Board for World {
    fn now(&mut self) -> u32 {
        // The counter wraps around early.
        (u32::MAX - 2000).wrapping_add(u32::try_from(self.now).unwrap())
    }

    fn seconds(&mut self) -> u32 {
        u32::try_from(self.now / 1000).unwrap()
    }

    fn wait(&mut self, ms: u32) {
        let end = self.now + u64::from(ms);
        while self.frames.is_empty() && self.now < end {
            let server = self.server.next_at();
            let next = [self.link.next_at(), server, self.grant_at, Some(end)];
            let next = next.into_iter().flatten().min().unwrap();
            self.now = next.clamp(self.now + 1, end.max(self.now + 1));
            self.drive();
        }
    }

    fn network(&mut self, mac: Option<&Mac>) {
        self.on = mac.is_some();
        self.frames.clear();
    }

    fn send(&mut self, frame: &[u8]) {
        assert!(self.on && !frame.is_empty());
        let mut frame = frame.to_vec();
        // The port and the address are the device's choice.
        if frame[12..14] == [8, 0] {
            self.hop.server.copy_from_slice(&frame[26..30]);
            self.hop.server_port = u16::from_be_bytes([frame[34], frame[35]]);
        }
        let asked = frame[..6] == [0xff; 6];
        if asked {
            // The router has this address, and the server's for what follows.
            self.hop.ip = frame[38..42].try_into().unwrap();
        }
        let input = self.hop.handle(&mut frame);
        self.hop.ip = SERVER;
        match input {
            Input::Answer(len) => {
                frame.truncate(len);
                self.frames.push_back(frame);
            }
            Input::Datagram(range) => {
                let port = self.hop.server_port;
                self.link.send(self.now, To::Server, port, &frame[range]);
            }
            other => panic!("{other:?}"),
        }
        self.drive();
    }

    fn receive(&mut self, frame: &mut [u8]) -> Option<usize> {
        if self.flood {
            self.now += 1;
            self.drive();
        }
        let junk = self.flood.then(|| vec![0xff; 60]);
        let came = self.frames.pop_front().or(junk)?;
        frame[..came.len()].copy_from_slice(&came);
        Some(came.len())
    }

    fn stored(&self) -> &[u8] {
        &self.page
    }

    fn store(&mut self, parts: &[&[u8]]) {
        self.page = parts.concat();
    }

    fn switch(&mut self, value: u8) {
        self.switched = value;
    }

    fn note(&mut self, note: Note, value: u32) {
        self.notes.push((note, value));
    }
}

/// Either network below the same device.
#[expect(clippy::large_enum_variant, reason = "there is one")]
enum Net {
    Own(Interface),
    Smol(Smol<'static>),
}

/// The same call of either.
macro_rules! either {
    ($net:expr, $call:ident($($argument:expr),*)) => {
        match $net {
            Net::Own(net) => Network::$call(net, $($argument),*),
            Net::Smol(net) => net.$call($($argument),*),
        }
    };
}

impl Network for Net {
    const ASKS: u32 = 10;
    const LEASES: bool = true;

    fn begin<B: Board>(&mut self, board: &mut B, fresh: bool) {
        either!(self, begin(board, fresh));
    }

    fn ask<B: Board>(&mut self, board: &mut B, frame: &mut Frame) {
        either!(self, ask(board, frame));
    }

    fn is_found(&self) -> bool {
        either!(self, is_found())
    }

    fn bind(&mut self, port: u16) {
        either!(self, bind(port));
    }

    fn address(&self) -> Address {
        either!(self, address())
    }

    fn migrate(&mut self, to: &Address) {
        either!(self, migrate(to));
    }

    fn send<B: Board>(&mut self, board: &mut B, frame: &mut Frame, len: usize) {
        either!(self, send(board, frame, len));
    }

    fn receive<'f, B: Board>(
        &mut self,
        board: &mut B,
        frame: &'f mut Frame,
        len: usize,
    ) -> Option<&'f mut [u8]> {
        either!(self, receive(board, frame, len))
    }

    fn poll<B: Board>(&mut self, board: &mut B, frame: &mut Frame) {
        either!(self, poll(board, frame));
    }

    fn delay(&mut self, now: u32) -> u32 {
        either!(self, delay(now))
    }
}

impl Net {
    fn smol(settings: &Settings<'_>) -> Self {
        let sockets = Box::leak(Box::new(Sockets::new()));
        let queues = Box::leak(Box::new(Queues::new()));
        Self::Smol(Smol::new(settings, sockets, queues, 1))
    }
}

/// A device with its client, and the broker that it talks to.
struct Run<'k> {
    device: Device<'k, World, Net>,
    client: Client<dunlin_mini_crypto::Host<Rng>, Pinned<'k>, Buffers>,
    broker: Rc<RefCell<Broker>>,
}

fn settings<'k>(key: &'k [u8; 65], readings: u16) -> Settings<'k> {
    Settings {
        mac: &MAC,
        ip: &DEVICE,
        other: &OTHER,
        mask: &[255, 255, 255, 0],
        gateway: &[10, 0, 0, 1],
        server: &SERVER,
        port: PORT,
        seed: &[0; 32],
        key,
        listen_ms: 100,
        gap_ms: 300,
        readings,
        wakes: 0,
        sleep_ms: 5000,
        name: b"",
        client_id: b"meter",
        topic: b"up",
        filter: b"down",
        user: b"",
        password: b"",
    }
}

/// Runs a check with a device in a world, once for each network.
fn run(faults: Faults, seed: u64, readings: u16, check: impl Fn(Run<'_>)) {
    let habits = Habits {
        early: true,
        ..Habits::default()
    };
    run_with(habits, faults, seed, readings, check);
}

/// Runs a check with a server that has these habits.
fn run_with(habits: Habits, faults: Faults, seed: u64, readings: u16, check: impl Fn(Run<'_>)) {
    let own = |settings: &Settings<'_>| Net::Own(settings.interface());
    for net in [own, Net::smol] {
        let identity = Identity::own();
        let keys = [identity.point];
        let broker = Rc::new(RefCell::new(Broker {
            reason: Some(0),
            ..Broker::default()
        }));
        let mut world = World::new(&identity, habits, faults, broker.clone());
        world.link = Link::new(faults, seed);
        let settings = settings(&keys[0], readings);
        let mut frame = [0; FRAME];
        check(Run {
            device: Device::new(world, settings, net(&settings), &mut frame),
            client: Client::new(crypto(seed), Pinned::new(&keys), Buffers::new()),
            broker,
        });
    }
}

/// A link without faults.
const CALM: Faults = Faults {
    loss: 0,
    duplicate: 0,
    corrupt: 0,
    delay: 20,
    jitter: 0,
};

#[test]
fn the_second_wake_resumes_with_early_data() {
    run(CALM, 1, 1, |mut run| {
        run.device.wake(&mut run.client).unwrap();
        run.device.sleep();
        run.broker.borrow_mut().command = Some(b"L\x05".to_vec());
        run.device.wake(&mut run.client).unwrap();
        let world = run.device.board();
        assert_eq!(world.switched, 5);
        assert_eq!(world.noted(Note::Early), [0, 1]);
        let connected = world.noted(Note::Connected);
        assert_eq!([connected[0] >> 30, connected[1] >> 30], [0, 3]);
        // One round trip of the link from waking to the acknowledgement.
        assert_eq!(connected[1] & 0xffff, 40);
        assert_eq!(world.noted(Note::Subscribed), [1]);
        assert_eq!(run.broker.borrow().readings, [1, 2]);
    });
}

#[test]
fn a_refused_reading_is_kept_and_its_reason_reported() {
    run(CALM, 5, 1, |mut run| {
        run.broker.borrow_mut().reason = Some(0x97);
        for _ in 0..2 {
            let refused = run.device.wake(&mut run.client).unwrap_err();
            assert_eq!(refused, Failure::Ended(Error::Refused, 0x97));
        }
        assert!(run.device.board().noted(Note::Published).is_empty());
        run.broker.borrow_mut().reason = Some(0x10);
        run.device.wake(&mut run.client).unwrap();
        assert_eq!(run.device.board().noted(Note::Published), [1]);
        assert_eq!(run.broker.borrow().readings, [1]);
    });
}

#[test]
fn no_wake_is_longer_than_its_limit() {
    let habits = Habits {
        pings: Some(1000),
        ..Habits::default()
    };
    // A server that pings and never acknowledges, and a network of others.
    for flood in [false, true] {
        run_with(habits, CALM, 6, 1, |mut run| {
            run.device.board().flood = flood;
            run.broker.borrow_mut().reason = None;
            let from = run.device.board().now;
            run.device.wake(&mut run.client).unwrap_err();
            let took = run.device.board().now - from;
            let most = u64::from(OVERTIME_MS) + 100 + 300 + 100;
            assert!(took <= most, "{took} ms");
            // The server learns it.
            let world = run.device.board();
            world.now += 100;
            world.drive();
            assert!(!world.server.lost.is_empty(), "it is told of the end");
        });
    }
}

#[test]
fn streams_that_are_granted_late_are_waited_for() {
    let habits = Habits {
        streams: Some(0),
        early: true,
        ..Habits::default()
    };
    run_with(habits, CALM, 7, 1, |mut run| {
        for wake in 1..3 {
            let world = run.device.board();
            world.grant_at = Some(world.now + 1500);
            run.device.wake(&mut run.client).unwrap();
            run.device.sleep();
            assert_eq!(run.broker.borrow().readings.len(), wake);
        }
    });
}

#[test]
fn the_broker_is_given_user_and_password() {
    let identity = Identity::own();
    let keys = [identity.point];
    let broker = Rc::new(RefCell::new(Broker::default()));
    let world = World::new(&identity, Habits::default(), CALM, broker.clone());
    let settings = Settings {
        user: b"me",
        password: b"key",
        ..settings(&keys[0], 1)
    };
    let mut frame = [0; FRAME];
    let net = Net::Own(settings.interface());
    let mut device = Device::new(world, settings, net, &mut frame);
    let mut client = Client::new(crypto(8), Pinned::new(&keys), Buffers::<2>::new());
    broker.borrow_mut().reason = Some(0);
    device.wake(&mut client).unwrap();
    let connect = &broker.borrow().connect;
    assert_eq!(connect[9] & 0xc0, 0xc0);
    assert!(
        connect.ends_with(b"\0\x05meter\0\x02me\0\x03key"),
        "{connect:?}"
    );
}

#[test]
fn moving_keeps_the_connection() {
    run(CALM, 2, 6, |mut run| {
        run.broker.borrow_mut().command = Some(b"M".to_vec());
        run.device.wake(&mut run.client).unwrap();
        let world = run.device.board();
        assert_eq!(world.noted(Note::Moved), [1]);
        assert_eq!(world.hop.server, OTHER);
        assert_eq!(world.noted(Note::Connect).len(), 1);
        assert_eq!(run.broker.borrow().readings, [1, 2, 3, 4, 5, 6]);
    });
}

#[test]
fn a_damaged_page_means_a_full_handshake() {
    run(CALM, 3, 1, |mut run| {
        run.device.wake(&mut run.client).unwrap();
        let page = run.device.board().page.clone();
        for at in [0, 2, 6, 20, page.len() - 1] {
            let mut page = page.clone();
            page[at] ^= 1;
            run.device.board().page = page;
            run.device.wake(&mut run.client).unwrap();
            let noted = run.device.board().noted(Note::Connected);
            assert_eq!(noted.last().unwrap() >> 30, 0, "{at}");
        }
    });
}

#[test]
fn a_silent_server_costs_longer_and_longer_sleeps() {
    let dead = Faults { loss: 1000, ..CALM };
    run(dead, 4, 1, |mut run| {
        for doubled in 1..9 {
            run.device.wake(&mut run.client).unwrap_err();
            run.device.sleep();
            let slept = run.device.board().noted(Note::Sleep);
            let factor = 1 << doubled.min(6);
            assert_eq!(slept.last(), Some(&(5000 * factor)));
        }
    });
}

/// Every reading arrives, in order, in every network; and the device
/// wakes each time.
#[test]
fn readings_arrive_on_bad_networks() {
    for seed in 0..40 {
        let faults = Faults::random(&mut Rng::new(seed));
        run(faults, seed, 2, |mut run| {
            let mut wakes = 0;
            while run.device.board().noted(Note::Published).len() < 6 {
                wakes += 1;
                assert!(wakes < WAKES_MAX, "seed {seed}: {faults:?}");
                let _ = run.device.wake(&mut run.client);
                run.device.sleep();
            }
            let mut readings = run.broker.borrow().readings.clone();
            readings.dedup();
            readings.truncate(6);
            assert_eq!(readings, [1, 2, 3, 4, 5, 6], "seed {seed}: {faults:?}");
        });
    }
}
