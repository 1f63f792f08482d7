//! Replays the corpus of the fuzz target through the target's own body, cut off
//! everywhere.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::Path;

#[path = "../../../fuzz/bodies/mini_mqtt.rs"]
mod body;

#[test]
fn every_seed() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/mini_mqtt");
    let mut count = 0;
    for seed in fs::read_dir(corpus).unwrap() {
        let bytes = fs::read(seed.unwrap().path()).unwrap();
        for cut in 0..=bytes.len() {
            body::run(&bytes[..cut]);
            let mut changed = bytes.clone();
            for bit in 0..8 {
                if let Some(byte) = changed.get_mut(cut) {
                    *byte ^= 1 << bit;
                }
                body::run(&changed);
            }
        }
        count += 1;
    }
    assert!(count > 0, "seeds");
}
