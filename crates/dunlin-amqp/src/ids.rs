//! Names of sessions, links and deliveries towards the driver. They are not
//! used again on a connection, unlike channels and handles.

/// A session of one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId {
    /// The channel on which this side sends.
    pub(crate) channel: u16,
    pub(crate) serial: u32,
}

impl SessionId {
    /// The channel on which this side sends: of the sessions that a connection has at
    /// a time, no other has it.
    #[must_use]
    pub const fn channel(self) -> u16 {
        self.channel
    }
}

impl LinkId {
    /// The channel of its session.
    #[must_use]
    pub const fn channel(self) -> u16 {
        self.channel
    }
}

/// A link of one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkId {
    /// The channel on which this side sends.
    pub(crate) channel: u16,
    /// The handle that this side has given it.
    pub(crate) handle: u32,
    pub(crate) serial: u32,
}

/// A delivery on a link, in either direction, from its first transfer until it
/// is settled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Delivery {
    /// The link.
    pub link: LinkId,
    /// The delivery-id, which belongs to the session.
    pub id: u32,
}
