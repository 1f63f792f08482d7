//! ARP, IPv4 and UDP for a device that talks to one server, in the buffer that
//! the frame is in. Knows no network interface and no time: its caller
//! asks for the next hop again when no answer comes.
//!
//! Fragments are refused, as QUIC forbids them (RFC 9000 section 14); options
//! are stepped over. A frame from anyone but the server is nothing.

use core::ops::Range;

use super::{Frame, Network};
use crate::board::{Board, Mac};

/// Bytes of the Ethernet, IPv4 and UDP headers in front of a datagram.
pub const HEADER: usize = ETHERNET + IPV4 + UDP;
/// Bytes of an ARP frame.
pub const ARP: usize = ETHERNET + 28;
/// Largest frame without its check sequence.
pub const FRAME: usize = ETHERNET + 1500;

const ETHERNET: usize = 14;
const IPV4: usize = 20;
const UDP: usize = 8;
const TYPE_IPV4: [u8; 2] = [8, 0];
/// EtherType, hardware and protocol type and their lengths of an ARP packet.
const TYPE_ARP: [u8; 8] = [8, 6, 0, 1, 8, 0, 6, 4];
const BROADCAST: [u8; 6] = [0xff; 6];

/// An IPv4 address.
pub type Address = [u8; 4];

/// What a frame was.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Input {
    /// Nothing for this device.
    Nothing,
    /// The next hop is known now.
    Neighbour,
    /// The buffer holds an answer of this many bytes that must be sent.
    Answer(usize),
    /// A datagram of the server, here in the buffer.
    Datagram(Range<usize>),
}

/// The addresses of a device and of its server.
#[derive(Clone, Debug)]
pub struct Interface {
    /// This device's.
    pub mac: Mac,
    /// This device's.
    pub ip: Address,
    /// This device's port.
    pub port: u16,
    /// Bits of the addresses of this network.
    pub mask: Address,
    /// Where datagrams to other networks go.
    pub gateway: Address,
    /// The server's address.
    pub server: Address,
    /// The server's port.
    pub server_port: u16,
    /// The next hop on the way to the server; cleared to ask for it again.
    pub neighbour: Option<Mac>,
}

impl Interface {
    /// The server if it is in this network, else the gateway.
    fn next_hop(&self) -> Address {
        let far = (self.ip.iter().zip(self.server).zip(self.mask))
            .any(|((own, server), mask)| (own ^ server) & mask != 0);
        if far { self.gateway } else { self.server }
    }

    /// Makes a frame that asks for the next hop, and gives its length, which
    /// is zero if the buffer is too short.
    pub fn ask(&self, frame: &mut [u8]) -> usize {
        let Some(arp) = frame.first_chunk_mut() else {
            return 0;
        };
        self.arp(arp, 1, BROADCAST, self.next_hop());
        ARP
    }

    fn arp(&self, frame: &mut [u8; ARP], operation: u8, to: Mac, whom: Address) {
        let mut out = Out(frame, 0);
        out.put(&to);
        out.put(&self.mac);
        out.put(&TYPE_ARP);
        out.put(&[0, operation]);
        out.put(&self.mac);
        out.put(&self.ip);
        out.put(&to);
        out.put(&whom);
    }

    /// Puts the headers in front of a datagram of `len` bytes that is in
    /// `frame` from [`HEADER`] on, and gives the length of the frame. Zero if
    /// it does not fit or the next hop is not known.
    pub fn wrap(&self, frame: &mut [u8], len: usize) -> usize {
        let end = HEADER + len;
        let (Some(to), Some(frame)) = (self.neighbour, frame.get_mut(..end)) else {
            return 0;
        };
        let Ok(udp) = u16::try_from(UDP + len) else {
            return 0;
        };
        let mut out = Out(frame, 0);
        out.put(&to);
        out.put(&self.mac);
        out.put(&TYPE_IPV4);
        out.put(&[0x45, 0]);
        out.put(&(udp + 20).to_be_bytes());
        // Identification zero and "do not fragment"; hop limit 64, UDP.
        out.put(&[0, 0, 0x40, 0, 64, 17, 0, 0]);
        out.put(&self.ip);
        out.put(&self.server);
        out.put(&self.port.to_be_bytes());
        out.put(&self.server_port.to_be_bytes());
        out.put(&udp.to_be_bytes());
        out.put(&[0, 0]);
        let Some((_, packet)) = frame.split_at_mut_checked(ETHERNET) else {
            return 0;
        };
        let Some((ip, body)) = packet.split_at_mut_checked(IPV4) else {
            return 0;
        };
        store(ip, 10, !sum(0, ip));
        // The pseudo header: addresses, protocol, length.
        let pseudo = sum(u32::from(udp) + 17, ip.get(12..).unwrap_or_default());
        let check = !sum(u32::from(pseudo), body);
        // Zero would mean that there is no checksum.
        store(body, 6, if check == 0 { 0xffff } else { check });
        end
    }

