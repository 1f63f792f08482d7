//! The command without a network: help, wrong arguments, and what cannot be
//! begun. `scripts/mcu/tiny-size.sh` runs it against the broker.

#![allow(clippy::unwrap_used)]

use core::cell::Cell;
use core::ffi::CStr;
use core::net::SocketAddr;
use std::ffi::CString;
use std::fs::File;
use std::io::{Read, Seek};
use std::net::UdpSocket;
use std::os::fd::AsFd;

use dunlin_tiny::command::{Host, run};

/// What became of a run.
struct Done {
    status: u8,
    out: String,
    err: String,
    /// Whether it asked for an address.
    asked: bool,
}

fn text(mut file: File) -> String {
    let mut text = String::new();
    file.rewind().unwrap();
    file.read_to_string(&mut text).unwrap();
    text
}

/// Runs it where every name has these addresses.
fn try_with(arguments: &[&CStr], known: &[SocketAddr]) -> Done {
    let [input, output, errors] = [(); 3].map(|()| tempfile::tempfile().unwrap());
    let asked = Cell::new(false);
    let host = Host {
        find: &|_, addresses| {
            asked.set(true);
            addresses[..known.len()].copy_from_slice(known);
            known.len()
        },
        explain: &|errno, out| write!(out, "reason {errno}"),
        input: input.as_fd(),
        output: output.as_fd(),
        errors: errors.as_fd(),
    };
    let status = run(arguments.iter().copied(), &host);
    Done {
        status,
        out: text(output),
        err: text(errors),
        asked: asked.get(),
    }
}

fn key() -> CString {
    CString::new("04".repeat(65)).unwrap()
}

#[test]
fn help_and_version_are_results() {
    for argument in [c"-h", c"--help"] {
        let done = try_with(&[argument], &[]);
        assert_eq!((done.status, done.err.as_str()), (0, ""));
        assert!(done.out.starts_with("usage: dunlin-tiny "), "{}", done.out);
        assert!(done.out.contains("--subscribe FILTER "), "{}", done.out);
    }
    let done = try_with(&[c"--version"], &[]);
    let version = format!("dunlin-tiny {}\n", env!("CARGO_PKG_VERSION"));
    assert_eq!((done.status, done.out, done.err), (0, version, "".into()));
}

#[test]
fn wrong_arguments_show_the_usage() {
    let key = key();
    for arguments in [
        &[][..],
        &[c"localhost:1", &key, c"topic"],
        &[c"--what", c"localhost:1", &key, c"topic", c"1"],
        &[c"127.0.0.1:1", &key, c"\xff", c"1"],
    ] {
        let done = try_with(arguments, &[]);
        assert_eq!((done.status, done.out.as_str(), done.asked), (2, "", false));
        assert!(done.err.starts_with("dunlin-tiny: "), "{}", done.err);
        assert!(done.err.contains("\nusage: dunlin-tiny "), "{}", done.err);
        assert!(
            done.err.ends_with("Try dunlin-tiny --help.\n"),
            "{}",
            done.err
        );
    }
}

#[test]
fn a_key_that_is_none_is_refused_before_anything_else() {
    let long = CString::new("04".repeat(66)).unwrap();
    for wrong in [
        c"",
        c"04",
        &long,
        c"/nothing/here.pem",
        c"/dev/null",
        c"\xff",
    ] {
        let done = try_with(&[c"localhost:1", wrong, c"topic", c"1"], &[]);
        assert_eq!((done.status, done.asked), (2, false), "{wrong:?}");
        assert!(done.err.contains("KEY is neither"), "{}", done.err);
    }
}

#[test]
fn what_cannot_be_begun_is_reported() {
    let key = key();
    for server in [c"localhost:1", c"localhost", c":1"] {
        let done = try_with(&[server, &key, c"topic", c"1"], &[]);
        let error = format!("HOST:PORT has no address: {}\n", server.to_str().unwrap());
        assert_eq!((done.status, done.out.as_str()), (1, ""));
        assert_eq!(done.err, format!("dunlin-tiny: {error}"));
    }
    let done = try_with(&[c"--pw-file", c"/nothing", c"a:1", &key, c"t", c"1"], &[]);
    assert_eq!(done.status, 1);
    assert_eq!(done.err, "dunlin-tiny: file with the password: reason 2\n");
}

#[test]
fn a_server_that_is_away_is_reported_at_once() {
    let port = || {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.local_addr().unwrap()
    };
    // There is no listener at either: the second is tried as well.
    let known = [port(), port()];
    let done = try_with(&[c"localhost:1", &key(), c"topic", c"1"], &known);
    assert_eq!((done.status, done.asked), (1, true));
    let refused = "dunlin-tiny: cannot connect: reason 111\n";
    assert_eq!(done.err, refused);

    // The second listens, and says nothing.
    let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
    let known = [port(), silent.local_addr().unwrap()];
    let done = try_with(
        &[c"-W", c"1", c"localhost:1", &key(), c"topic", c"1"],
        &known,
    );
    assert_eq!(
        (done.status, done.err.as_str()),
        (27, "dunlin-tiny: timed out\n")
    );
    assert!(silent.recv(&mut [0; 2000]).unwrap() >= 1200);
}
