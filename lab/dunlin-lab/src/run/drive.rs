//! Runs the cells of experiments that are not recorded yet, and records them.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context as _, Result, bail};
use clap::Args;
use dunlin_link::linux;

use super::clock::{Budget, estimate, now, shown};
use super::environment::environment;
use super::experiment::{Claim, Experiment};
use super::record::{Cell, Header, Outcome, Record, Scale};
use super::store::{OLD, Run};
use super::systems::{SYSTEMS, System, tshark_version};
use super::{ALL, interrupt, medians, report};
use crate::console;
use crate::lab::Lab;
use crate::trouble::{self, Watch};

/// Tries of a cell that gave nothing valid.
const ATTEMPTS_MAX: u32 = 2;

/// Failures in a row after which the rest is not tried any more.
const FAILURES_MAX: u32 = 3;

/// How the reason begins where a program failed.
const FAILED: &str = "failed: ";

/// Run experiments of the papers.
#[derive(Args, Debug)]
pub(crate) struct RunCommand {
    /// Experiments, or `all`.
    names: Vec<String>,
    /// Show what there is.
    #[arg(long)]
    list: bool,
    /// Durations and counts of the papers: hours.
    #[arg(long, conflicts_with = "smoke")]
    paper: bool,
    /// Seconds: does it work at all. Where there can be no links that is said,
    /// and no failure.
    #[arg(long)]
    smoke: bool,
    /// Folder of runs; made if it is not there.
    #[arg(long, value_name = "DIR", default_value = "target/lab/runs")]
    out: PathBuf,
    /// Say how long it would take, and end.
    #[arg(long)]
    estimate: bool,
    /// Start over instead of going on with what is recorded.
    #[arg(long)]
    fresh: bool,
    /// Measure only this system; may be given several times.
    #[arg(long, value_name = "SYSTEM")]
    only: Vec<String>,
    /// The `dunlin` binary; the one beside this program if not given.
    #[arg(long, value_name = "FILE")]
    dunlin: Option<PathBuf>,
    /// Only cells that checks run.
    #[arg(skip)]
    checked: bool,
}

/// What came of an experiment.
struct Judged {
    /// Every cell of a system that is installed has been measured.
    complete: bool,
    claims: Vec<Claim>,
}

impl RunCommand {
    /// Experiments whose targets are checked.
    pub(crate) const fn checking(
        names: Vec<String>,
        short: bool,
        dunlin: Option<PathBuf>,
        out: PathBuf,
    ) -> Self {
        Self {
            names,
            list: false,
            paper: !short,
            smoke: false,
            out,
            estimate: false,
            fresh: true,
            only: Vec::new(),
            dunlin,
            checked: true,
        }
    }

