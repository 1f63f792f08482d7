//! Entry point of the target `cid`.

#![no_main]

#[path = "../bodies/cid.rs"]
mod body;

use dunlin_net::{CidCodec, LbConfig};

libfuzzer_sys::fuzz_target!(|data: &[u8]| body::run(data));
