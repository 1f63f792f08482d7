//! Replays the corpora of the fuzz targets through the targets' own bodies.

use std::fs;
use std::path::Path;

#[path = "../../../../fuzz/bodies/amqp_mapping.rs"]
mod mapping;
#[path = "../../../../fuzz/bodies/amqp_selector.rs"]
mod selector;

/// Xorshift, enough to choose changes.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        ((self.0 >> 11) % limit as u64) as usize
    }

    /// Changes, adds and removes a few bytes.
    fn change(&mut self, bytes: &mut Vec<u8>, alphabet: &[u8]) {
        for _ in 0..=self.below(4) {
            let at = self.below(bytes.len() + 1);
            let value = match self.below(2) {
                0 => alphabet[self.below(alphabet.len())],
                _ => self.below(256) as u8,
            };
            match self.below(3) {
                0 => bytes.insert(at, value),
                1 if at < bytes.len() => drop(bytes.remove(at)),
                _ if at < bytes.len() => bytes[at] = value,
                _ => {}
            }
        }
    }
}

/// Runs the seeds of a target, their beginnings and changed copies.
fn replay(target: &str, alphabet: &[u8], run: fn(&[u8])) {
    /// Changed copies of each seed.
    const COPIES: u64 = 300;
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
    let seeds = fs::read_dir(corpus.join(target)).expect("the corpus is there");
    let seeds: Vec<_> = seeds
        .map(|seed| fs::read(seed.unwrap().path()).unwrap())
        .collect();
    assert!(!seeds.is_empty(), "seeds");
    for seed in &seeds {
        (0..=seed.len()).for_each(|len| run(&seed[..len]));
        for copy in 1..=COPIES {
            let mut bytes = seed.clone();
            Random(copy.wrapping_mul(0x9e37_79b9_7f4a_7c15)).change(&mut bytes, alphabet);
            run(&bytes);
        }
    }
}

#[test]
fn selectors() {
    replay("amqp_selector", b"'%_()-+*/<>=,. aANDORT5\"", selector::run);
}

#[test]
fn messages() {
    let codes = b"\0\x40\x41\x45\x53\x54\x70\x71\x72\x73\x74\x75\x76\x77\xa0\xa1\xa3\xc0\xc1";
    replay("amqp_mapping", codes, mapping::run);
    replay("amqp", codes, mapping::run);
}
