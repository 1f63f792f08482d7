//! What a session needs of a connection: one stream. The engine's client has
//! it; tests have something simpler.

use dunlin_quic_mini::{Client, Crypto, Error, Memory, StreamId, Verifier};

/// Streams of a connection.
pub trait Streams {
    /// Opens a stream in both directions.
    ///
    /// # Errors
    ///
    /// Those of [`Client::open`].
    fn open(&mut self) -> Result<StreamId, Error>;
    /// Bytes that [`write`](Self::write) takes now, and at most ever.
    ///
    /// # Errors
    ///
    /// Those of [`Client::room`].
    fn room(&mut self, id: StreamId) -> Result<(usize, usize), Error>;
    /// Writes bytes for which there is room.
    ///
    /// # Errors
    ///
    /// Those of [`Client::write`].
    fn write(&mut self, id: StreamId, data: &[u8]) -> Result<(), Error>;
    /// What arrived, and whether the stream ends behind it.
    ///
    /// # Errors
    ///
    /// Those of [`Client::received`].
    fn received(&mut self, id: StreamId) -> Result<(&[u8], bool), Error>;
    /// Removes bytes from the front of what arrived.
    fn consume(&mut self, id: StreamId, n: usize);
    /// Ends this side's direction.
    fn finish(&mut self, id: StreamId);
    /// The longest packet that can be received: the size of a stream's
    /// receive buffer.
    fn window(&mut self) -> usize;
}

impl<C: Crypto, V: Verifier, M: Memory> Streams for Client<C, V, M> {
    fn open(&mut self) -> Result<StreamId, Error> {
        self.open()
    }

    fn room(&mut self, id: StreamId) -> Result<(usize, usize), Error> {
        self.room(id)
    }

    fn write(&mut self, id: StreamId, data: &[u8]) -> Result<(), Error> {
        self.write(id, data).map(|_| ())
    }

    fn received(&mut self, id: StreamId) -> Result<(&[u8], bool), Error> {
        self.received(id)
    }

    fn consume(&mut self, id: StreamId, n: usize) {
        self.consume(id, n);
    }

    fn finish(&mut self, id: StreamId) {
        let _ = self.finish(id);
    }

    fn window(&mut self) -> usize {
        self.window()
    }
}
