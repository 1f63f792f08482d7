//! Datagrams between processes whose QUIC connection ids have the same keys: one that came
//! to a process and is for a connection of another, and what that one answers, which goes
//! out where the client sent to. As values, and as bytes.
//!
//! ```text
//! foreign  = listener (2), address, local ip, ecn (1, 0xff: unknown), datagram
//! answer   = listener (2), address, local ip, ecn (1), bytes of each (4, 0: one), datagrams
//! address  = ip, port (2)
//! ip       = 4 and 4 bytes, or 6 and 16 bytes; of a local ip also 0: unknown
//! ```
//!
//! Numbers are little endian; what is last goes to the end.

use core::net::{IpAddr, SocketAddr};
use std::collections::VecDeque;

use bytes::BytesMut;
use dunlin_base::ShardId;
use dunlin_quic::Counters;
use dunlin_quic::datagram::{Datagram, Transmit};

use crate::ForeignDatagram;

/// Datagrams that wait to be given to other processes, to be sent from there; beyond it
/// they are dropped, as a network would.
pub const ANSWERS_MAX: usize = 4096;

/// Bytes of these.
pub const ANSWER_BYTES_MAX: usize = 4 << 20;

/// Addresses of a client that are reached by another process; the one that was heard of
/// longest ago makes room.
const WAYS_MAX: usize = 4;

const UNKNOWN_ECN: u8 = 0xff;
const V4: u8 = 4;
const V6: u8 = 6;
const NO_IP: u8 = 0;

/// Datagrams that another process sends for a connection of this one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Number of the listener whose socket sends them.
    pub(crate) listener: u16,
    pub(crate) transmit: Transmit,
    pub(crate) contents: Vec<u8>,
}

impl Answer {
    /// Bytes held, for the bound of the queue that carries it.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.contents.len()
    }

    /// Whether it holds nothing.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.contents.is_empty()
    }

    /// Appends it as bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let transmit = &self.transmit;
        out.extend(self.listener.to_le_bytes());
        put_addr(transmit.destination, out);
        put_local(transmit.src_ip, out);
        out.push(transmit.ecn.unwrap_or(UNKNOWN_ECN));
        let each = transmit.segment_size.unwrap_or(0);
        out.extend(u32::try_from(each).unwrap_or(0).to_le_bytes());
        out.extend_from_slice(&self.contents);
    }

    /// Reads one; `None`: it is none.
    #[must_use]
    pub fn decode(mut bytes: &[u8]) -> Option<Self> {
        let from = &mut bytes;
        let listener = u16::from_le_bytes(take(from)?);
        let destination = take_addr(from)?;
        let src_ip = take_local(from)?;
        let ecn = take_ecn(from)?;
        let each = u32::from_le_bytes(take(from)?);
        let contents = bytes.to_vec();
        if contents.is_empty() {
            return None;
        }
        let transmit = Transmit {
            destination,
            ecn,
            size: contents.len(),
            segment_size: (each > 0).then_some(each as usize),
            src_ip,
        };
        Some(Self {
            listener,
            transmit,
            contents,
        })
    }
}

impl ForeignDatagram {
    /// Appends it as bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let datagram = &self.datagram;
        out.extend(self.listener.to_le_bytes());
        put_addr(datagram.remote, out);
        put_local(datagram.local_ip, out);
        out.push(datagram.ecn.unwrap_or(UNKNOWN_ECN));
        out.extend_from_slice(&datagram.data);
    }

    /// Reads one; `None`: it is none.
    #[must_use]
    pub fn decode(mut bytes: &[u8]) -> Option<Self> {
        let from = &mut bytes;
        let listener = u16::from_le_bytes(take(from)?);
        let remote = take_addr(from)?;
        let local_ip = take_local(from)?;
        let ecn = take_ecn(from)?;
        if bytes.is_empty() {
            return None;
        }
        let datagram = Datagram {
            remote,
            local_ip,
            ecn,
            data: BytesMut::from(bytes),
        };
        Some(Self { listener, datagram })
    }
}

fn put_ip(ip: IpAddr, out: &mut Vec<u8>) {
    match ip {
        IpAddr::V4(ip) => {
            out.push(V4);
            out.extend(ip.octets());
        }
        IpAddr::V6(ip) => {
            out.push(V6);
            out.extend(ip.octets());
        }
    }
}

fn put_local(ip: Option<IpAddr>, out: &mut Vec<u8>) {
    match ip {
        Some(ip) => put_ip(ip, out),
        None => out.push(NO_IP),
    }
}

fn put_addr(addr: SocketAddr, out: &mut Vec<u8>) {
    put_ip(addr.ip(), out);
    out.extend(addr.port().to_le_bytes());
}

fn take<const N: usize>(from: &mut &[u8]) -> Option<[u8; N]> {
    let (taken, rest) = from.split_first_chunk()?;
    *from = rest;
    Some(*taken)
}

/// An address, or that there is none.
fn take_local(from: &mut &[u8]) -> Option<Option<IpAddr>> {
    let [family] = take(from)?;
    match family {
        NO_IP => Some(None),
        V4 => take::<4>(from).map(|octets| Some(octets.into())),
        V6 => take::<16>(from).map(|octets| Some(octets.into())),
        _ => None,
    }
}

fn take_addr(from: &mut &[u8]) -> Option<SocketAddr> {
    let ip = take_local(from)??;
    Some((ip, u16::from_le_bytes(take(from)?)).into())
}

fn take_ecn(from: &mut &[u8]) -> Option<Option<u8>> {
    const BITS: u8 = 0b11;
    match take(from)? {
        [UNKNOWN_ECN] => Some(None),
        [ecn] => (ecn <= BITS).then_some(Some(ecn)),
    }
}

