//! `dunlin store`: looks at the store of a broker that does not run, repairs it,
//! copies it out and in; and copies that of one that runs.

#[cfg(feature = "cluster")]
mod log;

use core::time::Duration;
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, BufWriter, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context, bail};
use clap::{Args, Subcommand};
use dunlin_store::StoreOp;
use dunlin_store_redb::{Report, import, read, repair};

use crate::config::Config;
#[cfg(unix)]
use crate::control::caller::{Caller, SOCKET, socket_of};
use crate::daemon::TICKET_PREFIX;
use crate::store::json::{self, Writer};

/// Time between two lines about progress.
const PROGRESS_EVERY: Duration = Duration::from_secs(1);

/// Check, repair, export, import and back up the store of a broker, and move it into a log
/// in NATS and back.
///
/// All but `backup` need the broker to be stopped. `backup` asks the broker on its
/// control socket, which it looks for beside the store or where the configuration
/// says.
#[derive(Debug, Args)]
pub(super) struct Store {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Read everything and say what is damaged; exit code 1 if something is.
    Check(Place),
    /// Put a new file with everything that can be read in the place of a damaged
    /// one, which is kept beside it.
    Repair(Place),
    /// Write everything that can be read as lines of JSON, of a damaged store too.
    Export {
        #[command(flatten)]
        place: Place,
        /// The copy, which must not exist; standard output if not given.
        #[arg(short, long, value_name = "FILE")]
        output: Option<PathBuf>,
    },
    /// Make a store, which must not exist, of what `export` or `backup` wrote.
    Import {
        #[command(flatten)]
        place: Place,
        /// The copy; standard input if not given.
        #[arg(short, long, value_name = "FILE")]
        input: Option<PathBuf>,
    },
    /// Fill an empty log in NATS with all that a store on disk has, so that a broker with
    /// another machine beside it, or a cluster, goes on with that.
    ///
    /// The broker of the store has to be stopped, and no broker may have the log. What the
    /// log has is read again and compared before it can be served; an import that fails is
    /// begun again by the same command. The store on disk loses its session tickets, which
    /// are good once, and is not changed besides.
    #[cfg(feature = "cluster")]
    ToLog(log::Places),
    /// Make a store on disk, which must not exist, of all that a log in NATS has, but session
    /// tickets.
    ///
    /// No broker may have the log, which is not changed.
    #[cfg(feature = "cluster")]
    FromLog(log::Places),
    /// Copy the store of a running broker, as of one moment, as lines of JSON.
    Backup {
        #[command(flatten)]
        place: Place,
        /// The copy, which must not exist; standard output if not given.
        #[arg(short, long, value_name = "FILE")]
        output: Option<PathBuf>,
    },
}

/// Which store.
#[derive(Debug, Args)]
struct Place {
    /// The store's file; that of the configuration if not given, which without
    /// one is dunlin-data/store.redb.
    #[arg(value_name = "STORE")]
    file: Option<PathBuf>,
    /// Configuration file of the broker.
    #[arg(short, long, value_name = "FILE", conflicts_with = "file")]
    config: Option<PathBuf>,
}

impl Place {
    fn path(&self) -> anyhow::Result<PathBuf> {
        match &self.file {
            Some(file) => Ok(file.clone()),
            None => Ok(Config::load(self.config.as_deref(), &[])?.store_path()),
        }
    }

    /// A place for a store on disk.
    fn on_disk(&self) -> anyhow::Result<PathBuf> {
        if self.file.is_none()
            && Config::load(self.config.as_deref(), &[])?
                .store
                .nats
                .is_used()
        {
            bail!("the store of this configuration is a log in NATS (store.nats.urls)");
        }
        self.path()
    }

    /// The socket of the broker, and its store if that was given.
    #[cfg(unix)]
    fn broker(&self) -> anyhow::Result<(PathBuf, Option<PathBuf>)> {
        match &self.file {
            Some(file) => Ok((file.with_file_name(SOCKET), Some(file.clone()))),
            None => Ok((socket_of(self.config.as_deref())?, None)),
        }
    }

