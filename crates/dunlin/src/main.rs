//! The `dunlin` program: reads the command line, runs the command, turns an
//! error into one sentence and a non-zero exit. Nothing else belongs here.

#![forbid(unsafe_code)]

use std::io::{self, Write};
use std::process::ExitCode;

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
            let _ = writeln!(io::stderr(), "dunlin: {}", sentence(&error));
            ExitCode::FAILURE
        }
    }
}

/// An error and its causes, without those that an error above has quoted.
fn sentence(error: &anyhow::Error) -> String {
    let mut text = error.to_string();
    for cause in error.chain().skip(1).map(ToString::to_string) {
        if !text.contains(&cause) {
            text.push_str(": ");
            text.push_str(&cause);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use anyhow::Context as _;

    use super::*;

    #[test]
    fn causes_are_said_once() {
        let quoting = anyhow::anyhow!("no room").context("cannot write x: no room");
        assert_eq!(sentence(&quoting), "cannot write x: no room");
        let plain = Err::<(), _>(io::Error::other("no room")).context("cannot write x");
        let plain = plain.expect_err("wrong");
        assert_eq!(sentence(&plain), "cannot write x: no room");
    }
}
