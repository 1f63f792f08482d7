//! The `dunlin` program: reads the command line, runs the command, turns an
//! error into one sentence and a non-zero exit. Nothing else belongs here.

#![forbid(unsafe_code)]

use std::io::{self, Write};
use std::process::ExitCode;

use dunlin::causes::sentence;
use dunlin::cmd::Cli;

fn main() -> ExitCode {
    let cli = match Cli::read() {
        Ok(cli) => cli,
        Err(code) => return code,
    };
    match cli.run() {
        Ok(code) => code,
        Err(error) => {
            // Nothing is left to do when standard error is closed too.
            let _ = writeln!(io::stderr(), "dunlin: {}", sentence(error.as_ref()));
            ExitCode::FAILURE
        }
    }
}
