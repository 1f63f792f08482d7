//! What a service manager is to know (systemd, `sd_notify(3)`): the broker is
//! ready, reads its files again, stops; and, where the manager has a watchdog, the
//! shards answer. Without a manager, and on other systems than Linux, nothing is
//! said.

#[cfg(target_os = "linux")]
pub(crate) use linux::Service;
#[cfg(not(target_os = "linux"))]
pub(crate) use silent::Service;

#[cfg(target_os = "linux")]
mod linux {
    use core::time::Duration;
    use std::io;
    use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
    use std::thread::JoinHandle;

    use sd_notify::NotifyState;

    use crate::daemon::{Daemon, Pulse};

    /// How many times the shards are asked in the time that the watchdog allows.
    const BEATS: u32 = 3;

    /// They are asked no more often, however short that time is.
    const BEAT_MIN: Duration = Duration::from_millis(10);

    /// The service manager, if there is one.
    pub(crate) struct Service {
        /// Asks the shards until the sender is dropped.
        watchdog: Option<(Sender<()>, JoinHandle<()>)>,
    }

    impl Service {
        /// The broker serves.
        ///
        /// # Errors
        /// There is no thread for the watchdog.
        pub(crate) fn ready(daemon: &Daemon) -> io::Result<Self> {
            let shards = daemon.shard_count();
            let status = format!("{} listeners, {shards} shards", daemon.bound().len());
            Self::there(&status, daemon.pulse())
        }

        /// The broker is a standby. It has no shards that could not answer.
        ///
        /// # Errors
        /// There is no thread for the watchdog.
        #[cfg(feature = "cluster")]
        pub(crate) fn standby() -> io::Result<Self> {
            Self::there("standby", Pulse::of_none())
        }

        fn there(status: &str, pulse: Pulse) -> io::Result<Self> {
            say(&[NotifyState::Ready, NotifyState::Status(status)]);
            // A time of zero is none.
            let watchdog = match sd_notify::watchdog_enabled().filter(|it| !it.is_zero()) {
                Some(period) => Some(watch((period / BEATS).max(BEAT_MIN), pulse)?),
                None => None,
            };
            Ok(Self { watchdog })
        }

        /// The broker reads its files again, by `reload`.
        pub(crate) fn reloading<T>(&self, reload: impl FnOnce() -> T) -> T {
            let mut states = vec![NotifyState::Reloading];
            states.extend(NotifyState::monotonic_usec_now());
            say(&states);
            let done = reload();
            say(&[NotifyState::Ready]);
            done
        }

        /// The broker stops.
        pub(crate) fn stopping(self) {
            say(&[NotifyState::Stopping]);
            self.end();
        }

        /// What is to be known comes from another one.
        pub(crate) fn end(self) {
            if let Some((stop, thread)) = self.watchdog {
                drop(stop);
                // It cannot panic.
                let _ = thread.join();
            }
        }
    }

    fn watch(every: Duration, pulse: Pulse) -> io::Result<(Sender<()>, JoinHandle<()>)> {
        let (stop, stopped) = channel();
        let thread = std::thread::Builder::new()
            .name("watchdog".into())
            .spawn(move || beat(every, &pulse, &stopped))?;
        Ok((stop, thread))
    }

    fn beat(every: Duration, pulse: &Pulse, stopped: &Receiver<()>) {
        loop {
            if pulse.is_there() {
                say(&[NotifyState::Watchdog]);
            } else {
                tracing::error!("a shard does not answer: the watchdog gets no sign");
            }
            if stopped.recv_timeout(every) != Err(RecvTimeoutError::Timeout) {
                return;
            }
        }
    }

    /// A manager that cannot be reached is no reason to serve no clients.
    fn say(states: &[NotifyState<'_>]) {
        if let Err(error) = sd_notify::notify(states) {
            tracing::warn!(%error, "the service manager cannot be reached");
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod silent {
    use std::io;

    use crate::daemon::Daemon;

    /// No service manager.
    pub(crate) struct Service;

    impl Service {
        #[expect(clippy::unnecessary_wraps, reason = "as on Linux")]
        pub(crate) fn ready(_: &Daemon) -> io::Result<Self> {
            Ok(Self)
        }

        pub(crate) fn reloading<T>(&self, reload: impl FnOnce() -> T) -> T {
            reload()
        }

        #[cfg(feature = "cluster")]
        #[expect(clippy::unnecessary_wraps, reason = "as on Linux")]
        pub(crate) fn standby() -> io::Result<Self> {
            Ok(Self)
        }

        pub(crate) fn stopping(self) {}

        #[cfg(feature = "cluster")]
        pub(crate) fn end(self) {}
    }
}
