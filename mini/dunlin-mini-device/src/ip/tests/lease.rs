//! What only smoltcp does: leases of a DHCP server, and what else could end in
//! one of its assertions.

use super::*;

const DISCOVER: u8 = 1;
const OFFER: u8 = 2;
const REQUEST: u8 = 3;
const ACK: u8 = 5;
const NAK: u8 = 6;
/// Seconds of a lease.
const LEASE: u32 = 600;

pub(super) fn smol(settings: &Settings<'_>) -> Smol<'static> {
    let sockets = Box::leak(Box::new(Sockets::new()));
    let queues = Box::leak(Box::new(Queues::new()));
    Smol::new(settings, sockets, queues, 1)
}

/// What a client said: type, transaction, and the options.
#[derive(Clone, Debug)]
struct Said {
    kind: u8,
    transaction: [u8; 4],
}

/// What a server says.
#[derive(Clone, Copy)]
struct Offer {
    from: Address,
    to: Address,
    mask: Address,
    router: Address,
}

const HOME: Offer = Offer {
    from: GATEWAY,
    to: DEVICE,
    mask: [255, 255, 255, 0],
    router: GATEWAY,
};

impl Bench<Smol<'static>> {
    /// A device without an address.
    fn homeless() -> Self {
        Self::new(smol, [0; 4], SERVER)
    }

    /// What the client said meanwhile; nothing else may have been sent.
    fn said(&mut self) -> Vec<Said> {
        self.net.poll(&mut self.wire, &mut self.frame);
        let sent = core::mem::take(&mut self.wire.sent);
        let dhcp = sent.iter().filter(|frame| frame[12..14] == [8, 0]);
        dhcp.map(|frame| {
            assert_eq!(frame[34..38], [0, 68, 0, 67]);
            assert_eq!(frame[70..76], MAC);
            assert_eq!(frame[282..284], [53, 1]);
            Said {
                kind: frame[284],
                transaction: frame[46..50].try_into().unwrap(),
            }
        })
        .collect()
    }

    /// A message of a server as a frame.
    fn says(&self, kind: u8, transaction: [u8; 4], says: Offer) -> Vec<u8> {
        let mut message = std::vec![0; 240];
        message[..4].copy_from_slice(&[2, 1, 6, 0]);
        message[4..8].copy_from_slice(&transaction);
        message[16..20].copy_from_slice(&says.to);
        message[28..34].copy_from_slice(&MAC);
        message[236..].copy_from_slice(&[99, 130, 83, 99]);
        message.extend([53, 1, kind, 54, 4]);
        message.extend(says.from);
        message.extend([51, 4]);
        message.extend(LEASE.to_be_bytes());
        message.extend([1, 4]);
        message.extend(says.mask);
        message.extend([3, 4]);
        message.extend(says.router);
        message.push(255);
        let server = Interface {
            ip: says.from,
            port: 67,
            server: says.to,
            server_port: 68,
            ..self.hop.clone()
        };
        let mut frame = std::vec![0; HEADER];
        frame.extend(&message);
        server.wrap(&mut frame, message.len());
        frame
    }

    /// The one thing that the client said is answered.
    fn served(&mut self, want: u8, kind: u8, says: Offer) {
        let [said] = &self.said()[..] else {
            panic!("nothing said");
        };
        assert_eq!(said.kind, want);
        let frame = self.says(kind, said.transaction, says);
        assert_eq!(self.deliver(&frame), None);
    }

    /// A device that got this address.
    fn leased(says: Offer) -> Self {
        let mut bench = Self::homeless();
        assert!(!bench.net.is_found());
        bench.served(DISCOVER, OFFER, says);
        bench.served(REQUEST, ACK, says);
        assert!(bench.net.is_found());
        assert_eq!(bench.net.address(), says.to);
        bench
    }

    /// Sleeps, with a clock of milliseconds that stands still.
    fn sleeps(&mut self, seconds: u32) {
        self.wire.seconds += seconds;
        self.net.begin(&mut self.wire, false);
    }
}

#[test]
fn an_address_is_given() {
    let mut bench = Bench::leased(HOME);
    bench.net.bind(PORT);
    assert_eq!(bench.round(b"hello"), [b"hello"]);
    assert!(bench.is_alive());
}

