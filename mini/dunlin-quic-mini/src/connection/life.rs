//! Where a connection is in its life, and how it ends (RFC 9000 section 10).
//! Knows no packet but the frame that says so.

use crate::error::Error;
use crate::wire::{Reader, Writer};

/// Where a connection is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum State {
    /// Not begun.
    Idle,
    /// The handshake is under way; with early data, streams work already.
    Connecting,
    /// The server is verified.
    Connected,
    /// Over, but the server must still learn it.
    Closing,
    /// Over.
    Closed,
}

/// State and end of a connection.
pub(crate) struct Life {
    pub(crate) state: State,
    pub(crate) error: Option<Error>,
    /// What the server gave as reason, or what this side gives.
    pub(crate) code: u32,
    /// When a closing connection is forgotten.
    pub(super) close_at: u32,
    /// Whether to send CONNECTION_CLOSE.
    pub(super) tell: bool,
    /// Datagrams that came since the end.
    late: u32,
}

impl Life {
    /// Not begun.
    pub(super) const NEW: Self = Self {
        state: State::Idle,
        error: None,
        code: 0,
        close_at: 0,
        tell: false,
        late: 0,
    };

    /// Ends the connection and tells the server why.
    pub(super) const fn end(&mut self, close_at: u32, error: Error) {
        self.error = Some(error);
        self.state = State::Closing;
        self.tell = true;
        self.late = 0;
        self.close_at = close_at;
    }

    /// Ends the connection without a word.
    pub(super) const fn forget(&mut self, error: Error) {
        self.error = Some(error);
        self.state = State::Closed;
    }

    /// A datagram came after the end. RFC 9000 section 10.2.1: say it again, but
    /// ever more seldom, so that an attacker cannot keep two ends busy with each
    /// other.
    pub(super) const fn disturb(&mut self) {
        self.late = self.late.saturating_add(1);
        self.tell |= self.late.is_power_of_two();
    }

    /// The server closed the connection: the error that this is.
    pub(super) fn closed(&mut self, kind: u32, frame: &mut Reader<'_>) -> Error {
        let mut read = || {
            self.code = frame.varint()?;
            if kind == 0x1c {
                frame.varint()?;
            }
            frame.varvec()
        };
        if read().is_none() {
            return Error::FrameEncoding;
        }
        if kind == 0x1c {
            Error::ClosedByPeer
        } else {
            Error::ClosedByApplication
        }
    }

    /// Writes CONNECTION_CLOSE, into a 1-RTT packet or another one.
    pub(super) fn write(&self, app: bool, writer: &mut Writer<'_>) {
        let mut code = self.error.map_or(0, |error| u32::from(error.wire()));
        let mut kind = 0x1c;
        if self.error == Some(Error::ClosedLocally) {
            if app {
                kind = 0x1d;
                code = self.code;
            } else {
                // RFC 9000 section 10.2.3: APPLICATION_ERROR.
                code = 0x0c;
            }
        }
        writer.u8(kind);
        writer.varint(code);
        if kind == 0x1c {
            writer.u8(0);
        }
        writer.u8(0);
    }
}