    /// Takes a frame.
    pub fn handle(&mut self, frame: &mut [u8]) -> Input {
        match frame.get(12..14) {
            Some([8, 0]) => self.datagram(frame).map_or(Input::Nothing, Input::Datagram),
            Some([8, 6]) => self.handle_arp(frame).unwrap_or(Input::Nothing),
            _ => Input::Nothing,
        }
    }

    /// Learns the next hop, and answers those who ask for this device.
    fn handle_arp(&mut self, frame: &mut [u8]) -> Option<Input> {
        let frame = frame.first_chunk_mut::<ARP>()?;
        let mut read = Reader(frame.get(12..)?);
        if read.array::<8>()? != &TYPE_ARP {
            return None;
        }
        let operation = u16::from_be_bytes(*read.array()?);
        let (mac, ip) = (*read.array()?, *read.array()?);
        read.array::<6>()?;
        if read.array()? != &self.ip {
            return None;
        }
        let known = self.neighbour.is_some();
        if ip == self.next_hop() {
            self.neighbour = Some(mac);
        }
        if operation == 1 {
            self.arp(frame, 2, mac, ip);
            return Some(Input::Answer(ARP));
        }
        (!known && self.neighbour.is_some()).then_some(Input::Neighbour)
    }

    /// Where the server's datagram is.
    fn datagram(&self, frame: &[u8]) -> Option<Range<usize>> {
        let packet = frame.get(ETHERNET..)?;
        let mut read = Reader(packet);
        let &[first, _, high, low] = read.array()?;
        // The identification counts for fragments only, of which nothing but
        // "do not fragment" may be set; the checksum is checked below.
        let &[_, _, fragment, offset, _, protocol, _, _] = read.array()?;
        let (from, to) = (read.array()?, read.array()?);
        let whole = fragment & 0x3f == 0 && offset == 0;
        let ours = from == &self.server && to == &self.ip;
        let header = usize::from(first & 15) * 4;
        let total = usize::from(u16::from_be_bytes([high, low]));
        let head = packet.get(..header)?;
        if first >> 4 != 4 || header < IPV4 || protocol != 17 || !whole || !ours {
            return None;
        }
        if sum(0, head) != 0xffff {
            return None;
        }
        let mut read = Reader(packet.get(header..total)?);
        let (from, to) = (read.array()?, read.array()?);
        let len = usize::from(u16::from_be_bytes(*read.array()?)).checked_sub(UDP)?;
        read.array::<2>()?;
        let ours =
            u16::from_be_bytes(*from) == self.server_port && u16::from_be_bytes(*to) == self.port;
        // The checksum of UDP is not looked at: QUIC authenticates each byte.
        if !ours || read.0.len() < len {
            return None;
        }
        let start = ETHERNET + header + UDP;
        Some(start..start + len)
    }
}

impl Network for Interface {
    const ASKS: u32 = 10;
    const LEASES: bool = false;

    fn begin<B: Board>(&mut self, _board: &mut B, _fresh: bool) {
        self.neighbour = None;
    }

    fn ask<B: Board>(&mut self, board: &mut B, frame: &mut Frame) {
        let len = Self::ask(self, frame);
        board.send(frame.get(..len).unwrap_or_default());
    }

    fn is_found(&self) -> bool {
        self.neighbour.is_some()
    }

    fn bind(&mut self, port: u16) {
        self.port = port;
    }

    fn address(&self) -> Address {
        self.ip
    }

    fn migrate(&mut self, to: &Address) {
        self.ip = *to;
        self.port ^= 1;
    }

    fn send<B: Board>(&mut self, board: &mut B, frame: &mut Frame, len: usize) {
        let len = self.wrap(frame, len);
        board.send(frame.get(..len).unwrap_or_default());
    }