    /// Runs them afresh; the names of those that missed a target, or have cells
    /// without a valid result.
    pub(crate) fn check(self) -> Result<Vec<&'static str>> {
        let experiments = self.experiments()?;
        self.prepare()?;
        let mut missed = Vec::new();
        for experiment in experiments {
            let name = experiment.name();
            if let Some(what) = experiment.missing() {
                console::line(format_args!("== {name}: skipped: {what}"));
                continue;
            }
            let judged = self.one(experiment);
            let judged = judged.with_context(|| format!("the check {name}"))?;
            if !judged.complete || judged.claims.iter().any(Claim::is_missed) {
                missed.push(name);
            }
        }
        report::after_run(&self.out)?;
        Ok(missed)
    }

    pub(crate) fn run(self) -> Result<ExitCode> {
        if self.list {
            list();
            return Ok(ExitCode::SUCCESS);
        }
        let experiments = self.experiments()?;
        self.check_systems()?;
        let mut budget = self.budget(&experiments);
        if self.estimate {
            budget.print();
            return Ok(ExitCode::SUCCESS);
        }
        if let Some(what) = linux::missing() {
            if self.smoke {
                console::line(format_args!("experiments: SKIPPED: {what}"));
                return Ok(ExitCode::SUCCESS);
            }
            bail!(what);
        }
        self.prepare()?;
        budget.print();
        let mut failed = Vec::new();
        for experiment in experiments {
            let name = experiment.name();
            let begun = Instant::now();
            let done = self.one(experiment);
            budget.took(name, begun.elapsed());
            if let Err(error) = done {
                if interrupt::asked() {
                    break;
                }
                // None of the others would have room either.
                trouble::room(&[&self.out, &std::env::temp_dir()])?;
                console::error(format_args!("{name}: {error:#}"));
                failed.push(name);
            }
        }
        budget.print();
        if interrupt::asked() {
            bail!("interrupted; the same command goes on where this one stopped");
        }
        report::after_run(&self.out)?;
        if failed.is_empty() {
            return Ok(ExitCode::SUCCESS);
        }
        bail!("not complete: {}", failed.join(", "));
    }

    /// What must be there before the first cell.
    fn prepare(&self) -> Result<()> {
        std::fs::create_dir_all(&self.out)
            .with_context(|| format!("cannot make {}", self.out.display()))?;
        interrupt::on_signals()?;
        remove_leftovers()?;
        if tshark_version().is_none() {
            console::line("without tshark, which reads captures again: apt install tshark");
        }
        Ok(())
    }

    /// The plan of an experiment, or what a check takes of it.
    fn plan(&self, experiment: &dyn Experiment) -> Vec<Cell> {
        let mut cells = experiment.plan(self.scale());
        cells.retain(|cell| !self.checked || experiment.checked(cell));
        cells
    }

    fn scale(&self) -> Scale {
        match (self.paper, self.smoke) {
            (true, _) => Scale::Paper,
            (_, true) => Scale::Smoke,
            _ => Scale::Short,
        }
    }

    fn experiments(&self) -> Result<Vec<&'static dyn Experiment>> {
        if self.names.is_empty() {
            bail!("name an experiment, or `all`; --list shows what there is");
        }
        if self.names.iter().any(|name| name == "all") {
            let all = ALL.iter().filter(|experiment| experiment.in_all());
            return Ok(all.copied().collect());
        }
        let find = |name: &String| {
            let found = ALL.iter().find(|experiment| experiment.name() == name);
            found.copied().with_context(|| {
                format!(
                    "there is no experiment `{name}`; `dunlin-lab run --list` shows what there is"
                )
            })
        };
        self.names.iter().map(find).collect()
    }

    fn check_systems(&self) -> Result<()> {
        for id in &self.only {
            let Some(system) = System::find(id) else {
                let known: Vec<&str> = SYSTEMS.iter().map(|system| system.id).collect();
                bail!("there is no system `{id}`, only {}", known.join(", "));
            };
            if let Some(what) = system.missing() {
                bail!(what);
            }
        }
        Ok(())
    }

    /// How long all cells take, recorded ones included.
    fn budget(&self, experiments: &[&'static dyn Experiment]) -> Budget {
        let mut budget = Budget::default();
        for experiment in experiments {
            let mut cells = self.plan(*experiment);
            cells.retain(|cell| self.wanted(cell));
            cells.retain(|cell| {
                System::find(&cell.system)
                    .and_then(System::missing)
                    .is_none()
            });
            budget.plan(
                experiment.name(),
                estimate(*experiment, &cells, self.scale()),
            );
        }
        budget
    }

    fn wanted(&self, cell: &Cell) -> bool {
        self.only.is_empty() || self.only.contains(&cell.system)
    }

    /// Runs what is missing of one experiment.
    fn one(&self, experiment: &dyn Experiment) -> Result<Judged> {
        let name = experiment.name();
        let scale = self.scale();
        console::line(format_args!(
            "== {name}: {} ({})",
            experiment.about(),
            experiment.source()
        ));
        let folder = self.out.join(format!("{name}-{}", word(scale)));
        let planned = self.plan(experiment);
        let ids: BTreeSet<String> = planned.iter().map(|cell| cell.system.clone()).collect();
        let cells = installed(planned);
        trouble::room(&[&self.out, &std::env::temp_dir()])?;
        let lab = Lab::new(self.dunlin.clone(), folder.clone())?;
        let mut run = self.open(&lab, &folder, experiment, (&ids, cells.len()))?;
        let mut todo: Vec<&Cell> = cells.iter().filter(|cell| !run.has(cell)).collect();
        todo.retain(|cell| self.wanted(cell));
        if todo.len() < cells.len() {
            let (left, all) = (todo.len(), cells.len());
            console::line(format_args!(
                "   {left} of {all} cells are still to do (--fresh: all)"
            ));
        }
        let mut progress = Progress::new(todo.len());
        let (mut failures, mut failed) = (0, 0);
        for cell in todo {
            trouble::room(&[&folder, &std::env::temp_dir()])?;
            progress.begin(cell);
            let record = attempt(experiment, cell, scale, &lab)?;
            match &record.outcome.invalid {
                Some(why) => {
                    console::line(format_args!("   INVALID: {why}"));
                    let broken = why.starts_with(FAILED);
                    failed += u32::from(broken);
                    // A busy machine says nothing about whether it works.
                    failures += u32::from(broken || scale != Scale::Smoke);
                }
                None => failures = 0,
            }
            run.append(record)?;
            if failures == FAILURES_MAX {
                bail!("{FAILURES_MAX} cells in a row gave nothing valid");
            }
        }
        let complete = cells.iter().all(|cell| run.has(cell));
        if complete && run.header.finished.is_none() {
            run.header.finished = Some(now());
            run.write_header()?;
        }
        medians::print(&run.records);
        let claims = experiment.claims(&run.records);
        medians::print_claims(&claims);
        if failed > 0 {
            let cells = if failed == 1 { "cell" } else { "cells" };
            bail!("{failed} {cells} failed, as said above");
        }
        Ok(Judged { complete, claims })
    }

    /// The run in this folder if it can go on, or a new one.
    fn open(
        &self,
        lab: &Lab,
        folder: &Path,
        experiment: &dyn Experiment,
        (ids, planned): (&BTreeSet<String>, usize),
    ) -> Result<Run> {
        let systems: Vec<&System> = SYSTEMS.iter().filter(|s| ids.contains(s.id)).collect();
        let header = Header {
            experiment: experiment.name().to_owned(),
            scale: self.scale(),
            planned,
            started: now(),
            finished: None,
            environment: environment(lab, &systems),
        };
        if let Some(run) = Run::read(folder)? {
            let same = run.header.environment == header.environment
                && run.header.planned == header.planned;
            if same && !self.fresh {
                return Ok(run);
            }
            let old = self.put_away(folder, &run.header)?;
            if !self.fresh {
                let old = old.display();
                console::line(format_args!(
                    "   what was measured with other programs is now in {old}"
                ));
            }
        }
        std::fs::create_dir_all(folder)
            .with_context(|| format!("cannot make {}", folder.display()))?;
        let run = Run {
            folder: folder.to_owned(),
            header,
            records: Vec::new(),
            cut: None,
        };
        run.write_header()?;
        Ok(run)
    }

    /// Moves a run out of the way; nothing that was measured is deleted.
    fn put_away(&self, folder: &Path, header: &Header) -> Result<PathBuf> {
        let name = folder.file_name().unwrap_or_default().to_string_lossy();
        let old = self.out.join(OLD);
        let to = old.join(format!("{name}-{}", header.started.replace(':', "")));
        std::fs::create_dir_all(&old)
            .and_then(|()| std::fs::rename(folder, &to))
            .with_context(|| format!("cannot move {}", folder.display()))?;
        Ok(to)
    }
}

