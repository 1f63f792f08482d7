//! Why a store cannot be opened, and why its owner gave it up.

use std::path::PathBuf;

use dunlin_base::Text;
use dunlin_store::StoreError;

use crate::chain::LogError;
use crate::connect::ConnectError;
use crate::counts::Counts;
use crate::version::ServerVersion;

/// Why a store cannot be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
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
    /// Messages of the size of a record are refused.
    #[error(
        "the NATS server takes messages of {found} bytes: max_payload must be {needed} at least"
    )]
    SmallPayload {
        /// Its max_payload.
        found: usize,
        /// What is needed.
        needed: usize,
    },
    /// A server acknowledges what is not on its disk yet.
    #[error(
        "the NATS server {server} acknowledges before it syncs: set `sync_interval: always` in \
         its block `jetstream`, or accept that acknowledged messages are lost in a power cut"
    )]
    Unsynced {
        /// Its name.
        server: String,
    },
    /// Whether the servers sync cannot be found out.
    #[error(
        "whether the NATS servers sync before they acknowledge can only be asked in the system \
         account: name a URL with a user of it, or accept that acknowledged messages may be \
         lost in a power cut: {0}"
    )]
    SyncUnknown(String),
    /// The stream is not as it has to be.
    #[error("the stream {stream} cannot be used: {why}")]
    Stream {
        /// Its name.
        stream: String,
        /// What is wrong with it.
        why: String,
    },
    /// The server refused or did not answer a question.
    #[error("NATS: {0}")]
    Server(String),
    /// The log cannot be read to its end.
    #[error(transparent)]
    Log(#[from] LogError),
    /// A record passed its checksum and has operations that this release does not know.
    #[error("record {number} cannot be read: {why}")]
    Operations {
        /// Its number.
        number: u64,
        /// Why.
        why: dunlin_store::codec::DecodeError,
    },
    /// The copy cannot be opened or written.
    #[error("the copy: {0}")]
    Copy(#[from] dunlin_store_redb::OpenError),
    /// The copy cannot be read or written.
    #[error("the copy: {0}")]
    CopyFailed(StoreError),
    /// What this machine took over before cannot be read or written.
    #[error("the file beside the copy that remembers take-overs: {0}")]
    Owner(#[source] std::io::Error),
    /// Another one took the partition over, meanwhile or, where
    /// [`NatsConfig::own_only`](crate::NatsConfig::own_only) is set, since this machine had it.
    #[error("the partition was taken over by another owner")]
    TakenOver,
    /// The system has no thread left.
    #[error("the store's thread cannot be started: {0}")]
    Thread(#[source] std::io::Error),
}

/// Why an import was not begun, or not finished.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImportError {
    /// A broker or a standby has the lease of the log.
    #[error("a broker or a standby has the lease of the log: stop it")]
    InUse,
    /// The log has records.
    #[error("the log is not empty")]
    NotEmpty,
    /// The copy on this machine is of a log with records.
    #[error("the copy {} is of another log: remove it", .0.display())]
    OtherCopy(PathBuf),
    /// What is imported is the copy of a log.
    #[error("it is the copy of a log, and no store of its own")]
    Copy,
    /// One operation does not fit in a batch.
    #[error("a message of {0} bytes is too large for the log")]
    TooLarge(usize),
    /// What was read back from the log is not what was written.
    #[error("the log does not have what was written. Written:\n{wanted}\nread:\n{found}")]
    Differs {
        /// What was written.
        wanted: Box<Counts>,
        /// What was read.
        found: Box<Counts>,
    },
    /// Whether the log has the end of the import is not known.
    #[error(
        "the import may be finished: start the broker with the log; if that says that the import \
         was not finished, begin again: {0}"
    )]
    EndUnknown(#[source] Box<Self>),
    /// The thread of the import has ended.
    #[error("the thread of the import has ended")]
    Ended,
    /// As when a store is opened.
    #[error(transparent)]
    Log(#[from] OpenError),
}

/// Why an owner acknowledges nothing any more. The store has to be opened again.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GaveUp {
    /// Another owner has the partition: the stream listens to its subject.
    #[error("another owner took the partition over")]
    TakenOver,
    /// The stream was deleted.
    #[error("the stream was deleted")]
    StreamGone,
    /// The server refused a record.
    #[error("the server refused a record: {code}: {text}")]
    Refused {
        /// The error code of JetStream.
        code: u64,
        /// What it says.
        text: String,
    },
    /// The server did not say what became of a record, for longer than the patience.
    #[error("the server did not answer for {0} seconds")]
    Silent(u64),
    /// A server that was down acknowledges before it syncs.
    #[error("the NATS server {server} acknowledges before it syncs")]
    Unsynced {
        /// Its name.
        server: String,
    },
    /// What the log holds cannot be read.
    #[error(transparent)]
    Log(#[from] LogError),
    /// The copy cannot be written.
    #[error("the copy cannot be written: {0}")]
    Copy(StoreError),
}

impl GaveUp {
    /// As an answer to a request.
    pub(crate) fn to_store_error(&self) -> StoreError {
        match self {
            Self::Refused { code, .. } if FULL.contains(code) => StoreError::DiskFull,
            other => StoreError::GivenUp(Text::from(other.to_string())),
        }
    }
}

/// What JetStream answers when there is no room: resources, storage, a stream's limits.
const FULL: [u64; 4] = [10_023, 10_028, 10_047, 10_077];