    /// A store that is there.
    fn existing(&self) -> anyhow::Result<PathBuf> {
        let path = self.path()?;
        if !path.exists() {
            bail!("there is no store {}", path.display());
        }
        Ok(path)
    }
}

impl Store {
    /// Runs the command.
    ///
    /// # Errors
    /// The store or the copy cannot be read or written.
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        match self.command {
            Command::Check(place) => check(&place.existing()?),
            Command::Repair(place) => mend(&place.existing()?),
            Command::Export { place, output } => export(&place.existing()?, output.as_deref()),
            Command::Import { place, input } => fill(&place.on_disk()?, input.as_deref()),
            #[cfg(feature = "cluster")]
            Command::ToLog(places) => places.write_log(),
            #[cfg(feature = "cluster")]
            Command::FromLog(places) => places.read_log(),
            #[cfg(unix)]
            Command::Backup { place, output } => {
                let (socket, store) = place.broker()?;
                let copied = backup(&socket, store.as_deref(), output.as_deref());
                copied.context("of a stopped broker, `dunlin store export` copies the store")
            }
            #[cfg(not(unix))]
            Command::Backup { .. } => bail!(
                "backups of a running broker need Unix sockets; stop it and use \
                 `dunlin store export`"
            ),
        }
    }
}

fn check(store: &Path) -> anyhow::Result<ExitCode> {
    let mut progress = Progress::new();
    let report = read(store, &mut |_| progress.count())?;
    say(&mut io::stdout().lock(), &report)?;
    Ok(match report.is_sound() {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}

/// What was found, for people.
fn say(out: &mut dyn Write, report: &Report) -> io::Result<()> {
    for table in &report.tables {
        write!(out, "{:<13} {:>10} rows", table.name, table.rows)?;
        match table.lost {
            0 => writeln!(out)?,
            lost => writeln!(out, ", {lost} lost")?,
        }
    }
    for damage in &report.damage {
        writeln!(out, "damaged: {damage}")?;
    }
    if report.rolled_back {
        writeln!(
            out,
            "the last commit is not whole; the one before it is used"
        )?;
    }
    if report.is_sound() {
        return writeln!(out, "nothing is damaged");
    }
    writeln!(
        out,
        "{} damaged pages, of which {} are corrected; {} rows lost",
        report.damaged_pages,
        report.corrected_pages,
        report.lost()
    )
}

fn mend(store: &Path) -> anyhow::Result<ExitCode> {
    let mut copy = false;
    let found = read(store, &mut |op| {
        copy |= is_position(&op);
        Ok(())
    })?;
    if copy {
        // What is lost in it would be missed in the log.
        bail!("this is the copy of a log in NATS: remove it, and the broker makes it again");
    }
    let mut out = io::stdout().lock();
    if found.is_sound() && !found.rolled_back {
        writeln!(out, "nothing is damaged, and nothing was changed")?;
        return Ok(ExitCode::SUCCESS);
    }
    let (report, kept) = repair(store)?;
    say(&mut out, &report)?;
    writeln!(out, "repaired; the old file is {}", kept.display())?;
    Ok(ExitCode::SUCCESS)
}

fn export(store: &Path, output: Option<&Path>) -> anyhow::Result<ExitCode> {
    let mut progress = Progress::new();
    let report = with_output(output, &mut |out| {
        let mut lines = Writer::new(out)?;
        let report = read(store, &mut |op: StoreOp| {
            progress.count()?;
            match is_position(&op) {
                true => Ok(()),
                false => lines.write(&op),
            }
        })
        .map_err(io::Error::other)?;
        lines.end(report.lost())?;
        Ok(report)
    })?;
    if !report.is_sound() {
        say(&mut io::stderr().lock(), &report)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn fill(store: &Path, input: Option<&Path>) -> anyhow::Result<ExitCode> {
    let mut input: Box<dyn BufRead> = match input {
        Some(path) => {
            let file = File::open(path);
            let file = file.with_context(|| format!("cannot read {}", path.display()))?;
            Box::new(BufReader::new(file))
        }
        None => Box::new(io::stdin().lock()),
    };
    let mut progress = Progress::new();
    let mut lost = 0;
    import(store, &mut |store| {
        lost = json::read(&mut input, &mut |op| {
            progress.count()?;
            match is_ticket(&op) || is_position(&op) {
                true => Ok(()),
                false => store.push(op),
            }
        })?;
        Ok(())
    })
    .context("nothing was imported")?;
    if lost > 0 {
        let mut err = io::stderr().lock();
        writeln!(err, "the copy is of a damaged store and lacks {lost} rows")?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Only the copy of a log has it: up to where it is.
#[cfg(feature = "cluster")]
fn is_position(op: &StoreOp) -> bool {
    matches!(op, StoreOp::PutMeta { key, .. } if key == dunlin_store_nats::POSITION)
}

#[cfg(not(feature = "cluster"))]
const fn is_position(_: &StoreOp) -> bool {
    false
}

/// A ticket of an old copy may have been used since, and early data with it must
/// not be acted upon twice.
fn is_ticket(op: &StoreOp) -> bool {
    matches!(op, StoreOp::PutMeta { key, .. } if key.starts_with(TICKET_PREFIX))
}

/// Copies the store of the broker that listens on `socket`; `store`: it must be this.
#[cfg(unix)]
pub(super) fn backup(
    socket: &Path,
    store: Option<&Path>,
    output: Option<&Path>,
) -> anyhow::Result<ExitCode> {
    let mut broker = Caller::connect(socket)?;
    if let Some(store) = store {
        let found = broker.status()?.store.unwrap_or_default();
        let is_it = match (store.canonicalize(), Path::new(&found).canonicalize()) {
            (Ok(wanted), Ok(found)) => wanted == found,
            _ => false,
        };
        if !is_it {
            bail!("the broker that is running there has another store: {found}");
        }
    }
    let mut broker = broker.backup()?;
    let mut progress = Progress::new();
    with_output(output, &mut |out| {
        // Read and written again, so that a copy is whole or an error.
        let mut lines = Writer::new(out)?;
        let lost = json::read(&mut broker, &mut |op| {
            progress.count()?;
            lines.write(&op)
        })?;
        lines.end(lost)
    })?;
    Ok(ExitCode::SUCCESS)
}

/// Writes to a new file that only its owner can read, and that is removed if it
/// cannot be finished; or to standard output.
fn with_output<T>(
    output: Option<&Path>,
    write: &mut dyn FnMut(&mut dyn Write) -> io::Result<T>,
) -> anyhow::Result<T> {
    let Some(path) = output else {
        let mut out = BufWriter::new(io::stdout().lock());
        return write(&mut out).context("the copy was not finished");
    };
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let file = options.open(path);
    let file = file.with_context(|| format!("cannot make {}", path.display()))?;
    let mut out = BufWriter::new(file);
    let written = write(&mut out).and_then(|value| {
        out.flush()?;
        out.get_ref().sync_all()?;
        Ok(value)
    });
    if written.is_err() {
        // The first error is the one worth reporting.
        let _ = std::fs::remove_file(path);
    }
    written.with_context(|| format!("{} was not finished and is removed", path.display()))
}

/// How many rows there were, now and then, for a person who waits.
struct Progress {
    shown: bool,
    rows: u64,
    next: Instant,
}

impl Progress {
    fn new() -> Self {
        Self {
            shown: io::stderr().is_terminal(),
            rows: 0,
            next: Instant::now() + PROGRESS_EVERY,
        }
    }

    fn count(&mut self) -> io::Result<()> {
        /// The clock is not read for each row.
        const ROWS: u64 = 1024;
        self.rows += 1;
        if self.shown && self.rows.is_multiple_of(ROWS) && Instant::now() >= self.next {
            self.next = Instant::now() + PROGRESS_EVERY;
            writeln!(io::stderr().lock(), "{} rows", self.rows)?;
        }
        Ok(())
    }
}
