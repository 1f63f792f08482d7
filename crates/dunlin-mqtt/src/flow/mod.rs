//! The MQTT-next draft, all that this crate has of it: names and headers of streams,
//! called flows, the codes by which streams are reset, and what a session and a
//! connection remember of flows.
//!
//! The engines ask at three doors: a stream has its [`StreamFlow`], a session its `Flows`,
//! a connection its [`FailedFlows`]. They know of a flow only its number; 0 is none. No
//! file here knows the engines.
//!
//! The draft leaves things open; how they are resolved here is written in the
//! book, page "Streams and datagrams".

mod header;
mod state;
mod stream;

pub use header::{ControlIdError, FlowFlags, FlowHeader, HEADER_BYTES_MAX};
pub(crate) use state::Flows;
pub use state::{FLOWS_MAX, FailedFlows, FlowRefused, Wanted};
pub use stream::{HeadRead, StreamFlow};

/// ALPN identifier of MQTT with flow headers.
pub const ALPN: &str = "MQTT-next";

/// Application error codes for RESET_STREAM and STOP_SENDING (draft, section
/// 12.2). Streams without a flow header use reason codes of MQTT 5.0.
pub mod stream_code {
    /// The flow is not known (any more).
    pub const NO_FLOW_STATE: u64 = 0xb3;
    /// Only the owner of a flow may do that.
    pub const NOT_FLOW_OWNER: u64 = 0xb4;
    /// A flow of this type cannot be opened by this side, or not here.
    pub const STREAM_TYPE: u64 = 0xb5;
    /// The flow identifier does not fit its type.
    pub const BAD_FLOW_ID: u64 = 0xb6;
    /// Topic aliases that outlive a connection are not supported.
    pub const PERSISTENT_TOPIC: u64 = 0xb7;
    /// Subscriptions that outlive a stream are not possible here.
    pub const PERSISTENT_SUB: u64 = 0xb8;
    /// Optional headers are not supported.
    pub const OPTIONAL_HEADER: u64 = 0xb9;
    /// The stream ended within a packet, or within its header.
    pub const INCOMPLETE_PACKET: u64 = 0xba;
    /// Nothing came on the stream for too long.
    pub const FLOW_OPEN_IDLE: u64 = 0xbb;
    /// A newer stream has taken the flow over.
    pub const FLOW_CANCELLED: u64 = 0xbc;
    /// The message that was being sent is not worth it any more.
    pub const FLOW_PACKET_CANCELLED: u64 = 0xbd;
    /// The flow is not taken.
    pub const FLOW_REFUSED: u64 = 0xbe;
    /// A broken rule of this flow only; its state is discarded.
    pub const DISCARD_STATE: u64 = 0xbf;
}

/// Application error codes for CONNECTION_CLOSE (draft, section 12.1), where
/// flow headers are in use.
pub mod connection_code {
    /// A flow was recovered again although its state is gone.
    pub const TOO_MANY_RECOVER_ATTEMPTS: u64 = 0xb3;
    /// A broken rule that concerns the whole connection.
    pub const PROTOCOL_L0: u64 = 0xb4;
}
