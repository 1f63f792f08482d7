//! `cargo xtask ci`: the whole gate, in the order in which failures are
//! cheapest to find. It runs cargo and knows nothing of what cargo builds.

use std::process::Command;
use std::time::Instant;

use anyhow::{Context as _, Result};

use crate::tidy;
use crate::tree::Tree;

/// A step: what it is called, cargo's arguments, `RUSTDOCFLAGS`.
type Step = (&'static str, &'static [&'static str], &'static str);

const STEPS: [Step; 5] = [
    ("format", &["fmt", "--all", "--check"], ""),
    (
        "lints",
        &[
            "clippy",
            "--workspace",
            "--all-targets",
            "--",
            "-D",
            "warnings",
        ],
        "",
    ),
    ("tests", &["test", "--workspace"], ""),
    (
        "fuzz targets",
        &["check", "--locked", "--manifest-path", "fuzz/Cargo.toml"],
        "",
    ),
    // Without those whose comments are the text of --help.
    (
        "documentation",
        &[
            "doc",
            "--workspace",
            "--exclude=dunlin",
            "--exclude=dunlin-lab",
            "--no-deps",
            "--document-private-items",
        ],
        "-D warnings",
    ),
];

/// Workspaces of their own, which no step above reaches.
const FIRMWARE: [&str; 5] = [
    "mini/firmware/bench/Cargo.toml",
    "mini/firmware/c/Cargo.toml",
    "mini/firmware/image/Cargo.toml",
    "mini/firmware/linux/Cargo.toml",
    "mini/firmware/size/Cargo.toml",
];

/// Those of them that can be linted for a host; `scripts/mcu/lint.sh` lints all.
const ON_HOSTS: [&str; 2] = [
    "mini/firmware/c/Cargo.toml",
    "mini/firmware/linux/Cargo.toml",
];

/// Runs every step until one fails.
///
/// # Errors
/// Cargo cannot be started.
pub(crate) fn run() -> Result<bool> {
    if !tidy::run(tidy::Task::Check)? {
        return Ok(false);
    }
    for (name, args, rustdocflags) in STEPS {
        if !step(name, args, rustdocflags)? {
            return Ok(false);
        }
    }
    for manifest in FIRMWARE {
        if !step(
            manifest,
            &["fmt", "--check", "--manifest-path", manifest],
            "",
        )? {
            return Ok(false);
        }
    }
    for manifest in ON_HOSTS {
        let package = ["clippy", "--locked", "--manifest-path", manifest];
        if !step(
            manifest,
            &[&package[..], &["--", "-D", "warnings"]].concat(),
            "",
        )? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Whether a step succeeds.
fn step(name: &str, args: &[&str], rustdocflags: &str) -> Result<bool> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    // One directory for all, packages outside of the workspace as well.
    let target = std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into());
    let target = Tree::root().join(target);
    eprintln!("ci: {name}: cargo {}", args.join(" "));
    let start = Instant::now();
    let mut command = Command::new(&cargo);
    command.args(args).current_dir(Tree::root());
    command.env("CARGO_TARGET_DIR", &target);
    if !rustdocflags.is_empty() {
        command.env("RUSTDOCFLAGS", rustdocflags);
    }
    let status = command.status().context("cannot start cargo")?;
    if !status.success() {
        eprintln!("ci: {name}: failed");
        return Ok(false);
    }
    eprintln!("ci: {name}: {:.1} s", start.elapsed().as_secs_f32());
    Ok(true)
}
