//! What a report shows of each run, gathered once for all kinds of output.

use core::time::Duration;
use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context as _, Result};

use super::claim::{Found, Row};
use super::figure;
use super::plot::model::Plot;
use super::plot::style::Styles;
use crate::run::clock;
use crate::run::experiment::{Cause, Experiment, Figure};
use crate::run::record::{Record, Scale};
use crate::run::store::{OLD, Run};

/// A run with what its experiment makes of it.
pub(super) struct Shown {
    pub(super) run: Run,
    /// Name of its files.
    pub(super) stem: String,
    /// `None` for an experiment that this program does not have.
    pub(super) experiment: Option<&'static dyn Experiment>,
    pub(super) claims: Vec<Row>,
    pub(super) figures: Vec<(Figure, Plot)>,
}

/// All runs of a folder.
#[derive(Default)]
pub(super) struct Site {
    pub(super) shown: Vec<Shown>,
    /// Runs that cannot be read, each with a sentence.
    pub(super) unreadable: Vec<String>,
}

impl Site {
    /// Reads all runs in the folders of this one.
    pub(super) fn read(runs: &Path, known: &[&'static dyn Experiment]) -> Result<Self> {
        let shown = runs.display();
        let cannot = || format!("cannot read {shown} (`dunlin-lab run` makes runs)");
        let mut folders = Vec::new();
        for entry in std::fs::read_dir(runs).with_context(cannot)? {
            let path = entry.with_context(cannot)?.path();
            if path.is_dir() && path.file_name().is_some_and(|name| name != OLD) {
                folders.push(path);
            }
        }
        folders.sort();
        let mut site = Self::default();
        for folder in folders {
            match Run::read(&folder) {
                Ok(None) => {}
                Ok(Some(run)) => site.shown.push(Shown::of(run, known)),
                Err(error) => site.unreadable.push(format!("{error:#}")),
            }
        }
        let order = |shown: &Shown| {
            let name = &shown.run.header.experiment;
            let place = known.iter().position(|e| e.name() == name);
            (
                place.unwrap_or(known.len()),
                name.clone(),
                shown.run.header.scale,
            )
        };
        site.shown.sort_by_key(order);
        site.explain();
        Ok(site)
    }

    /// Puts beside claims what isolates their causes.
    fn explain(&mut self) {
        let quoted = self.quoted();
        let found: Vec<_> = self
            .shown
            .iter()
            .map(|shown| shown.causes(&quoted))
            .collect();
        for (shown, found) in self.shown.iter_mut().zip(found) {
            for (row, causes) in shown.claims.iter_mut().zip(found) {
                row.causes = causes;
            }
        }
    }

    /// Of each experiment the run to quote: with the most repetitions that is
    /// finished, else the one that has come farthest.
    pub(super) fn quoted(&self) -> Vec<&Shown> {
        let mut quoted: Vec<&Shown> = Vec::new();
        for shown in &self.shown {
            let name = &shown.run.header.experiment;
            match quoted.iter_mut().find(|q| q.run.header.experiment == *name) {
                Some(other) if shown.rank() > other.rank() => *other = shown,
                Some(_) => {}
                None => quoted.push(shown),
            }
        }
        quoted
    }
}

impl Shown {
    /// Draws and judges a run.
    pub(super) fn of(mut run: Run, known: &[&'static dyn Experiment]) -> Self {
        // Invalid cells last; runs of the papers' length are too large to copy.
        let valid = |record: &Record| record.outcome.invalid.is_none();
        run.records.sort_by_key(|record| !valid(record));
        let name = &run.header.experiment;
        let experiment = known.iter().find(|e| e.name() == name).copied();
        let styles = Styles::of(run.records.iter().map(|r| r.cell.system.as_str()));
        let figures = experiment.map_or_else(Vec::new, |experiment| {
            let figures = experiment.figures().into_iter();
            let drawn = figures.map(|f| {
                let plot = figure::plot(&f, &run.records, &styles);
                (f, plot)
            });
            drawn.collect()
        });
        let valid = run.records.partition_point(valid);
        let valid = run.records.get(..valid).unwrap_or_default();
        let claims = experiment.map_or_else(Vec::new, |experiment| {
            let claims = experiment.claims(valid).into_iter();
            claims.map(Row::of).collect()
        });
        let folder = run.folder.file_name().unwrap_or_default().to_string_lossy();
        let stem = folder
            .chars()
            .map(|c| {
                if c.is_ascii_alphanumeric() || c == '.' {
                    c
                } else {
                    '-'
                }
            })
            .collect();
        Self {
            stem,
            experiment,
            claims,
            figures,
            run,
        }
    }

    /// The causes of each of its claims, as they were measured by itself or in one of
    /// these runs. A smoke run explains smoke runs only.
    fn causes(&self, quoted: &[&Self]) -> Vec<Vec<Found>> {
        let find = |cause: &Cause| {
            let others = quoted.iter().copied();
            let others = others.filter(|other| self.is_smoke() || !other.is_smoke());
            let mut rows = core::iter::once(self)
                .chain(others)
                .filter(|shown| shown.run.header.experiment == cause.experiment)
                .flat_map(|shown| &shown.claims);
            let row = rows.find(|row| row.claim.what == cause.what)?;
            Some(Found {
                experiment: cause.experiment,
                claim: row.claim.clone(),
            })
        };
        let named = self.claims.iter().map(|row| &row.claim.causes);
        named
            .map(|causes| causes.iter().filter_map(find).collect())
            .collect()
    }

    /// Rows of its CSV.
    pub(super) fn samples(&self) -> usize {
        let measures = self.run.records.iter().flat_map(|r| &r.outcome.measures);
        measures.map(|m| m.values.len() + m.series.len()).sum()
    }

    fn rank(&self) -> (bool, bool, Scale, usize) {
        let header = &self.run.header;
        (
            header.scale != Scale::Smoke,
            header.finished.is_some(),
            header.scale,
            self.run.records.len(),
        )
    }

    /// Whether all cells of the plan are recorded.
    pub(super) const fn complete(&self) -> bool {
        self.run.header.finished.is_some() || self.run.records.len() >= self.run.header.planned
    }

    pub(super) fn invalid(&self) -> usize {
        let records = self.run.records.iter();
        records.filter(|r| r.outcome.invalid.is_some()).count()
    }

    /// Whether its claims count: those of a smoke run decide nothing, and those that
    /// isolate causes count with what they explain.
    pub(super) fn counts(&self) -> bool {
        !self.is_smoke()
            && !self
                .experiment
                .is_some_and(|experiment| experiment.isolates())
    }

    /// Whether it only shows that the experiment works.
    pub(super) fn is_smoke(&self) -> bool {
        self.run.header.scale == Scale::Smoke
    }

    /// Whether the reader has to be warned before the numbers.
    pub(super) fn doubtful(&self) -> bool {
        self.is_smoke() || !self.complete() || self.run.cut.is_some()
    }

    /// Where the run stands, in sentences.
    pub(super) fn status(&self) -> Vec<String> {
        let (recorded, planned) = (self.run.records.len(), self.run.header.planned);
        let invalid = self.invalid();
        let mut said = Vec::new();
        if self.run.header.finished.is_some() {
            said.push(format!("Complete: {recorded} of {planned} cells."));
        } else if self.complete() {
            said.push(format!(
                "All {planned} cells are recorded. The command that started the run would try \
                 the invalid ones again."
            ));
        } else {
            said.push(format!(
                "Unfinished: {recorded} of {planned} cells are recorded so far; what follows is \
                 of those. The command that started the run goes on with the rest."
            ));
        }
        if invalid > 0 {
            said.push(format!(
                "{invalid} {} invalid and in no figure.",
                if invalid == 1 { "cell is" } else { "cells are" }
            ));
        }
        said.extend(self.run_once());
        if recorded > 0 {
            let seconds: f64 = self.run.records.iter().map(|r| r.seconds).sum();
            let took = Duration::try_from_secs_f64(seconds).unwrap_or_default();
            said.push(format!("Its cells took {}.", clock::shown(took)));
        }
        if self.is_smoke() {
            said.push("A smoke run shows that it works; its numbers decide nothing.".to_owned());
        }
        if let Some(line) = self.run.cut {
            said.push(format!(
                "Line {line} of cells.jsonl was cut short and is left out; all before it was read."
            ));
        }
        if self.experiment.is_none() {
            let name = &self.run.header.experiment;
            said.push(format!(
                "This program has no experiment `{name}`, so there are neither figures nor claims."
            ));
        }
        said
    }

    /// What the intervals of cells without repetition do not say.
    fn run_once(&self) -> Option<String> {
        let mut conditions: BTreeMap<String, usize> = BTreeMap::new();
        for record in &self.run.records {
            *conditions.entry(record.cell.shown()).or_default() += 1;
        }
        let once = conditions.values().filter(|times| **times == 1).count();
        if once == 0 {
            return None;
        }
        let what = match conditions.len() - once {
            0 => "Each cell was run once".to_owned(),
            more => format!(
                "{more} of {} kinds of cells were run more than once, the others once",
                conditions.len()
            ),
        };
        Some(format!(
            "{what}: intervals of those are of what varied within the cell, not of what another \
             run would give."
        ))
    }

    /// Sentences of the cells, each with how many cells said it.
    pub(super) fn notes(&self) -> BTreeMap<&str, usize> {
        let mut notes = BTreeMap::new();
        for note in self.run.records.iter().flat_map(|r| &r.outcome.notes) {
            *notes.entry(note.as_str()).or_default() += 1;
        }
        notes
    }
}

/// For people and for names.
pub(super) const fn scale(scale: Scale) -> &'static str {
    match scale {
        Scale::Smoke => "smoke",
        Scale::Short => "short",
        Scale::Paper => "paper",
    }
}
