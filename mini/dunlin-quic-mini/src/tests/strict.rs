//! Rules that a connection works without, until an attacker in the path or a bad
//! day makes use of it.

use std::vec::Vec;

use crate::trial::server::{ID, KEYS, Pair, extension, host, message};
use crate::{
    Authority, Buffers, Client, Config, Error, Memory, Name, Pinned, Point, Resume, Verifier,
};

/// A Retry with this source and token, genuine or not.
fn retry(pair: &mut Pair, source: &[u8], token: usize, genuine: bool) -> Vec<u8> {
    let mut packet = std::vec![0xf0, 0, 0, 0, 1, 0, u8::try_from(source.len()).unwrap()];
    packet.extend_from_slice(source);
    packet.resize(packet.len() + token, 7);
    let mut tag = pair.retry_tag(&packet);
    tag[0] ^= u8::from(!genuine);
    packet.extend_from_slice(&tag);
    packet
}

#[test]
fn servers_have_no_tokens() {
    let mut pair = Pair::new(true);
    pair.token = 3;
    let answer = pair.honest();
    pair.hello(&answer);
    assert_eq!(pair.client.error(), None);
    let mut out = [0; 1200];
    // Nothing was heard: there is nothing to acknowledge.
    assert_eq!(pair.client.transmit(1, &mut out), 0);
}

#[test]
fn a_retry_must_bring_another_id() {
    let mut pair = Pair::new(true);
    let original = pair.original;
    let mut out = [0; 1200];
    let mut same = retry(&mut pair, &original, 40, true);
    pair.client.receive(1, &mut same);
    assert_eq!(pair.client.transmit(1, &mut out), 0, "it is ignored");
    let mut other = retry(&mut pair, &ID, 40, true);
    pair.client.receive(1, &mut other);
    assert_eq!(pair.client.transmit(1, &mut out), 1200, "once more");
}

#[test]
fn a_forged_retry_of_any_length_ends_nothing() {
    for token in [40, 192, 193, 900, 1400] {
        let mut pair = Pair::new(true);
        let mut forged = retry(&mut pair, &ID, token, false);
        pair.client.receive(1, &mut forged);
        assert_eq!(pair.client.error(), None, "{token}");
        pair.shake();
    }
}

#[test]
fn repeated_packets_are_no_sign_of_life() {
    let mut out = [0; 1200];
    for (repeated, want) in [(true, Some(Error::IdleTimeout)), (false, None)] {
        let (mut pair, _) = Pair::connected();
        pair.send(2, &[1]);
        while pair.client.transmit(2, &mut out) > 0 {}
        pair.now = 9_000;
        if repeated {
            let mut copy = pair.last.clone();
            pair.client.receive(pair.now, &mut copy);
        } else {
            pair.send(2, &[1]);
        }
        pair.client.transmit(10_001, &mut out);
        assert_eq!(pair.client.error(), want);
    }
}

#[test]
fn a_server_that_may_send_no_more_is_asked() {
    let mut pair = Pair::new(false);
    let mut answer = pair.honest();
    answer.hello = extension(43, &[3, 4]);
    // The first datagrams of the server acknowledge the hello ...
    pair.send(0, &[2, 0, 0, 0, 0]);
    pair.hello(&answer);
    let flight = pair.encrypted_extensions(&answer);
    pair.crypto(1, &flight);
    // ... and what the client says to them is lost, so that the server has not
    // seen the client's address yet, and waits.
    let mut out = [0; 1200];
    while pair.client.transmit(2, &mut out) > 0 {}
    let wait = pair.client.timeout(2).unwrap();
    assert!(wait < 5_000, "{wait}");
    assert!(pair.client.transmit(2 + wait, &mut out) > 0);
    assert_eq!(out[0] >> 4, 0xe, "a Handshake packet");
}

#[test]
fn a_week_is_the_end_of_a_ticket() {
    for (lifetime, kept) in [
        (0, 0),
        (7_200, 7_200),
        (604_801, 604_800),
        (u32::MAX, 604_800),
    ] {
        let (mut pair, _) = Pair::connected();
        let mut body = u32::to_be_bytes(lifetime).to_vec();
        body.extend_from_slice(&[1, 2, 3, 4, 1, 0, 0, 2, 7, 7, 0, 0]);
        pair.crypto(2, &message(4, &body));
        let ticket = pair.client.ticket().unwrap();
        assert_eq!(ticket[2..6], u32::to_be_bytes(kept), "{lifetime}");
    }
}

