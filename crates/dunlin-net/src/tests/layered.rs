//! TLS, WebSocket and both: what every transport must do, then what each adds.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;

use rustls::pki_types::ServerName;
use sha2::{Digest, Sha256};

use super::certs::{ca_der, certs, client_builder, dial_to, listen_on, provider, server_options};
use super::*;
use crate::{ClientTls, ServerTls, ServerTlsOptions, TlsError};

const LAYERED: [Transport; 3] = [Transport::Tls, Transport::Ws, Transport::Wss];

fn open(pair: &mut Pair, transport: Transport) -> (ConnId, ConnId) {
    pair.connect(listen_on(transport), |addr| dial_to(transport, addr))
}

#[test]
fn echo() {
    for transport in LAYERED {
        let mut pair = Pair::new();
        let (client, server) = open(&mut pair, transport);
        every::echo(pair, client, server, transport);
    }
}

#[test]
fn bulk_with_back_pressure() {
    for transport in LAYERED {
        let mut pair = Pair::new();
        let (client, server) = open(&mut pair, transport);
        every::bulk_with_back_pressure(pair, client, server);
    }
}

#[test]
fn large_sends_are_cut_into_messages_that_any_client_takes() {
    let limits = || NetLimits {
        ws_message_bytes_max: 65_535,
        ..NetLimits::default()
    };
    let want = pattern(1 << 20);
    for transport in [Transport::Ws, Transport::Wss] {
        let mut pair = Pair::with_limits(limits(), limits());
        let (client, server) = open(&mut pair, transport);
        pair.client.send(client, StreamId::CONTROL, &want);
        pair.server.send(server, StreamId::CONTROL, &want);
        pair.until("all", |p| {
            let got = |side: &Side| side.received_len(StreamId::CONTROL) == want.len();
            got(&p.client) && got(&p.server)
        });
        for side in [&pair.client, &pair.server] {
            assert!(side.received(StreamId::CONTROL) == want, "{transport:?}");
        }
    }
}

#[test]
fn idle_timeout_and_silence() {
    for transport in LAYERED {
        let mut pair = Pair::new();
        let (client, server) = open(&mut pair, transport);
        every::idle_timeout(pair, client, server);
        let mut pair = Pair::with_limits(NetLimits::default(), every::awaiting_bytes());
        open(&mut pair, transport);
        every::silent_client(pair);
    }
}

#[test]
fn half_close() {
    let transport = Transport::Tls;
    let mut pair = Pair::new();
    let (client, server) = open(&mut pair, transport);
    let finish = |p: &mut Pair| {
        let _ = p.client.send(client, StreamId::CONTROL, b"question");
        p.client.net.conn(client).finish_stream(StreamId::CONTROL);
    };
    every::half_close_by(pair, finish, server);
}

#[test]
fn close_flushes_a_backlog() {
    for transport in LAYERED {
        let mut pair = Pair::new();
        let (client, server) = open(&mut pair, transport);
        let mut data = SendBuf::new();
        let want = pattern(12 << 20);
        for part in want.chunks(3 << 20) {
            data.put_bytes(&bytes::Bytes::copy_from_slice(part));
            data.put_slice(b"-");
        }
        let total = data.len();
        let mut left = pair.server.net.send(server, StreamId::CONTROL, &mut data);
        assert!(left < total, "{transport:?} took everything at once");
        pair.server.net.close(server, 0);
        let fin = Ev::Finished(client, StreamId::CONTROL);
        pair.until("end", |p| p.client.events.contains(&fin));
        let got = pair.client.received(StreamId::CONTROL);
        assert_eq!(got.len(), total);
        assert!(got[..3 << 20] == want[..3 << 20] && got[3 << 20] == b'-');
        left += pair.server.sent();
        assert!(left <= total);
    }
}

#[test]
fn a_handshake_that_stalls_is_ended() {
    for transport in LAYERED {
        let mut server = Side::new(every::impatient());
        let addr = server.net.listen(listen_on(transport)).unwrap();
        let mut socket = TcpStream::connect(addr).unwrap();
        socket.write_all(b"\x16\x03\x01").unwrap();
        while server.net.counters().closed == 0 {
            server.poll();
        }
        assert_eq!(server.events, []);
        let ended = server.net.counters();
        assert_eq!(ended.handshake_timeouts + ended.handshake_failures, 1);
        let hole = std::net::TcpListener::bind(loopback()).unwrap();
        let mut client = Side::new(every::impatient());
        client
            .net
            .dial(&dial_to(transport, hole.local_addr().unwrap()))
            .unwrap();
        while client.closed().is_none() {
            client.poll();
        }
        assert_eq!(client.closed(), Some(CloseCause::HandshakeTimeout));
    }
}