/// How another process reaches a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Way {
    /// The shard that does.
    pub(crate) by: ShardId,
    /// Its address, to which the client sent.
    pub(crate) local_ip: Option<IpAddr>,
}

/// Which addresses of a client are reached by which process: those from which a datagram
/// came there, and was authentic and new.
#[derive(Debug, Default)]
pub(crate) struct Ways(Vec<(SocketAddr, Way)>);

impl Ways {
    /// Whether there are any.
    pub(crate) const fn has_any(&self) -> bool {
        !self.0.is_empty()
    }

    /// A datagram came from this address, by another process, or to here.
    pub(crate) fn note(&mut self, remote: SocketAddr, way: Option<Way>) {
        self.0.retain(|(addr, _)| *addr != remote);
        if let Some(way) = way {
            if self.0.len() >= WAYS_MAX {
                self.0.remove(0);
            }
            self.0.push((remote, way));
        }
        if self.0.is_empty() {
            self.0 = Vec::new();
        }
    }

    /// How another process reaches an address.
    pub(crate) fn to(&self, destination: SocketAddr) -> Option<Way> {
        let mut ways = self.0.iter();
        ways.find_map(|(addr, way)| (*addr == destination).then_some(*way))
    }
}

/// What other processes are to send.
#[derive(Debug, Default)]
pub(crate) struct Answers {
    queue: VecDeque<(ShardId, Answer)>,
    bytes: usize,
}

impl Answers {
    /// Adds what `transmit` says of `contents`, to be sent by a shard of another process.
    pub(crate) fn push(
        &mut self,
        (by, listener): (ShardId, u16),
        transmit: Transmit,
        contents: &[u8],
        counters: &mut Counters,
    ) {
        let contents = contents.get(..transmit.size).unwrap_or(contents);
        let is_full =
            self.queue.len() >= ANSWERS_MAX || self.bytes + contents.len() > ANSWER_BYTES_MAX;
        if is_full {
            counters.answers_relayed_dropped += 1;
            return;
        }
        counters.answers_relayed += 1;
        self.bytes += contents.len();
        let answer = Answer {
            listener,
            transmit,
            contents: contents.to_vec(),
        };
        self.queue.push_back((by, answer));
    }

    pub(crate) fn pop(&mut self) -> Option<(ShardId, Answer)> {
        let (by, answer) = self.queue.pop_front()?;
        self.bytes -= answer.contents.len();
        Some((by, answer))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addr(last: u8) -> SocketAddr {
        ([10, 0, 0, last], 4000).into()
    }

    fn answer(bytes: usize) -> Answer {
        Answer {
            listener: 3,
            transmit: Transmit {
                destination: "[2001:db8::1]:443".parse().unwrap(),
                ecn: Some(2),
                size: bytes,
                segment_size: Some(2),
                src_ip: Some(addr(1).ip()),
            },
            contents: vec![7; bytes],
        }
    }

    fn foreign() -> ForeignDatagram {
        let datagram = Datagram {
            remote: addr(9),
            local_ip: None,
            ecn: None,
            data: BytesMut::from(&b"datagram"[..]),
        };
        let listener = 1;
        ForeignDatagram { listener, datagram }
    }

    #[test]
    fn what_crosses_is_read_as_it_is_written() {
        let (mut one, mut two) = (Vec::new(), Vec::new());
        answer(5).encode(&mut one);
        foreign().encode(&mut two);
        assert_eq!(Answer::decode(&one), Some(answer(5)));
        let read = ForeignDatagram::decode(&two).unwrap();
        assert_eq!((read.listener, read.datagram), (1, foreign().datagram));
        for cut in 0..one.len() - 5 {
            assert_eq!(Answer::decode(&one[..cut]), None, "{cut}");
        }
        for cut in 0..two.len() - 8 {
            assert!(ForeignDatagram::decode(&two[..cut]).is_none(), "{cut}");
        }
        let mut unknown = two.clone();
        unknown[2] = 5;
        assert!(ForeignDatagram::decode(&unknown).is_none(), "a family");
    }

    #[test]
    fn a_client_has_few_addresses_that_others_reach() {
        let mut ways = Ways::default();
        let by = |shard| {
            let local_ip = Some(addr(1).ip());
            let by = ShardId(shard);
            Some(Way { by, local_ip })
        };
        for last in 0..6 {
            ways.note(addr(last), by(64));
        }
        assert_eq!(ways.to(addr(1)), None, "the oldest made room");
        assert_eq!(ways.to(addr(5)), by(64));
        ways.note(addr(5), by(128));
        assert_eq!(ways.to(addr(5)), by(128));
        for last in 0..6 {
            ways.note(addr(last), None);
        }
        assert!(!ways.has_any(), "all come here again");
    }

    #[test]
    fn what_waits_to_be_sent_elsewhere_is_bounded() {
        let (mut answers, mut counters) = (Answers::default(), Counters::default());
        let Answer {
            transmit, contents, ..
        } = answer(60_000);
        let most = ANSWER_BYTES_MAX / contents.len();
        for _ in 0..most + 2 {
            let to = (ShardId(64), 3);
            answers.push(to, transmit.clone(), &contents, &mut counters);
        }
        let found = core::iter::from_fn(|| answers.pop()).count();
        assert_eq!(found, most);
        assert_eq!(counters.answers_relayed, most as u64);
        assert_eq!(counters.answers_relayed_dropped, 2);
        assert_eq!(answers.bytes, 0);
    }
}
