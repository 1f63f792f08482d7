//! The `dunlin` program: reads the command line, runs the command, turns an
//! error into one sentence and a non-zero exit. Nothing else belongs here.

#![forbid(unsafe_code)]

use std::io::{self, Write};
use std::process::ExitCode;

use dunlin::causes::sentence;
use dunlin::cmd::Cli;

/// The exit code of a program that SIGPIPE ends, as a shell says it.
const UNREAD: u8 = 128 + 13;

/// Whether what was printed is not read any more.
fn is_unread(error: &(dyn core::error::Error + 'static)) -> bool {
    let causes = core::iter::successors(Some(error), |error| error.source());
    let mut errors = causes.filter_map(|error| error.downcast_ref::<io::Error>());
    errors.any(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

fn main() -> ExitCode {
    let cli = match Cli::read() {
        Ok(cli) => cli,
        Err(code) => return code,
    };
    match cli.run() {
        Ok(code) => code,
        // Who reads the output has seen enough, as `head` does.
        Err(error) if is_unread(error.as_ref()) => ExitCode::from(UNREAD),
        Err(error) => {
            // Nothing is left to do when standard error is closed too.
            let _ = writeln!(io::stderr(), "dunlin: {}", sentence(error.as_ref()));
            ExitCode::FAILURE
        }
    }
}
