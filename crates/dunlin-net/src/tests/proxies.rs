//! Listeners behind a proxy: whom they believe, and which address a client has then.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};

use super::certs::{dial_to, listen_on};
use super::*;
use crate::proxy::{ForwardedHeader, Proxies, ProxyVersions};

const LINE: &[u8] = b"PROXY TCP4 203.0.113.5 192.0.2.1 4711 8883\r\n";
const UPGRADE: &str = "GET /mqtt HTTP/1.1\r\nHost: h\r\nUpgrade: websocket\r\n\
    Connection: Upgrade\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
    Sec-WebSocket-Protocol: mqtt\r\nSec-WebSocket-Version: 13\r\n";

/// Proxies on this machine.
fn trusting(range: &str) -> Proxies {
    Proxies {
        trusted: vec![range.parse().unwrap()],
        header: Some(ProxyVersions::Any),
        ..Proxies::default()
    }
}

fn serve(transport: Transport, proxies: Proxies, limits: NetLimits) -> (Pair, SocketAddr) {
    let mut pair = Pair::with_limits(NetLimits::default(), limits);
    let mut listen = listen_on(transport);
    listen.proxies = Some(Arc::new(proxies));
    let addr = pair.server.net.listen(listen).unwrap();
    (pair, addr)
}

fn client_of(pair: &Pair) -> SocketAddr {
    pair.server.opened().unwrap().1.addr
}

/// A proxy for one connection, which says this first.
fn proxy(says: &'static [u8], to: SocketAddr) -> SocketAddr {
    let listener = TcpListener::bind(loopback()).unwrap();
    let addr = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        let (client, _) = listener.accept().unwrap();
        let server = TcpStream::connect(to).unwrap();
        (&server).write_all(says).unwrap();
        let copy = |mut from: TcpStream, mut to: TcpStream| {
            let _ = std::io::copy(&mut from, &mut to);
            let _ = to.shutdown(std::net::Shutdown::Write);
        };
        let back = (server.try_clone().unwrap(), client.try_clone().unwrap());
        std::thread::spawn(move || copy(back.0, back.1));
        copy(client, server);
    });
    addr
}

#[test]
fn every_transport_learns_the_clients_address() {
    for transport in [
        Transport::Tcp,
        Transport::Tls,
        Transport::Ws,
        Transport::Wss,
    ] {
        let (mut pair, addr) = serve(transport, trusting("127.0.0.0/8"), NetLimits::default());
        let client = dial_to(transport, proxy(LINE, addr));
        let client = pair.client.net.dial(&client).unwrap();
        pair.until("connection", |p| {
            p.client.opened().is_some() && p.server.opened().is_some()
        });
        assert_eq!(client_of(&pair), "203.0.113.5:4711".parse().unwrap());
        let server = pair.server.opened().unwrap().0;
        let stats = pair.server.net.conn(server).stats().unwrap();
        assert_eq!(stats.addr, client_of(&pair));
        every::echo(pair, client, server, transport);
    }
}

#[test]
fn a_header_may_come_in_pieces_with_bytes_behind_it() {
    let whole = [LINE, b"hello"].concat();
    for step in [1, 7, whole.len() - 3, whole.len()] {
        let trusted = trusting("127.0.0.1");
        let (mut pair, addr) = serve(Transport::Tcp, trusted, NetLimits::default());
        let mut client = TcpStream::connect(addr).unwrap();
        client.set_nodelay(true).unwrap();
        for piece in whole.chunks(step) {
            client.write_all(piece).unwrap();
            pair.server.poll();
        }
        pair.until_server_has(b"hello");
        assert_eq!(client_of(&pair), "203.0.113.5:4711".parse().unwrap());
    }
}

#[test]
fn strangers_are_refused_before_they_say_anything() {
    let (mut pair, addr) = serve(Transport::Tcp, trusting("10.0.0.0/8"), NetLimits::default());
    let mut stranger = TcpStream::connect(addr).unwrap();
    let _ = stranger.write_all(LINE);
    pair.until("refusal", |p| {
        p.server.net.counters().refused_untrusted == 1
    });
    assert!(!matches!(stranger.read(&mut [0]), Ok(1..)));
    assert_eq!(
        (pair.server.events.len(), pair.server.net.connections()),
        (0, 0)
    );
}

#[test]
fn without_a_good_header_there_is_no_connection() {
    let long = [b'P'; 1].repeat(200);
    for says in [&b"\x10\x0c\0\x04MQTT"[..], b"PROXY TCP4 a b c d\r\n", &long] {
        let trusted = trusting("127.0.0.1");
        let (mut pair, addr) = serve(Transport::Tcp, trusted, NetLimits::default());
        let mut client = TcpStream::connect(addr).unwrap();
        client.write_all(says).unwrap();
        pair.until("failure", |p| {
            p.server.net.counters().handshake_failures == 1
        });
        assert!(pair.server.events.is_empty());
    }
    // Silence ends with the time for a handshake.
    let limits = NetLimits {
        handshake_timeout: Duration::from_millis(20),
        ..NetLimits::default()
    };
    let (mut pair, addr) = serve(Transport::Tcp, trusting("127.0.0.1"), limits);
    let mut client = TcpStream::connect(addr).unwrap();
    client.write_all(b"PROXY TCP4").unwrap();
    pair.until("timeout", |p| {
        p.server.net.counters().handshake_timeouts == 1
    });
    assert!(pair.server.events.is_empty());
}

