//! What an application calls.

use dunlin_mini_crypto::{Crypto, Suite};

use crate::connection::{Config, Connection, State, StreamId, find};
use crate::error::Error;
use crate::memory::Memory;
use crate::tls::{Early, Resumption};
use crate::verify::Verifier;

/// A QUIC connection from the client's side.
///
/// It does no I/O: datagrams go in by [`receive`](Self::receive) and come out
/// of [`transmit`](Self::transmit), and [`timeout`](Self::timeout) tells when
/// to call again. Time is a counter of milliseconds that may wrap around.
pub struct Client<C: Crypto, V: Verifier, M: Memory> {
    pub(crate) connection: Connection<C, V, M>,
}

impl<C: Crypto, V: Verifier, M: Memory> core::fmt::Debug for Client<C, V, M> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Client")
    }
}

impl<C: Crypto, V: Verifier, M: Memory> Client<C, V, M> {
    /// A connection that has not begun. It is zeros in memory, as far as the
    /// arguments are.
    pub const fn new(crypto: C, verifier: V, memory: M) -> Self {
        Self {
            connection: Connection::new(crypto, verifier, memory),
        }
    }

    /// Gives back what [`new`](Self::new) took, to connect again.
    pub fn into_parts(self) -> (C, V, M) {
        let Connection {
            crypto,
            verifier,
            memory,
            ..
        } = self.connection;
        (crypto, verifier, memory)
    }

    /// Who is believed to be the server, to be changed between two connections.
    pub const fn verifier(&mut self) -> &mut V {
        &mut self.connection.verifier
    }

    /// Forgets the connection without a word, its keys and ticket included, and
    /// clears its buffers, so that the client can connect again where it is.
    pub fn clear(&mut self) {
        self.connection.clear();
    }

    /// Makes the key pair of the next handshake ahead, so that a device that
    /// wakes need not, and has its first datagram sooner. It outlives
    /// [`clear`](Self::clear) and is used once.
    ///
    /// # Errors
    ///
    /// [`Error::Entropy`].
    pub fn prepare(&mut self) -> Result<(), Error> {
        let connection = &mut self.connection;
        connection.handshake.prepare(&mut connection.crypto)
    }

    /// Begins the handshake; [`transmit`](Self::transmit) has its first
    /// datagram.
    ///
    /// # Errors
    ///
    /// [`Error::State`] if it has begun before, [`Error::Entropy`], and
    /// [`Error::Memory`] if the hello does not fit. A ticket that is of no use
    /// is left aside without an error: one of an earlier form, too old, or of a
    /// connection with another name, protocol or verifier.
    pub fn connect(&mut self, now: u32, config: &Config<'_>) -> Result<(), Error> {
        self.connection.connect(now, config)
    }

    /// Where the connection is in its life.
    pub const fn state(&self) -> State {
        self.connection.life.state
    }

    /// Why it ended.
    pub const fn error(&self) -> Option<Error> {
        self.connection.life.error
    }

    /// The number that the server gave with its reason to close.
    pub const fn peer_code(&self) -> u32 {
        self.connection.life.code
    }

    /// Whether streams can be used: connected, or with early data before.
    pub fn is_usable(&self) -> bool {
        self.connection.is_usable()
    }

    /// Whether the server knows that this side knows that it is verified, from
    /// when on keys can be updated and addresses changed.
    pub fn is_confirmed(&self) -> bool {
        self.connection.is_confirmed()
    }

    /// Whether the session of the ticket was resumed.
    pub fn is_resumed(&self) -> bool {
        let tls = self.connection.handshake.tls.as_ref();
        tls.is_some_and(|tls| tls.resumption == Resumption::Taken)
    }

    /// Whether the server took the early data. If not, it was sent again.
    pub fn took_early_data(&self) -> bool {
        self.connection.handshake.early() == Early::Taken
    }

    /// Whether the server asked for another hello, which costs a round trip.
    pub fn was_asked_again(&self) -> bool {
        let tls = self.connection.handshake.tls.as_ref();
        tls.is_some_and(|tls| tls.again)
    }

    /// The cipher suite that the server chose, or that of early data before.
    pub fn suite(&self) -> Suite {
        self.connection.handshake.suite()
    }

    /// Smoothed round-trip time in milliseconds.
    pub const fn rtt_ms(&self) -> u32 {
        self.connection.recovery.rtt()
    }

    /// The newest ticket of this connection, to be stored for the next one.
    pub fn ticket(&mut self) -> Option<&[u8]> {
        let connection = &mut self.connection;
        let hello = connection.memory.parts().hello;
        connection.handshake.ticket(hello)
    }

    /// The newest token of this connection, to be stored for the next one.
    pub fn token(&self) -> Option<&[u8]> {
        let token = self.connection.token.bytes();
        (self.is_confirmed() && !token.is_empty()).then_some(token)
    }

    /// Closes the connection with a number of the application.
    pub fn close(&mut self, now: u32, code: u32) {
        self.connection.close(now, code);
    }

