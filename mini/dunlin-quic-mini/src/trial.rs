//! What one input of a fuzz target does: parsers by bytes, the client by
//! operations. Here because the parsers are private; the targets are in
//! `fuzz/`, and the tests replay their corpora.
//!
//! No input panics, and the same client with the same memory
//! connects again.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

use alloc::vec::Vec;

use dunlin_mini_crypto::Suite;

use crate::hello::Ticket;
use crate::params::Params;
use crate::wire::{Reader, Writer};
use crate::{Authority, Error, Name, Pinned, State, StreamId, Verifier};
use server::{KEYS, Pair, extension};

pub(crate) mod quick;
pub(crate) mod server;

/// Operations of one input at most, so that inputs stay quick.
const OPERATIONS: usize = 200;

/// In every case the client says why, and connects again.
fn survives(mut pair: Pair) {
    if pair.client.state() == State::Closing {
        let mut out = [0; 1200];
        assert!(pair.client.transmit(pair.now, &mut out) <= out.len());
    }
    let over = matches!(pair.client.state(), State::Closing | State::Closed);
    assert_eq!(over, pair.client.error().is_some());
    assert_ne!(pair.client.error(), Some(Error::Again), "not an end");
    let mut pair = pair.again();
    pair.shake();
    assert_eq!(pair.client.state(), State::Connected);
}

/// Parts of an input, each behind one byte of length.
fn parts(data: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = Reader(data);
    core::iter::from_fn(move || {
        let len = usize::from(rest.u8()?);
        rest.take(len.min(rest.0.len()))
    })
}

/// Datagrams of anybody, before and after the handshake.
pub fn packets(data: &[u8]) {
    let (mut connected, _) = Pair::connected();
    let mut begun = Pair::new(false);
    for part in parts(data) {
        connected.client.receive(1, &mut part.to_vec());
        // With the first bytes of what this client would believe.
        let mut known = connected.last.clone();
        for (to, from) in known.iter_mut().rev().zip(part.iter().rev()) {
            *to ^= from;
        }
        connected.client.receive(1, &mut known);
        begun.client.receive(1, &mut part.to_vec());
    }
    // Only the server can end a connection that is up.
    assert_eq!(connected.client.error(), None);
    survives(connected);
    survives(begun);
}

/// Payloads of the server's 1-RTT packets, or of Initial ones.
pub fn frames(data: &[u8]) {
    let (first, rest) = data.split_first().unwrap_or((&0, &[]));
    let (mut pair, level) = if first & 1 == 0 {
        (Pair::connected().0, 2)
    } else {
        (Pair::new(true), 0)
    };
    for part in parts(rest) {
        pair.send(level, part);
    }
    survives(pair);
}

/// Handshake messages: changes to what an honest server answers, a request for
/// another hello before it, and bytes instead of its certificate or behind its
/// Finished.
pub fn handshake(data: &[u8]) {
    let (first, rest) = data.split_first().unwrap_or((&0, &[]));
    let resume = first & 1 != 0;
    let mut pair = Pair::new(resume);
    let mut answer = pair.honest();
    if !resume {
        answer.hello = extension(43, &[3, 4]);
    }
    let mut parts = parts(rest);
    let mut part = || parts.next().unwrap_or_default();
    if first & 4 != 0 {
        pair.ask(part());
        if pair.client.error().is_some() {
            return survives(pair);
        }
    }
    answer.hello.extend_from_slice(part());
    answer.extensions.extend_from_slice(part());
    if let Some(parameters) = &mut answer.parameters {
        parameters.extend_from_slice(part());
    }
    answer.bad_finished = first & 2 != 0;
    pair.hello(&answer);
    if pair.client.error().is_none() && resume {
        pair.finish(&answer);
        if !answer.bad_finished && pair.client.error().is_none() {
            pair.crypto(2, part());
        }
        assert!(!answer.bad_finished || pair.client.error().is_some());
    } else if pair.client.error().is_none() {
        let mut flight = pair.encrypted_extensions(&answer);
        flight.extend_from_slice(part());
        flight.extend_from_slice(part());
        flight.extend_from_slice(part());
        pair.crypto(1, &flight);
        // Without the server's key there is no way to be believed.
        assert_ne!(pair.client.state(), State::Connected);
    }
    survives(pair);
}

