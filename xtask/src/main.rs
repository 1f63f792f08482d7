//! Repository automation: `cargo xtask tidy`, `spec` and `ci`.
//!
//! It reads the repository as text and knows no Dunlin crate: it must build
//! and run when the crates do not.

#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "the output of a command line tool is its purpose"
)]
#![forbid(unsafe_code)]

mod ci;
mod finding;
mod mcu;
mod packages;
mod ratchet;
mod shape;
mod source;
mod spec;
mod supply;
mod testcode;
mod tidy;
mod tree;

use std::process::ExitCode;

use anyhow::{Result, bail};

use crate::tidy::Task;

const USAGE: &str = "\
usage: cargo xtask <task>

  tidy [--report]           hold the layer table, file openings, sizes, links,
                            import circles, the size of state
  tidy --shrink             lower the numbers of xtask/tidy-ratchet.txt, then check
  tidy --table              print the sizes of every package
  spec [--json] [--check]   list the statements of MQTT 5.0 and their tests
  spec --book               write the summary into docs/book/src/conformance.md
  supply                    hold licences, sources and versions to deny.toml
  sbom                      list what the product is linked from (CycloneDX)
  mcu-crypto                test and weigh the cryptography on a Cortex-M4 (QEMU)
  mcu-gate                  hold the images of the firmware against their budget
  mcu-report                write the study of the microcontroller into the book
  ci                        format, lints, tests, documentation: the whole gate
";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match run(&args) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(2)
        }
    }
}

/// Whether everything that was asked for holds.
fn run(args: &[&str]) -> Result<bool> {
    match args {
        ["tidy"] => tidy::run(Task::Check),
        ["tidy", "--report"] => tidy::run(Task::Report),
        ["tidy", "--shrink"] => tidy::run(Task::Shrink),
        ["tidy", "--table"] => tidy::run(Task::Table),
        ["spec", options @ ..] => spec::run(options),
        ["supply"] => supply::check(),
        ["sbom"] => supply::sbom(),
        ["mcu-crypto"] => mcu::crypto(),
        ["mcu-gate"] => mcu::gate(),
        ["mcu-report"] => mcu::report(),
        ["ci"] => ci::run(),
        [] | ["help" | "--help" | "-h"] => {
            print!("{USAGE}");
            Ok(true)
        }
        _ => bail!("unknown task `{}`\n\n{USAGE}", args.join(" ")),
    }
}
