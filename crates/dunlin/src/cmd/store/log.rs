//! `dunlin store to-log` and `from-log`: all of a store on disk into an empty log in NATS,
//! and all of a log into a store on disk.

use core::time::Duration;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::{fs, thread};

use anyhow::{Context as _, bail};
use clap::Args;
use dunlin_store::StoreOp;
use dunlin_store_nats::{Counts, Import, ImportError, NatsConfig, NatsStore, is_in_use};
use dunlin_store_redb::{Stopped, import, read};

use super::{Progress, is_position, is_ticket, say};
use crate::config::Config;
use crate::daemon::{log_settings, make_data_dir};

/// What an import that fails leaves.
const UNFINISHED: &str = "the import was not finished, and no broker serves the log: begin again";

/// A store on disk, and a log.
#[derive(Debug, Args)]
pub(super) struct Places {
    /// The store's file on disk; store.redb in the data directory of the configuration if
    /// not given.
    #[arg(value_name = "STORE")]
    file: Option<PathBuf>,
    /// Configuration file of the broker that is to have the log, or has it: with
    /// `[store.nats]`.
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Override one key of the configuration, as in --set store.nats.prefix=other; may be
    /// repeated.
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
}

impl Places {
    /// The file and the log.
    fn open(&self) -> anyhow::Result<(PathBuf, NatsConfig)> {
        let config = Config::load(self.config.as_deref(), &self.set)?;
        let Some(settings) = log_settings(&config) else {
            bail!("the configuration names no log in NATS (store.nats.urls)");
        };
        make_data_dir(&config.data_dir)?;
        let within = || config.data_dir.join("store.redb");
        Ok((self.file.clone().unwrap_or_else(within), settings))
    }

    /// Fills the log.
    pub(super) fn write_log(&self) -> anyhow::Result<ExitCode> {
        let (file, log) = self.open()?;
        if !file.exists() {
            bail!("there is no store {}", file.display());
        }
        let source = Stopped::take(&file)?;
        let mut into = Import::begin(log).context("nothing was imported")?;
        let tickets = fill(&source, &mut into).context(UNFINISHED)?;
        let counts = into.check().context(UNFINISHED)?;
        // Before the log is served, so that a ticket is good in one place.
        source.delete_values(&tickets).context(UNFINISHED)?;
        into.finish().map_err(ended_badly)?;
        let mut out = io::stdout().lock();
        writeln!(out, "{counts}")?;
        let file = file.display();
        writeln!(out, "the log has this; {file} is not served any more")?;
        Ok(ExitCode::SUCCESS)
    }

    /// Fills a file.
    pub(super) fn read_log(&self) -> anyhow::Result<ExitCode> {
        let (file, log) = self.open()?;
        if file.exists() {
            bail!("there is a store {} already", file.display());
        }
        // A broker that serves may be late once with renewing it, and opening the log ends that.
        for wait in [Duration::ZERO, log.lease] {
            thread::sleep(wait);
            if is_in_use(&log)? {
                bail!("a broker or a standby has the lease of the log: stop it");
            }
        }
        let (store, _) = NatsStore::open(log)?;
        let wanted = empty(&store, &file).context("nothing was made")?;
        store.close();
        let found = compare(&file, &wanted).or_else(|error| discard(&file, error))?;
        let mut out = io::stdout().lock();
        writeln!(out, "{found}")?;
        writeln!(out, "{} has this; the log is as it was", file.display())?;
        Ok(ExitCode::SUCCESS)
    }
}

/// What to do after an end that failed: the log may have it.
fn ended_badly(error: ImportError) -> anyhow::Error {
    match error {
        ImportError::EndUnknown(_) => error.into(),
        _ => anyhow::Error::from(error).context(UNFINISHED),
    }
}

