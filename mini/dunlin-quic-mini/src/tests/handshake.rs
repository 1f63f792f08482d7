//! Handshakes that must fail, and one that must not.

use alloc::vec;
use std::vec::Vec;

use crate::trial::server::{Answer, KEYS, Pair, extension, message};
use crate::{Error, State};

/// What a server does to what it would have said.
type Change<T> = fn(&mut T);

#[test]
fn an_honest_server_is_believed() {
    let (mut pair, _) = Pair::connected();
    assert_eq!(pair.client.state(), State::Connected);
    assert!(pair.client.is_resumed());
    pair.send(2, &[0x1e]);
    assert!(pair.client.is_confirmed());
}

#[test]
fn changed_messages_have_their_errors() {
    let cases: [(Change<Answer>, Error); 16] = [
        (|answer| answer.bad_finished = true, Error::Finished),
        (|answer| answer.suite = [0x13, 2], Error::CipherSuite),
        (|answer| answer.session = &[1], Error::SessionId),
        (|answer| answer.group = 0x1d, Error::KeyShare),
        (|answer| answer.bad_point = true, Error::BadPoint),
        (
            |answer| answer.hello = extension(43, &[3, 3]),
            Error::Downgrade,
        ),
        (|answer| answer.hello.clear(), Error::Downgrade),
        (
            |answer| answer.hello.extend(extension(99, &[])),
            Error::UnsupportedExtension,
        ),
        (
            |answer| {
                answer.random[..8]
                    .copy_from_slice(&[0xcf, 0x21, 0xad, 0x74, 0xe5, 0x9a, 0x61, 0x11]);
            },
            // A ticket cannot be chosen so early.
            Error::IllegalExtension,
        ),
        (
            |answer| {
                answer.hello = extension(43, &[3, 4]);
                answer.hello.extend(extension(41, &[0, 1]));
            },
            Error::PskIdentity,
        ),
        (|answer| answer.extensions.clear(), Error::Alpn),
        (
            |answer| answer.extensions = extension(16, b"\0\x03\x02h3"),
            Error::Alpn,
        ),
        (|answer| answer.parameters = None, Error::MissingParameters),
        (
            |answer| answer.extensions.extend(extension(42, &[])),
            Error::EarlyData,
        ),
        (
            |answer| answer.extensions.extend(extension(13, &[])),
            Error::IllegalExtension,
        ),
        (|answer| answer.extensions.push(0), Error::Decode),
    ];
    for (i, (change, want)) in cases.into_iter().enumerate() {
        assert_eq!(Pair::refused(change), Some(want), "case {i}");
    }
}

#[test]
fn changed_parameters_have_their_errors() {
    let cases: [(Change<Vec<u8>>, Error); 8] = [
        (|list| list[2] ^= 1, Error::ParameterIds),
        (|list| list[12] ^= 1, Error::ParameterIds),
        (|list| drop(list.drain(..10)), Error::ParameterIds),
        // A Retry that never was.
        (|list| list.extend([0x10, 1, 1]), Error::ParameterIds),
        // Twice.
        (|list| list.extend([4, 1, 1]), Error::TransportParameter),
        // A datagram of less than 1200 bytes.
        (|list| list.extend([3, 1, 9]), Error::TransportParameter),
        // Not as long as it says.
        (|list| list.extend([1, 2, 9]), Error::TransportParameter),
        (|list| list.extend([1]), Error::TransportParameter),
    ];
    for (i, (change, want)) in cases.into_iter().enumerate() {
        let got = Pair::refused(|answer| change(answer.parameters.as_mut().unwrap()));
        assert_eq!(got, Some(want), "case {i}");
    }
}

/// The error after these messages instead of a certificate.
fn instead_of_certificate(messages: &[u8]) -> Option<Error> {
    let mut pair = Pair::new(false);
    let mut answer = pair.honest();
    answer.hello = extension(43, &[3, 4]);
    pair.hello(&answer);
    let mut flight = pair.encrypted_extensions(&answer);
    flight.extend_from_slice(messages);
    pair.crypto(1, &flight);
    pair.client.error()
}

