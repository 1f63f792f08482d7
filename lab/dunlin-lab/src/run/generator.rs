//! The load generator as a child process: started, awaited, ended. So are
//! other tools of this program that say when they are connected.

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Child, ChildStdout, Command, Stdio};

use anyhow::{Context as _, Result, bail};
use dunlin_link::linux::Namespace;
use serde::de::DeserializeOwned;

use crate::children::Known;
use crate::lab::Lab;
use crate::tool::load::Done;

/// A load that runs until it is awaited, or dropped and thereby killed.
#[derive(Debug)]
pub(crate) struct Generator {
    child: Child,
    said: BufReader<ChildStdout>,
    _known: Known,
}

impl Generator {
    /// Starts a load in a namespace; `client` says where the broker is, see
    /// [`System::client`](super::systems::System::client).
    pub(crate) fn start(
        lab: &Lab,
        namespace: &Namespace,
        client: &[String],
        more: &[&str],
    ) -> Result<Self> {
        let mut command: Command = lab.me(namespace);
        command.args(["load", "--announce"]).args(client).args(more);
        Self::of(command)
    }

    /// Starts a tool that says `connected`.
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
    pub(crate) fn end(self) -> Result<Done> {
        self.reply()
    }

    /// As [`Self::end`], for other tools.
    pub(crate) fn reply<T: DeserializeOwned>(mut self) -> Result<T> {
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
