//! Entry point of the target `bus`.

#![no_main]

#[path = "../bodies/bus.rs"]
mod body;

use dunlin_broker::bus;

libfuzzer_sys::fuzz_target!(|data: &[u8]| body::run(data));
