//! `dunlin bench --scenario FILE`: phases, and populations of clients, each with the
//! options of `dunlin bench` as keys.

use core::time::Duration;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Arc, Mutex};

use anyhow::{Context as _, bail};
use clap::{Args, Parser};
use serde::Deserialize;
use toml::{Table, Value};

use super::{Bench, is_stdout, run_id, seconds, write_json};
use crate::bench::scenario::{self, PHASES_MAX, POPULATIONS_MAX, Phase, Population, Scenario};

/// Longest file that is read.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// Longest phase, in seconds.
const SECONDS_MAX: f64 = 31_536_000.0;
/// Options that count clients or messages a second, which --scale multiplies.
const SCALED: [&str; 8] = [
    "devices",
    "pubs",
    "subs",
    "idle",
    "topics",
    "cluster",
    "rate",
    "connect-rate",
];
/// Of these, those that need not be whole.
const RATES: [&str; 2] = ["rate", "connect-rate"];
/// Options that a population cannot have: its phases say when, and the report is of all.
const OTHERS: [&str; 10] = [
    "duration",
    "warmup",
    "json",
    "quiet",
    "broker-pid",
    "scenario",
    "scale",
    "phase-seconds",
    "handshakes",
    "library",
];

#[derive(Debug, Args)]
#[command(next_help_heading = "Scenarios")]
pub(super) struct ScenarioOptions {
    /// Run several populations of clients through the phases of this file; options about
    /// the broker and whom to trust come before those of the file.
    #[arg(long, value_name = "FILE")]
    pub(super) scenario: Option<PathBuf>,
    /// Multiply the clients and rates in the file.
    #[arg(long, value_name = "FACTOR", requires = "scenario", value_parser = factor)]
    pub(super) scale: Option<f64>,
    /// Seconds that each phase takes, instead of those in the file.
    #[arg(long, value_name = "SECONDS", requires = "scenario", value_parser = seconds)]
    pub(super) phase_seconds: Option<Duration>,
}

fn factor(text: &str) -> Result<f64, String> {
    let factor: Option<f64> = text.parse().ok();
    let factor = factor.filter(|factor| (0.000_1..=10_000.0).contains(factor));
    factor.ok_or_else(|| "must be a number from 0.0001 to 10000".into())
}

/// The file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    name: String,
    /// Options of all populations that do not say otherwise.
    #[serde(default)]
    options: Table,
    phase: Vec<FilePhase>,
    population: Vec<FilePopulation>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct FilePhase {
    name: String,
    seconds: f64,
}

#[derive(Debug, Deserialize)]
struct FilePopulation {
    name: String,
    /// Names of phases that follow each other; all if not given.
    phases: Option<Vec<String>>,
    #[serde(flatten)]
    options: Table,
}

/// A population's options, as the command line would have them.
#[derive(Debug, Parser)]
#[command(no_binary_name = true, disable_help_flag = true)]
struct Line {
    #[command(flatten)]
    bench: Bench,
}

impl Bench {
    pub(super) fn scenario(&self, path: &Path) -> anyhow::Result<ExitCode> {
        let scenario = self.read(path)?;
        let first = scenario.populations.first();
        let plan = &first.context("there is no [[population]]")?.plan;
        let broker = self.broker(plan)?;
        let log: Box<dyn Write + Send> = if self.quiet {
            Box::new(io::sink())
        } else {
            Box::new(io::stderr())
        };
        let report = scenario::run(&scenario, broker, &Arc::new(Mutex::new(log)))?;
        if let Some(path) = &self.json {
            write_json(path, &report, true)?;
        }
        if !self.json.as_deref().is_some_and(is_stdout) {
            write!(io::stdout().lock(), "{report}")?;
        }
        Ok(match report.is_whole() {
            true => ExitCode::SUCCESS,
            false => ExitCode::FAILURE,
        })
    }

    fn read(&self, path: &Path) -> anyhow::Result<Scenario> {
        let cannot = || format!("cannot read {}", path.display());
        let length = std::fs::metadata(path).with_context(cannot)?.len();
        if length > FILE_BYTES_MAX {
            bail!("{} is longer than {FILE_BYTES_MAX} bytes", path.display());
        }
        let text = std::fs::read_to_string(path).with_context(cannot)?;
        self.parse(&text)
            .with_context(|| path.display().to_string())
    }