/// Reads a file that was made, which has to have these numbers.
fn compare(file: &Path, wanted: &Counts) -> anyhow::Result<Counts> {
    let mut found = Counts::default();
    read(file, &mut |op| {
        found.count(&op);
        Ok(())
    })?;
    if found != *wanted {
        bail!("the log has other numbers than the file that was made:\n{wanted}\nand:\n{found}");
    }
    Ok(found)
}

/// Removes a file that is not what it should be, so that no broker serves it.
fn discard<T>(file: &Path, error: anyhow::Error) -> anyhow::Result<T> {
    let path = file.display();
    Err(match fs::remove_file(file) {
        Ok(()) => error.context(format!("nothing was made: {path} is removed")),
        Err(why) => error.context(format!("serve no {path}, which cannot be removed: {why}")),
    })
}

/// Adds all that a store has; the names of its tickets.
fn fill(source: &Stopped, into: &mut Import) -> anyhow::Result<Vec<dunlin_base::Text>> {
    let mut progress = Progress::new();
    let mut tickets = Vec::new();
    let mut failed = None;
    let read = source.read(&mut |op| {
        progress.count()?;
        if let (true, StoreOp::PutMeta { key, .. }) = (is_ticket(&op), &op) {
            tickets.push(key.clone());
        }
        // As an error of the file, it would name that.
        into.push(op).map_err(|error| {
            failed = Some(error);
            io::ErrorKind::Interrupted.into()
        })
    });
    if let Some(error) = failed {
        return Err(error.into());
    }
    let report = read?;
    if !report.is_sound() {
        say(&mut io::stderr().lock(), &report)?;
        bail!("the store is damaged: `dunlin store repair` makes the best of it");
    }
    Ok(tickets)
}

/// Makes a file of all that a log has but tickets: the log has these, and may be served again.
fn empty(store: &NatsStore, file: &Path) -> anyhow::Result<Counts> {
    let snapshot = store.snapshots().take()?;
    let mut progress = Progress::new();
    let mut counts = Counts::default();
    import(file, &mut |into| {
        let read = snapshot.read(&mut |op| {
            progress.count()?;
            if is_ticket(&op) || is_position(&op) {
                return Ok(());
            }
            counts.count(&op);
            into.push(op)
        });
        match read.map_err(io::Error::other)?.damage.first() {
            None => Ok(()),
            Some(damage) => Err(io::Error::other(format!("the copy is damaged: {damage}"))),
        }
    })?;
    Ok(counts)
}

#[cfg(test)]
mod tests {
    use dunlin_base::Text;

    use super::*;

    #[test]
    fn an_end_of_unknown_fate_is_not_called_unfinished() {
        let lost = || ImportError::Ended;
        let unknown = ended_badly(ImportError::EndUnknown(Box::new(lost())));
        let unknown = format!("{unknown:#}");
        assert!(unknown.contains("may be finished: start"), "{unknown}");
        assert!(!unknown.contains("no broker serves"), "{unknown}");
        let known = format!("{:#}", ended_badly(lost()));
        assert!(known.starts_with(UNFINISHED), "{known}");
    }

    #[test]
    fn a_file_with_other_numbers_is_removed() {
        let dir = tempfile::tempdir().expect("directory");
        let file = dir.path().join("store.redb");
        let mut wanted = Counts::default();
        import(&file, &mut |into| {
            let op = StoreOp::PutMeta {
                key: Text::from("a"),
                value: (&b"b"[..]).into(),
            };
            wanted.count(&op);
            into.push(op)
        })
        .expect("made");
        let compared =
            |wanted: &Counts| compare(&file, wanted).or_else(|error| discard(&file, error));
        assert_eq!(compared(&wanted).expect("the same"), wanted);
        assert!(file.exists());
        let error = compared(&Counts::default()).expect_err("another number");
        assert!(format!("{error:#}").contains("is removed"), "{error:#}");
        assert!(!file.exists());
        let error = compared(&wanted).expect_err("no file");
        assert!(
            format!("{error:#}").contains("cannot be removed"),
            "{error:#}"
        );
    }
}
