//! Entry point of the target `mini_client`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| dunlin_quic_mini::trial::operations(data));
