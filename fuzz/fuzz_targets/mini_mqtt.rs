//! Entry point of the target `mini_mqtt`.

#![no_main]

#[path = "../bodies/mini_mqtt.rs"]
mod body;

libfuzzer_sys::fuzz_target!(|data: &[u8]| body::run(data));