    fn receive<'f, B: Board>(
        &mut self,
        board: &mut B,
        frame: &'f mut Frame,
        len: usize,
    ) -> Option<&'f mut [u8]> {
        match self.handle(frame.get_mut(..len)?) {
            Input::Answer(len) => {
                board.send(frame.get(..len)?);
                None
            }
            Input::Datagram(range) => frame.get_mut(range),
            _ => None,
        }
    }

    fn poll<B: Board>(&mut self, _board: &mut B, _frame: &mut Frame) {}

    fn delay(&mut self, _now: u32) -> u32 {
        u32::MAX
    }
}

/// The sum of RFC 1071 over `bytes`, not yet complemented.
fn sum(start: u32, bytes: &[u8]) -> u16 {
    let mut sum = start;
    for pair in bytes.chunks(2) {
        let high = pair.first().copied().unwrap_or(0);
        let low = pair.get(1).copied().unwrap_or(0);
        sum += u32::from(u16::from_be_bytes([high, low]));
    }
    while let high @ 1.. = sum >> 16 {
        sum = (sum & 0xffff) + high;
    }
    // Folded, it has no more than 16 bits.
    let [low, high, ..] = sum.to_le_bytes();
    u16::from_le_bytes([low, high])
}

fn store(bytes: &mut [u8], at: usize, value: u16) {
    if let Some(to) = bytes.get_mut(at..).and_then(<[u8]>::first_chunk_mut) {
        *to = value.to_be_bytes();
    }
}

/// Fields that are written one after the other; what does not fit is left out.
struct Out<'a>(&'a mut [u8], usize);

impl Out<'_> {
    #[inline(never)]
    fn put(&mut self, bytes: &[u8]) {
        let room = self.0.get_mut(self.1..);
        if let Some(room) = room.and_then(|room| room.get_mut(..bytes.len())) {
            // A copy of slices would bring a path to a panic into the image.
            for (to, from) in room.iter_mut().zip(bytes) {
                *to = *from;
            }
            self.1 += bytes.len();
        }
    }
}