#[test]
fn certificates_that_are_none() {
    assert_eq!(instead_of_certificate(&[]), None);
    let cases: [(u8, &[u8], Error); 7] = [
        (11, &[0, 0, 0, 0], Error::NoCertificate),
        (11, &[1, 0, 0, 0, 0], Error::Decode),
        (11, &[0, 0, 0, 9, 0], Error::Decode),
        (
            11,
            &[0, 0, 0, 6, 0, 0, 1, 0x30, 0, 0],
            Error::CertificateEncoding,
        ),
        // The wrong message.
        (15, &[4, 3, 0, 0], Error::UnexpectedMessage),
        (20, &[0; 32], Error::UnexpectedMessage),
        (4, &[0; 12], Error::UnexpectedMessage),
    ];
    for (kind, body, want) in cases {
        let got = instead_of_certificate(&message(kind, body));
        assert_eq!(got, Some(want), "{kind} {body:?}");
    }
    // Longer than the buffer for it.
    assert_eq!(
        instead_of_certificate(&[11, 0, 5, 0]),
        Some(Error::CryptoBuffer)
    );
}

#[test]
fn certificates_with_the_pinned_key_and_a_wrong_signature() {
    // Only the key of this one means anything to a pinned client.
    let mut key = std::vec![0x30, 89];
    key.extend_from_slice(&[
        0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a, 0x86,
        0x48, 0xce, 0x3d, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00,
    ]);
    key.extend_from_slice(&KEYS[0]);
    let mut signed = std::vec![2, 1, 1, 0x30, 0, 0x30, 0, 0x30, 0, 0x30, 0];
    signed.extend_from_slice(&key);
    let mut certificate = std::vec![0x30, u8::try_from(signed.len() + 2).unwrap()];
    certificate.extend_from_slice(&[0x30, u8::try_from(signed.len()).unwrap()]);
    certificate.extend_from_slice(&signed);
    let len = u8::try_from(certificate.len()).unwrap();
    let mut body = std::vec![0, 0, 0, len + 5, 0, 0, len];
    body.extend_from_slice(&certificate);
    body.extend_from_slice(&[0, 0]);
    let chain = message(11, &body);
    assert_eq!(instead_of_certificate(&chain), None);
    let cases: [(&[u8], Error); 4] = [
        (&[8, 4, 0, 0], Error::SignatureScheme),
        (&[4, 3, 0, 8, 0x30, 6, 2, 1, 1, 2, 1, 1, 0], Error::Decode),
        (
            &[4, 3, 0, 8, 0x30, 6, 2, 1, 1, 2, 1, 1],
            Error::CertificateVerify,
        ),
        (&[4, 3, 0, 2, 0x30, 0], Error::CertificateVerify),
    ];
    for (verify, want) in cases {
        let mut both = chain.clone();
        both.extend(message(15, verify));
        assert_eq!(instead_of_certificate(&both), Some(want), "{verify:?}");
    }
}

#[test]
fn messages_may_not_straddle_keys() {
    let mut pair = Pair::new(true);
    // A second message behind the ServerHello, under the same keys.
    pair.send(0, &[6, 0x43, 0, 1, 8]);
    let answer = pair.honest();
    pair.hello(&answer);
    assert_eq!(pair.client.error(), Some(Error::Straddle));
}

#[test]
fn tickets_are_kept_if_they_make_sense() {
    let ticket = |early: u32, len: u16| {
        let mut body = std::vec![0, 0, 1, 0, 1, 2, 3, 4, 1, 0];
        body.extend_from_slice(&len.to_be_bytes());
        body.resize(body.len() + usize::from(len), 7);
        let extensions = extension(42, &early.to_be_bytes());
        body.extend_from_slice(&[0, 8]);
        body.extend_from_slice(&extensions);
        message(4, &body)
    };
    let (mut pair, _) = Pair::connected();
    pair.crypto(2, &ticket(u32::MAX, 40));
    assert_eq!(pair.client.error(), None);
    assert!(
        pair.client
            .ticket()
            .is_some_and(|bytes| bytes.ends_with(&[7; 40]))
    );
    // One that does not fit leaves none.
    pair.crypto(2, &ticket(u32::MAX, 960));
    assert_eq!((pair.client.error(), pair.client.ticket()), (None, None));
    pair.crypto(2, &ticket(100, 40));
    assert_eq!(pair.client.error(), Some(Error::TicketEarlyData));
    let (mut pair, _) = Pair::connected();
    // KeyUpdate is not for QUIC.
    pair.crypto(2, &message(24, &[0]));
    assert_eq!(pair.client.error(), Some(Error::UnexpectedMessage));
}

