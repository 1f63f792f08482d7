//! Why a node cannot join, and why it is no member any more.

use dunlin_store_nats::{ConnectError, ServerVersion};

use crate::ids::NodeId;
use crate::limits::{NODES_MAX, PAYLOAD_LEAST};
use crate::member::{Encoding, Member};

/// Why a node cannot join.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JoinError {
    /// The configuration cannot be.
    #[error("{0}")]
    Config(&'static str),
    /// No server answers.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The server is older than what was tested.
    #[error("NATS {found} is too old: {} is needed", ServerVersion::LEAST)]
    OldServer {
        /// What it says that it is.
        found: String,
    },
    /// The server has no JetStream.
    #[error("the NATS server has no JetStream for this account")]
    NoJetStream,
    /// The server takes short messages only.
    #[error("the NATS server takes messages of {0} bytes: max_payload must be {PAYLOAD_LEAST}")]
    SmallPayload(usize),
    /// The bucket of the nodes is not as it has to be.
    #[error("the bucket {bucket} cannot be used: {why}")]
    Bucket {
        /// Its name.
        bucket: String,
        /// What is wrong with it.
        why: String,
    },
    /// A node is a member that does not understand this one, or the other way round.
    #[error(
        "node {node} of the cluster ({name}, release {release}) writes version {} of what nodes \
         say and reads {} to {}; this release writes {} and reads {} to {}: stop that node, or \
         upgrade by a release that understands both",
        theirs.version, theirs.oldest, theirs.version, ours.version, ours.oldest, ours.version
    )]
    Encoding {
        /// Its number.
        node: NodeId,
        /// Its name.
        name: String,
        /// Version of its program.
        release: String,
        /// What it says of the encoding.
        theirs: Encoding,
        /// What this node says.
        ours: Encoding,
    },
    /// All numbers are taken.
    #[error("the cluster has {NODES_MAX} nodes: no number is free")]
    Full,
    /// The server refused or did not answer a question.
    #[error("NATS: {0}")]
    Server(String),
    /// The system has no thread or no randomness left.
    #[error("the thread of the bus cannot be started: {0}")]
    Thread(String),
}

impl JoinError {
    /// This member and a node with `ours` do not understand each other.
    pub(crate) fn encoding(member: Member, ours: Encoding) -> Self {
        Self::Encoding {
            node: member.node,
            name: member.about.name,
            release: member.about.version,
            theirs: member.about.encoding,
            ours,
        }
    }
}

/// Why a node is no member any more. It may join again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Expelled {
    /// Its entry ended: it was not renewed in time, or another node ended it.
    Ended,
    /// Another node has its number.
    Taken,
    /// It could not renew its entry for as long as one stays.
    Silent,
}

impl Expelled {
    /// As logs say it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ended => "its entry ended",
            Self::Taken => "another node has its number",
            Self::Silent => "its entry could not be renewed",
        }
    }
}
