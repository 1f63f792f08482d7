//! Signals as values.

use std::io;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

/// What a signal asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// SIGTERM or SIGINT: stop.
    Stop,
    /// SIGHUP: read files again.
    Reload,
}

/// Signals of this process.
#[derive(Debug)]
pub struct Signals(signal_hook::iterator::Signals);

impl Signals {
    /// Takes over SIGTERM, SIGINT and SIGHUP.
    ///
    /// # Errors
    /// The system refuses.
    pub fn new() -> io::Result<Self> {
        signal_hook::iterator::Signals::new([SIGHUP, SIGINT, SIGTERM]).map(Self)
    }

    /// Waits for the next one.
    pub fn wait(&mut self) -> Signal {
        match self.0.forever().next() {
            Some(SIGHUP) => Signal::Reload,
            _ => Signal::Stop,
        }
    }
}
