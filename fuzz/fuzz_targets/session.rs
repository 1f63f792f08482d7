//! Entry point of the target `session`.

#![no_main]

#[path = "../bodies/session.rs"]
mod body;

libfuzzer_sys::fuzz_target!(|data: &[u8]| body::run(data));