/// Dials with what `tls` trusts and returns the outcome.
fn outcome(transport: Transport, name: &str, tls: ClientTls) -> Result<(), String> {
    let mut pair = Pair::new();
    let addr = pair.server.net.listen(listen_on(transport)).unwrap();
    let mut config = dial_to(transport, addr);
    config.server_name = name.into();
    config.tls = Some(Arc::new(tls));
    let conn = pair.client.net.dial(&config).unwrap();
    pair.until("verdict", |p| {
        p.client.opened().is_some() || p.client.closed().is_some()
    });
    match pair.client.closed() {
        None => Ok(()),
        Some(CloseCause::Failed(text)) => {
            assert!(pair.client.net.conn(conn).stats().is_none() || pair.client.opened().is_none());
            pair.until("server told", |p| {
                p.server.net.counters().handshake_failures == 1
            });
            assert_eq!(pair.server.opened(), None);
            Err(text.to_string())
        }
        Some(other) => panic!("{other}"),
    }
}

#[test]
fn servers_are_verified_as_configured() {
    let hash = |bytes: &[u8]| -> [u8; 32] { Sha256::digest(bytes).into() };
    let cert = hash(&certs().server_der);
    let key = hash(&certs().server_key_der);
    let none = ClientTls::builder;
    let stranger = || none().ca_pem(certs().stranger.as_bytes()).unwrap();
    let build = |b: crate::ClientTlsBuilder| b.build().unwrap();
    for transport in [Transport::Tls, Transport::Quic, Transport::Wss] {
        let check = |name, tls| outcome(transport, name, tls);
        assert_eq!(check("localhost", build(client_builder())), Ok(()));
        assert_eq!(check("127.0.0.1", build(client_builder())), Ok(()));
        let why = check("localhost", build(stranger())).unwrap_err();
        assert!(why.contains("not signed by a trusted authority"), "{why}");
        let why = check("other.example", build(client_builder())).unwrap_err();
        assert!(why.contains("name"), "{why}");
        let pin = |b: crate::ClientTlsBuilder| build(b.pin_certificate_sha256(cert));
        assert_eq!(check("any.example", pin(none())), Ok(()));
        assert_eq!(check("localhost", pin(client_builder())), Ok(()));
        assert!(check("localhost", pin(stranger())).is_err());
        assert_eq!(
            check("any.example", build(none().pin_public_key_sha256(key))),
            Ok(())
        );
        assert!(check("localhost", build(none().pin_public_key_sha256(cert))).is_err());
        let any = none().dangerous_accept_any_certificate();
        assert_eq!(check("any.example", build(any)), Ok(()));
    }
    assert!(matches!(none().build(), Err(TlsError::NothingTrusted)));
}

#[test]
fn client_certificates_are_demanded_and_name_the_peer() {
    let mut options = server_options();
    options.client_ca_pem = Some(certs().ca.clone().into());
    options.require_client_cert = true;
    let tls = Arc::new(ServerTls::new(&options).unwrap());
    let (cert, key) = &certs().device;
    for transport in [Transport::Tls, Transport::Wss] {
        let mut listen = listen_on(transport);
        listen.tls = Some(Arc::clone(&tls));
        let mut pair = Pair::new();
        let client = client_builder().client_cert_pem(cert.as_bytes(), key.as_bytes());
        let client = Arc::new(client.unwrap().build().unwrap());
        pair.connect(listen.clone(), |addr| {
            let mut config = dial_to(transport, addr);
            config.tls = Some(client);
            config
        });
        let (_, peer) = pair.server.opened().unwrap();
        assert_eq!(peer.identity.as_deref(), Some("device-7"));
        let mut pair = Pair::new();
        let addr = pair.server.net.listen(listen).unwrap();
        pair.client.net.dial(&dial_to(transport, addr)).unwrap();
        pair.until("refusal", |p| p.client.closed().is_some());
        assert_eq!(pair.server.opened(), None);
    }
}

