//! IPv4 packets, as far as a NAT and a bit flipper need them: addresses, ports
//! and checksums. A packet that is too short for what is asked gives `None`.

use core::net::{Ipv4Addr, SocketAddrV4};

const TCP: u8 = 6;
const UDP: u8 = 17;

/// One end of a flow, with its protocol number.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct FlowKey {
    /// The protocol number in the IP header.
    pub protocol: u8,
    /// Address and port.
    pub end: SocketAddrV4,
}

/// Which end of a packet.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum End {
    Source,
    Destination,
}

/// A view of an IPv4 packet.
#[derive(Debug)]
pub struct Packet<T>(T);

impl<T: AsRef<[u8]>> Packet<T> {
    /// A view of these bytes, if they start with an IPv4 header.
    pub fn new(bytes: T) -> Option<Self> {
        let head = bytes.as_ref();
        let fits = head.first()? >> 4 == 4 && head.len() >= 20;
        let packet = Self(bytes);
        (fits && packet.header_len() >= 20 && packet.0.as_ref().len() >= packet.header_len())
            .then_some(packet)
    }

    /// The protocol number.
    #[must_use]
    pub fn protocol(&self) -> u8 {
        self.byte(9)
    }

    /// The source, with port 0 where there is none.
    #[must_use]
    pub fn source(&self) -> FlowKey {
        self.end(End::Source)
    }

    /// The destination, with port 0 where there is none.
    #[must_use]
    pub fn destination(&self) -> FlowKey {
        self.end(End::Destination)
    }

    pub(crate) fn end(&self, end: End) -> FlowKey {
        let (address, port) = offsets(end);
        let octets = [0, 1, 2, 3].map(|i| self.byte(address + i));
        let port = if self.has_ports() {
            self.word(self.header_len() + port)
        } else {
            0
        };
        FlowKey {
            protocol: self.protocol(),
            end: SocketAddrV4::new(Ipv4Addr::from(octets), port),
        }
    }

    /// Where the checksum of TCP or UDP is, if this is one and has one.
    fn checksum_at(&self) -> Option<usize> {
        let at = self.header_len()
            + match self.protocol() {
                TCP => 16,
                UDP => 6,
                _ => return None,
            };
        let there = self.first_fragment() && at + 2 <= self.0.as_ref().len();
        // Zero means that the sender of a UDP packet gave no checksum.
        let used = there && !(self.protocol() == UDP && self.word(at) == 0);
        used.then_some(at)
    }

    /// Where the bytes behind the headers of IP and UDP or TCP start.
    fn payload_at(&self) -> usize {
        let ip = self.header_len();
        ip + match self.protocol() {
            UDP => 8,
            TCP => usize::from(self.byte(ip + 12) >> 4) * 4,
            _ => 0,
        }
    }

    fn has_ports(&self) -> bool {
        matches!(self.protocol(), TCP | UDP)
            && self.first_fragment()
            && self.0.as_ref().len() >= self.header_len() + 4
    }

    fn first_fragment(&self) -> bool {
        self.word(6) & 0x1fff == 0
    }

    fn header_len(&self) -> usize {
        usize::from(self.byte(0) & 0x0f) * 4
    }

    fn byte(&self, at: usize) -> u8 {
        self.0.as_ref().get(at).copied().unwrap_or(0)
    }

