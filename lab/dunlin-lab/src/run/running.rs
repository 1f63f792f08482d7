//! A client program that runs while an experiment writes its lines and reads them again.

use core::time::Duration;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::thread;
use std::time::Instant;

use anyhow::{Context as _, Result, bail};

use crate::children::Known;

/// Between two looks at whether it has ended.
const LOOK: Duration = Duration::from_millis(20);

/// A client, which is killed when it is dropped.
pub(super) struct Running {
    child: Child,
    _known: Known,
}

impl Running {
    pub(super) fn start(mut command: Command) -> Result<Self> {
        let child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .context("cannot start a client")?;
        let _known = Known::new(&child);
        Ok(Self { child, _known })
    }

    /// What it prints; once.
    pub(super) fn output(&mut self) -> Result<ChildStdout> {
        self.child.stdout.take().context("no output")
    }

    /// Waits for so many lines of its errors, which must begin like this.
    pub(super) fn await_lines(&mut self, count: usize, begin: &str) -> Result<()> {
        let said = self.child.stderr.take().context("no output")?;
        let mut lines = BufReader::new(said).lines();
        for _ in 0..count {
            let line = lines.next().context("a client has ended")??;
            if !line.starts_with(begin) {
                bail!("a client says: {line}");
            }
        }
        Ok(())
    }

    /// Gives it a line.
    pub(super) fn write(&mut self, line: &str) -> Result<()> {
        let input = self.child.stdin.as_mut().context("no input")?;
        input
            .write_all(line.as_bytes())
            .context("a client has ended")
    }

    /// Ends its input, and waits so long for it to end well.
    pub(super) fn await_end(&mut self, patience: Duration) -> Result<()> {
        drop(self.child.stdin.take());
        let begun = Instant::now();
        while begun.elapsed() < patience {
            if let Some(status) = self.child.try_wait()? {
                if status.success() {
                    return Ok(());
                }
                bail!("a client ended with {status}");
            }
            thread::sleep(LOOK);
        }
        bail!("a client does not end")
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
