//! What the application asks of a board. Knows no application.

/// An address of a network interface.
pub type Mac = [u8; 6];

/// What the application tells about itself, with a number. A device sends
/// numbers home, not text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[repr(u8)]
pub enum Note {
    /// Woke; for which time since the reset.
    Wake = 1,
    /// Began to connect; the length of the ticket that it resumes with.
    Connect = 2,
    /// The server is verified; milliseconds since it began, and 2^31 if the
    /// session was resumed, and 2^30 if the server took the early data.
    Connected = 3,
    /// Wrote a reading; which one.
    Reading = 4,
    /// The broker has the reading; which one.
    Published = 5,
    /// A command; its first byte.
    Command = 6,
    /// Keeps a ticket; its length.
    Ticket = 7,
    /// Sleeps; for how many milliseconds.
    Sleep = 8,
    /// Gave up; see [`Failure`](crate::Failure).
    Failed = 9,
    /// Goes on from another address; whether as a migration.
    Moved = 10,
    /// Subscribed; the reason code.
    Subscribed = 11,
    /// Began to write a stream; whether before the server was verified.
    Early = 12,
    /// The next hop does not answer.
    NoNeighbour = 13,
    /// There is no configuration; the device stops.
    NoSettings = 14,
    /// Booted; whether the stored state of the generator was good.
    Boot = 15,
}

/// A board: clock, sleep, network interface and flash.
pub trait Board {
    /// Milliseconds; the counter wraps around and may stand still in a reset.
    fn now(&mut self) -> u32;
    /// Seconds of a clock that goes on through sleep and resets. What it
    /// counts from does not matter.
    fn seconds(&mut self) -> u32;
    /// Sleeps for some milliseconds, or until a frame arrives.
    fn wait(&mut self, ms: u32);
    /// Starts the network interface with an address, or stops it.
    fn network(&mut self, mac: Option<&Mac>);
    /// Sends a frame, or loses it.
    fn send(&mut self, frame: &[u8]);
    /// Fetches a frame and gives its length, which is zero if it was damaged.
    fn receive(&mut self, frame: &mut [u8]) -> Option<usize>;
    /// The page for the ticket, as it was [stored](Self::store).
    fn stored(&self) -> &[u8];
    /// Replaces the page for the ticket with the parts, one after the other.
    fn store(&mut self, parts: &[&[u8]]);
    /// Sets what the device switches.
    fn switch(&mut self, value: u8);
    /// Tells what happens.
    fn note(&mut self, note: Note, value: u32);
}
