//! Replays the corpus of the fuzz target `session`, and as many inputs made by
//! chance as there is time for.

use std::panic::catch_unwind;
use std::path::Path;

use dunlin_sim::Random;

use super::seeds::seeds;

#[path = "../../../../fuzz/bodies/session.rs"]
mod body;

#[test]
fn the_corpus_holds() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/session");
    let mut files: Vec<_> = std::fs::read_dir(corpus)
        .expect("the corpus")
        .map(|entry| entry.expect("an entry").path())
        .collect();
    files.sort();
    assert!(!files.is_empty());
    for file in files {
        let data = std::fs::read(&file).expect("a file");
        let outcome = catch_unwind(|| body::run(&data));
        assert!(outcome.is_ok(), "{}", file.display());
    }
}

/// `SIM_SEEDS=5000..6000` in the environment runs others.
#[test]
fn sequences_made_by_chance() {
    for seed in seeds("SIM_SEEDS", 0..300) {
        let mut chance = Random::new(seed);
        let data: Vec<u8> = (0..chance.between(20, 300))
            .map(|_| chance.next() as u8)
            .collect();
        let outcome = catch_unwind(|| body::run(&data));
        assert!(outcome.is_ok(), "seed {seed}: {data:?}");
    }
}
