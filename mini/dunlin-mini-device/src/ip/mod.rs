//! The network below the application: datagrams to one server and from it.
//! [`Interface`] is the smallest one, `Smol` is smoltcp, a feature. Both are
//! tested by the same cases. Knows no QUIC.

mod own;
#[cfg(feature = "smoltcp")]
mod smol;
#[cfg(test)]
mod tests;

pub(crate) use own::Reader;
pub use own::{ARP, Address, FRAME, HEADER, Input, Interface};
#[cfg(feature = "smoltcp")]
pub use smol::{Queues, Smol, Sockets};

use crate::board::Board;

/// Largest datagram in both directions: what every path carries. A server that
/// was allowed more would search for it, and each probe costs as much to
/// receive and open as the handshake's first packet.
pub(crate) const DATAGRAM: u16 = 1200;

/// The buffer that frames are read into and written from.
pub type Frame = [u8; FRAME];

/// What the application asks of a network. It polls: nothing happens between
/// two calls.
pub trait Network {
    /// How often [`ask`](Self::ask) is tried, 200 ms apart.
    const ASKS: u32;
    /// Whether the way can be lost under a connection.
    const LEASES: bool;

    /// Begins after a sleep. With `fresh`, nothing counts that was learned before.
    fn begin<B: Board>(&mut self, board: &mut B, fresh: bool);

    /// Asks for the way to the server. Answers come to [`receive`](Self::receive).
    fn ask<B: Board>(&mut self, board: &mut B, frame: &mut Frame);

    /// Whether the way to the server is known: an address for this device, and
    /// whom to ask next.
    fn is_found(&self) -> bool;

    /// Goes on from this port, without what came to another one.
    fn bind(&mut self, port: u16);

    /// The address of this device; zeros if it has none.
    fn address(&self) -> Address;

    /// Goes on from this address and from another port. The address in the
    /// settings is also a way back: if it is zeros, to the one that was given.
    fn migrate(&mut self, to: &Address);

    /// Sends the datagram of `len` bytes that is in `frame` from [`HEADER`] on, or
    /// loses it.
    fn send<B: Board>(&mut self, board: &mut B, frame: &mut Frame, len: usize);

    /// Takes the frame of `len` bytes that came, answers to it, or gives the
    /// datagram of the server that is in it.
    fn receive<'f, B: Board>(
        &mut self,
        board: &mut B,
        frame: &'f mut Frame,
        len: usize,
    ) -> Option<&'f mut [u8]>;

    /// Does what is due; to be called after the last frame that was there.
    fn poll<B: Board>(&mut self, board: &mut B, frame: &mut Frame);

    /// Milliseconds until something is due without a frame.
    fn delay(&mut self, now: u32) -> u32;
}
