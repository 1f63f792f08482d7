//! Replays the corpus of the fuzz target `flow`, with every cut and altered
//! byte, through the target's own body.

use std::fs;
use std::path::Path;

use dunlin_mqtt::flow::{FlowHeader, HEADER_BYTES_MAX};

#[path = "../../../../fuzz/bodies/flow.rs"]
mod body;

#[test]
fn every_seed_cut_and_altered() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/flow");
    let mut count = 0;
    for seed in fs::read_dir(corpus).expect("the corpus is there") {
        let seed = fs::read(seed.expect("an entry").path()).expect("a file");
        for cut in 0..=seed.len() {
            body::run(&seed[..cut]);
        }
        for at in 0..seed.len() {
            for byte in 0..=u8::MAX {
                let mut altered = seed.clone();
                altered[at] = byte;
                body::run(&altered);
            }
        }
        count += 1;
    }
    assert!(count > 0, "seeds");
}
