//! The program from outside: what it says when something is missing, and what
//! it leaves behind. Where there can be no links, these tests say so and pass.

#![cfg(target_os = "linux")]
#![allow(
    clippy::print_stderr,
    clippy::unwrap_used,
    reason = "tests that say what they skip, and end where they cannot go on"
)]

mod experiments;
mod leftovers;
mod refusals;

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

/// Why a test cannot run here, said aloud.
fn skipped() -> bool {
    let missing = dunlin_link::linux::missing();
    if let Some(what) = &missing {
        eprintln!("skipped: {what}");
    }
    missing.is_some()
}

fn lab(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_dunlin-lab"));
    command.args(arguments).stdin(Stdio::null());
    command
}

/// A name that no other test and no other run has.
fn name(test: &str) -> String {
    format!("it-{test}-{}", std::process::id())
}

/// What a program said on standard error.
fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).trim().to_owned()
}

/// The namespaces of a link.
fn namespaces(link: &str) -> Vec<String> {
    let prefix = format!("dunlin-{link}-");
    let Ok(entries) = std::fs::read_dir("/run/netns") else {
        return Vec::new();
    };
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = names.filter(|name| name.starts_with(&prefix)).collect();
    names.sort();
    names
}

/// Nothing of a link is left.
fn is_gone(link: &str) -> bool {
    namespaces(link).is_empty() && !Path::new("/run/dunlin-lab").join(link).exists()
}

/// A network that is up until its standard input ends.
fn running(link: &str, topology: &str) -> Child {
    let arguments = ["link", "--control", "--no-realtime", "--name", link];
    let mut child = lab(&arguments)
        .args(["--topology", topology])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let stdout = child.stdout.as_mut().unwrap();
    BufReader::new(stdout).read_line(&mut line).unwrap();
    assert!(line.contains("\"namespace\""), "{line}");
    child
}
