//! `nikitin-size`: how large our binaries are, which crates they consist of and
//! what trimming takes off. Not a matter of any link.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use super::super::bench::{measure, outcome};
use super::super::experiment::{Claim, Estimate, Experiment, Figure, Kind, PaperPoint, Target};
use super::super::plan;
use super::super::record::{Cell, Outcome, Record, Scale};
use super::super::stats::{Pick, Sample, Statistic};
use super::symbols;
use crate::lab::{Lab, find};
use crate::process::output;

/// Binaries on disk.
pub(crate) struct Size;

/// Broker and command line clients in one; a program with our client library;
/// the microcontroller's client on the sockets of a host.
const BINARIES: [&str; 3] = ["dunlin", "dunlin-client", "dunlin-tiny"];

/// Steps of trimming, each on top of those before: name, and the setting of Cargo
/// with `CARGO_PROFILE_RELEASE_` in front.
const STEPS: [(&str, &str, &str); 5] = [
    ("built", "", ""),
    ("stripped", "STRIP", "symbols"),
    ("+ panic=abort", "PANIC", "abort"),
    ("+ opt-level=z", "OPT_LEVEL", "z"),
    ("+ fat LTO, one unit", "LTO", "fat"),
];

/// `dunlin` as `make small` builds it: all steps, without what only other commands, AMQP
/// and the page need, and without tables for unwinding.
const ALONE: &str = "+ broker alone";

/// Crates that are shown by name.
const CRATES: usize = 12;

impl Experiment for Size {
    fn name(&self) -> &'static str {
        "nikitin-size"
    }

    fn about(&self) -> &'static str {
        "sizes of binaries by crate and by step of trimming"
    }

    fn source(&self) -> &'static str {
        "paper 002, Table 3.1 and Figures 5.4 to 5.6"
    }

    fn plan(&self, scale: Scale) -> Vec<Cell> {
        let steps: Vec<&str> = STEPS.iter().map(|(name, ..)| *name).collect();
        let (binaries, steps): (&[&str], &[&str]) = match (scale, steps.get(..2)) {
            (Scale::Paper, _) | (_, None) => (&BINARIES, &steps),
            (_, Some(steps)) => (&["dunlin", "dunlin-tiny"], steps),
        };
        let mut cells = plan::cells(self.name(), binaries, &[("step", steps)], 1);
        if scale != Scale::Smoke {
            let alone = [("step", [ALONE].as_slice())];
            cells.extend(plan::cells(self.name(), &["dunlin"], &alone, 1));
        }
        cells
    }

    fn seconds(&self, cell: &Cell, scale: Scale) -> f64 {
        match scale {
            // `make lab-quick` has built it.
            Scale::Short if cell.factor("step") == ALONE => 1.0,
            // Each step is a build of its own.
            Scale::Paper => 300.0,
            _ => 0.3,
        }
    }

    fn run(&self, cell: &Cell, scale: Scale, lab: &Lab) -> Result<Outcome> {
        let step = cell.factor("step");
        let file = match scale {
            _ if step == ALONE => small()?,
            Scale::Paper if step != "stripped" => build(&cell.system, step)?,
            Scale::Paper => strip(lab, &build(&cell.system, "built")?)?,
            _ => {
                let found = there(lab, &cell.system)?;
                match step {
                    "stripped" => strip(lab, &found)?,
                    _ => without_debug(lab, &found)?,
                }
            }
        };
        let bytes = std::fs::metadata(&file)?.len();
        let mut measures = vec![measure("size", "MiB", vec![mib(bytes)])];
        if step == "built" {
            measures.extend(crates(&symbols::by_crate(&file)?));
        }
        Ok(outcome(measures, None))
    }

    fn figures(&self) -> Vec<Figure> {
        let paper = |series, value| PaperPoint {
            series,
            facet: None,
            x: "built",
            value,
        };
        vec![
            Figure {
                log_y: true,
                paper: vec![
                    paper("paper: ngtcp2 client", 3.4),
                    paper("paper: picoquic client", 3.2),
                    paper("paper: msquic client", 3.2),
                    paper("paper: quic-go client", 8.7),
                    paper("paper: Quinn client", 9.1),
                    paper("paper: Quiche client", 7.8),
                    paper("paper: mvfst client", 11.1),
                    PaperPoint {
                        x: "+ fat LTO, one unit",
                        ..paper("paper: MQuicTT client, trimmed", 8.0)
                    },
                ],
                ..Figure::new(
                    "size",
                    "Size of binaries, without debug information",
                    "size",
                    Kind::Bars { x: "step" },
                )
            },
            Figure {
                paper: vec![
                    crate_of_paper("quinn_proto", 17.8),
                    crate_of_paper("rustls", 12.6),
                    crate_of_paper("aws-lc", 5.8),
                ],
                ..Figure::new(
                    "crates",
                    "Share of code by crate (paper: ring for aws-lc)",
                    "share",
                    Kind::Bars { x: "crate" },
                )
            },
        ]
    }

    fn claims(&self, records: &[Record]) -> Vec<Claim> {
        let size = |binary: &str, step: &str| {
            Sample::of(records, &Pick::new(binary, "size").at("step", step))
        };
        let last = |binary: &str| {
            let steps = STEPS.iter().rev().map(|(name, ..)| *name);
            let mut steps = core::iter::once(ALONE)
                .chain(steps)
                .map(|name| size(binary, name));
            steps.find(|sample| !sample.is_empty())
        };
        let mut rows = Vec::new();
        for binary in BINARIES {
            let Some(trimmed) = last(binary) else {
                continue;
            };
            rows.push(claim(
                format!("{binary}, trimmed"),
                "about 8 MiB (5.3)",
                trimmed.estimate(Statistic::Mean),
                "MiB",
                Some(Target::AtMost(8.0)),
            ));
            rows.push(claim(
                format!("{binary}: what trimming takes off"),
                "-12.1 % (9.1 to 8 MiB, 5.3)",
                trimmed.change(&size(binary, "built"), Statistic::Mean),
                "%",
                Some(Target::AtMost(-12.1)),
            ));
        }
        for (binary, paper) in [
            ("dunlin", "32.9 % of the broker (Fig. 5.5)"),
            ("dunlin-client", "36.2 % of the client (Fig. 5.4)"),
        ] {
            let stack = Sample::of(records, &Pick::new(binary, "quic-stack"));
            let what = format!("{binary}: share of QUIC, TLS and cryptography");
            // The short form does not build the example.
            if let Some(measured) = stack.estimate(Statistic::Mean) {
                rows.push(claim(what, paper, Some(measured), "%", None));
            }
        }
        rows
    }
}

