//! What became of the packets of one direction.

use serde::Serialize;

/// What became of a packet.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Fate {
    /// It entered and waits for its time.
    Entered,
    /// It left on the other side.
    Left,
    /// The queue of the limited rate was full.
    QueueFull,
    /// The loss model took it.
    Lost,
    /// The direction was a black hole.
    Swallowed,
    /// The NAT knows no host for it.
    NoMapping,
    /// It is not IPv4.
    NotIp,
    /// No host has its address, or no way leads there.
    NoRoute,
}

impl Fate {
    /// The reason of a drop, as captures show it.
    #[must_use]
    pub const fn drop_reason(self) -> Option<&'static str> {
        Some(match self {
            Self::Entered | Self::Left => return None,
            Self::QueueFull => "dropped: queue full",
            Self::Lost => "dropped: lost",
            Self::Swallowed => "dropped: black hole",
            Self::NoMapping => "dropped: no NAT mapping",
            Self::NotIp => "dropped: not IPv4",
            Self::NoRoute => "dropped: no way there",
        })
    }
}

/// Packets and bytes of one direction. Bytes are those of IP packets.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Counters {
    /// Packets that entered.
    pub packets_in: u64,
    /// Their bytes.
    pub bytes_in: u64,
    /// Packets that left, duplicates among them.
    pub packets_out: u64,
    /// Their bytes.
    pub bytes_out: u64,
    /// Dropped because the queue was full.
    pub queue_full: u64,
    /// Dropped by the loss model.
    pub lost: u64,
    /// Dropped by a black hole.
    pub swallowed: u64,
    /// Dropped by the NAT.
    pub no_mapping: u64,
    /// Dropped because they are not IPv4.
    pub not_ip: u64,
    /// Dropped because no host has the address, or no way leads there.
    pub no_route: u64,
    /// Sent twice.
    pub duplicated: u64,
    /// Sent with a flipped bit.
    pub corrupted: u64,
    /// Held back so that others overtake.
    pub reordered: u64,
    /// Most bytes that waited for the rate.
    pub queue_max: u64,
}

impl Counters {
    pub(crate) fn entered(&mut self, bytes: usize) {
        self.packets_in += 1;
        self.bytes_in += bytes as u64;
    }

    pub(crate) fn left(&mut self, bytes: usize) {
        self.packets_out += 1;
        self.bytes_out += bytes as u64;
    }

    pub(crate) const fn dropped(&mut self, fate: Fate) {
        match fate {
            Fate::Entered | Fate::Left => {}
            Fate::QueueFull => self.queue_full += 1,
            Fate::Lost => self.lost += 1,
            Fate::Swallowed => self.swallowed += 1,
            Fate::NoMapping => self.no_mapping += 1,
            Fate::NotIp => self.not_ip += 1,
            Fate::NoRoute => self.no_route += 1,
        }
    }
}
