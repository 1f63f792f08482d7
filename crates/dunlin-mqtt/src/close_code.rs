//! QUIC application error codes of a connection, as EMQX uses them.

/// Normal end.
pub const NO_ERROR: u64 = 0;
/// The control stream failed.
pub const CONTROL_STREAM_DOWN: u64 = 1;
/// The server is overloaded or shutting down.
pub const OVERLOADED: u64 = 2;
