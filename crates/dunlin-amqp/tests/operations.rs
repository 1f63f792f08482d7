//! Replays the corpus of the fuzz target through the target's own body, and
//! random operations.

use std::fs;
use std::path::Path;

use dunlin_base::Random;

#[path = "../../../fuzz/bodies/amqp_engine.rs"]
mod amqp_engine;

/// Inputs of random operations; `DUNLIN_FUZZ_COPIES` asks for others.
const RANDOM_INPUTS: u64 = 3_000;

/// Operations of a connection that is used: of both sides, attach, accept, send,
/// send a part, settle, give credit, drain or abort or detach, and deliver.
const GENTLE: [u8; 24] = [
    8, 9, 10, 11, 14, 15, 16, 17, 46, 47, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 160, 161, 200,
    201,
];

#[test]
fn every_seed() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/amqp_engine");
    let seeds = fs::read_dir(corpus).expect("the corpus is there");
    let count = seeds
        .map(|seed| amqp_engine::run(&fs::read(seed.unwrap().path()).unwrap()))
        .count();
    assert!(count > 0, "seeds");
}

#[test]
fn random_operations() {
    let asked = std::env::var("DUNLIN_FUZZ_COPIES").ok();
    let count = asked
        .and_then(|it| it.parse().ok())
        .unwrap_or(RANDOM_INPUTS);
    // A client that opens, begins and attaches, and a server that answers.
    let opening = [
        0, 0, 0, 6, 0, 160, 255, 1, 0, 161, 255, 8, 66, 160, 255, 11, 126, 161, 255,
    ];
    for seed in 0..count {
        let mut random = Random::new(seed);
        let mut input = opening.to_vec();
        let len = random.below(300);
        for _ in 0..len {
            let any = random.next() as u8;
            // In two of three inputs the connection stays as long as it may.
            input.push(match seed % 3 {
                0 => any,
                _ => GENTLE[usize::from(any) % GENTLE.len()],
            });
            input.push(random.next() as u8);
        }
        amqp_engine::run(&input);
    }
}
