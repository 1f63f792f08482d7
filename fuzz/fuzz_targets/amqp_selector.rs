//! Entry point of the target `amqp_selector`.

#![no_main]

#[path = "../bodies/amqp_selector.rs"]
mod body;

libfuzzer_sys::fuzz_target!(|data: &[u8]| body::run(data));
