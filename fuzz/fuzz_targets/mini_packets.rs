//! Entry point of the target `mini_packets`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| dunlin_quic_mini::trial::packets(data));
