//! The way to the server: challenges of both sides (RFC 9000 section 8.2), and
//! the token that proves this side's address (section 8.1). The server has one
//! address, which the caller knows: nothing that arrives leads to another one.

use crate::error::Error;
use crate::recovery::what;
use crate::wire::{Reader, Writer, fill};

/// Longest token of Retry or NEW_TOKEN that is kept.
pub const TOKEN_MAX: usize = 192;

/// What is known of the present path.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Validation {
    /// The server has answered from it.
    Done,
    /// The challenge is to be sent.
    Due,
    /// The challenge was sent.
    Waiting,
}

/// Challenges on the present path.
pub(crate) struct Path {
    validation: Validation,
    challenge: [u8; 8],
    /// An answer to the server's newest challenge.
    pub(super) response: Option<[u8; 8]>,
}

impl Path {
    /// The path of the handshake.
    pub(super) const NEW: Self = Self {
        validation: Validation::Done,
        challenge: [0; 8],
        response: None,
    };

    /// Whether the server has answered from the path.
    pub(crate) fn is_valid(&self) -> bool {
        self.validation == Validation::Done
    }

    /// The path is another one.
    #[cfg(feature = "migration")]
    pub(super) const fn change(&mut self, challenge: [u8; 8]) {
        self.challenge = challenge;
        self.validation = Validation::Due;
    }

    /// PATH_RESPONSE.
    pub(super) fn answered(&mut self, data: [u8; 8]) {
        if cfg!(feature = "migration") && data == self.challenge {
            self.validation = Validation::Done;
        }
    }

    /// The packet with the challenge was lost.
    pub(super) fn lost(&mut self) {
        if cfg!(feature = "migration") && self.validation == Validation::Waiting {
            self.validation = Validation::Due;
        }
    }

    /// Writes what is due. Gives the bits of what it was, and whether the
    /// datagram must be of full size.
    pub(super) fn write(&mut self, early: bool, writer: &mut Writer<'_>) -> (u8, bool) {
        let mut pad = false;
        if let Some(data) = self.response.take_if(|_| !early) {
            writer.u8(0x1b);
            writer.put(&data);
            pad = true;
        }
        if cfg!(feature = "migration") && self.validation == Validation::Due {
            self.validation = Validation::Waiting;
            writer.u8(0x1a);
            writer.put(&self.challenge);
            return (what::CHALLENGE, true);
        }
        (0, pad)
    }
}

/// A token of an earlier connection or of Retry, and of NEW_TOKEN for the next
/// connection.
pub(crate) struct Token {
    bytes: [u8; TOKEN_MAX],
    len: usize,
    /// Whether it is for the next connection.
    next: bool,
}

impl Token {
    /// No token.
    pub(super) const NEW: Self = Self {
        bytes: [0; TOKEN_MAX],
        len: 0,
        next: false,
    };

    pub(super) const fn clear(&mut self) {
        (self.len, self.next) = (0, false);
    }

    /// Keeps a token; whether it fits.
    pub(super) fn set(&mut self, token: &[u8]) -> bool {
        let fits = token.len() <= TOKEN_MAX;
        if fits {
            self.len = fill(&mut self.bytes, token);
        }
        fits
    }

    /// NEW_TOKEN.
    pub(super) fn issued(&mut self, frame: &mut Reader<'_>) -> Result<(), Error> {
        let token = frame.varvec().ok_or(Error::FrameEncoding)?;
        if token.is_empty() {
            return Err(Error::EmptyToken);
        }
        if cfg!(feature = "retry") && self.set(token) {
            self.next = true;
        }
        Ok(())
    }

    /// Forgets the token of this connection's Initial packets, which are over.
    pub(super) const fn spend(&mut self) {
        if !cfg!(feature = "retry") || !self.next {
            self.len = 0;
        }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }
}
