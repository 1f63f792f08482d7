//! The handshake of TLS inside the connection: its messages make keys come and
//! go, and limits known.

use dunlin_mini_crypto::{Crypto, Suite};

use super::space::{APP, HANDSHAKE, INITIAL};
use super::{Connection, State};
use crate::assemble::{Assembler, Refused};
use crate::error::Error;
use crate::held::Held;
use crate::memory::Memory;
use crate::tls::{Early, FLIGHT, KeyPair, Step, Tls};
use crate::verify::Verifier;
use crate::wire::Reader;

/// How far the connection has come, as far as this side knows of the server.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Progress {
    /// No packet of the server was understood.
    Silent,
    /// One was.
    Heard,
    /// The server has surely seen this address.
    Validated,
    /// The server has the client's Finished (RFC 9001 section 4.1.2).
    Confirmed,
}

/// TLS, and its bytes that come and go.
pub(crate) struct Handshake<C: Crypto> {
    /// For the next handshake, made ahead.
    pub(super) pair: Held<KeyPair<C>>,
    pub(crate) tls: Held<Tls<C>>,
    pub(super) progress: Progress,
    /// The space whose handshake messages are being read.
    pub(super) level: u8,
    input: Assembler,
    /// Offset of the hello among the handshake bytes.
    pub(super) hello_at: u32,
    /// When the connection began.
    pub(super) began: u32,
    ticket_len: usize,
}

impl<C: Crypto> Handshake<C> {
    /// Not begun.
    pub(super) const NEW: Self = Self {
        pair: Held::Nothing,
        tls: Held::Nothing,
        progress: Progress::Silent,
        level: INITIAL,
        input: Assembler::NEW,
        hello_at: 0,
        began: 0,
        ticket_len: 0,
    };

    /// Forgets everything but the key pair that was made ahead.
    pub(super) fn clear(&mut self) {
        self.tls = Held::Nothing;
        self.progress = Progress::Silent;
        self.level = INITIAL;
        self.input = Assembler::NEW;
        self.hello_at = 0;
        self.ticket_len = 0;
    }

    /// Makes the key pair of the next handshake.
    #[inline(never)]
    pub(crate) fn prepare(&mut self, crypto: &mut C) -> Result<(), Error> {
        let pair = KeyPair::new(crypto).map_err(|_| Error::Entropy)?;
        self.pair = Held::Value(pair);
        Ok(())
    }

    pub(super) const fn is_prepared(&self) -> bool {
        self.pair.as_ref().is_some()
    }

    /// What has become of early data.
    pub(crate) fn early(&self) -> Early {
        self.tls.as_ref().map_or(Early::No, |tls| tls.early)
    }

    /// The cipher suite that the server chose, or that of early data before.
    pub(crate) fn suite(&self) -> Suite {
        let tls = self.tls.as_ref();
        tls.map_or(Suite::Aes128Gcm, |tls| tls.suite)
    }

    /// The server has shown that it has come as far as this.
    pub(super) fn reach(&mut self, progress: Progress) {
        self.progress = self.progress.max(progress);
    }

    /// The newest ticket, which is in the buffer of the hello.
    pub(crate) fn ticket<'a>(&self, hello: &'a [u8]) -> Option<&'a [u8]> {
        let at = self.tls.as_ref().map_or(FLIGHT, Tls::ticket_at);
        let ticket = hello.get(at..)?.get(..self.ticket_len)?;
        (!ticket.is_empty()).then_some(ticket)
    }

    /// Messages come with other keys from now on.
    fn enter(&mut self, level: u8) -> Result<(), Error> {
        if self.input.ready() > 0 || self.input.has_gap() {
            return Err(Error::Straddle);
        }
        self.input = Assembler::NEW;
        self.level = level;
        Ok(())
    }
}

impl<C: Crypto, V: Verifier, M: Memory> Connection<C, V, M> {
    /// A CRYPTO frame.
    pub(super) fn crypto_frame(
        &mut self,
        now: u32,
        which: u8,
        frame: &mut Reader<'_>,
    ) -> Result<(), Error> {
        let offset = frame.varint().ok_or(Error::FrameEncoding)?;
        let data = frame.varvec().ok_or(Error::FrameEncoding)?;
        if which < self.handshake.level {
            // A repetition of what is done with.
            return Ok(());
        }
        let buffer = self.memory.parts().handshake;
        self.handshake
            .input
            .insert(buffer, offset, data)
            .map_err(|refused| match refused {
                Refused::Beyond => Error::CryptoBuffer,
                Refused::Gaps => Error::Again,
            })?;
        while self.message(now)? {}
        Ok(())
    }