const fn crate_of_paper(name: &'static str, value: f64) -> PaperPoint {
    PaperPoint {
        series: "paper: MQuicTT client",
        facet: None,
        x: name,
        value,
    }
}

fn claim(
    what: String,
    paper: &str,
    measured: Option<Estimate>,
    unit: &'static str,
    target: Option<Target>,
) -> Claim {
    let reason = (what.starts_with("dunlin,")).then_some(
        "dunlin is broker, command line clients, bench and tools in one binary, \
         and its cryptography is optimised for speed; `make small` builds the broker alone",
    );
    Claim {
        what,
        paper: paper.to_owned(),
        measured,
        unit,
        target,
        reason,
        causes: Vec::new(),
    }
}

/// Measures of the largest crates, and of what makes up QUIC.
fn crates(sizes: &BTreeMap<String, u64>) -> Vec<super::super::record::Measure> {
    /// What QUIC and its TLS consist of, here and in the paper's Figure 5.4.
    const STACK: [&str; 9] = [
        "quinn_proto",
        "quinn_udp",
        "rustls",
        "aws-lc",
        "aws_lc_rs",
        "webpki",
        "dunlin_net",
        "dunlin_quic_mini",
        "dunlin_mini_crypto",
    ];
    let total: u64 = sizes.values().sum();
    let percent = |bytes: u64| mib(bytes) / mib(total.max(1)) * 100.0;
    let mut order: Vec<(&str, u64)> = sizes.iter().map(|(k, v)| (k.as_str(), *v)).collect();
    order.sort_by_key(|(_, bytes)| core::cmp::Reverse(*bytes));
    let rest: u64 = order.iter().skip(CRATES).map(|(_, bytes)| bytes).sum();
    let stack: u64 = STACK.iter().filter_map(|name| sizes.get(*name)).sum();
    let shown = order.into_iter().take(CRATES).chain([("others", rest)]);
    let mut measures = Vec::new();
    for (name, bytes) in shown {
        let factors = BTreeMap::from([("crate".to_owned(), name.to_owned())]);
        for (metric, unit, value) in [
            ("share", "%", percent(bytes)),
            ("code", "KiB", mib(bytes) * 1024.0),
        ] {
            let mut of_crate = measure(metric, unit, vec![value]);
            of_crate.factors.clone_from(&factors);
            measures.push(of_crate);
        }
    }
    measures.push(measure("quic-stack", "%", vec![percent(stack)]));
    measures
}

