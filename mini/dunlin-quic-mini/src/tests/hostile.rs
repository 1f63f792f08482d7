//! What a hostile server or network does, one row each: refused with a code of
//! its own or ignored, and the same client with the same memory connects again.

use alloc::vec;
use alloc::vec::Vec;
use std::collections::HashSet;

use crate::trial::server::{Answer, ID, Pair, extension, message};
use crate::{Error, State};

/// A connection after something was done to it, and what it must say.
type Case = (&'static str, fn() -> Pair, Option<Error>);

/// After a handshake in which the server says something else.
fn said(change: impl FnOnce(&mut Answer)) -> Pair {
    let mut pair = Pair::new(true);
    let mut answer = pair.honest();
    change(&mut answer);
    pair.hello(&answer);
    if pair.client.error().is_none() {
        pair.finish(&answer);
    }
    pair
}

/// After a payload of the server's on a connection that is up.
fn sent(frames: &[u8]) -> Pair {
    let (mut pair, _) = Pair::connected();
    pair.send(2, frames);
    pair
}

/// After a datagram that anybody could send, before the server has spoken.
fn heard(datagram: impl FnOnce(&mut Pair) -> Vec<u8>) -> Pair {
    let mut pair = Pair::new(true);
    let mut datagram = datagram(&mut pair);
    pair.client.receive(1, &mut datagram);
    pair
}

/// After a HelloRetryRequest with this behind its version.
fn asked(extensions: &[u8]) -> Pair {
    let mut pair = Pair::new(true);
    pair.ask(&[&[0, 43, 0, 2, 3, 4], extensions].concat());
    pair
}

/// A cookie of this many bytes.
fn cookie(len: u16) -> Vec<u8> {
    let mut body = len.to_be_bytes().to_vec();
    body.resize(2 + usize::from(len), 7);
    extension(44, &body)
}

fn asked_twice() -> Pair {
    let mut pair = asked(&cookie(9));
    assert_eq!(pair.client.error(), None);
    pair.ask(&[0, 43, 0, 2, 3, 4, 0, 51, 0, 2, 0, 0x1d]);
    pair
}

fn asked_and_answered_with_another() -> Pair {
    let mut pair = asked(&[0, 51, 0, 2, 0, 0x1d]);
    assert_eq!(pair.client.error(), None);
    let answer = pair.honest();
    pair.hello(&answer);
    pair
}

fn wrong_transcript() -> Pair {
    let mut pair = Pair::new(true);
    // The server has read another hello than this client wrote.
    pair.transcript[20] ^= 1;
    let answer = pair.honest();
    pair.hello(&answer);
    // Its keys are others as well, so that nothing of it is understood.
    pair.finish(&answer);
    pair
}

fn wrong_transcript_later() -> Pair {
    let mut pair = Pair::new(true);
    let answer = pair.honest();
    pair.hello(&answer);
    pair.transcript[20] ^= 1;
    pair.finish(&answer);
    pair
}

fn id(sequence: u8, byte: u8) -> Vec<u8> {
    let mut frame = vec![0x18, sequence, 0, 4];
    frame.extend_from_slice(&[byte; 20]);
    frame
}

fn ids() -> Pair {
    let mut pair = sent(&id(1, 1));
    pair.send(2, &id(2, 2));
    pair.send(2, &id(3, 3));
    pair
}

/// After a Certificate message with this body.
fn shown(certificate: &[u8]) -> Pair {
    let mut pair = Pair::new(false);
    let mut answer = pair.honest();
    answer.hello = extension(43, &[3, 4]);
    pair.hello(&answer);
    let mut flight = pair.encrypted_extensions(&answer);
    flight.extend(message(11, certificate));
    flight.truncate(900);
    pair.crypto(1, &flight);
    pair
}

fn ticket_that_was_not_offered() -> Pair {
    let mut pair = Pair::new(false);
    let answer = pair.honest();
    pair.hello(&answer);
    pair
}

fn name_that_was_not_said() -> Pair {
    let mut pair = Pair::nameless();
    let mut answer = pair.honest();
    answer.extensions.extend([0, 0, 0, 0]);
    pair.hello(&answer);
    pair.finish(&answer);
    pair
}

/// After a ticket with what is behind its nonce.
fn given(ticket: &[u8]) -> Pair {
    let (mut pair, _) = Pair::connected();
    let body = [&[0, 0, 1, 0, 1, 2, 3, 4, 1, 0], ticket].concat();
    pair.crypto(2, &message(4, &body));
    pair
}

fn early_data_twice_in_a_ticket() -> Pair {
    let early = [0, 42, 0, 4, 255, 255, 255, 255];
    given(&[&[0, 1, 7, 0, 16][..], &early, &early].concat())
}

fn retry(token: usize) -> Pair {
    heard(|pair| {
        let mut packet = vec![0xf0, 0, 0, 0, 1, 0, 5];
        packet.extend_from_slice(&ID);
        packet.resize(packet.len() + token, 7);
        let tag = pair.retry_tag(&packet);
        packet.extend_from_slice(&tag);
        packet
    })
}

fn forged_retry() -> Pair {
    heard(|_| {
        let mut packet = vec![0xf0, 0, 0, 0, 1, 0, 5];
        packet.extend_from_slice(&ID);
        packet.extend_from_slice(&[7; 40]);
        packet
    })
}

fn versions() -> Pair {
    heard(|pair| {
        let mut packet = vec![0x80, 0, 0, 0, 0, 0, 8];
        packet.extend_from_slice(&pair.original);
        packet.extend_from_slice(&[0x0a, 0x0a, 0x0a, 0x0a]);
        packet
    })
}

fn replayed() -> Pair {
    let mut pair = sent(&[0x0e, 0, 0, 2, b'h', b'i']);
    for _ in 0..100 {
        let mut copy = pair.last.clone();
        pair.client.receive(1, &mut copy);
    }
    pair
}

fn altered() -> Pair {
    let mut pair = sent(&[1]);
    for at in 0..pair.last.len() {
        let mut copy = pair.last.clone();
        copy[at] ^= 1;
        pair.client.receive(1, &mut copy);
    }
    pair
}

fn gaps() -> Pair {
    let (mut pair, _) = Pair::connected();
    for offset in 0..100 {
        pair.send(2, &[0x0e, 0, 0x40, 2 * offset + 2, 1, b'x']);
    }
    pair
}

fn challenges() -> Pair {
    let (mut pair, _) = Pair::connected();
    for byte in 0..100 {
        pair.send(2, &[0x1a, byte, 1, 1, 1, 1, 1, 1, 1]);
    }
    pair
}

fn long_token() -> Pair {
    let mut frame = vec![7, 0x43, 0];
    frame.resize(3 + 0x300, 7);
    sent(&frame)
}

fn long_ticket() -> Pair {
    let (mut pair, _) = Pair::connected();
    let mut body = vec![0, 0, 1, 0, 1, 2, 3, 4, 1, 0, 3, 0xc0];
    body.resize(12 + 0x3c0, 7);
    body.extend_from_slice(&[0, 0]);
    pair.crypto(2, &message(4, &body));
    assert_eq!(pair.client.ticket(), None);
    pair
}

fn packets_without_acknowledgement() -> Pair {
    let (mut pair, id) = Pair::connected();
    let mut out = [0; 1200];
    for turn in 0..300 {
        let _ = pair.client.write(id, b"more");
        pair.client.ping();
        while pair.client.transmit(1 + turn, &mut out) > 0 {}
    }
    pair
}

fn all_streams() -> Pair {
    let (mut pair, id) = Pair::connected();
    assert!(pair.client.open().is_ok());
    assert_eq!(pair.client.open(), Err(Error::NoStreamLeft));
    // And all of the send buffer, of which four bytes are in use.
    assert_eq!(pair.client.write(id, &[1; 900]), Ok(508));
    assert_eq!(pair.client.write(id, &[1; 900]), Ok(0));
    pair
}

const CASES: [Case; 62] = [
    (
        "altered Finished",
        || said(|answer| answer.bad_finished = true),
        Some(Error::Finished),
    ),
    (
        "another transcript from the first message on",
        wrong_transcript,
        None,
    ),
    (
        "another transcript for Finished",
        wrong_transcript_later,
        Some(Error::Finished),
    ),
    (
        "TLS 1.2",
        || said(|answer| answer.hello.clear()),
        Some(Error::Downgrade),
    ),
    (
        "another suite",
        || said(|answer| answer.suite = [0x13, 2]),
        Some(Error::CipherSuite),
    ),
    (
        "another group",
        || said(|answer| answer.group = 0x1d),
        Some(Error::KeyShare),
    ),
    (
        "a request for the same hello",
        || asked(&[]),
        Some(Error::HelloRetry),
    ),
    (
        "a request for the share that was there",
        || asked(&[0, 51, 0, 2, 0, 0x17]),
        Some(Error::KeyShare),
    ),
    (
        "a request for a group that was not offered",
        || asked(&[0, 51, 0, 2, 0, 0x18]),
        Some(Error::KeyShare),
    ),
    (
        "a request with an extension that was not offered",
        || asked(&[0, 5, 0, 0]),
        Some(Error::UnsupportedExtension),
    ),
    (
        "a request with an extension that belongs elsewhere",
        || asked(&[0, 45, 0, 0]),
        Some(Error::IllegalExtension),
    ),
    (
        "a request for a group and for a group",
        || asked(&[0, 51, 0, 2, 0, 0x1d].repeat(2)),
        Some(Error::IllegalExtension),
    ),
    (
        "a request with an empty cookie",
        || asked(&cookie(0)),
        Some(Error::Decode),
    ),
    (
        "a request with a cookie that is cut off",
        || asked(&[0, 44, 0, 3, 0, 9, 9]),
        Some(Error::Decode),
    ),
    (
        "a request with a cookie that does not fit",
        || asked(&cookie(255)),
        Some(Error::Cookie),
    ),
    (
        "a request that is cut off",
        || asked(&[cookie(250), vec![0, 51, 0, 2, 0]].concat()),
        Some(Error::Decode),
    ),
    (
        "a second request",
        asked_twice,
        Some(Error::UnexpectedMessage),
    ),
    (
        "another group than the one asked for",
        asked_and_answered_with_another,
        Some(Error::KeyShare),
    ),
    (
        "no point of the curve",
        || said(|answer| answer.bad_point = true),
        Some(Error::BadPoint),
    ),
    (
        "an extension of the hello that was not offered",
        || said(|answer| answer.hello.extend([0x3a, 0x3a, 0, 0])),
        Some(Error::UnsupportedExtension),
    ),
    (
        "an extension of the hello that belongs elsewhere",
        || said(|answer| answer.hello.extend(extension(16, b"\0\x05\x04mqtt"))),
        Some(Error::IllegalExtension),
    ),
    (
        "an extension of the hello that comes twice",
        || said(|answer| answer.hello.extend(extension(43, &[3, 4]))),
        Some(Error::IllegalExtension),
    ),
    (
        "a ticket that was not offered",
        ticket_that_was_not_offered,
        Some(Error::UnsupportedExtension),
    ),
    (
        "an encrypted extension that was not offered",
        || said(|answer| answer.extensions.extend([0, 5, 0, 0])),
        Some(Error::UnsupportedExtension),
    ),
    (
        "an answer to a name that was not said",
        name_that_was_not_said,
        Some(Error::UnsupportedExtension),
    ),
    (
        "an encrypted extension that belongs elsewhere",
        || said(|answer| answer.extensions.extend(extension(43, &[3, 4]))),
        Some(Error::IllegalExtension),
    ),
    (
        "an encrypted extension that comes twice",
        || said(|answer| answer.extensions.extend_from_within(..)),
        Some(Error::IllegalExtension),
    ),
    (
        "encrypted extensions that leave something",
        || {
            let mut pair = Pair::new(true);
            let answer = pair.honest();
            pair.hello(&answer);
            let mut extensions = pair.encrypted_extensions(&answer);
            extensions[3] += 1;
            extensions.push(0);
            pair.crypto(1, &extensions);
            pair
        },
        Some(Error::Decode),
    ),
    (
        "a certificate with an extension",
        || shown(&[0, 0, 0, 10, 0, 0, 1, 7, 0, 4, 0, 5, 0, 0]),
        Some(Error::UnsupportedExtension),
    ),
    (
        "a list of certificates that is cut off",
        || shown(&[0, 0, 0, 4, 0, 0, 1, 7]),
        Some(Error::Decode),
    ),
    (
        "a ticket that allows early data twice",
        early_data_twice_in_a_ticket,
        Some(Error::IllegalExtension),
    ),
    (
        "a ticket of no bytes",
        || given(&[0, 0, 0, 0]),
        Some(Error::Decode),
    ),
    (
        "parameters that come twice",
        || said(|answer| answer.parameters.as_mut().unwrap().extend([4, 1, 1])),
        Some(Error::TransportParameter),
    ),
    (
        "no protocol",
        || said(|answer| answer.extensions.clear()),
        Some(Error::Alpn),
    ),
    (
        "no parameters",
        || said(|answer| answer.parameters = None),
        Some(Error::MissingParameters),
    ),
    (
        "a Retry in the parameters that never was",
        || said(|answer| answer.parameters.as_mut().unwrap().extend([0x10, 1, 1])),
        Some(Error::ParameterIds),
    ),
    ("forged Retry", forged_retry, None),
    (
        "Retry with a token that does not fit",
        || retry(300),
        Some(Error::RetryToken),
    ),
    ("genuine Retry", || retry(60), None),
    ("another version", versions, Some(Error::VersionNegotiation)),
    ("replayed packets", replayed, None),
    ("altered packets", altered, None),
    ("no frame", || sent(&[]), Some(Error::EmptyPacket)),
    ("zero lengths", || sent(&[0x0e, 0, 0, 0, 6, 0, 0]), None),
    ("an empty token", || sent(&[7, 0]), Some(Error::EmptyToken)),
    (
        "an id of no length",
        || sent(&[0x18, 1, 0, 0]),
        Some(Error::FrameEncoding),
    ),
    (
        "a huge offset",
        || sent(&[0x0e, 0, 0xff, 255, 255, 255, 255, 255, 255, 255, 1, 1]),
        Some(Error::StreamFlowControl),
    ),
    (
        "a huge length",
        || sent(&[0x0e, 0, 0, 0xff, 255, 255, 255, 255, 255, 255, 255]),
        Some(Error::FrameEncoding),
    ),
    (
        "a huge acknowledgement",
        || sent(&[2, 0xff, 255, 255, 255, 255, 255, 255, 255, 0, 0, 0]),
        Some(Error::AckUnsent),
    ),
    (
        "a million ranges",
        || sent(&[2, 0, 0, 0x80, 15, 66, 64, 0, 0, 0]),
        Some(Error::AckRange),
    ),
    (
        "handshake data beyond the buffer",
        || sent(&[6, 0x48, 0, 1, 1]),
        Some(Error::CryptoBuffer),
    ),
    (
        "a certificate beyond the buffer",
        || shown(&[0; 1100]),
        Some(Error::CryptoBuffer),
    ),
    (
        "stream data beyond the window",
        || sent(&[0x0e, 0, 0x42, 0, 1, 1]),
        Some(Error::StreamFlowControl),
    ),
    ("gaps beyond the memory for them", gaps, None),
    (
        "ids beyond the memory for them",
        ids,
        Some(Error::ConnectionIdLimit),
    ),
    ("challenges beyond the memory for them", challenges, None),
    ("a token beyond the memory for it", long_token, None),
    ("a ticket beyond the memory for it", long_ticket, None),
    (
        "packets in flight beyond the memory for them",
        packets_without_acknowledgement,
        None,
    ),
    (
        "streams and send buffers beyond the memory",
        all_streams,
        None,
    ),
    (
        "a stream of the server",
        || sent(&[0x0a, 1, 1, 1]),
        Some(Error::StreamLimit),
    ),
    (
        "a frame that does not exist",
        || sent(&[0x3f]),
        Some(Error::UnknownFrame),
    ),
];

#[test]
fn hostile_cases_have_their_codes_and_the_client_lives_on() {
    for (name, act, want) in CASES {
        let pair = act();
        assert_eq!(pair.client.error(), want, "{name}");
        let over = matches!(pair.client.state(), State::Closing | State::Closed);
        assert_eq!(over, want.is_some(), "{name}");
        let mut pair = pair.again();
        pair.shake();
        assert_eq!(pair.client.state(), State::Connected, "{name}");
        let id = pair.client.open().unwrap();
        assert_eq!(pair.client.write(id, b"on"), Ok(2), "{name}");
        pair.send(2, &[0x0e, 0, 0, 2, b'o', b'k']);
        assert_eq!(pair.client.received(id), Ok((&b"ok"[..], false)), "{name}");
    }
    let codes: HashSet<u8> = CASES
        .iter()
        .filter_map(|case| Some(case.2? as u8))
        .collect();
    // Lengths and buffers of one kind share a code.
    assert_eq!(codes.len(), 27);
}
