//! Limits of a node's links, of its entry, and of waiting.

use core::time::Duration;

/// Nodes of a cluster: their numbers are 1 to this.
pub const NODES_MAX: u16 = 254;

/// Default of [`Timing::ttl`](crate::Timing::ttl). Longer than a group of NATS servers takes
/// to elect a leader (4 to 9 s): a cluster whose bucket has no leader for that time keeps its
/// members. A node that died is found out sooner, see [`EVICT_AFTER`].
pub const MEMBER_TTL: Duration = Duration::from_secs(12);

/// How often a node renews its entry and reads those of all.
pub const RENEW_EVERY: Duration = Duration::from_secs(1);

/// Default of [`Timing::evict_after`](crate::Timing::evict_after).
pub const EVICT_AFTER: Duration = Duration::from_secs(3);

/// How long there is no link to a node whose entry is ended: a link that is lost for another
/// cause than the node's end is made again sooner.
pub const APART_LEAST: Duration = Duration::from_secs(1);

/// Default of [`Timing::heartbeat`](crate::Timing::heartbeat).
pub const HEARTBEAT_EVERY: Duration = Duration::from_millis(500);

/// Default of [`Timing::silence`](crate::Timing::silence).
pub const SILENCE: Duration = Duration::from_secs(2);

/// How long a greeting is waited on before it is sent again.
pub const HELLO_EVERY: Duration = Duration::from_millis(500);

/// How long the first message of a link is waited for after the greetings.
pub const CONFIRM_WAIT: Duration = Duration::from_millis(2500);

/// Between the loss of a link and the next greeting.
pub const RELINK_AFTER: Duration = Duration::from_millis(100);

/// Greetings that wait to be sent to one node.
pub const GREETINGS_MAX: usize = 4;

/// Bytes on their way to a node that its consumers have not taken, from which on a link is
/// full. What is handed over then waits.
pub const LINK_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Bytes that wait for a node or are on their way, above which its link is lost.
pub const LINK_BYTES_HARD: usize = 64 * 1024 * 1024;

/// Bytes of one batch.
pub const BATCH_BYTES_MAX: usize = 32 * 1024 * 1024;

/// What a batch counts for besides its bytes.
pub const BATCH_COST: usize = 64;

/// Messages with batches that are sent and that the receiver did not say that it has. What is
/// handed over meanwhile goes together in later ones.
pub const PACKETS_MAX: u64 = 1024;

/// Messages after which a receiver says that it has them.
pub const ANNOUNCE_PACKETS: u64 = 256;

/// Bytes after which a receiver says that they were taken.
pub const ANNOUNCE_BYTES: u64 = 4 * 1024 * 1024;

/// Bytes of one message on a subject, as far as the server takes them.
pub const PACKET_BYTES_MAX: usize = 512 * 1024;

/// What the server's `max_payload` has to be.
pub const PAYLOAD_LEAST: usize = 4096;

/// Messages that are encrypted with one key.
pub const REKEY_PACKETS: u64 = 1 << 22;

/// Shortest secret of a cluster, in bytes.
pub const SECRET_BYTES_MIN: usize = 16;

/// Longest secret of a cluster, in bytes.
pub const SECRET_BYTES_MAX: usize = 1024;

/// Bytes of a node's name, and of its program's version.
pub const NAME_BYTES_MAX: usize = 255;

/// Addresses where clients reach a node.
pub const ADDRESSES_MAX: usize = 16;

/// Bytes of one of them.
pub const ADDRESS_BYTES_MAX: usize = 255;

/// Bytes of a node's entry.
pub const ENTRY_BYTES_MAX: usize = 8192;

/// Attempts to take a number, when others take theirs at the same time.
pub const JOIN_TRIES_MAX: usize = 1000;

/// How long an answer of the server is waited for.
pub const ANSWER_WAIT: Duration = Duration::from_secs(2);

/// Between two questions, when a server has no answer yet.
pub const ASK_AGAIN: Duration = Duration::from_millis(100);

/// Least time between two readings of the entries.
pub const LOOK_LEAST: Duration = Duration::from_millis(100);

/// How long an entry may not be renewed before the node connects to a server again.
pub const RECONNECT_AFTER: Duration = Duration::from_secs(5);

/// Default of [`Config::patience`](crate::Config::patience).
pub const PATIENCE: Duration = Duration::from_secs(30);

/// How long the mark of an entry that ended stays.
pub const MARK_TTL: Duration = Duration::from_secs(60);

/// How long a node that leaves waits for its last words to be sent.
pub const LEAVE_WAIT: Duration = Duration::from_secs(2);

/// Between two lines of the log about messages that were dropped for one cause.
pub const SAY_EVERY: Duration = Duration::from_secs(10);

/// Messages that are handled before those that wait to be sent are.
pub const TURN_MESSAGES_MAX: usize = 128;

/// Longest time without a turn of the task that has the links.
pub const IDLE_MAX: Duration = Duration::from_secs(60);

/// Orders to the task that keeps the entry, and reports of it, that wait.
pub const ORDERS_MAX: usize = 1024;

const _: () = {
    assert!(BATCH_BYTES_MAX < LINK_BYTES_HARD);
    assert!(LINK_BYTES_MAX < LINK_BYTES_HARD);
    assert!(ANNOUNCE_PACKETS * 2 < PACKETS_MAX);
    assert!(ANNOUNCE_BYTES * 2 < LINK_BYTES_MAX as u64);
};
