//! Seeds of the fuzz target `bus`, their beginnings, and changes to them.

use std::fs;
use std::path::Path;

use dunlin_broker::bus;

#[path = "../../../fuzz/bodies/bus.rs"]
mod body;

#[test]
fn every_seed_its_cuts_and_changed_bytes() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/bus");
    let mut count = 0;
    for seed in fs::read_dir(corpus).expect("the corpus is there") {
        let seed = fs::read(seed.unwrap().path()).unwrap();
        for cut in 0..=seed.len() {
            body::run(&seed[..cut]);
        }
        for at in 0..seed.len() {
            for change in [0x01, 0x80, 0xff] {
                let mut changed = seed.clone();
                changed[at] ^= change;
                body::run(&changed);
            }
        }
        count += 1;
    }
    assert!(count > 0, "seeds");
}
