//! The providers of cryptography on the processor: whether they answer test
//! vectors rightly, what each operation costs, and whether anything of a
//! secret can be seen in the path of a program. Knows no page.

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use super::tools::{Counts, Tools, regions};

/// The providers, by their feature.
pub(crate) const PROVIDERS: [&str; 2] = ["tiny", "fast"];
const PACKAGE: &str = "mini/firmware/bench";
const BINARY: &str = "dunlin-crypto-bench";

/// An operation: its name, the stack that painting found, and its counts.
pub(crate) type Cost = (String, u64, Counts);

/// What is known of an operation with many secrets.
#[derive(Debug, Default)]
pub(crate) struct Steady {
    pub(crate) runs: usize,
    /// Different numbers of instructions, of cycles, and different paths
    /// through code and memory.
    pub(crate) instructions: Vec<u64>,
    pub(crate) cycles: Vec<u64>,
    pub(crate) paths: Vec<String>,
    pub(crate) divisions: u64,
}

impl Steady {
    /// Whether time is the same for all secrets.
    pub(crate) fn is_even(&self) -> bool {
        self.instructions.len() == 1 && self.cycles.len() == 1
    }

    /// Whether no address depends on a secret, either.
    pub(crate) fn is_blind(&self) -> bool {
        self.is_even() && self.paths.len() == 1
    }
}

/// What a provider did.
pub(crate) struct Figures {
    pub(crate) provider: &'static str,
    pub(crate) vectors: String,
    pub(crate) costs: Vec<Cost>,
    pub(crate) steady: BTreeMap<String, Steady>,
}

impl Figures {
    /// What must hold and does not.
    pub(crate) fn faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        for (operation, steady) in &self.steady {
            // The table of the assembly is read at secret addresses, which a
            // processor without a data cache does not show.
            let held = match self.provider {
                "tiny" => steady.is_blind(),
                _ => steady.is_even(),
            };
            if !held {
                let provider = self.provider;
                faults.push(format!("{provider}: {operation} tells of its secret"));
            }
        }
        faults
    }
}

/// Everything of one provider.
///
/// # Errors
/// It does not compile, or a vector fails.
pub(crate) fn measure(tools: &Tools, provider: &'static str) -> Result<Figures> {
    let image = tools.build(PACKAGE, BINARY, provider)?;
    let file = vectors(tools)?;
    let vectors = tools.run(&image, &["vectors", &file], None)?;
    if !vectors.passed {
        bail!("{provider}: vectors failed\n{}", vectors.text);
    }
    let bench = tools.run(&image, &["bench"], Some(""))?;
    if !bench.passed {
        bail!("{provider}: the operations failed\n{}", bench.text);
    }
    let regions = regions(&bench.marks);
    let costs = bench
        .text
        .lines()
        .zip(regions)
        .filter_map(|(line, counts)| {
            let (name, stack) = line.split_once(' ')?;
            Some((name.to_owned(), stack.parse().ok()?, counts))
        });
    Ok(Figures {
        provider,
        vectors: vectors
            .text
            .trim()
            .replace("vectors ", "")
            .replace(" failed", " vectors, failed"),
        costs: costs.collect(),
        steady: steady(tools, provider, &image)?,
    })
}

/// Writes the file of vectors.
fn vectors(tools: &Tools) -> Result<String> {
    let output = Command::new("cargo")
        .args(["run", "--quiet", "--package", "dunlin-mini-crypto"])
        .args(["--example", "vectors"])
        .current_dir(tools.root())
        .output()
        .context("cannot start cargo")?;
    if !output.status.success() {
        bail!("no vectors: {}", String::from_utf8_lossy(&output.stderr));
    }
    let file = tools.folder().join("vectors.bin");
    fs::write(&file, output.stdout).context("cannot write the vectors")?;
    Ok(file.display().to_string())
}

fn steady(
    tools: &Tools,
    provider: &str,
    image: &std::path::Path,
) -> Result<BTreeMap<String, Steady>> {
    let run = tools.run(image, &["steady"], Some(",trace=1"))?;
    if !run.passed {
        bail!("{provider}: the operations failed\n{}", run.text);
    }
    let mut found = BTreeMap::<String, Steady>::new();
    for (name, counts) in run.text.lines().zip(regions(&run.marks)) {
        let steady = found.entry(name.to_owned()).or_default();
        steady.runs += 1;
        steady.divisions += counts.divisions;
        keep(&mut steady.instructions, counts.instructions);
        keep(&mut steady.cycles, counts.cycles);
        keep(&mut steady.paths, counts.fingerprint);
    }
    Ok(found)
}

fn keep<T: PartialEq>(seen: &mut Vec<T>, value: T) {
    if !seen.contains(&value) {
        seen.push(value);
    }
}

/// Measures and prints both providers; whether everything holds.
///
/// # Errors
/// Something does not compile, run or answer rightly.
pub(crate) fn print(tools: &Tools) -> Result<bool> {
    let mut held = true;
    for provider in PROVIDERS {
        let figures = measure(tools, provider)?;
        println!("{provider}: {}", figures.vectors);
        println!(
            "  {:<17} {:>12} {:>12} {:>7}",
            "operation", "instructions", "cycles", "stack"
        );
        for (name, stack, counts) in &figures.costs {
            let (instructions, cycles) = (counts.instructions, counts.cycles);
            println!("  {name:<17} {instructions:>12} {cycles:>12} {stack:>7}");
        }
        for (name, steady) in &figures.steady {
            let Steady {
                runs,
                instructions,
                cycles,
                paths,
                ..
            } = steady;
            println!(
                "  {name:<17} {runs} secrets: {} counts of instructions, {} of cycles, {} paths, {} divisions",
                instructions.len(),
                cycles.len(),
                paths.len(),
                steady.divisions,
            );
        }
        for fault in figures.faults() {
            println!("  {fault}");
            held = false;
        }
    }
    Ok(held)
}
