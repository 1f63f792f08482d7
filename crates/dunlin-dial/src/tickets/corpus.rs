//! Replays the corpus of the fuzz target `ticket_file` through the target's
//! own body.

use std::fs;
use std::path::Path;

use sha2::{Digest, Sha256};

use super::format::{decode, encode};

#[path = "../../../../fuzz/bodies/ticket_file.rs"]
mod body;

fn checked(data: &[u8]) -> Vec<u8> {
    [data, Sha256::digest(data).as_slice()].concat()
}

#[test]
fn every_seed_and_all_its_cuts() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/ticket_file");
    let mut count = 0;
    for seed in fs::read_dir(corpus).expect("the corpus is there") {
        let seed = fs::read(seed.unwrap().path()).unwrap();
        for cut in 0..=seed.len() {
            body::run(&seed[..cut]);
        }
        for at in 0..seed.len() {
            let mut altered = seed.clone();
            altered[at] ^= 0x81;
            body::run(&altered);
        }
        count += 1;
    }
    assert!(count > 0, "seeds");
}
