//! What every network must do, as cases that run with each of them; and what
//! smoltcp does besides.

use std::boxed::Box;
use std::vec::Vec;

use super::*;
use crate::board::{Mac, Note};
use crate::settings::Settings;

const MAC: Mac = [2, 0, 0, 0, 0, 1];
const HOP: Mac = [2, 0, 0, 0, 0, 9];
const DEVICE: Address = [10, 0, 2, 15];
const OTHER: Address = [10, 0, 2, 77];
const GATEWAY: Address = [10, 0, 2, 2];
const SERVER: Address = [192, 0, 2, 7];
const PORT: u16 = 50_000;
const SERVER_PORT: u16 = 14_567;

/// A board that keeps what is sent.
#[derive(Default)]
struct Wire {
    now: u32,
    seconds: u32,
    sent: Vec<Vec<u8>>,
}

impl Board for Wire {
    fn now(&mut self) -> u32 {
        self.now
    }

    fn seconds(&mut self) -> u32 {
        self.seconds
    }

    fn wait(&mut self, ms: u32) {
        self.now = self.now.wrapping_add(ms);
    }

    fn network(&mut self, _: Option<&Mac>) {}

    fn send(&mut self, frame: &[u8]) {
        self.sent.push(frame.to_vec());
    }

    fn receive(&mut self, _: &mut [u8]) -> Option<usize> {
        None
    }

    fn stored(&self) -> &[u8] {
        &[]
    }

    fn store(&mut self, _: &[&[u8]]) {}

    fn switch(&mut self, _: u8) {}

    fn note(&mut self, _: Note, _: u32) {}
}

fn settings<'a>(ip: &'a Address, server: &'a Address) -> Settings<'a> {
    Settings {
        mac: &MAC,
        ip,
        other: &OTHER,
        mask: &[255, 255, 255, 0],
        gateway: &GATEWAY,
        server,
        port: SERVER_PORT,
        seed: &[0; 32],
        key: &[0; 65],
        listen_ms: 0,
        gap_ms: 0,
        readings: 0,
        wakes: 0,
        sleep_ms: 0,
        name: b"",
        client_id: b"",
        topic: b"",
        filter: b"",
        user: b"",
        password: b"",
    }
}

/// A network, its board, and the host next door, which speaks for all others.
struct Bench<N> {
    net: N,
    wire: Wire,
    hop: Interface,
    frame: Box<Frame>,
}

impl<N: Network> Bench<N> {
    /// A device that is awake, with a network for the server.
    fn new(make: fn(&Settings<'_>) -> N, ip: Address, server: Address) -> Self {
        let settings = settings(&ip, &server);
        let near = server[..3] == DEVICE[..3];
        let mut bench = Self {
            net: make(&settings),
            wire: Wire {
                now: u32::MAX - 10,
                ..Wire::default()
            },
            hop: Interface {
                mac: HOP,
                ip: if near { server } else { GATEWAY },
                port: SERVER_PORT,
                mask: [255, 255, 255, 0],
                gateway: GATEWAY,
                server: DEVICE,
                server_port: PORT,
                neighbour: Some(MAC),
            },
            frame: Box::new([0; FRAME]),
        };
        bench.net.begin(&mut bench.wire, false);
        bench
    }

    /// One that knows its next hop and has sent a datagram.
    fn connected(make: fn(&Settings<'_>) -> N, server: Address) -> Self {
        let mut bench = Self::new(make, DEVICE, server);
        bench.net.ask(&mut bench.wire, &mut bench.frame);
        bench.answer();
        assert!(bench.net.is_found());
        bench.net.bind(PORT);
        assert_eq!(bench.round(b"first"), [b"first"]);
        bench
    }

    /// Sends a datagram; gives those that come to the server until all is quiet.
    fn round(&mut self, payload: &[u8]) -> Vec<Vec<u8>> {
        self.frame[HEADER..HEADER + payload.len()].copy_from_slice(payload);
        self.net
            .send(&mut self.wire, &mut self.frame, payload.len());
        self.answer()
    }

    /// Lets the host next door answer; gives the datagrams that it forwards.
    fn answer(&mut self) -> Vec<Vec<u8>> {
        let mut forwarded = Vec::new();
        while !self.wire.sent.is_empty() {
            for mut frame in core::mem::take(&mut self.wire.sent) {
                let next_door = self.hop.ip;
                if frame[12..14] == [8, 0] {
                    assert_eq!(frame[..6], HOP);
                    self.hop.ip = frame[30..34].try_into().unwrap();
                }
                let input = self.hop.handle(&mut frame);
                self.hop.ip = next_door;
                match input {
                    Input::Answer(len) => assert_eq!(self.deliver(&frame[..len]), None),
                    Input::Datagram(range) => forwarded.push(frame[range].to_vec()),
                    _ => {}
                }
            }
            self.net.poll(&mut self.wire, &mut self.frame);
        }
        forwarded
    }

    /// Gives the network a frame; what it takes for a datagram.
    fn deliver(&mut self, frame: &[u8]) -> Option<Vec<u8>> {
        self.frame[..frame.len()].copy_from_slice(frame);
        let datagram = self
            .net
            .receive(&mut self.wire, &mut self.frame, frame.len());
        datagram.map(|datagram| datagram.to_vec())
    }

    /// A datagram of the server as a frame.
    fn datagram(&self, server: Address, payload: &[u8]) -> Vec<u8> {
        let mut frame = std::vec![0; HEADER];
        frame.extend_from_slice(payload);
        let from = Interface {
            ip: server,
            ..self.hop.clone()
        };
        assert_eq!(from.wrap(&mut frame, payload.len()), frame.len());
        frame
    }

    /// Whether a datagram of the server still arrives.
    fn is_alive(&mut self) -> bool {
        let frame = self.datagram(SERVER, b"still there");
        let alive = self.deliver(&frame);
        self.wire.sent.clear();
        alive.as_deref() == Some(b"still there")
    }
}

/// The checksum of an IPv4 header, made right.
fn mend(frame: &mut [u8]) {
    frame[24..26].fill(0);
    let sum: u32 = frame[14..34]
        .chunks(2)
        .map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])))
        .sum();
    let sum = (sum & 0xffff) + (sum >> 16);
    let sum = u16::try_from((sum & 0xffff) + (sum >> 16)).unwrap();
    frame[24..26].copy_from_slice(&(!sum).to_be_bytes());
}

