//! What an image takes of flash and RAM, and which part of the program takes
//! it. It reads what readelf and addr2line print, and runs nothing else.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result};

/// The parts of the program, in the order in which they are shown.
pub(crate) const PARTS: [&str; 7] = [
    "cryptography",
    "TLS 1.3",
    "QUIC",
    "MQTT 5",
    "application, board",
    "driver, IP, UDP",
    "runtime, constants",
];
/// The last of them: what no other claims.
const REST: usize = PARTS.len() - 1;

/// An image.
pub(crate) struct Image {
    /// Bytes of flash.
    pub(crate) flash: u64,
    /// Bytes of RAM that have a place.
    pub(crate) fixed: u64,
    /// Where the stack may be.
    pub(crate) stack: (u64, u64),
    /// Bytes of each of [`PARTS`].
    pub(crate) parts: [u64; PARTS.len()],
    /// Bytes of flash of each source file, the largest first.
    pub(crate) files: Vec<(String, u64)>,
    /// Statics: bytes and name, the largest first.
    pub(crate) statics: Vec<(u64, String)>,
    /// Whether it has a path to a panic.
    pub(crate) can_panic: bool,
}

/// A section: name, address, bytes.
type Section = (String, u64, u64);

impl Image {
    /// Reads an image.
    ///
    /// # Errors
    /// The programs that read it are not there or say something unexpected.
    pub(crate) fn read(elf: &Path) -> Result<Self> {
        let sections = sections(&output(Command::new("readelf").arg("-SW").arg(elf))?);
        let symbols = output(Command::new("readelf").arg("-sWC").arg(elf))?;
        let symbols: Vec<_> = symbols.lines().filter_map(symbol).collect();
        let size = |names: &[&str]| {
            let found = sections.iter().filter(|s| names.contains(&s.0.as_str()));
            found.map(|s| s.2).sum::<u64>()
        };
        let place = |name| symbols.iter().find(|s| s.name == name).map(|s| s.address);
        let (fixed_names, flash_names) = (
            [".bss", ".data", ".uninit"],
            [".vector_table", ".text", ".rodata", ".data"],
        );
        let (flash, fixed) = (size(&flash_names), size(&fixed_names));
        let start = place("__sdata").unwrap_or(0x2000_0000);
        let stack = (
            start + fixed,
            place("_stack_start").unwrap_or(start + fixed),
        );
        let text = sections.iter().find(|section| section.0 == ".text");
        let files = match text {
            Some((_, address, bytes)) => files(elf, *address, *bytes)?,
            None => BTreeMap::new(),
        };
        let mut parts = [0; PARTS.len()];
        for (file, bytes) in &files {
            parts[part(file)] += bytes;
        }
        parts[REST] += flash.saturating_sub(files.values().sum());
        let mut files: Vec<_> = files.into_iter().collect();
        files.sort_by_key(|(_, bytes)| core::cmp::Reverse(*bytes));
        let in_ram = symbols.iter().filter(|s| s.is_object && s.address >= start);
        let mut statics: Vec<_> = in_ram.map(|s| (s.bytes, s.name.clone())).collect();
        statics.sort_by(|a, b| b.cmp(a));
        Ok(Self {
            flash,
            fixed,
            stack,
            parts,
            files,
            statics,
            can_panic: place("image_can_panic").is_some(),
        })
    }
}

