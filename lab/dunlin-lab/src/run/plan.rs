//! Plans: every combination of factors for every system, again and again, and
//! the seeds that follow from what a cell is.

use super::record::{Cell, Factors};

/// Repetitions outside, systems inside, so that a slow minute of the machine
/// hits all systems alike.
pub(crate) fn cells(
    experiment: &str,
    systems: &[&str],
    factors: &[(&str, &[&str])],
    repetitions: u32,
) -> Vec<Cell> {
    let mut combinations = vec![Factors::new()];
    for (name, values) in factors {
        combinations = combinations
            .into_iter()
            .flat_map(|so_far| {
                values.iter().map(move |value| {
                    let mut more = so_far.clone();
                    more.insert((*name).to_owned(), (*value).to_owned());
                    more
                })
            })
            .collect();
    }
    let mut cells = Vec::new();
    for repetition in 0..repetitions {
        for combination in &combinations {
            for system in systems {
                cells.push(cell(experiment, system, combination.clone(), repetition));
            }
        }
    }
    cells
}

/// A cell with its seed. Systems that are compared get the same one: the same
/// packets are lost as long as they send the same.
pub(crate) fn cell(experiment: &str, system: &str, factors: Factors, repetition: u32) -> Cell {
    let mut text = format!("{experiment}/{repetition}");
    for (name, value) in &factors {
        text.push_str(&format!("/{name}={value}"));
    }
    Cell {
        system: system.to_owned(),
        seed: hash(text.as_bytes()),
        factors,
        repetition,
    }
}

/// FNV-1a, which is the same everywhere and for ever.
pub(crate) fn hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

impl Cell {
    /// The value of a factor; empty if it has none.
    pub(crate) fn factor(&self, name: &str) -> &str {
        self.factors.get(name).map_or("", String::as_str)
    }

    /// For people: `dunlin-quic loss_percent=5 testbed=wired`.
    pub(crate) fn shown(&self) -> String {
        let mut text = self.system.clone();
        for (name, value) in &self.factors {
            text.push_str(&format!(" {name}={value}"));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plans_have_everything_once_and_systems_side_by_side() {
        let factors: [(&str, &[&str]); 2] = [("testbed", &["a", "b"]), ("loss", &["0", "5"])];
        let cells = cells("x", &["one", "two"], &factors, 3);
        assert_eq!(cells.len(), 2 * 2 * 2 * 3);
        assert_eq!(cells[0].shown(), "one loss=0 testbed=a");
        assert_eq!(cells[1].shown(), "two loss=0 testbed=a");
        assert_eq!(cells[0].seed, cells[1].seed, "the same wire");
        assert_ne!(cells[0].seed, cells[2].seed);
        assert_ne!(cells[0].seed, cells[8].seed, "another repetition");
        for cell in &cells {
            assert_eq!(cells.iter().filter(|other| *other == cell).count(), 1);
        }
    }

    #[test]
    fn seeds_stay() {
        assert_eq!(hash(b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(hash(b"foobar"), 0x85944171f73967e8);
    }
}
