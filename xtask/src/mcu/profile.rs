//! Where the cycles of a wake with early data go, by what the code is for. It
//! adds up the blocks that the plugin counted, by the source file that their
//! first instruction comes from.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, bail};

use super::EARLY;
use super::image::{self, Image};
use super::tools::Tools;
use super::wake;

/// What code is for, in the order in which it is shown.
pub(crate) const PURPOSES: [&str; 9] = [
    "key agreement",
    "AES",
    "GHASH, counter mode",
    "SHA-256, HMAC, HKDF",
    "TLS 1.3",
    "QUIC",
    "MQTT 5, application, board",
    "driver, IP, UDP",
    "runtime (copies), constants",
];

/// Runs, of which the cheapest counts.
const RUNS: usize = 3;

/// Which of [`PURPOSES`] a source file serves.
fn purpose(file: &str) -> usize {
    const PREFIXES: [(&str, usize); 13] = [
        ("dunlin-mini-crypto/own/aes", 1),
        ("dunlin-mini-crypto/own/gcm", 2),
        ("dunlin-mini-crypto/sha256", 3),
        ("dunlin-mini-crypto/lib", 3),
        ("dunlin-mini-crypto/", 0),
        ("p256", 0),
        ("dunlin-quic-mini/tls", 4),
        ("dunlin-quic-mini/hello", 4),
        ("dunlin-quic-mini/keys", 4),
        ("dunlin-quic-mini/", 5),
        ("dunlin-mini-device/ip", 7),
        ("dunlin-mini-device/lan9118", 7),
        ("dunlin-m", 6),
    ];
    let found = PREFIXES.iter().find(|(prefix, _)| file.starts_with(prefix));
    let rest = if file.starts_with("firmware/") { 6 } else { 8 };
    found.map_or(rest, |(_, purpose)| *purpose)
}

/// Cycles of each of [`PURPOSES`] from waking with early data to the first
/// PUBACK.
///
/// # Errors
/// The device does not do its work.
pub(crate) fn early(tools: &Tools, elf: &Path, image: &Image) -> Result<[u64; PURPOSES.len()]> {
    let path = tools.folder().join("hist");
    let mut best: Option<[u64; PURPOSES.len()]> = None;
    for _ in 0..RUNS {
        let (mut command, _) = wake::command(tools, elf, image, EARLY);
        command.arg("--hist").arg(&path).arg("--span=2");
        if !command.status().context("cannot start python3")?.success() {
            bail!("the device did not do its work");
        }
        let text = fs::read_to_string(&path).context("the plugin wrote no histogram")?;
        let cycles = by_purpose(elf, &text)?;
        let all = |cycles: &[u64]| cycles.iter().sum::<u64>();
        if best.is_none_or(|best| all(&cycles) < all(&best)) {
            best = Some(cycles);
        }
    }
    best.context("no run")
}

fn by_purpose(elf: &Path, text: &str) -> Result<[u64; PURPOSES.len()]> {
    let blocks: Vec<(u64, u64)> = text.lines().filter_map(block).collect();
    let addresses: Vec<u64> = blocks.iter().map(|block| block.0).collect();
    let files = image::places(elf, &addresses)?;
    let mut cycles = [0; PURPOSES.len()];
    for ((_, block), file) in blocks.iter().zip(files) {
        cycles[purpose(&file)] += block;
    }
    Ok(cycles)
}

/// Address and cycles of a line.
fn block(line: &str) -> Option<(u64, u64)> {
    let mut words = line.split_whitespace();
    let address = u64::from_str_radix(words.next()?, 16).ok()?;
    Some((address, words.nth(2)?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_has_a_purpose() {
        let of = |file| PURPOSES[purpose(file)];
        assert_eq!(of("dunlin-mini-crypto/tiny/x25519.rs"), "key agreement");
        assert_eq!(of("dunlin-mini-crypto/own/aes.rs"), "AES");
        assert_eq!(of("dunlin-quic-mini/client.rs"), "QUIC");
        assert_eq!(of("firmware/board.rs"), "MQTT 5, application, board");
        assert_eq!(of(""), "runtime (copies), constants");
        assert_eq!(block("1a4 3 12 90"), Some((0x1a4, 90)));
    }
}