/// Removes the namespaces of runs that were killed with their watchers.
fn remove_leftovers() -> Result<()> {
    let Ok(entries) = std::fs::read_dir("/run/netns") else {
        return Ok(());
    };
    let links: BTreeSet<String> = entries
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter_map(|name| {
            let link = name.strip_prefix("dunlin-")?.rsplit_once('-')?.0;
            link.starts_with("run-").then(|| link.to_owned())
        })
        .collect();
    // No names at all would mean those of everybody.
    if links.is_empty() {
        return Ok(());
    }
    let links: Vec<String> = links.into_iter().collect();
    for name in linux::clean(&links)?.removed {
        console::line(format_args!("removed {name}, which a dead run has left"));
    }
    Ok(())
}

/// Leaves out cells of systems that are not there, and says so.
fn installed(cells: Vec<Cell>) -> Vec<Cell> {
    let mut missing = BTreeSet::new();
    let kept = cells
        .into_iter()
        .filter(|cell| {
            let Some(what) = System::find(&cell.system).and_then(System::missing) else {
                return true;
            };
            missing.insert((cell.system.clone(), what));
            false
        })
        .collect();
    for (system, what) in missing {
        console::line(format_args!("   without {system}: {what}"));
    }
    kept
}

/// Runs a cell, again if that gave nothing valid. A failure of what is
/// measured is a record too; an interruption is an error.
fn attempt(experiment: &dyn Experiment, cell: &Cell, scale: Scale, lab: &Lab) -> Result<Record> {
    let mut tries = 0;
    loop {
        tries += 1;
        let begun = Instant::now();
        let watch = Watch::start();
        let outcome = experiment.run(cell, scale, lab);
        let trouble = watch.end();
        if interrupt::asked() {
            bail!("interrupted");
        }
        let failed = |why| Outcome {
            invalid: Some(format!("{FAILED}{why}")),
            ..Outcome::default()
        };
        // The cause says more than what waited for it.
        let outcome = match (trouble, outcome) {
            (Some(why), _) => failed(why),
            (None, Err(error)) => failed(format!("{error:#}")),
            (None, Ok(outcome)) => outcome,
        };
        if outcome.invalid.is_none() || tries == ATTEMPTS_MAX {
            return Ok(Record {
                cell: cell.clone(),
                outcome,
                seconds: begun.elapsed().as_secs_f64(),
            });
        }
        console::line(format_args!(
            "   again, as this was not valid: {}",
            outcome.invalid.unwrap_or_default()
        ));
    }
}

