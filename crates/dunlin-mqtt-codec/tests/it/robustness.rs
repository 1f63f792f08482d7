//! No bytes make the codec panic, and what it accepts it can write again: each
//! input goes through the body of the fuzz target.

use dunlin_mqtt_codec::{decode, peek};

use crate::corpus::run as check;
use crate::vectors::cases;

#[test]
fn every_prefix_of_every_case() {
    for case in cases() {
        for len in 0..case.bytes.len() {
            check(&case.bytes[..len]);
            if case.packet().is_some() {
                let prefix = decode(&case.bytes[..len], case.version);
                assert!(prefix.is_err(), "{} at {len}", case.name);
            }
        }
    }
}

/// Every prefix again, with a length that fits it, so that the fields end
/// early instead of the packet.
#[test]
fn every_shortened_body() {
    for case in cases() {
        if let Ok(Some(frame)) = peek(&case.bytes, u32::MAX) {
            let body = case.bytes.get(frame.header_len..).unwrap_or_default();
            for len in 0..body.len().min(127) {
                let mut bytes = vec![case.bytes[0], len as u8];
                bytes.extend_from_slice(&body[..len]);
                check(&bytes);
            }
        }
    }
}

#[test]
fn every_change_of_one_byte() {
    for case in cases() {
        for at in 0..case.bytes.len().min(100) {
            let mut bytes = case.bytes.clone();
            for value in [0, 1, 2, 0x26, 0x7f, 0x80, 0xff] {
                bytes[at] = value;
                check(&bytes);
            }
            for bit in 0..8 {
                bytes[at] = case.bytes[at] ^ (1 << bit);
                check(&bytes);
            }
        }
    }
}

/// Xorshift, enough to spread changes.
struct Seeded(u64);

impl Seeded {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % limit as u64) as usize
    }
}

#[test]
fn many_random_changes() {
    /// Rounds over all cases.
    const ROUNDS: u64 = 40;
    let cases = cases();
    for round in 1..=ROUNDS {
        let mut random = Seeded(round);
        for case in &cases {
            let mut bytes = case.bytes.clone();
            for _ in 0..=random.below(4) {
                change(&mut bytes, &mut random);
            }
            if bytes.len() > 2 && bytes.len() < 130 && random.below(2) == 0 {
                bytes[1] = (bytes.len() - 2) as u8;
            }
            check(&bytes);
        }
    }
}

fn change(bytes: &mut Vec<u8>, random: &mut Seeded) {
    let at = random.below(bytes.len() + 1);
    let value = random.below(256) as u8;
    match random.below(3) {
        0 => bytes.insert(at, value),
        1 if at < bytes.len() => drop(bytes.remove(at)),
        _ if at < bytes.len() => bytes[at] = value,
        _ => {}
    }
}
