//! Replays the corpora of fuzz targets, and inputs made of them by chance,
//! through the targets' own bodies.

use std::fs;
use std::path::Path;

use dunlin_base::Random;

use crate::{CidCodec, LbConfig, Record};

#[path = "../../../fuzz/bodies/cid.rs"]
mod cid;
#[path = "../../../fuzz/bodies/record.rs"]
mod record;

/// Inputs made of each seed.
const MUTATIONS: u64 = 2_000;

#[test]
fn connection_ids() {
    replay("cid", cid::run);
}

#[test]
fn kept_tickets() {
    replay("record", record::run);
}

fn replay(name: &str, run: fn(&[u8])) {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
    let mut count = 0;
    for seed in fs::read_dir(corpus.join(name)).expect("the corpus is there") {
        let seed = fs::read(seed.unwrap().path()).unwrap();
        run(&seed);
        for number in 0..MUTATIONS {
            run(&mutated(&seed, number));
        }
        count += 1;
    }
    assert!(count > 0, "seeds");
}

/// The seed with a few bytes changed, taken out or put in; the same ones for
/// the same number.
fn mutated(seed: &[u8], number: u64) -> Vec<u8> {
    let mut random = Random::new(number + 1);
    let mut draw = |below: usize| random.below(below as u64) as usize;
    let mut bytes = seed.to_vec();
    for _ in 0..=draw(4) {
        let at = draw(bytes.len() + 1);
        match draw(4) {
            0 => bytes.truncate(at),
            1 => bytes.insert(at, draw(256) as u8),
            _ => {
                if let Some(byte) = bytes.get_mut(at) {
                    *byte ^= 1 << draw(8);
                }
            }
        }
    }
    bytes
}
