//! What a ticket file holds, as bytes.
//!
//! ```text
//! title    8   "DunlinTk"
//! layout   1       2; what layout 1 has not is marked
//! entries  2, then each:
//!   scope    2 + n   server, port and client identifier
//!   address  1 + n   where the server was found, as text
//!   used     8       seconds since 1970
//!   rtt      4       round-trip time there in microseconds, 0: not known (2)
//!   network  1 + n   name of the network where that was measured (2)
//!   tickets  1, each 2 + n, oldest first
//!   tokens   1, each 2 + n, oldest first
//! check   32   SHA-256 of all before it
//! ```
//! Numbers are big-endian.

use core::net::SocketAddr;

use sha2::{Digest, Sha256};

const TITLE: &[u8; 8] = b"DunlinTk";
const LAYOUT: u8 = 2;
/// Without round-trip times.
const LAYOUT_1: u8 = 1;
const CHECK_BYTES: usize = 32;

/// Servers and clients in one file; the one unused for longest goes first.
pub(super) const ENTRIES_MAX: usize = 64;
/// Tickets of one entry; the oldest goes first.
pub(super) const TICKETS_MAX: usize = 6;
/// Address tokens of one entry; the oldest goes first.
pub(super) const TOKENS_MAX: usize = 4;
/// Bytes of a ticket or a token.
pub(super) const ITEM_BYTES_MAX: usize = dunlin_net::TICKET_BYTES_MAX;
/// Bytes of the name of a network; a longer one is not kept.
pub(super) const NETWORK_BYTES_MAX: usize = u8::MAX as usize;
/// Bytes of a file; the entry unused for longest goes first.
pub(super) const FILE_BYTES_MAX: usize = 1 << 20;

/// What is kept of one server for one client.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) scope: String,
    pub(super) addr: Option<SocketAddr>,
    pub(super) used: u64,
    pub(super) rtt: Option<PathRtt>,
    pub(super) tickets: Vec<Vec<u8>>,
    pub(super) tokens: Vec<Vec<u8>>,
}

/// How long a round trip took, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PathRtt {
    /// Not zero.
    pub(crate) micros: u32,
    /// At most [`NETWORK_BYTES_MAX`] bytes.
    pub(crate) network: String,
}

pub(super) fn encode(entries: &[Entry]) -> Vec<u8> {
    let mut bytes = TITLE.to_vec();
    bytes.push(LAYOUT);
    put_len::<2>(&mut bytes, entries.len());
    for entry in entries {
        put_len::<2>(&mut bytes, entry.scope.len());
        bytes.extend_from_slice(entry.scope.as_bytes());
        let addr = entry.addr.map(|a| a.to_string()).unwrap_or_default();
        put_len::<1>(&mut bytes, addr.len());
        bytes.extend_from_slice(addr.as_bytes());
        bytes.extend_from_slice(&entry.used.to_be_bytes());
        let rtt = entry.rtt.as_ref();
        let rtt = rtt.filter(|rtt| rtt.network.len() <= NETWORK_BYTES_MAX);
        bytes.extend_from_slice(&rtt.map_or(0, |rtt| rtt.micros).to_be_bytes());
        let network = rtt.map_or("", |rtt| rtt.network.as_str());
        put_len::<1>(&mut bytes, network.len());
        bytes.extend_from_slice(network.as_bytes());
        for items in [&entry.tickets, &entry.tokens] {
            put_len::<1>(&mut bytes, items.len());
            for item in items {
                put_len::<2>(&mut bytes, item.len());
                bytes.extend_from_slice(item);
            }
        }
    }
    let check = Sha256::digest(&bytes);
    bytes.extend_from_slice(&check);
    bytes
}

/// `None`: damaged, or of another layout.
pub(super) fn decode(bytes: &[u8]) -> Option<Vec<Entry>> {
    let (body, check) = bytes.split_at_checked(bytes.len().checked_sub(CHECK_BYTES)?)?;
    if Sha256::digest(body).as_slice() != check {
        return None;
    }
    let (&layout, mut rest) = body.strip_prefix(TITLE)?.split_first()?;
    if !matches!(layout, LAYOUT_1 | LAYOUT) {
        return None;
    }
    let rest = &mut rest;
    let count = take_len::<2>(rest)?;
    if count > ENTRIES_MAX {
        return None;
    }
    let mut entries = Vec::with_capacity(count);
    for _ in 0..count {
        let scope = take::<2>(rest)?;
        let addr = take::<1>(rest)?;
        let (used, after) = rest.split_first_chunk::<8>()?;
        *rest = after;
        entries.push(Entry {
            scope: String::from_utf8(scope).ok()?,
            addr: core::str::from_utf8(&addr).ok()?.parse().ok(),
            used: u64::from_be_bytes(*used),
            rtt: match layout {
                LAYOUT_1 => None,
                _ => take_rtt(rest)?,
            },
            tickets: take_items(rest, TICKETS_MAX)?,
            tokens: take_items(rest, TOKENS_MAX)?,
        });
    }
    rest.is_empty().then_some(entries)
}

