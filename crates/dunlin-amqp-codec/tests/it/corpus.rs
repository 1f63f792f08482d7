//! Replays the corpus of the fuzz target through the target's own body.

use std::fs;
use std::path::Path;

#[path = "../../../../fuzz/bodies/amqp.rs"]
mod amqp;

pub(crate) use amqp::run;

#[test]
fn every_seed() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/amqp");
    let seeds = fs::read_dir(corpus).expect("the corpus is there");
    let count = seeds
        .map(|seed| run(&fs::read(seed.unwrap().path()).unwrap()))
        .count();
    assert!(count > 0, "seeds");
}