/// Says what is done and how long the rest will take.
struct Progress {
    cells: usize,
    done: usize,
    start: Instant,
}

impl Progress {
    fn new(cells: usize) -> Self {
        Self {
            cells,
            done: 0,
            start: Instant::now(),
        }
    }

    fn begin(&mut self, cell: &Cell) {
        let mut rest = String::new();
        if let Some(each) = u32::try_from(self.done)
            .ok()
            .and_then(|done| self.start.elapsed().checked_div(done))
        {
            let left = u32::try_from(self.cells - self.done).unwrap_or(u32::MAX);
            rest = format!(", about {} left", shown(each.saturating_mul(left)));
        }
        self.done += 1;
        console::line(format_args!(
            "   [{}/{}] {}, repetition {}, seed {:016x}{rest}",
            self.done,
            self.cells,
            cell.shown(),
            cell.repetition,
            cell.seed
        ));
    }
}

fn list() {
    for experiment in ALL {
        let (name, about, source) = (experiment.name(), experiment.about(), experiment.source());
        console::line(format_args!("{name:<20} {about} ({source})"));
    }
    console::line("systems:");
    for system in SYSTEMS {
        let missing = system.missing().unwrap_or("");
        console::line(format_args!("{:<20} {} {missing}", system.id, system.title));
    }
}

const fn word(scale: Scale) -> &'static str {
    match scale {
        Scale::Smoke => "smoke",
        Scale::Short => "short",
        Scale::Paper => "paper",
    }
}
