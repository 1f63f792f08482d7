//! What happens, on standard error, to look for a fault: set
//! `SIM_TRACE` in the environment.

use dunlin_base::{ConnId, Instant};
use dunlin_mqtt_codec::{Packet, Version, decode, peek};

use crate::notation::show;

/// Whether to print.
pub(crate) fn is_on() -> bool {
    std::env::var_os("SIM_TRACE").is_some()
}

/// Prints the whole packets among these bytes.
#[allow(clippy::print_stderr)]
pub(crate) fn packets(now: Instant, conn: ConnId, way: &str, mut bytes: &[u8]) {
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

/// Prints a line.
#[allow(clippy::print_stderr)]
pub(crate) fn line(now: Instant, text: &str) {
    eprintln!("{now} {text}");
}
