//! Several populations of clients against one broker, with phases: each population is a
//! plan of its own for the generator, and all of them have the same clock.

mod report;

use core::time::Duration;
use std::io::{self, Write};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use anyhow::{Context as _, bail};
use dunlin_base::Instant;

use super::plan::Plan;
use super::proc::Process;
use super::scene::{Part, Scene};
use super::{BREATH, TICK, limits};
pub use report::{OfPhase, OfPopulation, Report};

/// Phases at most.
pub const PHASES_MAX: usize = 100;
/// Populations at most.
pub const POPULATIONS_MAX: usize = 100;

/// A part of the time.
#[derive(Clone, Debug)]
pub struct Phase {
    /// What it is called.
    pub name: String,
    /// How long it takes.
    pub length: Duration,
}

/// Clients that do the same.
#[derive(Clone, Debug)]
pub struct Population {
    /// What it is called.
    pub name: String,
    /// What it does; its times are those of its phases.
    pub plan: Plan,
    /// Its first phase: from the beginning of that on it connects, unless it is the first
    /// of all, before which it is connected.
    pub first: usize,
    /// Its last phase.
    pub last: usize,
}

/// What is to be done.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// What it is called.
    pub name: String,
    /// One after the other.
    pub phases: Vec<Phase>,
    /// At the same time.
    pub populations: Vec<Population>,
}

/// Where lines of progress go, from all populations.
pub type Log = Arc<Mutex<Box<dyn Write + Send>>>;

/// Runs a scenario. `broker` is the process to watch.
///
/// # Errors
/// The system allows too few files, or a population of the first phase does not come
/// about. What befalls a later one is in the report.
pub fn run(scenario: &Scenario, broker: Option<Process>, log: &Log) -> anyhow::Result<Report> {
    let connections = scenario.populations.iter().map(|it| it.plan.connections());
    limits::allow_files(connections.sum())?;
    let scene = Scene::new(scenario.phases.iter().map(|phase| phase.length));
    let scene = &Arc::new(scene);
    let populations: Vec<Population> = scenario.populations.iter().map(|it| it.at(scene)).collect();
    thread::scope(|scope| {
        let begin = |phase: usize| {
            let now = populations.iter().enumerate();
            let now = now.filter(move |(_, it)| it.first == phase);
            now.map(|(number, it)| (number, scope.spawn(|| it.run(log))))
                .collect::<Vec<_>>()
        };
        let mut running = begin(0);
        let ready = await_all(
            scene,
            || running.iter().any(|(_, it)| it.is_finished()),
            running.len(),
        );
        if !ready {
            // Why those ended says more than why the others will.
            let (ended, others): (Vec<_>, Vec<_>) =
                running.into_iter().partition(|(_, it)| it.is_finished());
            scene.stop();
            let all = ended.into_iter().chain(others);
            for result in all.map(|(_, it)| it.join()) {
                result.map_err(|_| anyhow::anyhow!("a population failed"))??;
            }
            bail!("a population ended before the first phase");
        }
        scene.begin((scene.clock.now() + BREATH).as_micros());
        let mut phases = Vec::new();
        for (number, phase) in scenario.phases.iter().enumerate() {
            sleep_until(scene, number);
            let seconds = phase.length.as_secs_f64();
            line(log, &format!("== {}, {seconds} s", phase.name));
            if number > 0 {
                running.extend(begin(number));
            }
            let before = broker.and_then(Process::cpu);
            sleep_until(scene, number + 1);
            phases.push(OfPhase::new(phase, broker, before));
        }
        let mut results: Vec<_> = running
            .into_iter()
            .map(|(number, it)| (number, it.join()))
            .collect();
        results.sort_by_key(|(number, _)| *number);
        let results = results.into_iter().zip(&scenario.populations);
        let all = results.map(|((_, result), population)| {
            let result = result.map_err(|_| anyhow::anyhow!("it failed"));
            OfPopulation::new(population, result.and_then(|it| it))
        });
        Ok(Report::new(scenario, phases, all.collect()))
    })
}

/// Waits until so many populations are connected; `false`: one has ended.
fn await_all(scene: &Scene, ended: impl Fn() -> bool, all: usize) -> bool {
    while scene.arrived() < all {
        if ended() {
            return false;
        }
        thread::sleep(TICK);
    }
    true
}

fn sleep_until(scene: &Scene, phase: usize) {
    let until = Instant::from_micros(scene.begins_us(phase));
    thread::sleep(until - scene.clock.now().min(until));
}

impl Population {
    /// With its part in a scene.
    fn at(&self, scene: &Arc<Scene>) -> Self {
        let mut population = self.clone();
        population.plan.part = Some(Part {
            scene: Arc::clone(scene),
            first: self.first,
            last: self.last,
        });
        population
    }

    fn run(&self, log: &Log) -> anyhow::Result<super::report::Report> {
        let mut log = Prefixed {
            name: &self.name,
            log,
            line: Vec::new(),
        };
        super::run(&self.plan, None, &mut log).with_context(|| format!("population {}", self.name))
    }
}

fn line(log: &Log, text: &str) {
    let mut log = log.lock().unwrap_or_else(PoisonError::into_inner);
    // Progress is not worth failing for.
    let _ = writeln!(log, "{text}");
}

/// Whole lines of a population, with its name.
struct Prefixed<'a> {
    name: &'a str,
    log: &'a Log,
    line: Vec<u8>,
}

impl Write for Prefixed<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        for byte in bytes {
            if *byte == b'\n' {
                let text = String::from_utf8_lossy(&self.line).into_owned();
                line(self.log, &format!("   {}: {text}", self.name));
                self.line.clear();
            } else {
                self.line.push(*byte);
            }
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
