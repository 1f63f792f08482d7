//! Entry point of the target `amqp`.

#![no_main]

#[path = "../bodies/amqp.rs"]
mod body;

libfuzzer_sys::fuzz_target!(|data: &[u8]| body::run(data));
