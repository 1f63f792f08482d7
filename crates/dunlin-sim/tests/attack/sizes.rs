//! How large a program is: what the broker may keep, and what its clients send
//! beside that. Most programs are small, with limits as small, so that many can be
//! run; some have the sizes of before, and some many subscriptions.

use core::time::Duration;

/// Of so many programs one is large, and of as many one is wide.
const LARGE_EVERY: u64 = 200;

/// Of so many programs one is small and has no memory budget: the limits of each
/// client must do.
const UNCOUNTED_EVERY: u64 = 8;

/// Limits of the broker, and sizes of what its clients send.
#[derive(Clone, Debug)]
pub(crate) struct Sizes {
    /// Bytes that the broker may hold for all clients together, with what is on
    /// its way to them and its store.
    pub(crate) held_bytes_max: usize,
    /// The memory budget of the broker, which the store is not in, nor what is on
    /// its way.
    pub(crate) budget_bytes: usize,
    /// Processor time of one step, beside that of its bytes.
    pub(crate) step_time_max: Duration,
    pub(crate) packet_bytes_max: u32,
    pub(crate) connect_bytes_max: u32,
    pub(crate) queue_bytes_max: usize,
    pub(crate) send_backlog_bytes: usize,
    pub(crate) qos0_backlog_bytes: usize,
    pub(crate) retained_max: usize,
    pub(crate) subscriptions_max: usize,
    pub(crate) overlaps_max: usize,
    /// Largest payload of a message.
    pub(crate) payload_bytes_max: u64,
    /// Levels of the topic that overlapping filters match.
    pub(crate) levels: u64,
    /// Times that a SUBSCRIBE is repeated, and a filter in it.
    pub(crate) repeats: u64,
    pub(crate) copies: usize,
    pub(crate) retained_topics: u64,
    /// Groups of one SUBSCRIBE.
    pub(crate) groups_max: u64,
    pub(crate) pings_max: u64,
    /// Payload of a packet that is not finished.
    pub(crate) unfinished_bytes: usize,
    /// Connections that never finish a CONNECT, and the bytes of one of its
    /// properties.
    pub(crate) strangers: u64,
    pub(crate) stranger_bytes: usize,
    /// Clients that only have a will, and its bytes.
    pub(crate) crowd: u64,
    pub(crate) crowd_will_bytes: usize,
    /// Bytes that a client leaves in its own buffers when it is not read from.
    pub(crate) unread_bytes_max: usize,
}

pub(crate) const LARGE: Sizes = Sizes {
    held_bytes_max: 8 << 20,
    budget_bytes: 6 << 20,
    step_time_max: Duration::from_millis(60),
    packet_bytes_max: 256 << 10,
    connect_bytes_max: 64 << 10,
    queue_bytes_max: 256 << 10,
    send_backlog_bytes: 32 << 10,
    qos0_backlog_bytes: 64 << 10,
    retained_max: 200,
    subscriptions_max: 2_000,
    overlaps_max: 256,
    payload_bytes_max: 8 << 10,
    levels: 8,
    repeats: 500,
    copies: 40,
    retained_topics: 300,
    groups_max: 500,
    pings_max: 2000,
    unfinished_bytes: 250 << 10,
    strangers: 40,
    stranger_bytes: 60 << 10,
    crowd: 150,
    crowd_will_bytes: 60 << 10,
    unread_bytes_max: 64 << 10,
};

pub(crate) const WIDE: Sizes = Sizes {
    held_bytes_max: 48 << 20,
    budget_bytes: 36 << 20,
    subscriptions_max: 20_000,
    levels: 14,
    ..LARGE
};

pub(crate) const SMALL: Sizes = Sizes {
    held_bytes_max: 640 << 10,
    budget_bytes: 512 << 10,
    step_time_max: Duration::from_millis(10),
    packet_bytes_max: 32 << 10,
    connect_bytes_max: 8 << 10,
    queue_bytes_max: 32 << 10,
    send_backlog_bytes: 4 << 10,
    qos0_backlog_bytes: 8 << 10,
    retained_max: 25,
    subscriptions_max: 100,
    overlaps_max: 16,
    payload_bytes_max: 1 << 10,
    levels: 5,
    repeats: 30,
    copies: 8,
    retained_topics: 40,
    groups_max: 30,
    pings_max: 150,
    unfinished_bytes: 31 << 10,
    strangers: 10,
    stranger_bytes: 7 << 10,
    crowd: 15,
    crowd_will_bytes: 7 << 10,
    unread_bytes_max: 8 << 10,
};

/// As small, without a memory budget.
pub(crate) const UNCOUNTED: Sizes = Sizes {
    held_bytes_max: 2 << 20,
    budget_bytes: usize::MAX,
    ..SMALL
};

/// The place of the sizes of a program among all.
pub(crate) const fn place(seed: u64) -> usize {
    match seed % LARGE_EVERY {
        0 => 0,
        1 => 1,
        _ if seed % UNCOUNTED_EVERY == 2 => 3,
        _ => 2,
    }
}

/// All of them.
pub(crate) const ALL: [(&str, Sizes); 4] = [
    ("wide", WIDE),
    ("large", LARGE),
    ("small", SMALL),
    ("uncounted", UNCOUNTED),
];