#[test]
fn more_ids_to_give_back_than_are_remembered() {
    // Each one retires the one before. Nothing is acknowledged, so that probes
    // repeat what is in flight while the list is full.
    let id = |sequence: u8| {
        let mut frame = std::vec![0x18, sequence, sequence, 4];
        frame.extend_from_slice(&[sequence; 20]);
        frame
    };
    let (mut pair, _) = Pair::connected();
    pair.send(2, &[0x1e]);
    let mut out = [0; 1200];
    for sequence in 1..=4 {
        pair.send(2, &id(sequence));
    }
    while pair.client.transmit(2, &mut out) > 0 {}
    for sequence in 5..=8 {
        pair.send(2, &id(sequence));
    }
    let wait = pair.client.timeout(3).unwrap();
    assert!(pair.client.transmit(3 + wait.max(3_000), &mut out) > 0);
    assert_eq!(pair.client.error(), None);
}

/// Whether a client with this configuration offers a ticket.
fn offers(ticket: &[u8], name: &[u8], alpn: &[u8], keys: &[Point]) -> bool {
    let mut buffers: Buffers = Buffers::new();
    let mut client = Client::new(host(), Pinned::new(keys), &mut buffers);
    let config = Config {
        name,
        alpn,
        idle_ms: 10_000,
        max_datagram: 1472,
        token: &[],
        resume: Some(Resume {
            ticket,
            age_ms: 0,
            early: false,
        }),
    };
    client.connect(0, &config).unwrap();
    drop(client);
    let hello = buffers.parts().hello;
    hello.windows(20).any(|identity| identity == [7; 20])
}

#[test]
fn a_ticket_is_for_those_who_are_believed() {
    let (mut pair, _) = Pair::connected();
    let mut body = std::vec![0, 0, 1, 0, 1, 2, 3, 4, 1, 0, 0, 20];
    body.extend_from_slice(&[7; 20]);
    body.extend_from_slice(&[0, 0]);
    pair.crypto(2, &message(4, &body));
    let ticket = pair.client.ticket().unwrap();
    assert!(offers(ticket, b"broker", b"mqtt", &KEYS));
    assert!(!offers(ticket, b"other", b"mqtt", &KEYS), "a name");
    assert!(!offers(ticket, b"broker", b"h3", &KEYS), "a protocol");
    let (old, new) = (KEYS[0], [5; 65]);
    for keys in [&[new][..], &[old, new], &[new, old], &[]] {
        assert!(!offers(ticket, b"broker", b"mqtt", keys), "other keys");
    }
    // Of the form before, which says nothing of whom it is for.
    let mut before = ticket.to_vec();
    before[0] = 1;
    assert!(!offers(&before, b"broker", b"mqtt", &KEYS));
}

#[test]
fn nothing_is_left_in_the_buffers() {
    let mut buffers: Buffers = Buffers::new();
    let parts = buffers.parts();
    for bytes in [parts.hello, parts.handshake, parts.send, parts.receive] {
        bytes.fill(7);
    }
    Client::new(host(), Pinned::new(&KEYS), &mut buffers).clear();
    let parts = buffers.parts();
    for bytes in [parts.hello, parts.handshake, parts.send, parts.receive] {
        assert!(bytes.iter().all(|&byte| byte == 0));
    }
}

#[test]
fn certificates_have_one_form() {
    let seed = include_bytes!("../../../../fuzz/corpus/mini_certificate/usages");
    let mut crypto = host();
    crypto.believes = true;
    let mut read = |certificate: &[u8]| {
        let name = Name::Host(b"broker.example.net");
        let verifier = Authority::new(&KEYS[0], name, None);
        verifier.verify(&mut crypto, certificate).map(|_| ())
    };
    assert_eq!(read(seed), Ok(()));
    // The critical flag of the usages: DER has one byte for true, and none for
    // what is the default.
    assert_eq!(seed[383..386], [1, 1, 0xff]);
    for flag in [0, 1, 0xfe] {
        let mut other = seed.to_vec();
        other[385] = flag;
        assert_eq!(read(&other), Err(Error::CertificateEncoding), "{flag}");
    }
    // Behind the signature, and as a parameter of its algorithm.
    for (at, want) in [
        (seed.len(), Error::CertificateEncoding),
        (404, Error::CertificateAlgorithm),
    ] {
        let mut other = seed.to_vec();
        other.splice(at..at, [5, 0]);
        other[3] += 2;
        other[393] += if at == 404 { 2 } else { 0 };
        assert_eq!(read(&other), Err(want), "{at}");
    }
}