/// Fields that are read one after the other.
pub(crate) struct Reader<'a>(pub(crate) &'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) fn array<const N: usize>(&mut self) -> Option<&'a [u8; N]> {
        let (head, tail) = self.0.split_first_chunk()?;
        self.0 = tail;
        Some(head)
    }

    /// Bytes behind a byte with their number.
    pub(crate) fn string(&mut self) -> Option<&'a [u8]> {
        let [len] = *self.array()?;
        let (head, tail) = self.0.split_at_checked(usize::from(len))?;
        self.0 = tail;
        Some(head)
    }
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use super::*;

    const MAC: Mac = [2, 0, 0, 0, 0, 1];
    const HOP: Mac = [2, 0, 0, 0, 0, 9];

    fn interface() -> Interface {
        Interface {
            mac: MAC,
            ip: [10, 0, 2, 15],
            port: 5000,
            mask: [255, 255, 255, 0],
            gateway: [10, 0, 2, 2],
            server: [192, 0, 2, 7],
            server_port: 14567,
            neighbour: Some(HOP),
        }
    }

    /// The same, seen from the server next door.
    fn server() -> Interface {
        let device = interface();
        Interface {
            mac: HOP,
            ip: device.server,
            port: device.server_port,
            server: device.ip,
            server_port: device.port,
            neighbour: Some(MAC),
            ..device
        }
    }

    fn wrapped(interface: &Interface, payload: &[u8]) -> Vec<u8> {
        let mut frame = std::vec![0xaa; HEADER];
        frame.extend_from_slice(payload);
        let len = interface.wrap(&mut frame, payload.len());
        assert_eq!(len, frame.len());
        frame
    }

    #[test]
    fn a_datagram_as_others_write_it() {
        let frame = wrapped(&interface(), b"hello");
        let want = [
            &HOP[..],
            &MAC,
            &[8, 0, 0x45, 0, 0, 33, 0, 0, 0x40, 0, 64, 17, 0x6c, 0xb6],
            &[10, 0, 2, 15, 192, 0, 2, 7, 0x13, 0x88, 0x38, 0xe7, 0, 13],
            &[0xa1, 0x7c],
            b"hello",
        ];
        assert_eq!(frame, want.concat());
    }

    #[test]
    fn a_datagram_arrives() {
        for payload in [&b""[..], b"x", b"hello", &[0xff; 1472]] {
            let mut frame = wrapped(&server(), payload);
            // Short frames are padded on the wire.
            frame.resize(frame.len().max(60), 0);
            let Input::Datagram(range) = interface().handle(&mut frame) else {
                panic!("{payload:?}");
            };
            assert_eq!(&frame[range], payload);
        }
    }

    #[test]
    fn options_are_stepped_over() {
        let mut frame = wrapped(&server(), b"hello");
        frame.splice(34..34, [1, 1, 1, 0]);
        frame[14] = 0x46;
        frame[17] += 4;
        store(&mut frame, 24, 0);
        let check = !sum(0, &frame[14..38]);
        store(&mut frame, 24, check);
        assert_eq!(interface().handle(&mut frame), Input::Datagram(46..51));
    }

    #[test]
    fn what_is_not_ours() {
        // Offset and bits to change, and whether the checksum is made right.
        let cases: [(usize, u8, bool); 12] = [
            (12, 1, false),   // another protocol than IPv4
            (14, 0x20, true), // version 6
            (14, 1, true),    // a header longer than it is
            (14, 4, true),    // a header shorter than 20 bytes
            (20, 0x20, true), // more fragments
            (21, 1, true),    // a later fragment
            (22, 1, false),   // damaged on the way
            (23, 1, true),    // not UDP
            (26, 1, true),    // not from the server
            (30, 1, true),    // not to this device
            (35, 1, false),   // from another port
            (37, 1, false),   // to another port
        ];
        for (at, bits, fix) in cases {
            let mut frame = wrapped(&server(), b"hello");
            frame[at] ^= bits;
            if fix {
                store(&mut frame, 24, 0);
                let check = !sum(0, &frame[14..34]);
                store(&mut frame, 24, check);
            }
            assert_eq!(interface().handle(&mut frame), Input::Nothing, "{at}");
        }
    }

    #[test]
    fn lengths_that_lie() {
        let frame = wrapped(&server(), b"hello");
        for cut in 0..frame.len() {
            let mut frame = frame[..cut].to_vec();
            assert_eq!(interface().handle(&mut frame), Input::Nothing, "{cut}");
        }
        for (at, value) in [(38, 7), (38, 0), (38, 14), (38, 0xffff)] {
            let mut frame = frame.clone();
            store(&mut frame, at, value);
            assert_eq!(interface().handle(&mut frame), Input::Nothing, "{value}");
        }
    }

    #[test]
    fn any_bytes_are_harmless() {
        let mut seed = 1_u32;
        for _ in 0..20_000 {
            let mut frame = wrapped(&server(), b"hello");
            for _ in 0..3 {
                seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                let at = (seed >> 8) as usize % frame.len();
                frame[at] = seed.to_be_bytes()[0];
            }
            let len = frame.len();
            if let Input::Datagram(range) = interface().handle(&mut frame) {
                assert!(range.end <= len);
            }
        }
    }

    #[test]
    fn the_next_hop_is_asked_for() {
        for (server_ip, whom) in [
            ([192, 0, 2, 7], [10, 0, 2, 2]),
            ([10, 0, 2, 9], [10, 0, 2, 9]),
        ] {
            let mut device = interface();
            device.server = server_ip;
            device.neighbour = None;
            let mut frame = [0; 64];
            assert_eq!(device.wrap(&mut frame, 5), 0);
            assert_eq!(device.ask(&mut frame), ARP);
            assert_eq!(frame[..6], BROADCAST);
            assert_eq!(frame[38..42], whom);
            // The other side's answer, by the same code.
            let mut hop = server();
            hop.ip = whom;
            assert_eq!(hop.handle(&mut frame), Input::Answer(ARP));
            assert_eq!(frame[..6], MAC);
            assert_eq!(device.handle(&mut frame[..ARP]), Input::Neighbour);
            assert_eq!(device.neighbour, Some(HOP));
            assert_eq!(device.handle(&mut frame[..ARP]), Input::Nothing);
        }
    }

    #[test]
    fn answers_for_others_teach_nothing() {
        let mut device = interface();
        device.neighbour = None;
        let mut frame = [0; ARP];
        device.ask(&mut frame);
        let mut hop = server();
        hop.ip = [10, 0, 2, 2];
        hop.handle(&mut frame);
        for at in [14, 28, 31, 38, 41] {
            let mut other = frame;
            other[at] ^= 1;
            assert_eq!(device.handle(&mut other), Input::Nothing, "{at}");
            assert_eq!(device.neighbour, None, "{at}");
        }
    }

    #[test]
    fn short_buffers() {
        let device = interface();
        assert_eq!(device.ask(&mut [0; ARP - 1]), 0);
        assert_eq!(device.wrap(&mut [0; HEADER], 1), 0);
        assert_eq!(device.wrap(&mut std::vec![0; 70_000], 65_530), 0);
    }
}
