//! Limits of the store that submitters and back ends agree on.

/// Largest value of one [`crate::StoreOp::PutMeta`]: these are read whole into
/// memory at start.
pub const META_VALUE_BYTES_MAX: usize = 64 * 1024;

/// Most sequence numbers in one [`crate::Request::Load`]; a shard asks again
/// for more. Bounds how long one answer keeps the next one waiting.
pub const LOAD_SEQS_MAX: usize = 1024;

/// Most operations in one [`crate::Batch`]: a transaction that is bounded in
/// memory and time.
pub const BATCH_OPS_MAX: usize = 65_536;

/// Most sessions that one stored message is queued for. A larger fan-out is
/// several messages with their own sequence numbers.
pub const TARGETS_MAX: usize = 1 << 20;

/// Shards that [`crate::Seq::new`] has room for.
pub const SHARDS_MAX: u64 = 65_536;
