//! Limits of bus messages as bytes, the same for who writes and who reads them.

/// Most bytes of one message: twice the largest packet of MQTT, which with what goes
/// with it is the largest that a front lets in.
pub const MESSAGE_BYTES_MAX: usize = 512 * 1024 * 1024;

/// Longest text: of names, addresses, filters, rules and causes.
pub const TEXT_BYTES_MAX: usize = 1024 * 1024;

/// Most elements of one list.
pub const LIST_MAX: usize = 1 << 20;

/// Bytes of memory that a list may take for each byte of it, besides what its elements
/// own: more elements than that cannot be in the bytes.
pub const LIST_MEMORY_FACTOR_MAX: usize = 16;

/// Messages of a batch that the next one is compared with: it may refer to one of them.
pub const RECENT_MAX: usize = 4;

/// Bytes of messages that others of a batch refer to, for each byte of the batch up to
/// there: a process has no more shards than that. What would be more is written whole.
pub const AGAIN_FACTOR_MAX: usize = 64;

/// The same for all of a batch.
pub const AGAIN_BYTES_MAX: usize = 128 << 20;
