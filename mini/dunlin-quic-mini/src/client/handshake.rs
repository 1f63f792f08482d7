//! What the handshake's messages do to the connection: keys come and go,
//! limits become known.

use dunlin_mini_crypto::Crypto;

use super::space::{APP, HANDSHAKE, INITIAL, space};
use super::{Client, State};
use crate::assemble::{Assembler, Refused};
use crate::error::Error;
use crate::held::Held;
use crate::keys::Keys;
use crate::memory::Memory;
use crate::tls::{Step, Tls};
use crate::verify::Verifier;
use crate::wire::Reader;

impl<C: Crypto, V: Verifier, M: Memory> Client<C, V, M> {
    /// A CRYPTO frame.
    pub(super) fn crypto_frame(
        &mut self,
        now: u32,
        which: u8,
        frame: &mut Reader<'_>,
    ) -> Result<(), Error> {
        let offset = frame.varint().ok_or(Error::FrameEncoding)?;
        let data = frame.varvec().ok_or(Error::FrameEncoding)?;
        if which < self.level {
            // A repetition of what is done with.
            return Ok(());
        }
        let buffer = self.memory.parts().handshake;
        self.input
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
        let ready = buffer.get(..self.input.ready()).unwrap_or_default();
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
        let Some(tls) = self.tls.as_mut() else {
            return Err(Error::UnexpectedMessage);
        };
        let step = tls.message(
            &mut self.crypto,
            &self.verifier,
            &mut self.peer,
            parts.hello,
            message,
            now.wrapping_sub(self.began),
        )?;
        self.input.consume(buffer, len);
        match step {
            Step::Nothing => {}
            Step::Hello(len) => self.greet_again(len),
            Step::Keys => self.install(HANDSHAKE)?,
            Step::Parameters => self.parameters()?,
            Step::Complete(len) => self.complete(len)?,
            Step::Ticket(len) => self.ticket_len = len,
        }
        Ok(true)
    }

    /// The server has asked for another hello, which is in the place of the
    /// first one. Early data is rejected with that (RFC 8446 section 4.2.10): it
    /// is sent again with 1-RTT keys, when the server's limits are known.
    fn greet_again(&mut self, len: usize) {
        self.recovery.discard(APP);
        space(&mut self.spaces, APP).tx = Held::Nothing;
        let initial = space(&mut self.spaces, INITIAL);
        self.hello_at = initial.end;
        initial.next = initial.end;
        initial.end += u32::try_from(len).unwrap_or(0);
    }

    /// New secrets are there: handshake messages come with them from now on.
    fn install(&mut self, which: u8) -> Result<(), Error> {
        if self.input.ready() > 0 || self.input.has_gap() {
            return Err(Error::Straddle);
        }
        self.input = Assembler::NEW;
        self.level = which;
        let suite = self.suite();
        if let Some(Tls { client, server, .. }) = self.tls.as_ref() {
            let space = space(&mut self.spaces, which);
            Keys::install(&mut space.tx, &mut self.crypto, suite, client);
            Keys::install(&mut space.rx, &mut self.crypto, suite, server);
            (self.phase.tx, self.phase.rx) = (*client, *server);
        }
        Ok(())
    }

    /// The server's transport parameters are there (RFC 9000 section 7.3).
    fn parameters(&mut self) -> Result<(), Error> {
        let peer = &self.peer;
        if peer.original != self.original
            || peer.source != self.active.cid
            || peer.retry != self.retried
        {
            return Err(Error::ParameterIds);
        }
        self.active.token = peer.token;
        if self.early {
            let taken = self.tls.as_ref().is_some_and(|tls| tls.early);
            if !taken {
                self.recovery.discard(APP);
                space(&mut self.spaces, APP).tx = Held::Nothing;
                self.early = false;
                self.restart();
            } else if peer.max_data < self.credit
                || peer.streams < self.streams_max
                || self.streams_next > 0 && peer.stream_data < self.early_limit()
            {
                return Err(Error::ParameterShrunk);
            }
        }
        self.credit = self.peer.max_data;
        self.streams_max = self.peer.streams;
        let limit = self.peer.stream_data;
        for stream in self.memory.parts().streams {
            stream.raise(limit);
        }
        Ok(())
    }

    /// What the ticket allowed on a stream.
    fn early_limit(&mut self) -> u32 {
        let streams = self.memory.parts().streams;
        streams
            .iter()
            .map(|stream| stream.limit())
            .max()
            .unwrap_or(0)
    }

    /// Sends all data of the streams again, from the begin.
    pub(super) fn restart(&mut self) {
        self.used = 0;
        let limit = self.peer.stream_data;
        for stream in self.memory.parts().streams {
            stream.restart(limit);
        }
    }

    /// The server is verified. `len` bytes of the hello's buffer are to go.
    fn complete(&mut self, len: usize) -> Result<(), Error> {
        let [initial, handshake, _] = &mut self.spaces;
        handshake.next = 0;
        handshake.end = u32::try_from(len).unwrap_or(0);
        initial.discard();
        self.recovery.discard(INITIAL);
        self.install(APP)?;
        let [_, _, app] = &self.spaces;
        self.first_pn = app.next_pn;
        self.phase.tx_first = app.next_pn;
        self.state = State::Connected;
        Ok(())
    }

    /// The server has the client's Finished (RFC 9001 section 4.1.2).
    pub(super) fn confirm(&mut self) {
        if !self.confirmed {
            self.confirmed = true;
            self.validated = true;
            space(&mut self.spaces, HANDSHAKE).discard();
            self.recovery.discard(HANDSHAKE);
            if !cfg!(feature = "retry") || !self.has_new_token {
                self.token_len = 0;
            }
        }
    }
}
