//! Captures in the pcapng format, with a drop shown as a packet of its own.
//!
//! Each place where a packet was seen is an interface: `from-HOST` and
//! `to-HOST` for each host, and `dropped`, whose packets have the reason and
//! the link as a comment. In Wireshark: `frame.interface_name == "dropped"`.

use core::time::Duration;
use std::io::{self, Write};

use crate::counters::Fate;
use crate::topology::HostId;

/// Packets that carry raw IP (LINKTYPE_RAW).
const LINK_TYPE_RAW: u16 = 101;

const SECTION_HEADER: u32 = 0x0a0d_0d0a;
const INTERFACE: u32 = 1;
const ENHANCED_PACKET: u32 = 6;

const OPTION_COMMENT: u16 = 1;
const OPTION_NAME: u16 = 2;
const OPTION_RESOLUTION: u16 = 9;

/// Times count nanoseconds.
const RESOLUTION: u8 = 9;

/// Where in a network a packet was seen.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Point<'a> {
    /// It came from this host.
    From(HostId),
    /// It was given to this host.
    To(HostId),
    /// It went no further, for this reason, on the link of this name.
    Dropped(Fate, Option<&'a str>),
}

/// A capture being written.
#[derive(Debug)]
pub struct Capture<W> {
    out: W,
    /// What the wall clock said when the link's time was zero.
    start: Duration,
    hosts: usize,
}

impl<W: Write> Capture<W> {
    /// Starts a capture of what these hosts send and get. `start` is the time
    /// since 1970 at the network's time 0.
    ///
    /// # Errors
    /// When the beginning cannot be written.
    pub fn new<'a>(
        out: W,
        start: Duration,
        hosts: impl IntoIterator<Item = &'a str>,
    ) -> io::Result<Self> {
        let mut capture = Self {
            out,
            start,
            hosts: 0,
        };
        let mut body = Vec::new();
        body.extend(0x1a2b_3c4d_u32.to_le_bytes());
        body.extend(1u16.to_le_bytes());
        body.extend(0u16.to_le_bytes());
        body.extend(u64::MAX.to_le_bytes());
        capture.block(SECTION_HEADER, body)?;
        for host in hosts {
            capture.interface(&format!("from-{host}"))?;
            capture.interface(&format!("to-{host}"))?;
            capture.hosts += 1;
        }
        capture.interface("dropped")?;
        Ok(capture)
    }

    fn interface(&mut self, name: &str) -> io::Result<()> {
        let mut body = Vec::new();
        body.extend(LINK_TYPE_RAW.to_le_bytes());
        body.extend(0u16.to_le_bytes());
        body.extend(0u32.to_le_bytes());
        option(&mut body, OPTION_NAME, name.as_bytes());
        option(&mut body, OPTION_RESOLUTION, &[RESOLUTION]);
        option(&mut body, 0, &[]);
        self.block(INTERFACE, body)
    }

    /// The number of the interface that stands for a place.
    fn number(&self, point: Point<'_>) -> u32 {
        let number = match point {
            Point::From(host) => 2 * host.index(),
            Point::To(host) => 2 * host.index() + 1,
            Point::Dropped(..) => 2 * self.hosts,
        };
        u32::try_from(number).unwrap_or(u32::MAX)
    }

    /// Notes a packet.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn packet(&mut self, at: Duration, point: Point<'_>, bytes: &[u8]) -> io::Result<()> {
        let at = u64::try_from((self.start + at).as_nanos()).unwrap_or(u64::MAX);
        let len = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        let mut body = Vec::with_capacity(bytes.len() + 64);
        body.extend(self.number(point).to_le_bytes());
        #[expect(clippy::cast_possible_truncation, reason = "the format has two halves")]
        for half in [(at >> 32) as u32, at as u32, len, len] {
            body.extend(half.to_le_bytes());
        }
        body.extend(bytes);
        pad(&mut body);
        if let Point::Dropped(fate, link) = point {
            let mut reason = fate.drop_reason().unwrap_or("dropped").to_owned();
            if let Some(link) = link {
                reason.push_str(" on ");
                reason.push_str(link);
            }
            option(&mut body, OPTION_COMMENT, reason.as_bytes());
            option(&mut body, 0, &[]);
        }
        self.block(ENHANCED_PACKET, body)
    }

    /// Writes what is buffered.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }

    fn block(&mut self, kind: u32, mut body: Vec<u8>) -> io::Result<()> {
        pad(&mut body);
        let len = u32::try_from(body.len() + 12).unwrap_or(u32::MAX);
        self.out.write_all(&kind.to_le_bytes())?;
        self.out.write_all(&len.to_le_bytes())?;
        self.out.write_all(&body)?;
        self.out.write_all(&len.to_le_bytes())
    }
}

fn option(body: &mut Vec<u8>, code: u16, value: &[u8]) {
    body.extend(code.to_le_bytes());
    body.extend(u16::try_from(value.len()).unwrap_or(u16::MAX).to_le_bytes());
    body.extend(value);
    pad(body);
}

fn pad(body: &mut Vec<u8>) {
    body.resize(body.len().next_multiple_of(4), 0);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Kind, body of each block; panics where lengths do not agree.
    fn blocks(mut bytes: &[u8]) -> Vec<(u32, Vec<u8>)> {
        let mut out = Vec::new();
        let word = |bytes: &[u8], at| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
        while !bytes.is_empty() {
            let len = word(bytes, 4) as usize;
            assert_eq!(len % 4, 0);
            assert_eq!(word(bytes, len - 4) as usize, len);
            out.push((word(bytes, 0), bytes[8..len - 4].to_vec()));
            bytes = &bytes[len..];
        }
        out
    }

    #[test]
    fn blocks_are_whole_and_drops_have_reasons() {
        let mut capture = Capture::new(Vec::new(), Duration::from_secs(1_000), ["a", "b"]).unwrap();
        let at = Duration::from_nanos(5);
        capture
            .packet(at, Point::From(HostId(0)), b"hello")
            .unwrap();
        capture.packet(at, Point::To(HostId(1)), b"hello").unwrap();
        capture
            .packet(at, Point::Dropped(Fate::Lost, Some("wan")), b"hello")
            .unwrap();
        let blocks = blocks(&capture.out);
        let kinds: Vec<u32> = blocks.iter().map(|(kind, _)| *kind).collect();
        assert_eq!(kinds, [SECTION_HEADER, 1, 1, 1, 1, 1, 6, 6, 6]);
        let time = 1_000_000_000_005_u64;
        let (_, first) = &blocks[6];
        assert_eq!(first[4..8], ((time >> 32) as u32).to_le_bytes());
        assert_eq!(first[8..12], (time as u32).to_le_bytes());
        assert_eq!(&first[20..25], b"hello");
        let (_, dropped) = &blocks[8];
        let text = String::from_utf8_lossy(dropped).into_owned();
        assert!(text.contains("dropped: lost on wan"), "{text}");
    }
}