    fn word(&self, at: usize) -> u16 {
        u16::from_be_bytes([self.byte(at), self.byte(at + 1)])
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> Packet<T> {
    /// Gives one end another address and port; checksums stay as right or as
    /// wrong as they were.
    pub(crate) fn set_end(&mut self, end: End, new: SocketAddrV4) {
        let (address, port) = offsets(end);
        let octets = new.ip().octets();
        let checksum = self.checksum_at();
        for (i, pair) in octets.chunks_exact(2).enumerate() {
            let at = address + 2 * i;
            let value = u16::from_be_bytes([pair[0], pair[1]]);
            let old = self.replace(at, value);
            self.mend(Some(10), old, value);
            self.mend(checksum, old, value);
        }
        if self.has_ports() {
            let old = self.replace(self.header_len() + port, new.port());
            self.mend(checksum, old, new.port());
        }
    }

    /// Flips one bit behind the headers, chosen by `which`. Mends the checksum
    /// when the flip shall go unseen.
    pub(crate) fn flip(&mut self, which: u64, unseen: bool) {
        let start = self.payload_at();
        let len = self.0.as_ref().len().saturating_sub(start) as u64;
        if len == 0 {
            return;
        }
        let (at, bit) = (start + (which / 8 % len) as usize, (which % 8) as u8);
        // Checksums cover pairs of bytes, counted from the transport header.
        let pair = at - (at - self.header_len()) % 2;
        let old = self.word(pair);
        if let Some(byte) = self.0.as_mut().get_mut(at) {
            *byte ^= 1 << bit;
        }
        if unseen {
            let new = self.word(pair);
            self.mend(self.checksum_at(), old, new);
        }
    }

    /// Writes a word, and gives the one that was there.
    fn replace(&mut self, at: usize, value: u16) -> u16 {
        let old = self.word(at);
        if let Some(place) = self.0.as_mut().get_mut(at..at + 2) {
            place.copy_from_slice(&value.to_be_bytes());
        }
        old
    }

    /// Updates a checksum for a changed word (RFC 1624, equation 3).
    fn mend(&mut self, at: Option<usize>, old: u16, new: u16) {
        let Some(at) = at else { return };
        let sum = u32::from(!self.word(at)) + u32::from(!old) + u32::from(new);
        let sum = (sum & 0xffff) + (sum >> 16);
        let sum = (sum & 0xffff) + (sum >> 16);
        #[expect(clippy::cast_possible_truncation, reason = "folded twice")]
        let mut checksum = !(sum as u16);
        // A UDP checksum of zero would say that there is none.
        if checksum == 0 && self.protocol() == UDP && at != 10 {
            checksum = 0xffff;
        }
        let _ = self.replace(at, checksum);
    }
}

/// Where the address is in the IP header and the port behind it.
const fn offsets(end: End) -> (usize, usize) {
    match end {
        End::Source => (12, 0),
        End::Destination => (16, 2),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    fn sum(bytes: &[u8], start: u32) -> u32 {
        bytes.chunks(2).fold(start, |sum, pair| {
            sum + u32::from(pair[0]) * 256 + pair.get(1).map_or(0, |low| u32::from(*low))
        })
    }

    fn fold(mut sum: u32) -> u16 {
        while sum > 0xffff {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        !(sum as u16)
    }

    /// What the checksum over pseudo header and transport comes to; 0 is right.
    pub(crate) fn residue(packet: &[u8]) -> u16 {
        let transport = &packet[20..];
        let pseudo = sum(
            &packet[12..20],
            u32::from(packet[9]) + transport.len() as u32,
        );
        fold(sum(transport, pseudo))
    }

    /// A UDP packet with right checksums.
    pub(crate) fn udp(from: &str, to: &str, payload: &[u8]) -> Vec<u8> {
        let (from, to): (SocketAddrV4, SocketAddrV4) = (from.parse().unwrap(), to.parse().unwrap());
        let len = 28 + payload.len();
        let mut p = vec![
            0x45,
            0,
            (len >> 8) as u8,
            len as u8,
            0,
            1,
            0x40,
            0,
            64,
            UDP,
            0,
            0,
        ];
        p.extend(from.ip().octets());
        p.extend(to.ip().octets());
        let header = fold(sum(&p, 0));
        p[10..12].copy_from_slice(&header.to_be_bytes());
        p.extend(from.port().to_be_bytes());
        p.extend(to.port().to_be_bytes());
        p.extend(((len - 20) as u16).to_be_bytes());
        p.extend([0, 0]);
        p.extend(payload);
        let checksum = residue(&p);
        p[26..28].copy_from_slice(&checksum.to_be_bytes());
        assert_eq!(residue(&p), 0);
        p
    }

    #[test]
    fn an_end_is_replaced_and_the_sums_stay_right() {
        for payload in [&b"x"[..], b"", b"hello!", &[0xff; 33]] {
            let bytes = udp("10.0.0.1:5000", "10.0.0.2:14567", payload);
            let mut packet = Packet::new(bytes).unwrap();
            let new: SocketAddrV4 = "192.0.2.77:61001".parse().unwrap();
            packet.set_end(End::Source, new);
            assert_eq!(packet.source().end, new);
            assert_eq!(packet.destination().end.port(), 14567);
            packet.set_end(End::Destination, new);
            let bytes = packet.0;
            assert_eq!(residue(&bytes), 0);
            assert_eq!(fold(sum(&bytes[..20], 0)), 0);
        }
    }

    #[test]
    fn a_flip_is_seen_or_not() {
        for which in 0..200 {
            let bytes = udp("10.0.0.1:5000", "10.0.0.2:14567", b"payload of odd size");
            let mut seen = Packet::new(bytes.clone()).unwrap();
            seen.flip(which, false);
            assert_ne!(residue(&seen.0), 0);
            let mut unseen = Packet::new(bytes.clone()).unwrap();
            unseen.flip(which, true);
            assert_eq!(residue(&unseen.0), 0, "{which}");
            assert_ne!(unseen.0[28..], bytes[28..]);
        }
    }

    #[test]
    fn short_and_foreign_packets_are_no_trouble() {
        assert!(Packet::new([0u8; 0]).is_none());
        assert!(Packet::new([0x45u8; 19]).is_none());
        assert!(Packet::new([0x60u8; 40]).is_none());
        assert!(Packet::new([0x4fu8; 40]).is_none());
        for len in 20..30 {
            for protocol in [1, TCP, UDP] {
                let mut bytes = vec![0u8; len];
                bytes[0] = 0x45;
                bytes[9] = protocol;
                let mut packet = Packet::new(bytes).unwrap();
                packet.set_end(End::Source, "1.2.3.4:5".parse().unwrap());
                packet.flip(12345, true);
                assert_eq!(packet.0.len(), len);
            }
        }
    }
}