#[test]
fn a_lease_outlives_a_short_sleep() {
    let mut bench = Bench::leased(HOME);
    bench.sleeps(LEASE / 2 - 1);
    assert!(bench.said().is_empty());
    assert!(bench.net.is_found());
}

#[test]
fn a_lease_is_renewed_while_it_is_used() {
    let mut bench = Bench::leased(HOME);
    bench.net.bind(PORT);
    for _ in 0..3 {
        bench.sleeps(LEASE / 2 + 1);
        assert!(bench.net.is_found());
        // The way to the server of addresses is asked for first.
        bench.net.poll(&mut bench.wire, &mut bench.frame);
        let mut asked = bench.wire.sent.remove(0);
        let Input::Answer(len) = bench.hop.handle(&mut asked) else {
            panic!("{asked:?}");
        };
        bench.deliver(&asked[..len]);
        bench.served(REQUEST, ACK, HOME);
        assert_eq!(bench.round(b"hello"), [b"hello"]);
    }
}

#[test]
fn a_lease_is_renewed_while_the_device_is_elsewhere() {
    let mut bench = Bench::leased(HOME);
    bench.net.bind(PORT);
    bench.net.migrate(&OTHER);
    bench.sleeps(LEASE / 2 + 1);
    // The answer goes to the leased address, which has to be found.
    let mut ask = std::vec![0; ARP];
    let len = bench.hop.ask(&mut ask);
    assert_eq!(bench.deliver(&ask[..len]), None);
    let answers = core::mem::take(&mut bench.wire.sent);
    assert!(answers.iter().any(|frame| frame[20..22] == [0, 2]));
    bench.served(REQUEST, ACK, HOME);
    assert!(bench.net.is_found());
    assert_eq!(bench.net.address(), OTHER);
}

#[test]
fn a_lease_that_ran_out_is_replaced() {
    let mut bench = Bench::leased(HOME);
    bench.sleeps(LEASE);
    bench.net.ask(&mut bench.wire, &mut bench.frame);
    assert!(!bench.net.is_found());
    let new = Offer { to: OTHER, ..HOME };
    bench.served(DISCOVER, OFFER, new);
    bench.served(REQUEST, ACK, new);
    assert_eq!(bench.net.address(), OTHER);
}

#[test]
fn a_lease_that_is_refused_is_lost() {
    let mut bench = Bench::leased(HOME);
    // By broadcast: there was no answer before.
    bench.sleeps(LEASE * 7 / 8);
    bench.served(REQUEST, NAK, HOME);
    assert!(!bench.net.is_found());
    assert_eq!(bench.net.address(), [0; 4]);
    bench.served(DISCOVER, OFFER, HOME);
    bench.served(REQUEST, ACK, HOME);
    assert!(bench.net.is_found());
}

#[test]
fn after_a_failure_the_address_is_asked_for_again() {
    let mut bench = Bench::leased(HOME);
    bench.net.begin(&mut bench.wire, true);
    bench.served(DISCOVER, OFFER, HOME);
    bench.served(REQUEST, ACK, HOME);
    assert!(bench.net.is_found());
}

#[test]
fn a_silent_server_of_addresses_is_asked_again() {
    let mut bench = Bench::homeless();
    let mut asked = 0;
    for _ in 0..Smol::ASKS {
        asked += bench.said().len();
        bench.wire.wait(bench.net.delay(bench.wire.now).min(200));
    }
    assert_eq!(asked, 5);
    assert!(!bench.net.is_found());
}

#[test]
fn a_device_with_a_lease_moves_and_comes_back() {
    let mut bench = Bench::leased(HOME);
    bench.net.bind(PORT);
    for (to, address) in [(OTHER, OTHER), ([0; 4], DEVICE)] {
        bench.wire.wait(1000);
        bench.net.migrate(&to);
        assert_eq!(bench.net.address(), address);
        bench.hop.server = address;
        bench.hop.server_port ^= 1;
        assert_eq!(bench.round(b"moved"), [b"moved"]);
    }
}

