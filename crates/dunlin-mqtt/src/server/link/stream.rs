//! One stream of a connection: its flow, its packet boundaries, what aliases mean on it,
//! and what goes out on it.

use alloc::boxed::Box;

use dunlin_base::SendBuf;

use crate::flow::StreamFlow;
use crate::server::{Framer, TopicAliases};

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
    /// Its flow, if it has one.
    pub flow: StreamFlow,
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
    /// One that the server opened, with its number among those of the connection.
    #[must_use]
    pub fn opened(number: u64) -> Self {
        let mut out = SendBuf::new();
        Self {
            flow: StreamFlow::opened(number, &mut out),
            out,
            ..Self::default()
        }
    }

    /// The code by which it is reset if the client ends it now: within a packet or its
    /// header, where that can be said.
    #[must_use]
    pub fn cut_code(&self) -> Option<u64> {
        self.flow.cut_code(self.framer.has_partial())
    }

    /// What aliases mean on it, of which there are at most `maximum`.
    pub(super) fn aliases_in(&mut self, maximum: u16) -> &mut TopicAliases {
        self.aliases_in
            .get_or_insert_with(|| Box::new(TopicAliases::new(maximum)))
    }
}