    /// Begins to use new keys (RFC 9001 section 6).
    ///
    /// # Errors
    ///
    /// [`Error::State`] before the handshake is confirmed, and before a packet
    /// with the current keys was acknowledged.
    #[cfg(feature = "key-update")]
    pub fn update_keys(&mut self) -> Result<(), Error> {
        self.connection.update_keys()
    }

    /// Asks the server for a sign of life.
    pub const fn ping(&mut self) {
        self.connection.ping();
    }

    /// Opens a stream in both directions.
    ///
    /// # Errors
    ///
    /// [`Error::State`] if streams cannot be used, and [`Error::NoStreamLeft`]
    /// if the server or the memory allows no more now.
    pub fn open(&mut self) -> Result<StreamId, Error> {
        self.connection.open()
    }

    /// Writes to a stream as much as its buffer takes, and tells how much.
    ///
    /// # Errors
    ///
    /// [`Error::NoStream`], and [`Error::State`] after the end.
    pub fn write(&mut self, id: StreamId, data: &[u8]) -> Result<usize, Error> {
        let slot = find(&mut self.connection.memory, id).ok_or(Error::NoStream)?;
        slot.state.write(slot.send, data)
    }

    /// Bytes that [`write`](Self::write) takes now, and at most ever.
    ///
    /// # Errors
    ///
    /// [`Error::NoStream`].
    pub fn room(&mut self, id: StreamId) -> Result<(usize, usize), Error> {
        let slot = find(&mut self.connection.memory, id).ok_or(Error::NoStream)?;
        let size = slot.send.len();
        Ok((size.saturating_sub(slot.state.buffered()), size))
    }

    /// Bytes that the server may send ahead on a stream.
    pub fn window(&mut self) -> usize {
        self.connection.memory.parts().receive_len
    }

    /// Ends this side's direction of a stream.
    ///
    /// # Errors
    ///
    /// [`Error::NoStream`].
    pub fn finish(&mut self, id: StreamId) -> Result<(), Error> {
        let slot = find(&mut self.connection.memory, id).ok_or(Error::NoStream)?;
        slot.state.finish();
        Ok(())
    }

    /// Gives a stream up in both directions, with a number of the application.
    ///
    /// # Errors
    ///
    /// [`Error::NoStream`].
    pub fn reset(&mut self, id: StreamId, code: u32) -> Result<(), Error> {
        let slot = find(&mut self.connection.memory, id).ok_or(Error::NoStream)?;
        slot.state.reset(code);
        slot.state.stop();
        Ok(())
    }

    /// What arrived on a stream and was not [consumed](Self::consume), and
    /// whether the stream ends behind it.
    ///
    /// # Errors
    ///
    /// [`Error::NoStream`], and [`Error::StreamReset`] if the server gave the
    /// stream up.
    pub fn received(&mut self, id: StreamId) -> Result<(&[u8], bool), Error> {
        let slot = find(&mut self.connection.memory, id).ok_or(Error::NoStream)?;
        slot.state.readable(slot.receive)
    }

    /// Removes bytes from the front of what arrived, which lets the server
    /// send more.
    pub fn consume(&mut self, id: StreamId, n: usize) {
        let connection = &mut self.connection;
        if let Some(slot) = find(&mut connection.memory, id) {
            let gone = slot.state.consume(slot.receive, n);
            connection.streams.read(&mut connection.memory, gone);
        }
    }

    /// Whether all that was written to a stream was acknowledged.
    pub fn is_flushed(&mut self, id: StreamId) -> bool {
        find(&mut self.connection.memory, id).is_none_or(|slot| slot.state.is_flushed())
    }

    /// Goes on from another address: call it after the socket or the network
    /// has changed. The round-trip time is measured again, and the server sees
    /// another connection id.
    ///
    /// # Errors
    ///
    /// [`Error::State`] before the handshake is confirmed,
    /// [`Error::Migration`] if the server forbids it or gave no other id, and
    /// [`Error::Entropy`].
    #[cfg(feature = "migration")]
    pub fn migrate(&mut self) -> Result<(), Error> {
        self.connection.migrate()
    }

    /// Whether the server has answered from the present path.
    pub fn is_path_valid(&self) -> bool {
        self.connection.path.is_valid()
    }

    /// Takes a datagram that arrived; it is decrypted in place. Anything that
    /// does not belong to the connection is dropped without a trace.
    pub fn receive(&mut self, now: u32, datagram: &mut [u8]) {
        self.connection.receive(now, datagram);
    }

    /// Writes the next datagram into `out`, which should have 1200 bytes, and
    /// gives its length; zero if there is nothing to send now.
    pub fn transmit(&mut self, now: u32, out: &mut [u8]) -> usize {
        self.connection.transmit(now, out)
    }

    /// Milliseconds until [`transmit`](Self::transmit) must be called even if
    /// nothing arrives; nothing if it never must.
    pub fn timeout(&self, now: u32) -> Option<u32> {
        self.connection.timeout(now)
    }
}
