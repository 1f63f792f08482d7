//! Replays the corpora of the fuzz targets, and inputs that are close to them.

use std::path::Path;
use std::vec::Vec;

use crate::trial;

/// Factor for the changed copies of each seed.
const MORE: &str = "DUNLIN_FUZZ_COPIES";

type Body = fn(&[u8]);

/// Bodies, and changed copies of each of their seeds: those that need two
/// handshakes get fewer.
const TARGETS: [(&str, Body, usize); 7] = [
    ("mini_packets", trial::packets, 3),
    ("mini_frames", trial::frames, 5),
    ("mini_handshake", trial::handshake, 5),
    ("mini_certificate", trial::certificate, 100),
    ("mini_parameters", trial::parameters, 1000),
    ("mini_ticket", trial::ticket, 500),
    ("mini_client", trial::operations, 5),
];

fn seeds(target: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
    let files = std::fs::read_dir(folder.join(target)).unwrap();
    let mut paths: Vec<_> = files.map(|file| file.unwrap().path()).collect();
    paths.sort();
    paths
        .iter()
        .map(|path| std::fs::read(path).unwrap())
        .collect()
}

/// xorshift32
fn next(state: &mut u32) -> usize {
    *state ^= *state << 13;
    *state ^= *state >> 17;
    *state ^= *state << 5;
    *state as usize
}

/// Flips, cuts and repeats.
fn change(seed: &[u8], state: &mut u32) -> Vec<u8> {
    let mut bytes = seed.to_vec();
    for _ in 0..1 + next(state) % 4 {
        if bytes.is_empty() {
            bytes.push(0);
        }
        let at = next(state) % bytes.len();
        match next(state) % 5 {
            0 => bytes[at] ^= 1 << (next(state) % 8),
            1 => bytes[at] = [0, 1, 0x3f, 0x40, 0x7f, 0x80, 0xff][next(state) % 7],
            2 => bytes.truncate(at),
            3 => bytes.insert(at, next(state).to_le_bytes()[0]),
            _ => bytes.extend_from_within(at..),
        }
    }
    bytes.truncate(1 << 12);
    bytes
}

#[test]
fn every_seed_and_what_is_close_to_it() {
    let more = std::env::var(MORE).ok().and_then(|more| more.parse().ok());
    for (target, body, copies) in TARGETS {
        let seeds = seeds(target);
        assert!(seeds.len() >= 2, "{target}");
        let mut state = 0x9e37_79b9;
        for seed in seeds {
            body(&seed);
            for _ in 0..copies * more.unwrap_or(1) {
                let input = change(&seed, &mut state);
                // What a failure needs to be repeated.
                let shown = std::panic::catch_unwind(|| body(&input));
                assert!(shown.is_ok(), "{target}: {input:?}");
            }
        }
    }
}