#[test]
fn one_datagram_waits_for_the_next_hop() {
    let mut bench = Bench::new(smol, DEVICE, SERVER);
    bench.net.bind(PORT);
    for payload in [b"one", b"two"] {
        bench.frame[HEADER..HEADER + 3].copy_from_slice(payload);
        bench.net.send(&mut bench.wire, &mut bench.frame, 3);
    }
    // Asked once, and again after a second.
    assert_eq!(bench.wire.sent.len(), 1);
    assert_eq!(bench.net.delay(bench.wire.now), 1000);
    assert_eq!(bench.answer(), [b"one"]);
}

#[test]
fn a_datagram_with_a_wrong_checksum_is_dropped() {
    let mut bench = Bench::connected(smol, SERVER);
    let mut frame = bench.datagram(SERVER, b"hello");
    frame[HEADER] ^= 1;
    assert_eq!(bench.deliver(&frame), None);
    assert!(bench.is_alive());
}

#[test]
fn odd_leases_are_harmless() {
    let odd = [
        [0; 4],
        [255; 4],
        [224, 0, 0, 1],
        [127, 0, 0, 1],
        [10, 0, 2, 255],
        DEVICE,
    ];
    for from in odd {
        for to in odd {
            for router in odd {
                for mask in [[0; 4], [255; 4], [0, 255, 0, 255]] {
                    let says = Offer {
                        from,
                        to,
                        mask,
                        router,
                    };
                    let mut bench = Bench::homeless();
                    bench.net.bind(PORT);
                    for kind in [OFFER, ACK, NAK] {
                        for said in bench.said() {
                            let frame = bench.says(kind, said.transaction, says);
                            bench.deliver(&frame);
                        }
                        bench.net.send(&mut bench.wire, &mut bench.frame, 5);
                    }
                    for _ in 0..4 {
                        bench.sleeps(LEASE / 3);
                        bench.net.send(&mut bench.wire, &mut bench.frame, 5);
                        let _ = bench.net.delay(bench.wire.now);
                    }
                }
            }
        }
    }
}

#[test]
fn any_lease_is_harmless() {
    let mut random = 1_u32;
    let mut leased = 0;
    for round in 0..20_000 {
        let mut bench = Bench::homeless();
        bench.net.bind(PORT);
        for kind in [OFFER, ACK] {
            for said in bench.said() {
                let mut frame = bench.says(kind, said.transaction, HOME);
                for _ in 0..round % 3 {
                    random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    let at = (random >> 8) as usize % frame.len();
                    frame[at] = random.to_be_bytes()[0];
                }
                mend(&mut frame);
                frame[40..42].fill(0);
                bench.deliver(&frame);
            }
        }
        leased += u32::from(bench.net.is_found());
        bench.sleeps(LEASE / 2 + 1);
        bench.net.send(&mut bench.wire, &mut bench.frame, 5);
        bench.sleeps(LEASE);
        bench.net.poll(&mut bench.wire, &mut bench.frame);
    }
    assert!(leased > 10_000);
}

#[test]
fn only_a_server_of_addresses_is_heard_on_its_port() {
    let mut bench = Bench::leased(HOME);
    bench.net.bind(PORT);
    assert_eq!(bench.round(b"hello"), [b"hello"]);
    for (port, to) in [(SERVER_PORT, DEVICE), (67, DEVICE), (SERVER_PORT, [255; 4])] {
        let stranger = Interface {
            ip: SERVER,
            port,
            server: to,
            server_port: 68,
            ..bench.hop.clone()
        };
        let mut frame = std::vec![0; HEADER + 5];
        stranger.wrap(&mut frame, 5);
        assert_eq!(bench.deliver(&frame), None);
        assert!(bench.wire.sent.is_empty(), "not even by ICMP");
        assert!(bench.is_alive());
    }
}

#[test]
fn an_address_of_another_network_is_not_kept() {
    let mut bench = Bench::leased(HOME);
    bench.net.bind(PORT);
    bench.net.migrate(&OTHER);
    bench.net.begin(&mut bench.wire, true);
    let new = Offer {
        from: [192, 168, 7, 1],
        to: [192, 168, 7, 3],
        router: [192, 168, 7, 1],
        ..HOME
    };
    bench.served(DISCOVER, OFFER, new);
    bench.served(REQUEST, ACK, new);
    assert_eq!(bench.net.address(), new.to);
}