#[test]
fn limits_count_the_clients_and_not_the_proxy() {
    let limits = NetLimits {
        connections_per_address_max: 1,
        ..NetLimits::default()
    };
    let (mut pair, addr) = serve(Transport::Tcp, trusting("127.0.0.1"), limits);
    let connect = |pair: &mut Pair, client: &str| {
        let mut stream = TcpStream::connect(addr).unwrap();
        let line = format!("PROXY TCP4 {client} 192.0.2.1 1 2\r\nx");
        stream.write_all(line.as_bytes()).unwrap();
        let count = |p: &Pair| {
            let counters = p.server.net.counters();
            (counters.opened, counters.refused_per_address)
        };
        let before = count(pair);
        pair.until("verdict", |p| count(p) != before);
        (stream, count(pair))
    };
    let first = connect(&mut pair, "203.0.113.1");
    assert_eq!(first.1, (1, 0));
    let second = connect(&mut pair, "203.0.113.2");
    assert_eq!(second.1, (2, 0));
    let third = connect(&mut pair, "203.0.113.1");
    assert_eq!(third.1, (2, 1));
    // A place that is left is free for the same client.
    drop((first, third));
    pair.until("end", |p| {
        p.server
            .events
            .iter()
            .any(|e| matches!(e, Ev::Finished(..)))
    });
    let (server, _) = pair.server.opened().unwrap();
    pair.server.net.close(server, 0);
    pair.until("one left", |p| p.server.net.connections() == 1);
    assert_eq!(connect(&mut pair, "203.0.113.1").1, (3, 1));
}

#[test]
fn a_connection_of_the_proxy_itself_keeps_its_address() {
    let local = b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0".as_slice();
    for says in [local, b"PROXY UNKNOWN\r\n"] {
        let trusted = trusting("127.0.0.1");
        let (mut pair, addr) = serve(Transport::Tcp, trusted, NetLimits::default());
        let mut client = TcpStream::connect(addr).unwrap();
        client.write_all(says).unwrap();
        pair.until("connection", |p| p.server.opened().is_some());
        assert_eq!(client_of(&pair), client.local_addr().unwrap());
    }
}

#[test]
fn the_name_that_a_proxy_verified_counts_where_that_is_wanted() {
    let mut header = b"\r\n\r\n\0\r\nQUIT\n\x21\x11".to_vec();
    let name = [&b"\x22\0\x06"[..], b"sensor"].concat();
    let ssl = [&b"\x20\0\x0e\x03\0\0\0\0"[..], &name].concat();
    let addresses = [203, 0, 113, 5, 192, 0, 2, 1, 0, 1, 0, 2];
    let len = u16::try_from(addresses.len() + ssl.len()).unwrap();
    header.extend(len.to_be_bytes());
    header.extend([&addresses[..], &ssl].concat());
    for identity in [true, false] {
        let proxies = Proxies {
            identity,
            ..trusting("127.0.0.1")
        };
        let (mut pair, addr) = serve(Transport::Tcp, proxies, NetLimits::default());
        let mut client = TcpStream::connect(addr).unwrap();
        client.write_all(&header).unwrap();
        pair.until("connection", |p| p.server.opened().is_some());
        let name = pair.server.opened().unwrap().1.identity;
        assert_eq!(name.as_deref(), identity.then_some("sensor"));
        // It stays with a connection that goes to another loop.
        let server = pair.server.opened().unwrap().0;
        let detached = pair.server.net.detach(server).unwrap();
        assert_eq!(detached.peer().identity, name);
    }
}

#[test]
fn a_request_says_where_the_client_is_to_those_who_trust_its_sender() {
    let limits = NetLimits {
        connections_per_address_max: 1,
        ..NetLimits::default()
    };
    for (trusted, want) in [("127.0.0.1", Some("203.0.113.5:0")), ("10.0.0.1", None)] {
        let proxies = Proxies {
            header: None,
            forwarded: Some(ForwardedHeader::XForwardedFor),
            ..trusting(trusted)
        };
        let (mut pair, addr) = serve(Transport::Ws, proxies, limits.clone());
        let ask = |pair: &mut Pair| {
            let mut client = TcpStream::connect(addr).unwrap();
            let header = "X-Forwarded-For: 10.9.9.9, 203.0.113.5\r\n\r\n";
            client
                .write_all(format!("{UPGRADE}{header}").as_bytes())
                .unwrap();
            let refused = |p: &Pair| p.server.net.counters().refused_per_address;
            let before = (pair.server.events.len(), refused(pair));
            pair.until("verdict", |p| (p.server.events.len(), refused(p)) != before);
            client
        };
        let client = ask(&mut pair);
        let own = client.local_addr().unwrap();
        let want = want.map_or(own, |text| text.parse().unwrap());
        assert_eq!(client_of(&pair), want);
        // The same client once more: its address has what it may have.
        let _second = ask(&mut pair);
        assert_eq!(pair.server.net.counters().refused_per_address, 1);
        assert_eq!(pair.server.net.counters().opened, 1);
    }
}
