//! Entry point of the target `flow`.

#![no_main]

#[path = "../bodies/flow.rs"]
mod body;

use dunlin_mqtt::flow::{FlowHeader, HEADER_BYTES_MAX};

libfuzzer_sys::fuzz_target!(|data: &[u8]| body::run(data));
