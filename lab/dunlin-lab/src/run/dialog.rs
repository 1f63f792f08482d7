//! A client as a child process that is given lines, and whose lines are read.

use core::time::Duration;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Instant;

use anyhow::{Context as _, Result, bail};
use dunlin_link::linux::Namespace;

use crate::children::Known;

/// Longest wait for each line of a program that is to end.
const END_MAX: Duration = Duration::from_secs(5);

/// A program with its input and output; dropping it kills it.
#[derive(Debug)]
pub(crate) struct Dialog {
    child: Child,
    _known: Known,
    input: Option<ChildStdin>,
    said: Receiver<String>,
}

impl Dialog {
    /// Starts a command in a namespace, without another program before it: what
    /// the process uses is the command's.
    pub(crate) fn start(namespace: &Namespace, command: &mut Command) -> Result<Self> {
        let spawn = || {
            let command = command.stdin(Stdio::piped()).stdout(Stdio::piped());
            command.spawn()
        };
        let mut child = namespace.within(spawn)?.context("cannot start a client")?;
        let _known = Known::new(&child);
        let input = child.stdin.take();
        let output = child.stdout.take().context("no output of a client")?;
        let (sender, said) = channel();
        thread::spawn(move || {
            let lines = BufReader::new(output).lines().map_while(Result::ok);
            // The other end is gone when nothing more is to be read.
            let _ = lines.map(|line| sender.send(line)).find(Result::is_err);
        });
        Ok(Self {
            child,
            _known,
            input,
            said,
        })
    }

    /// Its process.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Gives it a line.
    pub(crate) fn give(&mut self, line: &str) -> Result<()> {
        let input = self.input.as_mut().context("the client reads nothing")?;
        writeln!(input, "{line}").context("the client is gone")
    }

    /// What it says next, if it does so in time.
    pub(crate) fn next(&self, wait: Duration) -> Option<String> {
        self.said.recv_timeout(wait).ok()
    }

    /// Waits for a line that has this in it.
    pub(crate) fn await_line(&self, part: &str, wait: Duration) -> Result<()> {
        let begun = Instant::now();
        while let Some(line) = self.next(wait.saturating_sub(begun.elapsed())) {
            if line.contains(part) {
                return Ok(());
            }
        }
        bail!("a client did not say `{part}` within {wait:?}")
    }

    /// Ends its input, and asks it to end where it reads none; what it says last.
    pub(crate) fn leave(mut self, reads: bool) -> Result<String> {
        drop(self.input.take());
        if !reads {
            Command::new("kill").arg(self.id().to_string()).status()?;
        }
        let lines = core::iter::from_fn(|| self.next(END_MAX));
        lines.last().context("a client said nothing at its end")
    }
}

impl Drop for Dialog {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
