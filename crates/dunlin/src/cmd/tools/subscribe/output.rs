//! How `sub` and `rr` print messages.

use std::io::{self, BufWriter, Stdout, Write};

use anyhow::{Context as _, Result};
use clap::Args;
use dunlin_client::Message;

use super::context::Context;
use super::format::Format;
use super::time::WallTime;
use crate::cmd::tools::connect::Connect;

/// What is printed of a message.
#[derive(Debug, Args)]
pub(in crate::cmd) struct Output {
    /// Print topics as well.
    #[arg(short = 'v', long)]
    verbose: bool,
    /// Do not end messages with a newline.
    #[arg(short = 'N')]
    no_eol: bool,
    /// Print messages in this format: %t topic, %p payload, %x hexadecimal, %l
    /// length, %q QoS, %r retain, %m identifier, %I and %U time, %j and %J
    /// JSON, @ and a letter of strftime, \n and other escapes.
    #[arg(
        short = 'F',
        long = "output-format",
        value_name = "FORMAT",
        allow_hyphen_values = true
    )]
    format: Option<String>,
    /// Print JSON over several lines.
    #[arg(long)]
    pretty: bool,
}

impl Output {
    /// Standard output for messages.
    pub(in crate::cmd) fn printer(&self) -> Result<Printer<'_>> {
        Ok(Printer {
            output: self,
            format: match &self.format {
                Some(text) => Some(Format::parse(text).context("-F")?),
                None => None,
            },
            out: BufWriter::new(io::stdout()),
            printed: 0,
        })
    }
}

/// Standard output.
pub(in crate::cmd) struct Printer<'a> {
    output: &'a Output,
    format: Option<Format>,
    out: BufWriter<Stdout>,
    printed: u64,
}

impl Printer<'_> {
    /// Messages printed so far.
    pub(in crate::cmd) const fn printed(&self) -> u64 {
        self.printed
    }

    /// Prints one message, or complains that it is not what the format needs.
    pub(in crate::cmd) fn print(&mut self, connect: &Connect, message: &Message) -> Result<()> {
        let result = match &self.format {
            Some(format) => {
                let context = Context {
                    now: WallTime::now(),
                    pretty: self.output.pretty,
                };
                let mut line = Vec::new();
                match format.write(message, &context, &mut line) {
                    Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                        connect.complain(&format_args!(
                            "Error: Message payload is not valid JSON on topic {}.",
                            message.topic
                        ));
                        return Ok(());
                    }
                    result => result
                        .and_then(|()| self.out.write_all(&line))
                        .and_then(|()| self.end_line()),
                }
            }
            None => self.plain(message),
        };
        self.printed += 1;
        result.context("cannot write to standard output")
    }

    fn plain(&mut self, message: &Message) -> io::Result<()> {
        match (self.output.verbose, message.payload.is_empty()) {
            (false, true) => Ok(()),
            (true, true) if self.output.no_eol => Ok(()),
            (true, true) => writeln!(self.out, "{} (null)", message.topic),
            (verbose, false) => {
                if verbose {
                    write!(self.out, "{} ", message.topic)?;
                }
                self.out.write_all(&message.payload)?;
                self.end_line()
            }
        }
    }

    fn end_line(&mut self) -> io::Result<()> {
        match self.output.no_eol {
            true => Ok(()),
            false => self.out.write_all(b"\n"),
        }
    }

    /// Lets everything leave.
    pub(in crate::cmd) fn flush(&mut self) -> Result<()> {
        self.out.flush().context("cannot write to standard output")
    }
}

/// Whether the reader of the output has had enough, as `head` does.
pub(in crate::cmd) fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let cause = error.root_cause().downcast_ref::<io::Error>();
    cause.is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}