#[expect(clippy::cast_precision_loss, reason = "far below 2^53")]
fn mib(bytes: u64) -> f64 {
    bytes as f64 / 1_048_576.0
}

/// The binary as it was built beside this program.
fn there(lab: &Lab, name: &str) -> Result<PathBuf> {
    let dunlin = lab.program().to_owned();
    let beside = [
        dunlin.with_file_name(name),
        std::env::current_exe()?.with_file_name(name),
    ];
    if name == "dunlin" {
        return Ok(dunlin);
    }
    match beside.into_iter().find(|path| path.is_file()) {
        Some(path) => Ok(path),
        None => build(name, "built").with_context(|| format!("there is no {name}")),
    }
}

/// Has Cargo build a binary with the steps of trimming up to this one.
fn build(name: &str, step: &str) -> Result<PathBuf> {
    let cargo = find("cargo").context("cargo is not installed: rustup.rs")?;
    if !Path::new("mini/dunlin-tiny/Cargo.toml").is_file() {
        bail!("run this in the repository, for there is something to build");
    }
    let target = std::env::var_os("CARGO_TARGET_DIR");
    let target = PathBuf::from(target.unwrap_or_else(|| "target".into())).join("lab/size");
    let mut command = Command::new(cargo);
    command.args(["build", "--quiet", "--release", "--target-dir"]);
    command.arg(&target);
    let file = match name {
        "dunlin-client" => {
            command.args(["--package", name, "--example", "smoke"]);
            target.join("release/examples/smoke")
        }
        _ => {
            command.args(["--package", name]);
            target.join("release").join(name)
        }
    };
    command.env("CARGO_PROFILE_RELEASE_DEBUG", "false");
    let upto = STEPS.iter().position(|(name, ..)| *name == step);
    for (_, key, value) in STEPS.iter().take(upto.unwrap_or_default() + 1).skip(1) {
        command.env(format!("CARGO_PROFILE_RELEASE_{key}"), value);
        if *key == "LTO" {
            command.env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "1");
        }
    }
    output(command).with_context(|| format!("cannot build {name}"))?;
    Ok(file)
}

/// Has `make small` build the broker alone, or look at what it has built.
fn small() -> Result<PathBuf> {
    let script = "scripts/package/small.sh";
    if !Path::new(script).is_file() {
        bail!("run this in the repository, for there is something to build");
    }
    output(Command::new(script)).with_context(|| format!("{script} failed"))?;
    let target = std::env::var_os("CARGO_TARGET_DIR");
    Ok(PathBuf::from(target.unwrap_or_else(|| "target".into())).join("small/dunlin"))
}

fn strip(lab: &Lab, file: &Path) -> Result<PathBuf> {
    run_strip(lab, file, "--strip-all")
}

/// With symbols, which tell the crates.
fn without_debug(lab: &Lab, file: &Path) -> Result<PathBuf> {
    run_strip(lab, file, "--strip-debug")
}

fn run_strip(lab: &Lab, file: &Path, how: &str) -> Result<PathBuf> {
    let program = find("strip").context("strip is not installed: apt install binutils")?;
    let stripped = lab.temporary("stripped");
    let mut command = Command::new(program);
    command.arg(how).arg("-o").arg(&stripped).arg(file);
    output(command)?;
    Ok(stripped)
}