#[test]
fn sessions_are_resumed_with_tls_1_2_and_1_3_clients() {
    for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
        let mut server = Side::new(NetLimits::default());
        let addr = server.net.listen(listen_on(Transport::Tls)).unwrap();
        let mut roots = rustls::RootCertStore::empty();
        roots.add_parsable_certificates([ca_der()]);
        // No ALPN: a plain MQTT client over TLS offers none.
        let config = rustls::ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(&[version])
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let config = Arc::new(config);
        let thread = std::thread::spawn(move || {
            let kinds = (0..2).map(|_| {
                let name = ServerName::try_from("localhost").unwrap();
                let mut tls = rustls::ClientConnection::new(Arc::clone(&config), name).unwrap();
                let mut socket = TcpStream::connect(addr).unwrap();
                let mut stream = rustls::Stream::new(&mut tls, &mut socket);
                stream.write_all(b"hello").unwrap();
                let mut answer = [0; 5];
                stream.read_exact(&mut answer).unwrap();
                assert_eq!(&answer, b"world");
                tls.handshake_kind().unwrap()
            });
            kinds.collect::<Vec<_>>()
        });
        let mut answered = Vec::new();
        while !thread.is_finished() {
            server.poll();
            for e in core::mem::take(&mut server.events) {
                if let Ev::Bytes(conn, _, data) = e {
                    assert_eq!(data, b"hello");
                    answered.push(conn);
                    let _ = server.send(conn, StreamId::CONTROL, b"world");
                }
            }
        }
        let kinds = thread.join().unwrap();
        assert_eq!(
            kinds,
            [rustls::HandshakeKind::Full, rustls::HandshakeKind::Resumed]
        );
    }
}

#[test]
fn small_frames_share_a_record() {
    let mut pair = Pair::new();
    let (client, _) = open(&mut pair, Transport::Tls);
    let before = pair.client.net.counters().tcp_bytes_out;
    let mut data = SendBuf::new();
    (0..100).for_each(|_| data.put_slice(b"0123456789"));
    assert_eq!(
        pair.client.net.send(client, StreamId::CONTROL, &mut data),
        1000
    );
    let overhead = pair.client.net.counters().tcp_bytes_out - before - 1000;
    assert!(overhead < 50, "{overhead} bytes of TLS for one batch");
}

#[test]
fn unusable_pem_is_one_clear_sentence() {
    let (cert, key) = &certs().server;
    let (_, other_key) = &certs().device;
    let new = |cert: &str, key: &str| {
        let error = ServerTls::new(&ServerTlsOptions::new(cert.into(), key.into()));
        error.unwrap_err().to_string()
    };
    assert_eq!(new("", key), "the certificate contains no certificate");
    assert_eq!(new(cert, cert), "the private key contains no private key");
    assert!(new(cert, other_key).starts_with("the certificate and key cannot be used together"));
    let damaged = cert.replace("-----END", "-----ENT");
    assert!(new(&damaged, key).contains("is not valid PEM"));
    let path = std::path::Path::new("no/such/file.pem");
    let error = ServerTls::from_pem_files(path, path, None, false).unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with("cannot read no/such/file.pem: ")
    );
    let mut options = server_options();
    options.require_client_cert = true;
    assert!(matches!(ServerTls::new(&options), Err(TlsError::Roots(_))));
}

/// Speaks raw WebSocket to a server and returns what it answered until it
/// closed.
fn raw_ws(bytes: &[u8]) -> (Vec<u8>, Side) {
    let mut server = Side::new(NetLimits::default());
    let addr = server.net.listen(listen_on(Transport::Ws)).unwrap();
    let mut socket = TcpStream::connect(addr).unwrap();
    let bytes = bytes.to_vec();
    let thread = std::thread::spawn(move || {
        socket.write_all(&bytes).unwrap();
        let mut answer = Vec::new();
        let _ = socket.read_to_end(&mut answer);
        answer
    });
    while !thread.is_finished() {
        server.poll();
        // As an engine does when its peer ends.
        if let Some(Ev::Finished(conn, _)) =
            server.events.iter().find(|e| matches!(e, Ev::Finished(..)))
        {
            server.net.close(*conn, 0);
        }
    }
    server.poll();
    (thread.join().unwrap(), server)
}

const UPGRADE: &str = "GET /mqtt HTTP/1.1\r\nHost: h\r\nUpgrade: websocket\r\n\
    Connection: Upgrade\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
    Sec-WebSocket-Protocol: mqtt\r\nSec-WebSocket-Version: 13\r\n\r\n";

fn after_upgrade(frames: &[u8]) -> (Vec<u8>, Side) {
    let mut bytes = UPGRADE.as_bytes().to_vec();
    bytes.extend_from_slice(frames);
    let (answer, side) = raw_ws(&bytes);
    let end = answer.windows(4).position(|w| w == b"\r\n\r\n").unwrap() + 4;
    (answer[end..].to_vec(), side)
}

