//! Replays the corpora of the fuzz targets through the targets' own bodies.

use std::fs;
use std::path::Path;

#[path = "../../../../fuzz/bodies/amqp_mapping.rs"]
mod mapping;
#[path = "../../../../fuzz/bodies/amqp_selector.rs"]
mod selector;

fn replay(target: &str, run: fn(&[u8])) {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
    let seeds = fs::read_dir(corpus.join(target)).expect("the corpus is there");
    let count = seeds
        .map(|seed| fs::read(seed.unwrap().path()).unwrap())
        .map(|seed| (0..=seed.len()).for_each(|len| run(&seed[..len])))
        .count();
    assert!(count > 0, "seeds");
}

#[test]
fn every_beginning_of_every_selector() {
    replay("amqp_selector", selector::run);
}

#[test]
fn every_beginning_of_every_message() {
    replay("amqp_mapping", mapping::run);
    replay("amqp", mapping::run);
}
