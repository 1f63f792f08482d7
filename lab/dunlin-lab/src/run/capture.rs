//! Reads captures of links back: which packets were seen where and when. Knows
//! headers of IP, UDP and TCP, nothing above.

use core::net::Ipv4Addr;
use std::path::Path;

use anyhow::{Context as _, Result, bail};

const SECTION_HEADER: u32 = 0x0a0d_0d0a;
const INTERFACE: u32 = 1;
const ENHANCED_PACKET: u32 = 6;
const OPTION_NAME: u16 = 2;

/// What a capture has.
#[derive(Debug, Default)]
pub(crate) struct Captured {
    /// Places, such as `from-broker`.
    pub(crate) places: Vec<String>,
    pub(crate) packets: Vec<Packet>,
}

/// A packet at a place.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Packet {
    /// Nanoseconds since 1970.
    pub(crate) at: u64,
    /// Index of the place.
    pub(crate) place: u32,
    pub(crate) source: Ipv4Addr,
    pub(crate) destination: Ipv4Addr,
    /// 6 for TCP, 17 for UDP.
    pub(crate) protocol: u8,
    /// Of source and destination; 0 of other protocols.
    pub(crate) ports: [u16; 2],
    /// Bytes, the IP header included.
    pub(crate) len: u32,
}

impl Captured {
    /// Reads a capture that this program wrote.
    pub(crate) fn read(path: &Path) -> Result<Self> {
        let shown = path.display();
        let bytes = std::fs::read(path).with_context(|| format!("cannot read {shown}"))?;
        Self::parse(&bytes).with_context(|| format!("{shown}"))
    }

    fn parse(mut bytes: &[u8]) -> Result<Self> {
        let mut captured = Self::default();
        while !bytes.is_empty() {
            let kind = word(bytes, 0)?;
            let len = word(bytes, 4)? as usize;
            if len < 12 || !len.is_multiple_of(4) || len > bytes.len() {
                bail!("the capture was cut short");
            }
            let (block, rest) = bytes.split_at(len);
            let body = block.get(8..len - 4).unwrap_or_default();
            match kind {
                SECTION_HEADER if word(body, 0)? != 0x1a2b_3c4d => {
                    bail!("the capture has another byte order")
                }
                INTERFACE => captured
                    .places
                    .push(name(body.get(8..).unwrap_or_default())),
                ENHANCED_PACKET => captured.packets.extend(packet(body)?),
                _ => {}
            }
            bytes = rest;
        }
        Ok(captured)
    }

    /// Packets that were seen at a place.
    pub(crate) fn at(&self, place: &str) -> impl Iterator<Item = &Packet> {
        let index = self.places.iter().position(|name| name == place);
        let index = index.and_then(|index| u32::try_from(index).ok());
        self.packets
            .iter()
            .filter(move |packet| Some(packet.place) == index)
    }

    /// Packets that a host sent or got.
    pub(crate) fn of_host(&self, host: &str) -> impl Iterator<Item = &Packet> {
        let (from, to) = (format!("from-{host}"), format!("to-{host}"));
        let place = move |packet: &&Packet| {
            let name = self.places.get(packet.place as usize);
            name.is_some_and(|name| *name == from || *name == to)
        };
        self.packets.iter().filter(place)
    }
}

/// The name among the options of an interface.
fn name(mut options: &[u8]) -> String {
    while let [a, b, c, d, rest @ ..] = options {
        let code = u16::from_le_bytes([*a, *b]);
        let len = usize::from(u16::from_le_bytes([*c, *d]));
        if code == OPTION_NAME {
            let text = rest.get(..len).unwrap_or_default();
            return String::from_utf8_lossy(text).into_owned();
        }
        options = rest.get(len.next_multiple_of(4)..).unwrap_or_default();
    }
    String::new()
}

/// `None` of what is not IPv4.
fn packet(body: &[u8]) -> Result<Option<Packet>> {
    let (place, high, low) = (word(body, 0)?, word(body, 4)?, word(body, 8)?);
    let (kept, len) = (word(body, 12)? as usize, word(body, 16)?);
    let bytes = body.get(20..20 + kept).context("a packet was cut short")?;
    let Some(
        &[
            first,
            _,
            _,
            _,
            _,
            _,
            _,
            _,
            _,
            protocol,
            _,
            _,
            a,
            b,
            c,
            d,
            e,
            f,
            g,
            h,
        ],
    ) = bytes.first_chunk::<20>()
    else {
        return Ok(None);
    };
    if first >> 4 != 4 {
        return Ok(None);
    }
    let payload = bytes.get(usize::from(first & 15) * 4..).unwrap_or_default();
    let ports = match (protocol, payload.first_chunk::<4>()) {
        (6 | 17, Some(&[a, b, c, d])) => [u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d])],
        _ => [0, 0],
    };
    Ok(Some(Packet {
        at: u64::from(high) << 32 | u64::from(low),
        place,
        source: Ipv4Addr::new(a, b, c, d),
        destination: Ipv4Addr::new(e, f, g, h),
        protocol,
        ports,
        len,
    }))
}

fn word(bytes: &[u8], at: usize) -> Result<u32> {
    let four = bytes.get(at..).and_then(<[u8]>::first_chunk);
    Ok(u32::from_le_bytes(
        *four.context("the capture was cut short")?,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(kind: u32, body: &[u8]) -> Vec<u8> {
        let len = u32::try_from(body.len() + 12).unwrap().to_le_bytes();
        [&kind.to_le_bytes(), &len, body, &len].concat()
    }

    fn capture() -> Vec<u8> {
        let mut bytes = block(SECTION_HEADER, &0x1a2b_3c4d_u32.to_le_bytes());
        for name in [b"from-aa1", b"to-aa111"] {
            let mut body = vec![101, 0, 0, 0, 0, 0, 0, 0, 9, 0, 1, 0, 9, 0, 0, 0, 2, 0, 8, 0];
            body.extend(name);
            bytes.extend(block(INTERFACE, &body));
        }
        let mut ip = vec![0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0];
        ip.extend([10, 203, 0, 1, 10, 203, 0, 2]);
        ip.extend([0x12, 0x34, 0x38, 0xe7, 0, 8, 0, 0]);
        let mut body = Vec::new();
        for word in [1u32, 2, 3, 28, 28] {
            body.extend(word.to_le_bytes());
        }
        body.extend(ip);
        bytes.extend(block(ENHANCED_PACKET, &body));
        bytes
    }

    #[test]
    fn packets_are_found_where_they_were_seen() {
        let captured = Captured::parse(&capture()).unwrap();
        assert_eq!(captured.places, ["from-aa1", "to-aa111"]);
        assert_eq!(captured.at("from-aa1").count(), 0);
        let packet = captured.at("to-aa111").next().unwrap();
        assert_eq!(packet.at, (2 << 32) + 3);
        assert_eq!(packet.ports, [0x1234, 14567]);
        assert_eq!(packet.source, Ipv4Addr::new(10, 203, 0, 1));
        assert_eq!(packet.len, 28);
        assert_eq!(captured.of_host("aa111").count(), 1);
        assert_eq!(captured.of_host("aa").count(), 0);
    }

    #[test]
    fn captures_that_were_cut_short_are_reported() {
        let bytes = capture();
        for end in 1..bytes.len() {
            if let Ok(captured) = Captured::parse(&bytes[..end]) {
                assert!(captured.packets.is_empty(), "{end}");
            }
        }
        assert!(Captured::parse(b"no capture at all").is_err());
    }
}
