//! No bytes make the codec panic, and what it accepts it can write again: each
//! input goes through the body of the fuzz target.

use dunlin_amqp_codec::Value;

use crate::corpus::run as check;
use crate::notation;
use crate::random::Seeded;
use crate::values::{all_bytes, cases};

fn inputs() -> Vec<Vec<u8>> {
    let errors = cases(include_str!("../data/errors.json"));
    let errors = errors
        .iter()
        .map(|case| notation::bytes(case["bytes"].as_str().unwrap()));
    all_bytes().into_iter().chain(errors).collect()
}

#[test]
fn every_prefix() {
    for bytes in inputs() {
        for len in 0..bytes.len() {
            check(&bytes[..len]);
        }
    }
    for bytes in all_bytes() {
        for len in 0..bytes.len() {
            assert!(Value::decode(&bytes[..len]).is_err(), "{bytes:x?} at {len}");
        }
    }
}

#[test]
fn every_change_of_one_byte() {
    for bytes in inputs() {
        for at in 0..bytes.len().min(100) {
            let mut changed = bytes.clone();
            for value in [
                0, 1, 2, 0x40, 0x45, 0x53, 0x7f, 0x80, 0xc0, 0xd0, 0xe0, 0xf0, 0xff,
            ] {
                changed[at] = value;
                check(&changed);
            }
            for bit in 0..8 {
                changed[at] = bytes[at] ^ (1 << bit);
                check(&changed);
            }
        }
    }
}

#[test]
fn many_random_changes() {
    /// Rounds over all inputs.
    const ROUNDS: u64 = 40;
    let inputs = inputs();
    for round in 1..=ROUNDS {
        let mut random = Seeded(round);
        for bytes in &inputs {
            let mut bytes = bytes.clone();
            for _ in 0..=random.below(4) {
                let at = random.below(bytes.len() + 1);
                let value = random.below(256) as u8;
                match random.below(3) {
                    0 => bytes.insert(at, value),
                    1 if at < bytes.len() => drop(bytes.remove(at)),
                    _ if at < bytes.len() => bytes[at] = value,
                    _ => {}
                }
            }
            check(&bytes);
        }
    }
}

/// What takes few bytes and claims much, inside of a megabyte of the like.
#[test]
fn much_from_little_takes_time_by_its_bytes() {
    let nulls = notation::bytes("f0 00000005 00000100 40");
    for element in [&nulls[..], b"\x45", b"\xe0\x02\xff\x40"] {
        let count = (1 << 20) / element.len();
        let mut bytes = vec![0xd0];
        bytes.extend_from_slice(&(4 + (count * element.len()) as u32).to_be_bytes());
        bytes.extend_from_slice(&(count as u32).to_be_bytes());
        for _ in 0..count {
            bytes.extend_from_slice(element);
        }
        let Value::List(list) = Value::decode(&bytes).unwrap() else {
            panic!("a list");
        };
        assert_eq!(list.len(), count);
        assert_eq!(list.iter().count(), count);
    }
}
