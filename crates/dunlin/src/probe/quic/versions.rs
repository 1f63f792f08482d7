//! Versions of QUIC, by Version Negotiation (RFC 9000 section 6): a packet of a
//! version that there is not is answered with those that there are.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use core::time::Duration;
use std::io::ErrorKind;
use std::net::UdpSocket;
use std::time::Instant;

use serde_json::Value;

use crate::probe::fault::Fault;
use crate::probe::{Checked, Probe, Verdict};

/// One of those that are kept for this (RFC 9000 section 15).
const RESERVED: u32 = 0x1a2a_3a4a;

/// Smallest datagram that a server answers.
const DATAGRAM_BYTES: usize = 1200;

/// Longest wait for an answer before the question is repeated.
const AGAIN: Duration = Duration::from_millis(700);

const ID_BYTES: usize = 8;

pub(super) fn offered(probe: &mut Probe, until: Instant) -> Checked {
    let any: IpAddr = match probe.addr {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0))?;
    socket.connect(probe.addr)?;
    let mut ids = [0; 2 * ID_BYTES];
    getrandom::fill(&mut ids).map_err(|error| Fault::Other(error.to_string()))?;
    let question = question(&ids);
    let mut buffer = [0; 2048];
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(Fault::Timeout);
        }
        socket.send(&question)?;
        socket.set_read_timeout(Some(left.min(AGAIN)))?;
        match socket.recv(&mut buffer) {
            Ok(len) => {
                let datagram = buffer.get(..len).unwrap_or_default();
                if let Some(versions) = answer(datagram, &ids) {
                    let names: Vec<String> = versions.into_iter().map(name).collect();
                    let list = names.iter().cloned().map(Value::from).collect::<Vec<_>>();
                    return Ok(Verdict::yes(names.join(", ")).value(list));
                }
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// A long header of a version that there is not.
fn question(ids: &[u8; 2 * ID_BYTES]) -> Vec<u8> {
    let mut packet = vec![0xc0];
    packet.extend(RESERVED.to_be_bytes());
    for id in ids.chunks(ID_BYTES) {
        packet.push(u8::try_from(id.len()).unwrap_or(u8::MAX));
        packet.extend(id);
    }
    packet.resize(DATAGRAM_BYTES, 0);
    packet
}

/// The versions in an answer to that question, without those that mean nothing.
fn answer(datagram: &[u8], ids: &[u8; 2 * ID_BYTES]) -> Option<Vec<u32>> {
    let (first, rest) = datagram.split_first()?;
    let (version, rest) = rest.split_first_chunk::<4>()?;
    if first & 0x80 == 0 || *version != [0; 4] {
        return None;
    }
    // What was the source is the destination now.
    let (asked, source) = ids.split_first_chunk::<ID_BYTES>()?;
    let rest = connection_id(rest, source)?;
    let rest = connection_id(rest, asked)?;
    let versions = rest.chunks_exact(4).filter_map(|bytes| {
        let version = u32::from_be_bytes(bytes.try_into().ok()?);
        (version & 0x0f0f_0f0f != 0x0a0a_0a0a).then_some(version)
    });
    Some(versions.collect())
}

fn connection_id<'a>(bytes: &'a [u8], want: &[u8]) -> Option<&'a [u8]> {
    let (len, rest) = bytes.split_first()?;
    let (id, rest) = rest.split_at_checked(usize::from(*len))?;
    (id == want).then_some(rest)
}

fn name(version: u32) -> String {
    match version {
        1 => "1".into(),
        0x6b33_43cf => "2".into(),
        draft @ 0xff00_0000..=0xff00_00ff => format!("draft-{}", draft & 0xff),
        other => format!("{other:#010x}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_answer_to_the_question_counts() {
        let ids = *b"asked-idsource-i";
        let packet = question(&ids);
        assert_eq!(packet.len(), DATAGRAM_BYTES);
        let mut right = vec![0x8a, 0, 0, 0, 0, 8];
        right.extend(b"source-i\x08asked-id");
        for version in [1_u32, 0x6b33_43cf, 0xff00_001d, 0x5a6a_7a8a, 0x1234_5678] {
            right.extend(version.to_be_bytes());
        }
        let versions = answer(&right, &ids).expect("versions");
        let names: Vec<_> = versions.into_iter().map(name).collect();
        assert_eq!(names, ["1", "2", "draft-29", "0x12345678"]);
        for wrong in [&b""[..], b"\x8a", &packet, &right[..12]] {
            assert_eq!(answer(wrong, &ids), None);
        }
        let mut other = right.clone();
        other[7] ^= 1;
        assert_eq!(answer(&other, &ids), None);
    }
}