fn datagrams_go_both_ways<N: Network>(make: fn(&Settings<'_>) -> N) {
    for server in [SERVER, [10, 0, 2, 9]] {
        let mut bench = Bench::connected(make, server);
        let payload = std::vec![7; usize::from(DATAGRAM)];
        for payload in [&b"x"[..], b"hello", &payload] {
            assert_eq!(bench.round(payload), [payload]);
            let frame = bench.datagram(server, payload);
            assert_eq!(bench.deliver(&frame).as_deref(), Some(payload));
        }
    }
}

fn nothing_waits_for_a_known_next_hop<N: Network>(make: fn(&Settings<'_>) -> N) {
    let mut bench = Bench::connected(make, SERVER);
    for payload in [b"one", b"two"] {
        let at = HEADER + payload.len();
        bench.frame[HEADER..at].copy_from_slice(payload);
        let Bench {
            net, wire, frame, ..
        } = &mut bench;
        net.send(wire, frame, payload.len());
        assert_eq!(wire.sent.len(), 1);
        assert_eq!(wire.sent.remove(0)[HEADER..], *payload);
    }
    assert!(bench.net.delay(bench.wire.now) > 1000);
}

fn others_learn_where_the_device_is<N: Network>(make: fn(&Settings<'_>) -> N) {
    let mut bench = Bench::connected(make, SERVER);
    for (whom, answers) in [(DEVICE, 1), (OTHER, 0)] {
        let mut asks = bench.hop.clone();
        asks.server = whom;
        let mut frame = [0; ARP];
        asks.ask(&mut frame);
        assert_eq!(bench.deliver(&frame), None);
        let sent = core::mem::take(&mut bench.wire.sent);
        assert_eq!(sent.len(), answers);
        for frame in sent {
            assert_eq!((&frame[..6], &frame[20..22]), (&HOP[..], &[0, 2][..]));
            assert_eq!((&frame[22..28], &frame[28..32]), (&MAC[..], &whom[..]));
        }
    }
}

fn what_is_not_the_servers_is_dropped<N: Network>(make: fn(&Settings<'_>) -> N) {
    // Offset and bits to change, and whether the checksum is made right.
    let cases: [(usize, u8, bool); 12] = [
        (12, 1, false),   // another protocol than IPv4
        (14, 0x20, true), // version 6
        (14, 1, true),    // a header longer than it is
        (14, 4, true),    // a header shorter than 20 bytes
        (20, 0x20, true), // more fragments
        (21, 1, true),    // a later fragment
        (22, 1, false),   // damaged on the way
        (23, 1, true),    // not UDP
        (29, 1, true),    // not from the server
        (33, 1, true),    // not to this device
        (35, 1, false),   // from another port
        (37, 1, false),   // to another port
    ];
    let mut bench = Bench::connected(make, SERVER);
    for (at, bits, fix) in cases {
        let mut frame = bench.datagram(SERVER, b"hello");
        frame[at] ^= bits;
        // No checksum: only the header's decides.
        frame[40..42].fill(0);
        if fix {
            mend(&mut frame);
        }
        assert_eq!(bench.deliver(&frame), None, "{at}");
        // Not even by ICMP.
        assert!(bench.wire.sent.is_empty(), "{at}");
        assert!(bench.is_alive(), "{at}");
    }
}

fn lengths_that_lie_are_harmless<N: Network>(make: fn(&Settings<'_>) -> N) {
    let mut bench = Bench::connected(make, SERVER);
    let frame = bench.datagram(SERVER, b"hello");
    for cut in 0..frame.len() {
        assert_eq!(bench.deliver(&frame[..cut]), None, "{cut}");
    }
    for (at, value) in [
        (38, 7_u16),
        (38, 0),
        (38, 14),
        (38, 0xffff),
        (16, 0),
        (16, 20),
    ] {
        let mut frame = frame.clone();
        frame[at..at + 2].copy_from_slice(&value.to_be_bytes());
        frame[40..42].fill(0);
        mend(&mut frame);
        assert_eq!(bench.deliver(&frame), None, "{at}: {value}");
    }
    let longest = bench.datagram(SERVER, &[7; FRAME - HEADER]);
    let _ = bench.deliver(&longest);
    assert!(bench.is_alive());
}

fn any_bytes_are_harmless<N: Network>(make: fn(&Settings<'_>) -> N) {
    let mut bench = Bench::connected(make, SERVER);
    let mut arp = std::vec![0; ARP];
    bench.hop.ask(&mut arp);
    let mut icmp = bench.datagram(SERVER, &[8; 60]);
    icmp[23] = 1;
    mend(&mut icmp);
    let seeds = [arp, icmp, bench.datagram(SERVER, b"hello")];
    let mut random = 1_u32;
    for round in 0..60_000 {
        let mut frame = seeds[round % seeds.len()].clone();
        for _ in 0..3 {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let at = (random >> 8) as usize % frame.len();
            frame[at] = random.to_be_bytes()[0];
        }
        if frame[12..14] == [8, 0] && round % 2 == 0 {
            mend(&mut frame);
        }
        let _ = bench.deliver(&frame);
        bench.wire.sent.clear();
        bench.net.poll(&mut bench.wire, &mut bench.frame);
        bench.wire.now = bench.wire.now.wrapping_add(random >> 26);
    }
    assert!(bench.is_alive());
}

fn a_device_that_moves_goes_on<N: Network>(make: fn(&Settings<'_>) -> N) {
    let mut bench = Bench::connected(make, SERVER);
    for to in [OTHER, DEVICE] {
        // smoltcp asks for the next hop once a second at most.
        bench.wire.wait(1000);
        let port = bench.hop.server_port ^ 1;
        bench.net.migrate(&to);
        assert_eq!(bench.net.address(), to);
        (bench.hop.server, bench.hop.server_port) = (to, port);
        assert_eq!(bench.round(b"moved"), [b"moved"]);
        let frame = bench.datagram(SERVER, b"welcome");
        assert_eq!(bench.deliver(&frame).as_deref(), Some(&b"welcome"[..]));
    }
}

fn odd_settings_are_harmless<N: Network>(make: fn(&Settings<'_>) -> N) {
    for ip in [[255; 4], [224, 0, 0, 1], [127, 0, 0, 1], DEVICE] {
        for server in [[0; 4], [255; 4], [224, 0, 0, 1], [10, 0, 2, 255]] {
            for gateway in [&[0; 4], &[255; 4], &[224, 0, 0, 1], &GATEWAY] {
                for mask in [&[0; 4], &[255; 4], &[0, 255, 0, 255]] {
                    let mut odd = settings(&ip, &server);
                    (odd.gateway, odd.mask) = (gateway, mask);
                    let mut bench = Bench::new(make, ip, server);
                    bench.net = make(&odd);
                    bench.net.begin(&mut bench.wire, true);
                    bench.net.ask(&mut bench.wire, &mut bench.frame);
                    for port in [0, PORT] {
                        bench.net.bind(port);
                        bench.net.send(&mut bench.wire, &mut bench.frame, 5);
                        bench.net.migrate(&OTHER);
                    }
                }
            }
        }
    }
}

/// The same cases for a network.
macro_rules! cases {
    ($network:ident, $make:expr, $($case:ident)*) => {
        mod $network {
            $(#[test]
            fn $case() {
                super::$case($make);
            })*
        }
    };
}

macro_rules! all {
    ($($case:ident)*) => {
        cases!(own, |settings| settings.interface(), $($case)*);
        #[cfg(feature = "smoltcp")]
        cases!(smol, super::lease::smol, $($case)*);
    };
}

all! {
    datagrams_go_both_ways
    nothing_waits_for_a_known_next_hop
    others_learn_where_the_device_is
    what_is_not_the_servers_is_dropped
    lengths_that_lie_are_harmless
    any_bytes_are_harmless
    a_device_that_moves_goes_on
    odd_settings_are_harmless
}

#[cfg(feature = "smoltcp")]
mod lease;
