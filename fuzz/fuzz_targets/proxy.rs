//! Entry point of the target `proxy`.

#![no_main]

#[path = "../bodies/proxy.rs"]
mod body;

use dunlin_net::proxy::{HEADER_BYTES_MAX, Header, HeaderError, ProxyVersions};

libfuzzer_sys::fuzz_target!(|data: &[u8]| body::run(data));
