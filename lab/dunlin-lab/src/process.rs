//! Programs inside a namespace, which end with their owner.

use core::time::Duration;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Instant;

use anyhow::{Context as _, Result, bail};
use dunlin_link::linux::Namespace;

use crate::children::Known;
use crate::trouble;

/// Between two looks at something that is awaited.
const LOOK: Duration = Duration::from_millis(10);

/// Longest wait for a server to listen.
const START_MAX: Duration = Duration::from_secs(20);

/// Lines that are shown of what a failed program said: some print all of their
/// help.
const SAID_LINES_MAX: usize = 10;

/// A server that runs until it is dropped.
#[derive(Debug)]
pub(crate) struct Server {
    name: String,
    child: Child,
    _known: Known,
    log: PathBuf,
}

impl Server {
    /// Starts a command, which writes to a log, and waits until it listens at
    /// a TCP port of its namespace.
    pub(crate) fn start(
        namespace: &Namespace,
        mut command: Command,
        port: u16,
        log: &Path,
    ) -> Result<Self> {
        let name = log
            .file_stem()
            .map(|n| n.to_string_lossy().into_owned())
            .unwrap_or_default();
        let out = File::create(log).with_context(|| format!("cannot write {}", log.display()))?;
        let child = command
            .stdin(Stdio::null())
            .stdout(out.try_clone()?)
            .stderr(out)
            .spawn()
            .with_context(|| format!("cannot start {name}"))?;
        let log = log.to_owned();
        let mut server = Self {
            name,
            _known: Known::new(&child),
            child,
            log,
        };
        trouble::serve(server.id(), &server.name, &server.log);
        let begun = Instant::now();
        loop {
            server.runs()?;
            let listens = namespace.within(|| std::net::TcpStream::connect(("127.0.0.1", port)))?;
            if listens.is_ok() {
                return Ok(server);
            }
            if begun.elapsed() > START_MAX {
                bail!(
                    "{} does not listen at port {port}; see {}",
                    server.name,
                    server.log.display()
                );
            }
            thread::sleep(LOOK);
        }
    }

    /// Fails if it has ended, with what it said last.
    pub(crate) fn runs(&mut self) -> Result<()> {
        if let Some(status) = self.child.try_wait()? {
            let said = trouble::last_words(&self.log);
            bail!("{} ended with {status}: {said}", self.name);
        }
        Ok(())
    }

    /// Its process.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Processor time so far, of all its threads that have not ended.
    pub(crate) fn processor(&self) -> Result<Duration> {
        processor(self.id()).with_context(|| format!("{} is gone", self.name))
    }

    /// Resident memory now and at most, in bytes.
    pub(crate) fn memory(&self) -> Result<(u64, u64)> {
        let field = |name| memory(self.id(), name);
        let both = field("VmRSS:").and_then(|now| Ok((now, field("VmHWM:")?)));
        both.with_context(|| format!("{} is gone", self.name))
    }

    /// Ends it at once: what it has to keep goes with the run, and waiting for
    /// clients that are gone would take seconds.
    fn end(&mut self) {
        trouble::dismiss(self.child.id());
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.end();
    }
}

/// Processor time of a process so far, of all its threads that have not ended.
pub(crate) fn processor(process: u32) -> Result<Duration> {
    let mut sum = 0;
    for task in std::fs::read_dir(format!("/proc/{process}/task"))? {
        // A thread may end meanwhile.
        let text = std::fs::read_to_string(task?.path().join("schedstat")).unwrap_or_default();
        let nanoseconds = text.split_whitespace().next();
        sum += nanoseconds.and_then(|ns| ns.parse().ok()).unwrap_or(0);
    }
    Ok(Duration::from_nanos(sum))
}

/// A field of the status of a process that is memory, in bytes.
pub(crate) fn memory(process: u32, field: &str) -> Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix(field));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kib.map(|kib| kib * 1024).context("no memory in status")
}

/// A command for a sentence: the program, without the way into a namespace, and
/// its first argument.
fn shown(command: &Command) -> String {
    let words: Vec<_> = core::iter::once(command.get_program())
        .chain(command.get_args())
        .map(|word| word.to_string_lossy().into_owned())
        .collect();
    let inside = words
        .iter()
        .map(String::as_str)
        .take(3)
        .eq(["ip", "netns", "exec"]);
    let words = words.get(if inside { 4 } else { 0 }..).unwrap_or_default();
    let program = words.first().map(String::as_str).unwrap_or_default();
    let program = Path::new(program).file_name().unwrap_or_default();
    let first = words.get(1).map(String::as_str).unwrap_or_default();
    format!("{} {first}", program.display())
}

/// Runs a command to its end, which must be a success, and gives what it
/// printed.
pub(crate) fn output(mut command: Command) -> Result<String> {
    let shown = shown(&command);
    let child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot run {shown}"))?;
    let _known = Known::new(&child);
    let output = child
        .wait_with_output()
        .with_context(|| format!("cannot run {shown}"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        let said: Vec<&str> = said.trim().lines().take(SAID_LINES_MAX).collect();
        bail!("{shown} ended with {}: {}", output.status, said.join("\n"));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
