//! What `pub`, `rr` and `send` send: an argument, a file, or standard input, whole or
//! line by line.

use std::fs::File;
use std::io::{self, BufRead, Read};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use bytes::Bytes;
use clap::Args;
use tokio::sync::mpsc;

/// Lines read ahead of the network.
const LINES_MAX: usize = 1024;

/// Largest message: what MQTT can express.
const MESSAGE_BYTES_MAX: u64 = 268_435_455;

/// Where the one message of a command comes from.
#[derive(Debug, Args)]
#[group(skip)]
pub(super) struct Source {
    /// Message to publish.
    #[arg(short = 'm', long, allow_hyphen_values = true, group = "source")]
    message: Option<String>,
    /// File to publish as one message.
    #[arg(short = 'f', long, value_name = "FILE", group = "source")]
    file: Option<PathBuf>,
    /// Read standard input and publish all of it as one message.
    #[arg(short = 's', long, group = "source")]
    stdin_file: bool,
    /// Publish an empty message.
    #[arg(short = 'n', long, group = "source")]
    null_message: bool,
}

impl Source {
    /// The input that was chosen.
    pub(super) fn input(&self) -> Option<Input<'_>> {
        if let Some(message) = &self.message {
            Some(Input::Argument(message))
        } else if let Some(path) = &self.file {
            Some(Input::File(path))
        } else if self.stdin_file {
            Some(Input::Stdin)
        } else {
            self.null_message.then_some(Input::Argument(""))
        }
    }
}

/// Where messages come from.
pub(super) enum Input<'a> {
    Argument(&'a str),
    File(&'a Path),
    Stdin,
    /// Standard input, each line a message.
    Lines,
}

impl Input<'_> {
    /// The one message; `None` where each line is one.
    pub(super) fn read(&self) -> Result<Option<Bytes>> {
        match self {
            Self::Argument(text) => Ok(Some(Bytes::copy_from_slice(text.as_bytes()))),
            Self::File(path) => {
                let what = path.display().to_string();
                let file = File::open(path).with_context(|| format!("cannot open {what}"))?;
                read_all(file, &what).map(Some)
            }
            Self::Stdin => read_all(io::stdin(), "standard input").map(Some),
            Self::Lines => Ok(None),
        }
    }
}

fn read_all(from: impl Read, what: &str) -> Result<Bytes> {
    let mut bytes = Vec::new();
    from.take(MESSAGE_BYTES_MAX + 1)
        .read_to_end(&mut bytes)
        .with_context(|| format!("cannot read {what}"))?;
    if bytes.len() as u64 > MESSAGE_BYTES_MAX {
        bail!("{what} is longer than {MESSAGE_BYTES_MAX} bytes");
    }
    Ok(bytes.into())
}

/// The lines of standard input. Reading blocks, and cannot be given up: its
/// thread ends with the process.
pub(super) struct Lines(mpsc::Receiver<io::Result<Bytes>>);

impl Lines {
    pub(super) fn start() -> Result<Self> {
        let (to, lines) = mpsc::channel(LINES_MAX);
        std::thread::Builder::new()
            .name("dunlin-stdin".into())
            .spawn(move || read_lines(&to))
            .context("cannot start a thread")?;
        Ok(Self(lines))
    }

    /// The next line, without its end; `None` at the end of the input.
    pub(super) async fn next(&mut self) -> Result<Option<Bytes>> {
        let line = self.0.recv().await.transpose();
        line.context("cannot read standard input")
    }
}

fn read_lines(to: &mpsc::Sender<io::Result<Bytes>>) {
    let mut input = io::stdin().lock();
    loop {
        let mut line = Vec::new();
        let read = Read::take(&mut input, MESSAGE_BYTES_MAX).read_until(b'\n', &mut line);
        let line = match read {
            Ok(0) => return,
            Ok(_) => {
                if line.last() == Some(&b'\n') {
                    line.pop();
                }
                Ok(line.into())
            }
            Err(error) => Err(error),
        };
        let failed = line.is_err();
        if to.blocking_send(line).is_err() || failed {
            return;
        }
    }
}