fn output(command: &mut Command) -> Result<String> {
    let output = command
        .output()
        .with_context(|| format!("cannot start {command:?}"))?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The sections in what `readelf -SW` prints.
fn sections(text: &str) -> Vec<Section> {
    text.lines()
        .filter_map(|line| {
            let (_, rest) = line.split_once(']')?;
            let mut words = rest.split_whitespace();
            let name = words.next()?.to_owned();
            let address = u64::from_str_radix(words.nth(1)?, 16).ok()?;
            let bytes = u64::from_str_radix(words.nth(1)?, 16).ok()?;
            Some((name, address, bytes))
        })
        .collect()
}

struct Symbol {
    address: u64,
    bytes: u64,
    is_object: bool,
    name: String,
}

/// A line of what `readelf -sWC` prints.
fn symbol(line: &str) -> Option<Symbol> {
    let mut words = line.split_whitespace();
    let address = u64::from_str_radix(words.nth(1)?, 16).ok()?;
    let bytes = words.next()?.parse().ok()?;
    let kind = words.next()?;
    let name: Vec<_> = words.skip(3).collect();
    Some(Symbol {
        address,
        bytes,
        is_object: kind == "OBJECT",
        name: name.join(" "),
    })
}

/// Bytes of code by the source file that they were made from.
fn files(elf: &Path, address: u64, bytes: u64) -> Result<BTreeMap<String, u64>> {
    let addresses: Vec<u64> = (address..address + bytes).step_by(2).collect();
    let mut found = BTreeMap::new();
    for file in places(elf, &addresses)? {
        *found.entry(file).or_insert(0) += 2;
    }
    Ok(found)
}

/// The source file that the code at each address was made from: of the
/// functions that are inlined into each other, the innermost that is not of the
/// language.
///
/// # Errors
/// The program that knows is not there.
pub(crate) fn places(elf: &Path, addresses: &[u64]) -> Result<Vec<String>> {
    let mut child = Command::new("arm-none-eabi-addr2line")
        .args(["-i", "-a", "-f", "-C", "-e"])
        .arg(elf)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .context("cannot start arm-none-eabi-addr2line")?;
    let mut input = child.stdin.take().context("no input")?;
    let asked: String = addresses
        .iter()
        .map(|place| format!("{place:x}\n"))
        .collect();
    // It answers while it is asked.
    let asking = std::thread::spawn(move || input.write_all(asked.as_bytes()).is_ok());
    let answer = child.wait_with_output().context("no answer")?;
    let _ = asking.join();
    Ok(in_files(&String::from_utf8_lossy(&answer.stdout)))
}

/// The files in the answers of addr2line: an address, then two lines for each
/// function, the innermost first.
fn in_files(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut frames: Vec<(&str, &str)> = Vec::new();
    let mut function = None;
    let mut add = |frames: &mut Vec<(&str, &str)>| {
        if frames.is_empty() {
            return;
        }
        let ours = frames.iter().find_map(|(name, file)| source(name, file));
        let named = || frames.iter().find_map(|(name, _)| module(name));
        found.push(ours.or_else(named).unwrap_or_default());
        frames.clear();
    };
    for line in text.lines() {
        match function.take() {
            Some(name) => frames.push((name, line)),
            None if is_address(line) => add(&mut frames),
            None => function = Some(line),
        }
    }
    add(&mut frames);
    found
}

fn is_address(line: &str) -> bool {
    line.len() == 10 && line.starts_with("0x") && line[2..].bytes().all(|b| b.is_ascii_hexdigit())
}

/// The file of a function's module, for code that the compiler gave no line: a
/// loop's head, for one.
fn module(function: &str) -> Option<String> {
    let path = function.trim_start_matches('<');
    let path = path.split(['<', '>', ' ']).next()?;
    let mut modules: Vec<_> = path.split("::").collect();
    modules.pop();
    let (name, modules) = modules.split_first()?;
    let ours = name.starts_with("dunlin_") && *name != "dunlin_firmware";
    ours.then(|| format!("{}/{}.rs", name.replace('_', "-"), modules.join("/")))
}

/// The name of a source file that is not of the language: from the crate on.
fn source(function: &str, file: &str) -> Option<String> {
    let file = file.split(':').next().unwrap_or_default();
    if let Some((_, rest)) = file.split_once("/mini/firmware/image/src/") {
        return Some(format!("firmware/{rest}"));
    }
    if let Some((_, rest)) = file.split_once("/mini/dunlin-") {
        return Some(format!("dunlin-{}", rest.replace("/src/", "/")));
    }
    if let Some((_, rest)) = file.split_once("/registry/src/") {
        return Some(rest.split('/').skip(1).collect::<Vec<_>>().join("/"));
    }
    // The assembly has no lines, but its names.
    let assembly = function.starts_with("P256_") || function.starts_with("p256_");
    assembly.then(|| "p256-cortex-m4-sys/P256-Cortex-M4".to_owned())
}

/// Which of [`PARTS`] a source file belongs to.
fn part(file: &str) -> usize {
    const PREFIXES: [(&str, usize); 17] = [
        ("dunlin-mini-crypto/", 0),
        ("p256", 0),
        ("dunlin-quic-mini/tls", 1),
        ("dunlin-quic-mini/hello", 1),
        ("dunlin-quic-mini/keys", 1),
        ("dunlin-quic-mini/x509", 1),
        ("dunlin-quic-mini/verify", 1),
        ("dunlin-quic-mini/", 2),
        ("dunlin-mqtt", 3),
        ("dunlin-mini-device/ip", 5),
        ("dunlin-mini-device/lan9118", 5),
        ("smoltcp", 5),
        ("heapless", 5),
        ("managed", 5),
        ("byteorder", 5),
        ("dunlin-mini-device/", 4),
        ("firmware/", 4),
    ];
    PREFIXES
        .iter()
        .find(|(prefix, _)| file.starts_with(prefix))
        .map_or(REST, |(_, part)| *part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sections_and_symbols_are_read() {
        let text = "  [ 2] .text  PROGBITS 00000044 000158 008f80 00  AX  0   0  4\n";
        assert_eq!(sections(text), [(".text".to_owned(), 0x44, 0x8f80)]);
        let line = "   12: 20000010  3164 OBJECT  LOCAL  DEFAULT  6 dunlin_firmware::MEMORY";
        let found = symbol(line).expect("a symbol");
        assert_eq!((found.address, found.bytes), (0x2000_0010, 3164));
        assert_eq!(found.name, "dunlin_firmware::MEMORY");
        assert!(found.is_object);
    }

    #[test]
    fn code_belongs_to_the_innermost_file_that_is_ours() {
        let text = "0x00000044\ncopy\n/x/library/core/src/slice.rs:3\nstart\n/y/mini/dunlin-quic-mini/src/tls.rs:9\nmain\n/y/mini/firmware/image/src/main.rs:1\n0x00000046\nP256_mul\n??:?\n0x00000048\nmemcpy\n??:0\n";
        let files = [
            "dunlin-quic-mini/tls.rs",
            "p256-cortex-m4-sys/P256-Cortex-M4",
            "",
        ];
        assert_eq!(in_files(text), files);
        let text = "0x00000044\n<dunlin_mini_crypto::tiny::field::Numbers>::multiply\n??:0\n";
        assert_eq!(in_files(text), ["dunlin-mini-crypto/tiny/field.rs"]);
        assert_eq!(PARTS[part("dunlin-quic-mini/tls.rs")], "TLS 1.3");
        assert_eq!(PARTS[part("dunlin-quic-mini/client/frames.rs")], "QUIC");
        assert_eq!(PARTS[part("")], "runtime, constants");
    }
}