#[test]
fn websocket_breaches_get_their_close_code() {
    let key = [0u8; 4];
    let frame = |head: &[u8], payload: &[u8]| [head, &key, payload].concat();
    let cases: [(Vec<u8>, u16); 4] = [
        (frame(&[0x81, 0x80 | 4], b"text"), 1003),
        (frame(&[0xc2, 0x80], b""), 1002),
        (vec![0x82, 1, b'x'], 1002),
        (frame(&[0x82, 0xff, 0, 0, 0, 0, 0x7f, 0, 0, 0], b""), 1009),
    ];
    for (bytes, code) in cases {
        let (answer, side) = after_upgrade(&bytes);
        let [high, low] = code.to_be_bytes();
        assert_eq!(answer, [0x88, 2, high, low]);
        assert!(matches!(side.closed(), Some(CloseCause::Failed(_))));
        assert_eq!(side.net.connections(), 0);
    }
}

#[test]
fn breaches_within_tls_get_their_close_code_too() {
    let mut server = Side::new(NetLimits::default());
    let addr = server.net.listen(listen_on(Transport::Wss)).unwrap();
    let mut roots = rustls::RootCertStore::empty();
    roots.add_parsable_certificates([ca_der()]);
    let config = rustls::ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let thread = std::thread::spawn(move || {
        let name = ServerName::try_from("localhost").unwrap();
        let tls = rustls::ClientConnection::new(Arc::new(config), name).unwrap();
        let mut stream = rustls::StreamOwned::new(tls, TcpStream::connect(addr).unwrap());
        let text = [0x81, 0x84, 0, 0, 0, 0, b't', b'e', b'x', b't'];
        stream
            .write_all(&[UPGRADE.as_bytes(), &text].concat())
            .unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        answer
    });
    while !thread.is_finished() {
        server.poll();
    }
    let answer = thread.join().unwrap();
    assert!(answer.ends_with(b"\r\n\r\n\x88\x02\x03\xeb"), "{answer:?}");
    assert!(matches!(server.closed(), Some(CloseCause::Failed(_))));
}

#[test]
fn websocket_pings_are_answered_and_closes_returned() {
    let key = [7, 8, 9, 10];
    let mut bytes = Vec::new();
    for (first, payload) in [
        (0x89, &b"are you there"[..]),
        (0x02, b"ab"),
        (0x80, b"cd"),
        (0x88, b""),
    ] {
        bytes.extend([first, 0x80 | payload.len() as u8]);
        bytes.extend(key);
        let at = bytes.len();
        bytes.extend(payload);
        crate::ws::mask(&mut bytes[at..], key, 0);
    }
    let (answer, side) = after_upgrade(&bytes);
    let mut want = vec![0x8a, 13];
    want.extend(b"are you there");
    want.extend([0x88, 2, 0x03, 0xe8]);
    assert_eq!(answer, want);
    assert_eq!(side.received(StreamId::CONTROL), b"abcd");
    assert_eq!(side.closed(), Some(CloseCause::Peer { code: 0 }));
}

#[test]
fn http_that_is_no_upgrade_gets_an_answer() {
    let (answer, side) = raw_ws(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    let answer = String::from_utf8(answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 404 "), "{answer}");
    assert_eq!(side.events, []);
    assert_eq!(side.net.counters().handshake_failures, 1);
    let (answer, _) = raw_ws(&[b'x'; 20_000]);
    assert!(answer.starts_with(b"HTTP/1.1 431 ") || answer.starts_with(b"HTTP/1.1 400 "));
}

#[test]
fn certificates_are_replaced_without_dropping_connections() {
    for transport in [Transport::Tls, Transport::Quic] {
        let mut pair = Pair::new();
        let mut listen = listen_on(transport);
        listen.index = 3;
        let mut at = loopback();
        let (first, _) = pair.connect(listen, |addr| {
            at = addr;
            dial_to(transport, addr)
        });
        let own = rcgen::generate_simple_self_signed(vec!["localhost".into()]).unwrap();
        let (pem, key) = (own.cert.pem(), own.signing_key.serialize_pem());
        let options = ServerTlsOptions::new(pem.clone().into(), key.into());
        let tls = Arc::new(ServerTls::new(&options).unwrap());
        pair.server.net.set_tls(3, &tls);
        let mut config = dial_to(transport, at);
        let trusting = ClientTls::builder().ca_pem(pem.as_bytes()).unwrap();
        config.tls = Some(Arc::new(trusting.build().unwrap()));
        pair.client.events.clear();
        pair.client.net.dial(&config).unwrap();
        pair.until("new certificate", |p| p.client.opened().is_some());
        let _ = pair.client.send(first, StreamId::CONTROL, b"old one lives");
        pair.until_server_has(b"old one lives");
    }
}
