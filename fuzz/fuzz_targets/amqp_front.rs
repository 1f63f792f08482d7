//! Entry point of the target `amqp_front`.

#![no_main]

#[path = "../bodies/amqp_front.rs"]
mod body;

libfuzzer_sys::fuzz_target!(|data: &[u8]| body::run(data));
