//! The flow of one stream: the header that it may begin with, and its number.

use alloc::vec::Vec;

use dunlin_base::SendBuf;

use super::{FlowHeader, HEADER_BYTES_MAX, stream_code};

/// Where the header of a stream stands.
#[derive(Debug, Default)]
enum Head {
    /// Nothing has come.
    #[default]
    Expected,
    /// The beginning of one.
    Partial(Vec<u8>),
    /// There is none, or it has been read: packets follow.
    Read,
}

/// What the bytes of a stream are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeadRead {
    /// Packets.
    Packets,
    /// This header, and then packets.
    Header(FlowHeader),
    /// A header of which more has to come.
    Incomplete,
    /// A header that cannot be read.
    Malformed,
}

/// The flow of one stream.
#[derive(Debug, Default)]
pub struct StreamFlow {
    head: Head,
    id: u64,
}

impl StreamFlow {
    /// That of a stream which the server opens, with its number among those of the
    /// connection: writes the header. The client's end of it has none.
    pub(crate) fn opened(number: u64, out: &mut SendBuf) -> Self {
        let mut bytes = [0; HEADER_BYTES_MAX];
        let len = FlowHeader::of_server(number).emit(&mut bytes);
        out.put_slice(bytes.get(..len).unwrap_or_default());
        Self {
            head: Head::Read,
            id: 0,
        }
    }

    /// Its number; 0: the stream has no flow.
    #[must_use]
    pub const fn id(&self) -> u64 {
        self.id
    }

    /// The session has opened a flow on the stream.
    pub const fn enter(&mut self, id: u64) {
        self.id = id;
    }

    /// Takes the header from the beginning of `data`.
    pub fn read(&mut self, data: &mut &[u8]) -> HeadRead {
        self.head.read(data)
    }

    /// The code by which the stream is reset if the client ends it now. Within its
    /// header it is cut, and `within_packet` if it has a flow.
    #[must_use]
    pub(crate) const fn cut_code(&self, within_packet: bool) -> Option<u64> {
        match matches!(self.head, Head::Partial(_)) || (self.id != 0 && within_packet) {
            true => Some(stream_code::INCOMPLETE_PACKET),
            false => None,
        }
    }
}

impl Head {
    fn read(&mut self, data: &mut &[u8]) -> HeadRead {
        let parsed = match core::mem::take(self) {
            Self::Read => {
                *self = Self::Read;
                return HeadRead::Packets;
            }
            Self::Expected => {
                let first = data.first();
                if !first.is_some_and(|first| FlowHeader::is_type(*first)) {
                    if first.is_some() {
                        *self = Self::Read;
                    }
                    return HeadRead::Packets;
                }
                let parsed = FlowHeader::parse(data);
                match parsed {
                    Ok(Some((_, len))) => *data = data.get(len..).unwrap_or_default(),
                    Ok(None) => *self = Self::Partial(core::mem::take(data).to_vec()),
                    Err(_) => {}
                }
                parsed
            }
            Self::Partial(mut bytes) => {
                let mut parsed = Ok(None);
                while let (Ok(None), Some((byte, rest))) = (parsed, data.split_first()) {
                    bytes.push(*byte);
                    *data = rest;
                    parsed = FlowHeader::parse(&bytes);
                }
                if parsed == Ok(None) {
                    *self = Self::Partial(bytes);
                }
                parsed
            }
        };
        match parsed {
            Ok(None) => HeadRead::Incomplete,
            Ok(Some((header, _))) => {
                *self = Self::Read;
                HeadRead::Header(header)
            }
            Err(_) => HeadRead::Malformed,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::FlowFlags;
    use super::*;

    #[test]
    fn a_flow_header_is_read_at_every_cut() {
        let header = FlowHeader::Data {
            server: false,
            id: 400,
            expire_secs: 70_000,
            flags: FlowFlags::CLEAN,
        };
        let mut bytes = [0; HEADER_BYTES_MAX];
        let len = header.emit(&mut bytes);
        let mut all = bytes[..len].to_vec();
        all.extend_from_slice(b"\xc0\x00");
        for cut in 1..len {
            let mut flow = StreamFlow::default();
            let (mut first, mut second) = all.split_at(cut);
            assert_eq!(flow.read(&mut first), HeadRead::Incomplete);
            assert_eq!(flow.cut_code(false), Some(stream_code::INCOMPLETE_PACKET));
            assert_eq!(flow.read(&mut second), HeadRead::Header(header));
            assert_eq!((first, second), (&b""[..], &b"\xc0\x00"[..]));
            assert_eq!(flow.read(&mut second), HeadRead::Packets);
            assert_eq!(flow.cut_code(false), None);
        }
        let mut flow = StreamFlow::default();
        let mut packets = &b"\xc0\x00"[..];
        assert_eq!(flow.read(&mut packets), HeadRead::Packets);
        assert!(matches!(flow.head, Head::Read) && packets.len() == 2);
    }

    #[test]
    fn a_stream_with_a_flow_says_that_it_was_cut_within_a_packet() {
        let mut flow = StreamFlow::default();
        assert_eq!(flow.cut_code(true), None);
        flow.enter(2);
        assert_eq!(flow.cut_code(true), Some(stream_code::INCOMPLETE_PACKET));
        assert_eq!(flow.cut_code(false), None);
    }

    #[test]
    fn a_stream_of_the_server_begins_with_its_number() {
        let mut out = SendBuf::new();
        let mut flow = StreamFlow::opened(3, &mut out);
        let sent: Vec<u8> = out.slices().flatten().copied().collect();
        assert_eq!(sent, [0x13, 7, 0, 0]);
        let mut answer = &[0x13, 7, 0, 0][..];
        assert_eq!(flow.read(&mut answer), HeadRead::Packets);
        assert_eq!((answer.len(), flow.id()), (4, 0));
    }
}
