//! Seeds of the fuzz target `amqp_front`, and random inputs.

use std::fs;
use std::path::Path;

use dunlin_base::Random;

#[path = "../../../fuzz/bodies/amqp_front.rs"]
mod amqp_front;

/// Random inputs of a test run.
const RANDOM_INPUTS: u64 = 200;

/// Both clients attach to a topic, one to send and one to receive with credit.
const OPENING: [u8; 6] = [0, 0, 3, 0, 4, 200];

#[test]
fn every_seed() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/amqp_front");
    let seeds = fs::read_dir(corpus).expect("the corpus is there");
    let count = seeds
        .map(|seed| amqp_front::run(&fs::read(seed.unwrap().path()).unwrap()))
        .count();
    assert!(count > 0, "seeds");
}

#[test]
fn random_operations() {
    let asked = std::env::var("DUNLIN_FUZZ_COPIES").ok();
    let count = asked
        .and_then(|it| it.parse().ok())
        .unwrap_or(RANDOM_INPUTS);
    for seed in 0..count {
        let mut random = Random::new(seed);
        let mut next = || random.next() as u8;
        let mut input = OPENING.to_vec();
        for _ in 0..20 + u32::from(next()) / 2 {
            let (op, choice) = (next(), next());
            // In two of three inputs both connections stay, and nothing is changed.
            let stays = matches!((op >> 1) % 10, 0 | 2..=4);
            if stays || seed % 3 == 0 {
                input.extend([op, choice]);
            }
        }
        amqp_front::run(&input);
    }
}