    /// Takes the next message, if all of it is there.
    fn message(&mut self, now: u32) -> Result<bool, Error> {
        let parts = self.memory.parts();
        let buffer = parts.handshake;
        let ready = buffer
            .get(..self.handshake.input.ready())
            .unwrap_or_default();
        let mut head = Reader(ready);
        let (Some(_), Some(len)) = (head.u8(), head.uint(3)) else {
            return Ok(false);
        };
        let len = (len as usize).saturating_add(4);
        if len > buffer.len() {
            return Err(Error::CryptoBuffer);
        }
        let Some(message) = ready.get(..len) else {
            return Ok(false);
        };
        let Some(tls) = self.handshake.tls.as_mut() else {
            return Err(Error::UnexpectedMessage);
        };
        let step = tls.message(
            &mut self.crypto,
            &self.verifier,
            &mut self.peer,
            parts.hello,
            message,
            now.wrapping_sub(self.handshake.began),
        )?;
        self.handshake.input.consume(buffer, len);
        match step {
            Step::Nothing => {}
            Step::Hello(len) => self.greet_again(len),
            Step::Keys => self.install(HANDSHAKE)?,
            Step::Parameters => self.parameters()?,
            Step::Complete(len) => self.complete(len)?,
            Step::Ticket(len) => self.handshake.ticket_len = len,
        }
        Ok(true)
    }

    /// The server has asked for another hello, which is in the place of the
    /// first one. Early data is rejected with that (RFC 8446 section 4.2.10): it
    /// is sent again with 1-RTT keys, when the server's limits are known.
    fn greet_again(&mut self, len: usize) {
        self.recovery.discard(APP);
        self.spaces.of(APP).tx = Held::Nothing;
        let initial = self.spaces.of(INITIAL);
        self.handshake.hello_at = initial.end;
        initial.next = initial.end;
        initial.end += u32::try_from(len).unwrap_or(0);
    }

    /// New secrets are there: handshake messages come with them from now on.
    fn install(&mut self, which: u8) -> Result<(), Error> {
        self.handshake.enter(which)?;
        if let Some(tls) = self.handshake.tls.as_ref() {
            let (crypto, spaces) = (&mut self.crypto, &mut self.spaces);
            spaces.install(crypto, which, tls.suite, &tls.client, &tls.server);
        }
        Ok(())
    }

    /// The server's transport parameters are there (RFC 9000 section 7.3).
    #[inline(never)]
    fn parameters(&mut self) -> Result<(), Error> {
        self.cids.check(&self.peer)?;
        if let Some(tls) = self.handshake.tls.as_mut() {
            match tls.early {
                Early::No => {}
                Early::Taken if self.streams.shrinks(&mut self.memory, &self.peer) => {
                    return Err(Error::ParameterShrunk);
                }
                Early::Taken => {}
                Early::Offered | Early::Refused => {
                    tls.early = Early::No;
                    self.recovery.discard(APP);
                    self.spaces.of(APP).tx = Held::Nothing;
                    self.restart();
                }
            }
        }
        self.streams.allow(&self.peer);
        let limit = self.peer.stream_data;
        for stream in self.memory.parts().streams {
            stream.raise(limit);
        }
        Ok(())
    }

    /// Sends all data of the streams again, from the begin.
    pub(super) fn restart(&mut self) {
        let limit = self.peer.stream_data;
        self.streams.restart(&mut self.memory, limit);
    }

    /// The server is verified. `len` bytes of the hello's buffer are to go.
    fn complete(&mut self, len: usize) -> Result<(), Error> {
        let handshake = self.spaces.of(HANDSHAKE);
        handshake.next = 0;
        handshake.end = u32::try_from(len).unwrap_or(0);
        self.discard(INITIAL);
        self.install(APP)?;
        self.spaces.begin_app();
        self.life.state = State::Connected;
        Ok(())
    }

    /// Forgets a space of the handshake.
    pub(super) fn discard(&mut self, which: u8) {
        self.spaces.of(which).discard();
        self.recovery.discard(which);
    }

    /// The server has the client's Finished (RFC 9001 section 4.1.2).
    pub(super) fn confirm(&mut self) {
        if self.handshake.progress < Progress::Confirmed {
            self.handshake.progress = Progress::Confirmed;
            self.discard(HANDSHAKE);
            self.token.spend();
        }
    }
}
