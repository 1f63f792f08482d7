//! Tells the linker where memory is. There are no interrupt vectors: the image
//! never lets an interrupt in, it only wakes by them.

use std::path::PathBuf;
use std::{env, fs};

fn main() {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let smoltcp = env::var_os("CARGO_FEATURE_SMOLTCP").is_some();
    let size = if smoltcp { "large" } else { "small" };
    let memory = format!("memory/{size}.x");
    fs::copy(&memory, out.join("memory.x")).expect("there is a file for each size");
    fs::write(out.join("device.x"), "").expect("the output folder is writable");
    println!("cargo:rustc-link-search={}", out.display());
    println!("cargo:rustc-link-arg=-Tlink.x");
    println!("cargo:rustc-link-arg=--nmagic");
    println!("cargo:rerun-if-changed={memory}");
}
