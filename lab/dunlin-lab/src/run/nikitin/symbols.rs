//! Which crate a symbol of a binary belongs to, as well as its name tells: what
//! `cargo bloat` does, from the output of `nm`.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::lab::find;
use crate::process::output;

/// Bytes of code by crate. Empty of a binary without symbols.
pub(super) fn by_crate(binary: &Path) -> Result<BTreeMap<String, u64>> {
    let nm = find("nm").context("nm is not installed: apt install binutils")?;
    let mut command = Command::new(nm);
    command.args(["--print-size", "--demangle", "--defined-only"]);
    command.arg(binary);
    let mut sizes = BTreeMap::new();
    for line in output(command)?.lines() {
        if let Some((name, size)) = symbol(line) {
            *sizes.entry(owner(name).to_owned()).or_default() += size;
        }
    }
    Ok(sizes)
}

/// Name and size of a symbol of code.
fn symbol(line: &str) -> Option<(&str, u64)> {
    let mut words = line.splitn(4, ' ');
    let (_address, size) = (words.next()?, words.next()?);
    let kind = words.next()?;
    let name = words.next()?;
    matches!(kind, "t" | "T" | "w" | "W").then_some(())?;
    Some((name, u64::from_str_radix(size, 16).ok()?))
}

/// The crate of a function: the first path in its name, that of the type if it
/// is an implementation of the standard library's.
fn owner(name: &str) -> &str {
    let first = |text: &str| {
        let end = text.find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        end.unwrap_or(text.len())
    };
    // `<a::B as c::D>::e`, `<&a::B>::c`, `a::b::<c::D>`
    let inner = name.trim_start_matches(['<', '&', '*', '[', '(']);
    let inner = ["mut ", "const ", "dyn "]
        .iter()
        .fold(inner, |text, word| text.strip_prefix(word).unwrap_or(text));
    let path = inner.get(..first(inner)).unwrap_or_default();
    let is_path = inner
        .get(path.len()..)
        .is_some_and(|rest| rest.starts_with("::"));
    match path {
        // Code of C and assembly has no paths.
        _ if !is_path && (name.starts_with("aws_lc") || name.contains("aws_lc")) => "aws-lc",
        _ if !is_path => "C and the rest",
        "core" | "alloc" | "std" | "hashbrown" | "std_detect" | "addr2line" | "gimli"
        | "miniz_oxide" | "rustc_demangle" => "std",
        path => path,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn symbols_have_owners() {
        let of = |line| symbol(line).map(|(name, size)| (owner(name), size));
        let line = "0000000000a3 00000000000000ff t dunlin_net::quic::accept::h0123";
        assert_eq!(of(line), Some(("dunlin_net", 255)));
        let line = "00 0000000000000010 T <dunlin_base::Text as core::fmt::Debug>::fmt";
        assert_eq!(of(line), Some(("dunlin_base", 16)));
        let line = "00 0000000000000010 t <&mut quinn_proto::X as core::fmt::Debug>::fmt";
        assert_eq!(of(line), Some(("quinn_proto", 16)));
        let line = "00 0000000000000010 t core::ptr::drop_in_place<rustls::X>";
        assert_eq!(of(line), Some(("std", 16)));
        let line = "00 0000000000000010 t aws_lc_0_32_0_aes_hw_encrypt";
        assert_eq!(of(line), Some(("aws-lc", 16)));
        assert_eq!(
            of("00 0000000000000010 t memcpy"),
            Some(("C and the rest", 16))
        );
        assert_eq!(of("00 0000000000000010 r dunlin::TABLE"), None);
        assert_eq!(of("                 U malloc"), None);
    }
}
