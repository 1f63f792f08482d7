//! The folder of a run: read by reports, appended to by the driver.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use super::record::{Cell, Header, Record};

const HEADER: &str = "run.json";
const CELLS: &str = "cells.jsonl";

/// Folder of runs that were replaced by others.
pub(crate) const OLD: &str = "old";

/// A run as it is on disk.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    pub(crate) folder: PathBuf,
    pub(crate) header: Header,
    /// One for each cell; the last one where a cell was run again.
    pub(crate) records: Vec<Record>,
    /// The number of the last line if it was cut short, by a kill or a full
    /// disk, and not read.
    pub(crate) cut: Option<usize>,
}

impl Run {
    /// Reads a run; `None` if there is none in this folder.
    pub(crate) fn read(folder: &Path) -> Result<Option<Self>> {
        let path = folder.join(HEADER);
        if !path.exists() {
            return Ok(None);
        }
        let shown = path.display();
        let text =
            std::fs::read_to_string(&path).with_context(|| format!("cannot read {shown}"))?;
        let header = serde_json::from_str(&text).with_context(|| format!("{shown}"))?;
        let path = folder.join(CELLS);
        let text = if path.exists() {
            std::fs::read_to_string(&path)
                .with_context(|| format!("cannot read {}", path.display()))?
        } else {
            String::new()
        };
        let mut records: Vec<Record> = Vec::new();
        for (number, line) in whole(&text).lines().enumerate() {
            let record: Record = serde_json::from_str(line)
                .with_context(|| format!("{}, line {}", path.display(), number + 1))?;
            match records
                .iter_mut()
                .find(|other| same(&other.cell, &record.cell))
            {
                Some(other) => *other = record,
                None => records.push(record),
            }
        }
        Ok(Some(Self {
            folder: folder.to_owned(),
            header,
            records,
            cut: (whole(&text).len() < text.len()).then(|| whole(&text).lines().count() + 1),
        }))
    }

    /// Whether this cell has been measured, with a valid result.
    pub(crate) fn has(&self, cell: &Cell) -> bool {
        self.records
            .iter()
            .any(|record| same(&record.cell, cell) && record.outcome.invalid.is_none())
    }

    /// Writes the header.
    pub(crate) fn write_header(&self) -> Result<()> {
        let path = self.folder.join(HEADER);
        let text = serde_json::to_string_pretty(&self.header)?;
        // Not cut short if the disk is full or this process killed.
        let next = self.folder.join("run.json.next");
        std::fs::write(&next, text + "\n")
            .and_then(|()| std::fs::rename(&next, &path))
            .with_context(|| format!("cannot write {}", path.display()))
    }

    /// Adds a record, on disk too.
    pub(crate) fn append(&mut self, record: Record) -> Result<()> {
        let path = self.folder.join(CELLS);
        let write = || -> Result<()> {
            let line = serde_json::to_string(&record)? + "\n";
            let mut file = open(&path)?;
            file.write_all(line.as_bytes())?;
            file.sync_data()?;
            Ok(())
        };
        write().with_context(|| format!("cannot write {}", path.display()))?;
        match self
            .records
            .iter_mut()
            .find(|other| same(&other.cell, &record.cell))
        {
            Some(other) => *other = record,
            None => self.records.push(record),
        }
        Ok(())
    }
}

/// Opens the list behind its last whole line.
fn open(path: &Path) -> Result<File> {
    let mut options = OpenOptions::new();
    let file = options.create(true).append(true).read(true).open(path)?;
    let text = std::fs::read_to_string(path)?;
    let kept = whole(&text).len();
    if kept < text.len() {
        file.set_len(kept as u64)?;
    }
    Ok(file)
}

/// Without a last line that was cut short.
fn whole(text: &str) -> &str {
    text.rfind('\n')
        .map_or("", |end| text.get(..=end).unwrap_or_default())
}

fn same(a: &Cell, b: &Cell) -> bool {
    a.system == b.system && a.factors == b.factors && a.repetition == b.repetition
}

#[cfg(test)]
mod tests {
    use super::super::plan::cell;
    use super::super::record::{Factors, Outcome, Scale};
    use super::*;

    fn run(folder: &Path) -> Run {
        Run {
            folder: folder.to_owned(),
            header: Header {
                experiment: "x".to_owned(),
                scale: Scale::Smoke,
                planned: 3,
                started: String::new(),
                finished: None,
                environment: Default::default(),
            },
            records: Vec::new(),
            cut: None,
        }
    }

    fn record(repetition: u32, invalid: Option<&str>) -> Record {
        Record {
            cell: cell("x", "one", Factors::new(), repetition),
            outcome: Outcome {
                invalid: invalid.map(str::to_owned),
                ..Outcome::default()
            },
            seconds: 1.0,
        }
    }

    #[test]
    fn runs_go_on_where_they_were_cut_short() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x-smoke");
        std::fs::create_dir(&path).unwrap();
        let mut run = run(&path);
        assert!(Run::read(&path).unwrap().is_none());
        run.write_header().unwrap();
        run.append(record(0, None)).unwrap();
        run.append(record(1, Some("late"))).unwrap();
        // Power fails.
        let mut file = OpenOptions::new()
            .append(true)
            .open(path.join(CELLS))
            .unwrap();
        file.write_all(b"{\"cell\":{\"sys").unwrap();
        let mut again = Run::read(&path).unwrap().unwrap();
        assert_eq!(again.records.len(), 2);
        assert_eq!(again.cut, Some(3));
        assert!(again.has(&record(0, None).cell));
        assert!(!again.has(&record(1, None).cell), "it was not valid");
        again.append(record(1, None)).unwrap();
        again.append(record(2, None)).unwrap();
        let all = Run::read(&path).unwrap().unwrap();
        assert_eq!(all.records.len(), 3, "the last one counts");
        assert!(all.has(&record(1, None).cell));
    }
}
