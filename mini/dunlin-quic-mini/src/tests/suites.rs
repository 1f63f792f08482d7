//! Which cipher suite a server may choose, and what the choice is good for.

use std::vec::Vec;

use dunlin_mini_crypto::Suite;

use crate::trial::server::{Answer, Pair};
use crate::{Error, State};

const CHACHA: [u8; 2] = [0x13, 3];
const AES: [u8; 2] = [0x13, 1];
const OTHER: Suite = Suite::ChaCha20Poly1305;

/// What an honest server with this suite answers.
fn with_suite(pair: &Pair, suite: [u8; 2], early: bool) -> Answer {
    let mut answer = pair.honest();
    answer.suite = suite;
    if early {
        answer.extensions.extend([0, 42, 0, 0]);
    }
    answer
}

/// The suites of a hello.
fn offered(pair: &Pair) -> Vec<u8> {
    let hello = &pair.transcript;
    let len = usize::from(u16::from_be_bytes([hello[39], hello[40]]));
    hello[41..41 + len].to_vec()
}

#[test]
fn either_suite_carries_a_connection() {
    for (chosen, suite) in [(AES, Suite::Aes128Gcm), (CHACHA, OTHER)] {
        let mut pair = Pair::new(true);
        let answer = with_suite(&pair, chosen, false);
        pair.hello(&answer);
        pair.finish(&answer);
        assert_eq!(pair.client.state(), State::Connected);
        assert_eq!(pair.client.suite(), suite);
        // HANDSHAKE_DONE, then a PING under new keys of the server's.
        pair.send(2, &[0x1e]);
        assert!(pair.client.is_confirmed());
        let id = pair.client.open().unwrap();
        pair.client.write(id, b"ping").unwrap();
        let said = pair.said();
        assert!(said.windows(4).any(|part| part == b"ping"));
    }
}

#[test]
fn what_was_not_offered_is_refused() {
    for number in [0, 2, 4, 5] {
        let refused = Pair::refused(|answer| answer.suite = [0x13, number]);
        assert_eq!(refused, Some(Error::CipherSuite), "{number}");
        let mut pair = Pair::new(true);
        let group = [0, 43, 0, 2, 3, 4, 0, 51, 0, 2, 0, 0x1d];
        assert_eq!(pair.ask_with(number, &group), None);
        assert_eq!(pair.client.error(), Some(Error::CipherSuite), "{number}");
    }
}

#[test]
fn a_request_for_another_hello_binds_the_server() {
    for (asked, then, want) in [
        (1, AES, None),
        (3, CHACHA, None),
        (1, CHACHA, Some(Error::CipherSuite)),
        (3, AES, Some(Error::CipherSuite)),
    ] {
        let mut pair = Pair::new(true);
        let first = offered(&pair);
        let group = [0, 43, 0, 2, 3, 4, 0, 51, 0, 2, 0, 0x1d];
        let second = pair.ask_with(asked, &group).unwrap();
        assert_eq!(second[41..41 + first.len()], first);
        let mut answer = with_suite(&pair, then, false);
        answer.group = 0x1d;
        pair.hello(&answer);
        if want.is_none() {
            pair.finish(&answer);
            assert_eq!(pair.client.state(), State::Connected);
        }
        assert_eq!(pair.client.error(), want, "{asked} {then:?}");
    }
}

#[test]
fn the_suite_of_the_ticket_is_offered_first() {
    for (ticket, first) in [
        (None, AES),
        (Some((Suite::Aes128Gcm, false)), AES),
        (Some((OTHER, false)), CHACHA),
    ] {
        let list = offered(&Pair::resuming(ticket));
        assert_eq!((list.len(), &list[..2]), (4, &first[..]));
        assert_ne!(list[..2], list[2..]);
    }
}

#[test]
fn early_data_is_for_the_suite_of_the_ticket() {
    for (ticket, early, chosen, want) in [
        (Suite::Aes128Gcm, true, AES, None),
        (OTHER, true, CHACHA, None),
        // The ticket still stands for the server: the hash is the same.
        (Suite::Aes128Gcm, false, CHACHA, None),
        (OTHER, false, AES, None),
        // RFC 8446 section 4.2.10.
        (Suite::Aes128Gcm, true, CHACHA, Some(Error::EarlyData)),
        (OTHER, true, AES, Some(Error::EarlyData)),
    ] {
        let mut pair = Pair::resuming(Some((ticket, true)));
        assert!(pair.client.is_usable());
        assert_eq!(pair.client.suite(), ticket);
        let answer = with_suite(&pair, chosen, early);
        pair.hello(&answer);
        pair.finish(&answer);
        assert_eq!(pair.client.error(), want, "{ticket:?} {chosen:?} {early}");
        if want.is_none() {
            assert_eq!(pair.client.state(), State::Connected);
            assert!(pair.client.is_resumed());
            assert_eq!(pair.client.took_early_data(), early);
        }
    }
}

#[test]
fn tickets_tell_their_suite() {
    for (chosen, form) in [(AES, 2), (CHACHA, 3)] {
        let mut pair = Pair::new(true);
        let answer = with_suite(&pair, chosen, false);
        pair.hello(&answer);
        pair.finish(&answer);
        let body = [0, 0, 1, 0, 1, 2, 3, 4, 1, 0, 0, 2, 7, 7, 0, 0];
        pair.crypto(2, &crate::trial::server::message(4, &body));
        let first = pair.client.ticket().and_then(|ticket| ticket.first());
        assert_eq!(first, Some(&form));
    }
}
