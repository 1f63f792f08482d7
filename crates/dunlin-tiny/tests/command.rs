//! The command with arguments that are wrong. With right ones it is run by
//! `scripts/mcu/tiny-size.sh`, against the broker.

use core::cell::Cell;
use core::ffi::CStr;
use std::ffi::CString;

use dunlin_tiny::command::{Host, run};

/// Runs it where no name has an address. The status, what was told, and whether
/// it asked for an address.
fn wrong(arguments: &[&CStr]) -> (u8, String, bool) {
    let (mut out, mut err) = (String::new(), String::new());
    let asked = Cell::new(false);
    let find = |_: &str| {
        asked.set(true);
        None
    };
    let mut host = Host {
        find: &find,
        out: &mut out,
        err: &mut err,
    };
    let status = run(arguments, &mut host);
    assert_eq!(out, "");
    (status, err, asked.get())
}

#[test]
fn wrong_arguments_are_told_the_usage() {
    let key = CString::new("04".repeat(65)).unwrap();
    let long = CString::new("04".repeat(66)).unwrap();
    let odd = CString::new(format!("{}+4", "04".repeat(64))).unwrap();
    // Whether the server's name was right to the point of looking for it.
    let cases: [(&[&CStr], bool); 9] = [
        (&[], false),
        (&[c"--help"], false),
        (&[c"localhost:1", &key, c"topic"], false),
        (&[c"localhost", &key, c"topic", c"1"], false),
        (&[c"127.0.0.1:1", c"04", c"topic", c"1"], false),
        (&[c"127.0.0.1:1", &long, c"topic", c"1"], false),
        (&[c"127.0.0.1:1", c"", c"topic", c"1"], false),
        (&[c"127.0.0.1:1", &key, c"\xff", c"1"], false),
        (&[c"localhost:1", &key, c"topic", c"1"], true),
    ];
    for (arguments, asks) in cases {
        let (status, told, asked) = wrong(arguments);
        assert_eq!((status, asked), (2, asks), "{arguments:?}");
        assert!(told.starts_with("usage: dunlin-tiny "), "{arguments:?}");
    }
    // A sign is no digit.
    assert_eq!(wrong(&[c"127.0.0.1:1", &odd, c"topic", c"1"]).0, 2);
}
