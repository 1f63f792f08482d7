//! Signals as values.

use core::sync::atomic::AtomicBool;
use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;

/// What a signal asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// SIGTERM or SIGINT: stop.
    Stop,
    /// SIGHUP: read files again.
    Reload,
}

/// Asks this process to stop, as SIGTERM does.
///
/// # Errors
/// The system refuses.
pub(crate) fn stop() -> io::Result<()> {
    signal_hook::low_level::raise(SIGTERM)
}

/// Ends the process with exit code 1 at SIGTERM or SIGINT, until what is returned is set to
/// `false`.
///
/// # Errors
/// The system refuses.
pub(crate) fn exit_while_starting() -> io::Result<Arc<AtomicBool>> {
    let starting = Arc::new(AtomicBool::new(true));
    for signal in [SIGTERM, SIGINT] {
        flag::register_conditional_shutdown(signal, 1, Arc::clone(&starting))?;
    }
    Ok(starting)
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

    /// Calls `each` with every signal, from a thread, until it is `false`.
    ///
    /// # Errors
    /// There is no thread to be had.
    pub fn forward(
        mut self,
        mut each: impl FnMut(Signal) -> bool + Send + 'static,
    ) -> io::Result<JoinHandle<()>> {
        std::thread::Builder::new()
            .name("signals".into())
            .spawn(move || while each(self.wait()) {})
    }
}

#[cfg(test)]
mod tests {
    use signal_hook::low_level::raise;

    use super::*;

    #[test]
    fn signals_become_values() {
        let mut signals = Signals::new().expect("taken over");
        for (number, want) in [
            (SIGHUP, Signal::Reload),
            (SIGTERM, Signal::Stop),
            (SIGINT, Signal::Stop),
        ] {
            raise(number).expect("raised");
            assert_eq!(signals.wait(), want);
        }
        let (sender, came) = std::sync::mpsc::channel();
        let thread = signals.forward(move |signal| {
            sender.send(signal).expect("waited for");
            signal == Signal::Reload
        });
        for (number, want) in [(SIGHUP, Signal::Reload), (SIGTERM, Signal::Stop)] {
            raise(number).expect("raised");
            assert_eq!(came.recv(), Ok(want));
        }
        thread.expect("spawned").join().expect("ended");
    }
}
