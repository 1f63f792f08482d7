//! The input half of a connection: whether it is read, what the peer's side
//! does, and since when nothing came.

use core::time::Duration;

use dunlin_base::Instant;

/// Whether the application wants bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reading {
    On,
    Paused,
    /// The kernel reported bytes while paused.
    Unread,
}

/// The peer's side of the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PeerSide {
    /// Not a byte arrived.
    Mute,
    /// Nothing arrived since the connection opened.
    Silent,
    Speaking,
    /// No more will be sent.
    Finished,
}

/// What comes in.
#[derive(Debug)]
pub(crate) struct Input {
    reading: Reading,
    peer: PeerSide,
    /// Too much waits to leave for more to be read.
    pub(super) choked: bool,
    /// The kernel said that the peer's side ended: read until that shows.
    pub(super) hup: bool,
    pub(super) last_read: Instant,
    /// In milliseconds.
    idle_timeout: u32,
}

impl Input {
    pub(super) fn new(now: Instant, idle_timeout: Duration) -> Self {
        let mut input = Self {
            reading: Reading::On,
            peer: PeerSide::Mute,
            choked: false,
            hup: false,
            last_read: now,
            idle_timeout: 0,
        };
        input.set_idle_timeout(idle_timeout);
        input
    }

    pub(super) fn is_paused(&self) -> bool {
        self.reading != Reading::On
    }

    /// Returns whether there is something to read now. A peer that is not read
    /// is not idle.
    pub(crate) fn pause(&mut self, paused: bool, now: Instant) -> bool {
        match (paused, self.reading) {
            (true, Reading::On) => self.reading = Reading::Paused,
            (false, Reading::Paused | Reading::Unread) => {
                self.last_read = now;
                return core::mem::replace(&mut self.reading, Reading::On) == Reading::Unread;
            }
            _ => {}
        }
        false
    }

    /// The kernel has bytes that are not read now.
    pub(super) fn leave_unread(&mut self) {
        self.reading = Reading::Unread;
    }

    pub(super) fn is_silent(&self) -> bool {
        matches!(self.peer, PeerSide::Mute | PeerSide::Silent)
    }

    /// Whether not a byte arrived, of a handshake either.
    pub(crate) fn is_mute(&self) -> bool {
        self.peer == PeerSide::Mute
    }

    /// Bytes arrived, of whichever layer.
    pub(super) fn on_read(&mut self, now: Instant) {
        self.last_read = now;
        if self.is_mute() {
            self.peer = PeerSide::Silent;
        }
    }

    /// Something arrived; whether it was the first.
    pub(super) fn on_bytes(&mut self) -> bool {
        let first = self.is_silent();
        if first {
            self.peer = PeerSide::Speaking;
        }
        first
    }

    pub(crate) fn is_finished(&self) -> bool {
        self.peer == PeerSide::Finished
    }

    /// The peer will send no more; whether that is new.
    pub(super) fn finish(&mut self) -> bool {
        core::mem::replace(&mut self.peer, PeerSide::Finished) != PeerSide::Finished
    }

    /// At most 49 days.
    pub(crate) fn set_idle_timeout(&mut self, idle: Duration) {
        self.idle_timeout = u32::try_from(idle.as_millis()).unwrap_or(u32::MAX);
    }

    /// When the connection is idle for too long.
    pub(super) fn idle_deadline(&self) -> Instant {
        self.last_read + Duration::from_millis(self.idle_timeout.into())
    }
}