/// Certificates, for a pinned key and for an authority whose signature is
/// always right: only so the fields behind it are read.
pub fn certificate(data: &[u8]) {
    let mut crypto = server::host();
    crypto.believes = true;
    let pinned = Pinned::new(&KEYS).verify(&mut crypto, data);
    assert!(pinned.is_err() || pinned == Ok(KEYS[0]));
    for name in [
        Name::Host(b"broker.example.net"),
        Name::Address(&[127, 0, 0, 1]),
    ] {
        for now in [None, Some(0), Some(1_782_864_000), Some(u32::MAX)] {
            let _ = Authority::new(&KEYS[0], name, now).verify(&mut crypto, data);
        }
    }
}

/// Transport parameters.
pub fn parameters(data: &[u8]) {
    if let Ok(params) = Params::read(Reader(data)) {
        assert!(params.ack_exponent <= 20 && params.max_ack_delay < 1 << 14);
    }
}

/// Tickets as they are stored, and as the server sends them.
pub fn ticket(data: &[u8]) {
    let mut crypto = server::host();
    if let Some(ticket) = Ticket::read(data) {
        let _ = ticket.is_fresh(u32::MAX);
    }
    let mut out = [0; 300];
    let mut writer = Writer::new(&mut out);
    let stored = Ticket::store(
        &mut crypto,
        &[1; 32],
        (&Params::NEW, &[0; 8], Suite::Aes128Gcm),
        Reader(data),
        &mut writer,
    );
    let len = writer.len();
    if stored.is_ok() && !writer.full() {
        assert!(
            Ticket::read(&out[..len]).is_some(),
            "what is written is read"
        );
    }
}

/// What an application, the network and the server do, one after the other.
pub fn operations(data: &[u8]) {
    let (mut pair, id) = Pair::connected();
    let mut ids: Vec<StreamId> = Vec::from([id, StreamId::nth(7)]);
    let mut input = Reader(data);
    for _ in 0..OPERATIONS {
        let (Some(kind), Some(n)) = (input.u8(), input.u8()) else {
            break;
        };
        let id = ids[usize::from(n) % ids.len()];
        match kind % 16 {
            0 => ids.extend(pair.client.open()),
            1 => assert!(
                pair.client
                    .write(id, &[n; 256][..usize::from(n)])
                    .unwrap_or(0)
                    <= 255
            ),
            2 => drop(pair.client.finish(id)),
            3 => drop(pair.client.reset(id, u32::from(n))),
            4 => {
                let len = pair.client.received(id).map_or(0, |(data, _)| data.len());
                assert!(len <= 512, "a window of 512 bytes");
                pair.client.consume(id, usize::from(n));
            }
            5 if n == 0 => pair.client.close(pair.now, 7),
            5 | 6 => {
                let _ = pair.client.update_keys();
            }
            7 => {
                let _ = pair.client.migrate();
            }
            8 => pair.client.ping(),
            9 => transmit(&mut pair, 1472),
            // A buffer that is too small for most packets.
            10 => transmit(&mut pair, usize::from(n)),
            11 => pair.now = pair.now.wrapping_add(u32::from(n) << (n & 7)),
            12 => {
                let len = usize::from(n).min(input.0.len());
                pair.send(2, input.take(len).unwrap_or_default());
            }
            13 => {
                let mut last = pair.last.clone();
                pair.client.receive(pair.now, &mut last);
            }
            14 => pair.send(2, &[2, n & 0x3f, 0, 0, 0]),
            _ => {
                let offset = input.u8().unwrap_or(0);
                pair.send(2, &[0x0e, n & 4, 0x40, offset, 3, 1, 2, 3]);
            }
        }
        let _ = pair.client.timeout(pair.now);
    }
    survives(pair);
}

fn transmit(pair: &mut Pair, room: usize) {
    let mut out = [0; 1472];
    for _ in 0..100 {
        let len = pair.client.transmit(pair.now, &mut out[..room]);
        if len == 0 {
            return;
        }
        assert!(len <= room);
    }
    panic!("a hundred datagrams at once");
}