    fn parse(&self, text: &str) -> anyhow::Result<Scenario> {
        let file: File = toml::from_str(text)?;
        if !(1..=PHASES_MAX).contains(&file.phase.len()) {
            bail!("there must be 1 to {PHASES_MAX} [[phase]]");
        }
        if !(1..=POPULATIONS_MAX).contains(&file.population.len()) {
            bail!("there must be 1 to {POPULATIONS_MAX} [[population]]");
        }
        let run = run_id();
        let populations = file.population.iter().enumerate();
        let populations = populations.map(|(number, it)| {
            let made = self.population(&file, it, format!("{run}{number}"));
            made.with_context(|| format!("population {:?}", it.name))
        });
        let populations = populations.collect::<anyhow::Result<Vec<_>>>()?;
        if populations.iter().all(|it| it.first > 0) {
            bail!("no population is there in the first phase");
        }
        let phases = file.phase.iter().map(|it| self.phase(it));
        Ok(Scenario {
            name: file.name.clone(),
            phases: phases.collect::<anyhow::Result<_>>()?,
            populations,
        })
    }

    fn phase(&self, phase: &FilePhase) -> anyhow::Result<Phase> {
        if !(0.1..=SECONDS_MAX).contains(&phase.seconds) {
            bail!("phase {:?}: seconds is 0.1 to a year", phase.name);
        }
        let length = Duration::from_secs_f64(phase.seconds);
        Ok(Phase {
            name: phase.name.clone(),
            length: self.scenario.phase_seconds.unwrap_or(length),
        })
    }

    fn population(
        &self,
        file: &File,
        it: &FilePopulation,
        run_id: String,
    ) -> anyhow::Result<Population> {
        let mut options = file.options.clone();
        options.extend(it.options.clone());
        options.extend(self.given());
        let mut words = Vec::new();
        for (name, value) in &options {
            if OTHERS.contains(&name.as_str()) {
                bail!("{name} is no option of a population");
            }
            words.extend(word(name, value, self.scenario.scale)?);
        }
        let line = Line::try_parse_from(words).map_err(|error| {
            let text = error.to_string();
            let first = text.lines().next().unwrap_or_default();
            anyhow::anyhow!("{}", first.trim_start_matches("error: "))
        })?;
        let (first, last) = places(file, it.phases.as_deref())?;
        Ok(Population {
            name: it.name.clone(),
            plan: line.bench.plan(run_id)?,
            first,
            last,
        })
    }

    /// What the command line says, which comes before the file.
    fn given(&self) -> Table {
        let mut given = Table::new();
        let mut say = |name: &str, value: Option<String>| {
            if let Some(value) = value {
                given.insert(name.into(), Value::String(value));
            }
        };
        let file = |path: &Option<PathBuf>| path.as_ref().map(|it| it.display().to_string());
        say("url", self.url.clone());
        say("user", self.user.clone());
        say("password", self.password.clone());
        say("ca", file(&self.trust.ca));
        say("cert", file(&self.trust.cert));
        say("key", file(&self.trust.key));
        let hex = |pin: [u8; 32]| pin.iter().map(|byte| format!("{byte:02x}")).collect();
        say("pin", self.trust.pin.map(hex));
        if self.trust.insecure {
            given.insert("insecure".into(), Value::Boolean(true));
        }
        given
    }
}

/// The first and last phase of a population.
fn places(file: &File, names: Option<&[String]>) -> anyhow::Result<(usize, usize)> {
    let Some(names) = names else {
        return Ok((0, file.phase.len() - 1));
    };
    let place = |name: &String| {
        let place = file.phase.iter().position(|phase| phase.name == *name);
        place.with_context(|| format!("there is no phase {name:?}"))
    };
    let places = names
        .iter()
        .map(place)
        .collect::<anyhow::Result<Vec<_>>>()?;
    match (places.first(), places.last()) {
        (Some(first), Some(last)) if places.windows(2).all(|it| it[0] + 1 == it[1]) => {
            Ok((*first, *last))
        }
        _ => bail!("phases must be one or several that follow each other"),
    }
}