fn take_rtt(rest: &mut &[u8]) -> Option<Option<PathRtt>> {
    let (micros, after) = rest.split_first_chunk::<4>()?;
    *rest = after;
    let micros = u32::from_be_bytes(*micros);
    let network = String::from_utf8(take::<1>(rest)?).ok()?;
    Some((micros > 0).then_some(PathRtt { micros, network }))
}

fn take_items(rest: &mut &[u8], max: usize) -> Option<Vec<Vec<u8>>> {
    let count = take_len::<1>(rest)?;
    let all = (0..count).map(|_| take::<2>(rest));
    (count <= max).then(|| all.collect()).flatten()
}

fn take<const N: usize>(rest: &mut &[u8]) -> Option<Vec<u8>> {
    let len = take_len::<N>(rest)?;
    let (bytes, after) = rest.split_at_checked(len)?;
    *rest = after;
    Some(bytes.to_vec())
}

fn take_len<const N: usize>(rest: &mut &[u8]) -> Option<usize> {
    let (len, after) = rest.split_first_chunk::<N>()?;
    *rest = after;
    Some(
        len.iter()
            .fold(0, |sum, byte| sum << 8 | usize::from(*byte)),
    )
}

/// A length in `N` bytes; the bounds of this file are below what fits.
fn put_len<const N: usize>(bytes: &mut Vec<u8>, len: usize) {
    let all = (len as u64).to_be_bytes();
    bytes.extend_from_slice(all.get(8 - N..).unwrap_or_default());
}

const _: () = assert!(ENTRIES_MAX <= u16::MAX as usize);
const _: () = assert!(ITEM_BYTES_MAX <= u16::MAX as usize);
const _: () = assert!(TICKETS_MAX <= u8::MAX as usize);
const _: () = assert!(TOKENS_MAX <= u8::MAX as usize);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_comes_back_whole_or_not_at_all() {
        let entries = vec![
            Entry {
                scope: "host:14567\0plant-7".into(),
                addr: "[::1]:14567".parse().ok(),
                used: 7,
                rtt: Some(PathRtt {
                    micros: 61_000,
                    network: "10.0.0.0/24".into(),
                }),
                tickets: vec![vec![1; 300], vec![2]],
                tokens: vec![vec![3; 60]],
            },
            Entry::default(),
        ];
        let bytes = encode(&entries);
        assert_eq!(decode(&bytes), Some(entries));
        for cut in 0..bytes.len() {
            assert_eq!(decode(&bytes[..cut]), None, "cut at {cut}");
        }
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 0x10;
            assert_eq!(decode(&damaged), None, "byte {at}");
        }
        assert_eq!(decode(&encode(&[])), Some(vec![]));
    }

    /// As versions before this one wrote it.
    #[test]
    fn the_first_layout_is_still_read() {
        let mut bytes = TITLE.to_vec();
        bytes.extend_from_slice(&[LAYOUT_1, 0, 1, 0, 1, b's', 0]);
        bytes.extend_from_slice(&7_u64.to_be_bytes());
        bytes.extend_from_slice(&[1, 0, 2, 8, 9, 0]);
        bytes.extend_from_slice(&Sha256::digest(&bytes));
        let entry = Entry {
            scope: "s".into(),
            used: 7,
            tickets: vec![vec![8, 9]],
            ..Entry::default()
        };
        assert_eq!(decode(&bytes), Some(vec![entry]));
        let mut future = bytes[..bytes.len() - CHECK_BYTES].to_vec();
        future[TITLE.len()] = LAYOUT + 1;
        future.extend_from_slice(&Sha256::digest(&future));
        assert_eq!(decode(&future), None);
    }

    #[test]
    fn more_than_fits_is_not_believed() {
        let many = vec![Entry::default(); ENTRIES_MAX + 1];
        assert_eq!(decode(&encode(&many)), None);
        let entry = Entry {
            tickets: vec![vec![1]; TICKETS_MAX + 1],
            ..Entry::default()
        };
        assert_eq!(decode(&encode(&[entry])), None);
    }
}
