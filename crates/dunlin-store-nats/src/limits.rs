//! Limits of the log, of its owner, and of waiting.

use core::time::Duration;

/// Bytes of the body of one record: what a server with the usual `max_payload` of
/// 1 MiB takes in any case. A batch with more goes in several, which count together.
pub const RECORD_BYTES_MAX: usize = 512 * 1024;

/// Records of one batch. A batch with more bytes than they hold is refused.
pub const PARTS_MAX: usize = 128;

/// Bytes of one batch.
pub const BATCH_BYTES_MAX: usize = RECORD_BYTES_MAX * PARTS_MAX;

/// Bytes from which on a record is sent without waiting for more.
pub const GROUP_BYTES: usize = 128 * 1024;

/// Operations from which on a record is sent without waiting for more.
pub const GROUP_OPS: usize = 8192;

/// How long a record waits for more, while others are on their way.
pub const WINDOW: Duration = Duration::from_millis(1);

/// Groups of batches that are sent and not acknowledged.
pub const IN_FLIGHT_MAX: usize = 64;

/// Bytes that are sent and not acknowledged, give or take a group.
pub const IN_FLIGHT_BYTES_MAX: usize = 8 * 1024 * 1024;

/// Requests that wait for the log; a submitter that meets the limit gets its request
/// back.
pub const QUEUE_MAX: usize = 4096;

/// Bytes of messages that are submitted and not acknowledged, from which on more is
/// refused.
pub const WAITING_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Pieces of work that wait for the copy; the log waits for room.
pub const COPY_QUEUE_MAX: usize = 64;

/// How long an acknowledgement is waited for before the owner asks what became of the
/// record.
pub const ACK_WAIT: Duration = Duration::from_secs(5);

/// How long an answer of the server to any question is waited for.
pub const ANSWER_WAIT: Duration = Duration::from_secs(5);

/// The same where the stream may have no leader at the moment, so that the question is lost.
pub const LEADER_WAIT: Duration = Duration::from_secs(1);

/// How often an owner that writes nothing looks whether its stream is still its own.
pub const LOOK_EVERY: Duration = Duration::from_secs(2);

/// Between two questions, when a server has no answer yet.
pub const ASK_AGAIN: Duration = Duration::from_millis(100);

/// Between two attempts to connect, when no server is there.
pub const CONNECT_AGAIN: Duration = Duration::from_millis(500);

/// How long the answers of all servers of a cluster are waited for.
pub const SERVERS_WAIT: Duration = Duration::from_secs(1);

/// How often servers that did not say whether they sync are asked again.
pub const SYNC_ASK_EVERY: Duration = Duration::from_secs(5);

/// How often all servers are asked again, when all have said that they sync.
pub const SYNC_LOOK_EVERY: Duration = Duration::from_secs(10);

/// Default of [`NatsConfig::patience`](crate::NatsConfig::patience).
pub const PATIENCE: Duration = Duration::from_secs(30);

/// Records that one question to the log is answered with.
pub const READ_RECORDS_MAX: usize = 256;

/// Bytes that one question to the log is answered with, give or take a record.
pub const READ_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Default of [`NatsConfig::compact_bytes`](crate::NatsConfig::compact_bytes).
pub const COMPACT_BYTES: u64 = 64 * 1024 * 1024;

/// A log is made shorter when it has grown by so many times what was live in it.
pub const COMPACT_FACTOR: u64 = 2;

/// Bytes of live operations that go in one group, give or take one.
pub const LIVE_BYTES: usize = 256 * 1024;

/// Groups of live operations that wait to be sent.
pub const LIVE_GROUPS_MAX: usize = 2;

/// Default of [`NatsConfig::lease`](crate::NatsConfig::lease).
pub const LEASE: Duration = Duration::from_secs(3);

/// A lease is renewed so many times in the time for which it holds. For one part of that it
/// has to be gone before another takes it: an owner whose bucket has had no leader for longer
/// than the lease holds renews it first.
pub const LEASE_PARTS: u32 = 3;

/// How often a lease of another is looked at.
pub const LEASE_LOOK_EVERY: Duration = Duration::from_millis(250);

/// How often it is looked at, when it is being given back: the servers may not have agreed on
/// that yet.
pub const LEASE_HINTED_EVERY: Duration = Duration::from_millis(10);

/// How often at most, for each time.
pub const LEASE_HINTED_LOOKS: u32 = 50;

/// Between two questions about a lease, when there was no answer.
pub const LEASE_AGAIN: Duration = Duration::from_millis(250);

/// How long an answer about a lease is waited for.
pub const LEASE_ANSWER_WAIT: Duration = Duration::from_secs(1);

/// How often a lease is read and written again at once, when the server refuses to write it.
pub const LEASE_TRIES_MAX: usize = 4;

/// How often a standby looks for records, when it has all that there were.
pub const TAIL_EVERY: Duration = Duration::from_millis(200);

/// How often a standby asks how long the log is.
pub const TAIL_LOOK_EVERY: Duration = Duration::from_secs(1);

/// How often in a row a standby reads the log again that it cannot read on, before it ends.
pub const REREADS_MAX: u32 = 5;

/// Between two of these.
pub const REREAD_AFTER: Duration = Duration::from_secs(1);
