//! Entry point of the target `amqp_engine`.

#![no_main]

#[path = "../bodies/amqp_engine.rs"]
mod body;

libfuzzer_sys::fuzz_target!(|data: &[u8]| body::run(data));
