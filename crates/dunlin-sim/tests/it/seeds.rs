//! Programs made by chance, each decided by its seed: which seeds are run, and what is
//! said of those that go wrong.

use core::fmt::Debug;
use core::ops::Range;
use core::panic::RefUnwindSafe;
use std::panic::catch_unwind;

/// The usual seeds, or those that `variable=N..M` in the environment asks for.
pub(crate) fn seeds(variable: &str, usual: Range<u64>) -> Range<u64> {
    let Ok(given) = std::env::var(variable) else {
        return usual;
    };
    let (from, to) = given.split_once("..").expect("N..M");
    let number = |text: &str| text.parse().expect("a number");
    number(from)..number(to)
}

/// Plays each seed; the message of a failure says which.
pub(crate) fn play_all(seeds: Range<u64>, chaos: impl Debug, play: impl Fn(u64) + RefUnwindSafe) {
    for seed in seeds {
        let outcome = catch_unwind(|| play(seed));
        assert!(outcome.is_ok(), "failed: seed {seed}, {chaos:?}");
    }
}

/// Runs the program of each seed, and says which are wrong, and why.
pub(crate) fn check_all(seeds: Range<u64>, program: impl Fn(u64) -> Result<(), String>) {
    let broken: Vec<String> = seeds
        .filter_map(|seed| Some(format!("seed {seed}: {}", program(seed).err()?)))
        .collect();
    assert!(broken.is_empty(), "{broken:#?}");
}
