//! What happened: as a number, to compare two runs, and on standard error, to
//! look for a fault, if `SIM_TRACE` is set in the environment.

use dunlin_base::{ConnId, Instant};
#[cfg(feature = "mqtt")]
use dunlin_mqtt_codec::{Packet, Version, decode, peek};

#[cfg(feature = "mqtt")]
use crate::notation::show;

/// The beginning of the number, and what it is multiplied by: FNV-1a.
const BASIS: u64 = 0xcbf2_9ce4_8422_2325;
const PRIME: u64 = 0x0100_0000_01b3;

/// What happened so far.
#[derive(Debug)]
pub(crate) struct Trace {
    hash: u64,
    verbose: bool,
}

impl Trace {
    pub(crate) fn new() -> Self {
        Self {
            hash: BASIS,
            verbose: std::env::var_os("SIM_TRACE").is_some(),
        }
    }

    pub(crate) const fn hash(&self) -> u64 {
        self.hash
    }

    /// Adds something that arrived to the number.
    pub(crate) fn note(&mut self, now: Instant, kind: u64, number: u64, bytes: &[u8]) {
        let words = [kind, number, now.as_micros()];
        let words = words.iter().flat_map(|word| word.to_le_bytes());
        for byte in words.chain(bytes.iter().copied()) {
            self.hash = (self.hash ^ u64::from(byte)).wrapping_mul(PRIME);
        }
    }

    /// Prints the whole packets among these bytes.
    pub(crate) fn packets(&self, now: Instant, conn: ConnId, way: &str, bytes: &[u8]) {
        if self.verbose {
            packets(now, conn, way, bytes);
        }
    }

    /// Prints a line.
    #[allow(clippy::print_stderr)]
    pub(crate) fn line(&self, now: Instant, text: impl Fn() -> String) {
        if self.verbose {
            eprintln!("{now} {}", text());
        }
    }
}

#[cfg(not(feature = "mqtt"))]
#[allow(clippy::print_stderr)]
fn packets(now: Instant, conn: ConnId, way: &str, bytes: &[u8]) {
    eprintln!("{now} {conn} {way} {bytes:02x?}");
}

#[cfg(feature = "mqtt")]
#[allow(clippy::print_stderr)]
fn packets(now: Instant, conn: ConnId, way: &str, mut bytes: &[u8]) {
    while let Ok(Some(frame)) = peek(bytes, u32::MAX)
        && let Some((packet, rest)) = bytes.split_at_checked(frame.total_len)
    {
        bytes = rest;
        let decoded = [Version::V5, Version::V311]
            .into_iter()
            .find_map(|version| Some((decode(packet, version).ok()?, version)));
        match decoded {
            Some((Packet::Connect(connect), _)) => {
                eprintln!("{now} {conn} {way} CONNECT {}", connect.client_id);
            }
            Some((packet, version)) => eprintln!("{now} {conn} {way} {}", show(&packet, version)),
            None => eprintln!("{now} {conn} {way} {packet:02x?}"),
        }
    }
}
