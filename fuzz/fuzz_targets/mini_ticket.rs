//! Entry point of the target `mini_ticket`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| dunlin_quic_mini::trial::ticket(data));
