//! Entry point of the target `record`, with the parser's own source: it is
//! private to its crate.

#![no_main]

#[path = "../bodies/record.rs"]
mod body;
#[allow(dead_code)]
#[path = "../../crates/dunlin-quic/src/resume/record.rs"]
mod record;

use record::Record;

libfuzzer_sys::fuzz_target!(|data: &[u8]| body::run(data));
