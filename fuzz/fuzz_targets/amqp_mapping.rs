//! Entry point of the target `amqp_mapping`.

#![no_main]

#[path = "../bodies/amqp_mapping.rs"]
mod body;

libfuzzer_sys::fuzz_target!(|data: &[u8]| body::run(data));
