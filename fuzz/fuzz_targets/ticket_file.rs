//! Entry point of the target `ticket_file`, with the parser's own source: it
//! is private to its crate.

#![no_main]

#[path = "../bodies/ticket_file.rs"]
mod body;
#[allow(dead_code)]
#[path = "../../crates/dunlin-dial/src/tickets/format.rs"]
mod format;

use format::{decode, encode};
use sha2::{Digest, Sha256};

fn checked(data: &[u8]) -> Vec<u8> {
    [data, Sha256::digest(data).as_slice()].concat()
}

libfuzzer_sys::fuzz_target!(|data: &[u8]| body::run(data));
