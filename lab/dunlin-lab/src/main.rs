//! The `dunlin-lab` program: reads the command line, runs the command, turns
//! an error into one sentence and a non-zero exit. Nothing else belongs here.

#![forbid(unsafe_code)]

#[cfg(target_os = "linux")]
mod check;
#[cfg(target_os = "linux")]
mod children;
#[cfg(target_os = "linux")]
mod cmd;
#[cfg(target_os = "linux")]
mod console;
#[cfg(target_os = "linux")]
mod lab;
#[cfg(target_os = "linux")]
mod link;
#[cfg(target_os = "linux")]
mod process;
#[cfg(target_os = "linux")]
mod profile;
#[cfg(target_os = "linux")]
mod run;
#[cfg(target_os = "linux")]
mod selftest;
#[cfg(target_os = "linux")]
mod topology;
#[cfg(target_os = "linux")]
mod trouble;

use std::io::{self, Write as _};
use std::process::ExitCode;

#[cfg(target_os = "linux")]
fn main() -> ExitCode {
    match cmd::run() {
        Ok(code) => code,
        Err(error) => {
            // Nothing is left to do when standard error is closed too.
            let _ = writeln!(io::stderr(), "dunlin-lab: {error:#}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(not(target_os = "linux"))]
fn main() -> ExitCode {
    let _ = writeln!(
        io::stderr(),
        "dunlin-lab: needs Linux, for its network namespaces"
    );
    ExitCode::FAILURE
}
