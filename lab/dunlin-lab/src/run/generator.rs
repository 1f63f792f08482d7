//! The load generator as a child process: started, awaited, ended.

use core::net::Ipv4Addr;
use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Child, ChildStdout, Command, Stdio};

use anyhow::{Context as _, Result, bail};
use dunlin_link::linux::Namespace;

use super::load::{Done, Load};
use super::systems::System;
use crate::children::Known;
use crate::lab::Lab;

/// A load that runs until it is awaited, or dropped and thereby killed.
#[derive(Debug)]
pub(crate) struct Generator {
    child: Child,
    said: BufReader<ChildStdout>,
    _known: Known,
}

impl Generator {
    /// Starts a load whose publishers are in a namespace, and its subscribers in
    /// another.
    pub(crate) fn start(
        lab: &Lab,
        (publishers, subscribers): (&Namespace, &Namespace),
        (system, broker): (&System, Ipv4Addr),
        load: &Load,
        more: &[&str],
    ) -> Result<Self> {
        let mut command = system.load(lab, (publishers, broker), system.streams);
        if system.early {
            command.arg("--tickets").arg(lab.temporary("tickets-load"));
        }
        load.add_to(&mut command);
        command.args(["--announce", "--sub-namespace", subscribers.name()]);
        command.args(more);
        Self::of(command)
    }

    /// Starts a load that says `connected`.
    pub(crate) fn of(mut command: Command) -> Result<Self> {
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start the load generator")?;
        let _known = Known::new(&child);
        let said = child.stdout.take().context("no output of the load")?;
        let said = BufReader::new(said);
        Ok(Self {
            child,
            said,
            _known,
        })
    }

    /// Waits until all clients are connected.
    pub(crate) fn await_connected(&mut self) -> Result<()> {
        let mut line = String::new();
        self.said.read_line(&mut line)?;
        if line.trim() != "connected" {
            bail!("the load generator did not connect");
        }
        Ok(())
    }

    /// Waits for the end, and what came of it.
    pub(crate) fn end(mut self) -> Result<Done> {
        let mut said = String::new();
        self.said.read_to_string(&mut said)?;
        if !self.child.wait()?.success() {
            bail!("the load generator failed");
        }
        let last = said.trim().lines().last().unwrap_or_default();
        serde_json::from_str(last).context("the load generator printed something else")
    }

    /// Kills it. What its kernel would say for it must be
    /// kept from the link by the caller.
    pub(crate) fn kill(mut self) -> Result<()> {
        self.child
            .kill()
            .context("cannot kill the load generator")?;
        self.child.wait()?;
        Ok(())
    }
}

impl Drop for Generator {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}
