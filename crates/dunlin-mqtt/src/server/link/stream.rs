//! One stream of a connection: the flow header that it may begin with, its
//! packet boundaries, what aliases mean on it, and what goes out on it.

use alloc::boxed::Box;
use alloc::vec::Vec;

use dunlin_base::SendBuf;

use crate::flow::FlowHeader;
use crate::server::{Framer, TopicAliases};

/// The flow header that a stream may begin with.
#[derive(Debug, Default)]
pub enum Head {
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

impl Head {
    /// Takes the header from the beginning of `data`.
    pub fn read(&mut self, data: &mut &[u8]) -> HeadRead {
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

/// Which sides of a stream have ended. When both have, it is forgotten.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StreamEnd {
    /// None.
    #[default]
    Open,
    /// The client's; ours follows when it has its answers.
    ByClient,
    /// Ours: nothing more can be sent on it.
    ByServer,
}

/// One stream.
#[derive(Debug, Default)]
pub struct LinkStream {
    /// Where its flow header stands.
    pub head: Head,
    /// Flow identifier; 0: none.
    pub flow: u64,
    /// Its packet boundaries.
    pub framer: Framer,
    aliases_in: Option<Box<TopicAliases>>,
    /// What goes out.
    pub out: SendBuf,
    /// Whether a side has ended.
    pub end: StreamEnd,
    /// The client takes no more of it while it would on others.
    pub(super) blocked: bool,
    /// Bytes that wait for it in the transport and do not count against the
    /// other streams.
    pub(super) apart: usize,
}

impl LinkStream {
    /// One that the server opened: only it has a flow header.
    #[must_use]
    pub fn opened() -> Self {
        Self {
            head: Head::Read,
            ..Self::default()
        }
    }

    /// Whether it ends within a packet, or within its header, and has a name
    /// by which that can be said.
    #[must_use]
    pub fn is_cut(&self) -> bool {
        let partial = matches!(self.head, Head::Partial(_));
        partial || (self.flow != 0 && self.framer.has_partial())
    }

    /// What aliases mean on it, of which there are at most `maximum`.
    pub(super) fn aliases_in(&mut self, maximum: u16) -> &mut TopicAliases {
        self.aliases_in
            .get_or_insert_with(|| Box::new(TopicAliases::new(maximum)))
    }
}