#[test]
fn a_second_hello_has_what_was_asked_for() {
    let cookie: [u8; 12] = [0, 44, 0, 8, 0, 6, 1, 2, 3, 4, 5, 6];
    let group: [u8; 6] = [0, 51, 0, 2, 0, 0x1d];
    for resume in [false, true] {
        for (with_cookie, with_group) in [(true, false), (false, true), (true, true)] {
            let mut pair = Pair::new(resume);
            let first = pair.transcript.clone();
            let mut asked = vec![0, 43, 0, 2, 3, 4];
            if with_cookie {
                asked.extend_from_slice(&cookie);
            }
            if with_group {
                asked.extend_from_slice(&group);
            }
            let hello = pair.ask(&asked).unwrap();
            // Random value, suites and all extensions in front of the share.
            let at = 41 + usize::from(first[40]) + 2;
            let share = first.windows(4).position(|w| w == [0, 51, 0, 71]).unwrap();
            assert_eq!(first[6..at], hello[6..at]);
            assert_eq!(first[at + 2..share], hello[at + 2..share]);
            let body = usize::from(u16::from_be_bytes([hello[2], hello[3]]));
            let list = usize::from(u16::from_be_bytes([hello[at], hello[at + 1]]));
            assert_eq!((body, list), (hello.len() - 4, hello.len() - at - 2));
            let has = |part: &[u8]| hello.windows(part.len()).any(|w| w == part);
            assert_eq!(has(&cookie), with_cookie);
            assert_eq!(has(&[0, 51, 0, 38, 0, 36, 0, 0x1d, 0, 32]), with_group);
            assert_eq!(has(&[0, 51, 0, 71, 0, 69, 0, 0x17, 0, 65]), !with_group);
            let mut answer = pair.honest();
            if with_group {
                answer.group = 0x1d;
            }
            if !resume {
                answer.hello = extension(43, &[3, 4]);
            }
            pair.hello(&answer);
            if resume {
                pair.finish(&answer);
                assert_eq!(pair.client.state(), State::Connected);
                assert!(pair.client.is_resumed());
            } else {
                // Its keys fit, or this would not be understood.
                let flight = pair.encrypted_extensions(&answer);
                pair.crypto(1, &flight);
                pair.crypto(1, &message(4, &[]));
                assert_eq!(pair.client.error(), Some(Error::UnexpectedMessage));
            }
        }
    }
}

#[test]
fn the_first_hello_is_not_sent_again() {
    let mut pair = Pair::new(true);
    let hello = pair
        .ask(&[0, 43, 0, 2, 3, 4, 0, 51, 0, 2, 0, 0x1d])
        .unwrap();
    // The probe has the second one, from where it begins.
    let mut out = [0; 1200];
    let wait = pair.client.timeout(pair.now).unwrap();
    let now = pair.now + wait;
    let len = pair.client.transmit(now, &mut out);
    assert!(len >= 1200);
    let payload = pair.open(0, &mut out[..len], 15);
    let at = payload.windows(hello.len()).any(|part| part == hello);
    assert!(at, "the second hello comes again");
}

#[test]
fn a_ticket_grows_older_between_two_hellos() {
    for gone in [0, 250, u32::MAX] {
        let mut pair = Pair::new(true);
        pair.now = gone;
        let group = [0, 43, 0, 2, 3, 4, 0, 51, 0, 2, 0, 0x1d];
        let hello = pair.ask(&group).unwrap();
        // In front of the binder; the ticket adds one.
        let age = &hello[hello.len() - 35 - 4..hello.len() - 35];
        assert_eq!(age, u32::to_be_bytes(gone.wrapping_add(1)));
    }
}