/// An option as a word of a command line; none: `false`.
fn word(name: &str, value: &Value, scale: Option<f64>) -> anyhow::Result<Option<String>> {
    let text = |value: &Value| match value {
        Value::String(text) => Ok(text.clone()),
        Value::Integer(number) => Ok(scaled(name, *number as f64, scale)),
        Value::Float(number) => Ok(scaled(name, *number, scale)),
        _ => bail!("{name} must be a number or a text"),
    };
    Ok(match value {
        Value::Boolean(true) => Some(format!("--{name}")),
        Value::Boolean(false) => None,
        Value::Array(values) => {
            let texts = values
                .iter()
                .map(text)
                .collect::<anyhow::Result<Vec<_>>>()?;
            Some(format!("--{name}={}", texts.join(",")))
        }
        value => Some(format!("--{name}={}", text(value)?)),
    })
}

fn scaled(name: &str, number: f64, scale: Option<f64>) -> String {
    match scale {
        Some(scale) if RATES.contains(&name) => (number * scale).to_string(),
        Some(scale) if SCALED.contains(&name) => (number * scale).round().max(1.0).to_string(),
        _ => number.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = r#"
        name = "a day"
        [options]
        url = "mqtt://127.0.0.1:99"
        qos = 1
        [[phase]]
        name = "night"
        seconds = 20
        [[phase]]
        name = "morning"
        seconds = 1.5
        [[population]]
        name = "meters"
        pattern = "fleet"
        devices = 1000
        rate = 25
        subscribing = 10
        arrival = "poisson"
        size = [32, 64]
        [[population]]
        name = "commuters"
        phases = ["morning"]
        idle = 30
        qos = 0
    "#;

    fn parse(args: &str, text: &str) -> Result<Scenario, String> {
        let words = format!("--scenario=x {args}");
        let line = Line::try_parse_from(words.split_whitespace()).expect("options");
        line.bench.parse(text).map_err(|error| format!("{error:#}"))
    }

    #[test]
    fn populations_have_the_options_of_the_command() {
        let scenario = parse("", FILE).expect("scenario");
        let [meters, commuters] = &scenario.populations[..] else {
            panic!("two populations");
        };
        assert_eq!((meters.first, meters.last), (0, 1));
        assert_eq!((commuters.first, commuters.last), (1, 1));
        let plan = &meters.plan;
        assert_eq!((plan.publishers, plan.subscribers), (900, 100));
        assert_eq!((plan.pace.rate, plan.messages.qos as u8), (Some(25.0), 1));
        assert_eq!(plan.messages.sizes, [32, 64]);
        let plan = &commuters.plan;
        assert_eq!((plan.idle, plan.messages.qos as u8), (30, 0));
        assert_eq!(plan.target.addr.port(), 99);
        assert_ne!(meters.plan.prefix, commuters.plan.prefix);
        assert_eq!(scenario.phases[1].length, Duration::from_millis(1500));
    }

    #[test]
    fn the_command_line_comes_first_and_makes_it_small() {
        let args = "--url mqtt://127.0.0.1:77 --scale 0.01 --phase-seconds 0.5";
        let scenario = parse(args, FILE).expect("scenario");
        let plan = &scenario.populations[0].plan;
        assert_eq!((plan.publishers, plan.subscribers), (9, 1));
        assert_eq!((plan.pace.rate, plan.target.addr.port()), (Some(0.25), 77));
        assert_eq!(scenario.populations[1].plan.idle, 1);
        assert_eq!(scenario.phases[0].length, Duration::from_millis(500));
    }

    #[test]
    fn what_makes_no_sense_is_named() {
        let cases = [
            ("devices = 1000", "devicez = 1000", "--devicez"),
            ("devices = 1000", "duration = 5", "duration is no option"),
            ("devices = 1000", "devices = 'many'", "--devices"),
            ("\"morning\"]", "\"noon\"]", "there is no phase \"noon\""),
            (
                "\"morning\"]",
                "\"morning\", \"night\"]",
                "follow each other",
            ),
            ("seconds = 20", "seconds = 0", "0.1 to a year"),
            ("subscribing = 10", "moving = 10", "quic"),
            ("name = \"a day\"", "nome = \"a day\"", "nome"),
        ];
        for (old, new, want) in cases {
            let error = parse("", &FILE.replacen(old, new, 1)).expect_err(new);
            let error = error.to_lowercase();
            assert!(error.contains(want), "{new}: {error}");
        }
    }
}
