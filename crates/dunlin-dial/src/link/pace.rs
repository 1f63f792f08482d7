//! The round-trip time that a connection assumes until it has measured one:
//! what the last connection to the same server over the same network found
//! (RFC 9002 section 6.2.2), kept beside the tickets. Knows no connection.

use core::net::SocketAddr;
use core::time::Duration;
use std::sync::Arc;

use crate::race::network_name;
use crate::tickets::{PathRtt, Scope};

/// Least that is assumed. What is unanswered is sent again after three times as
/// long, and a server may take 25 ms to note that a ticket is used, and some
/// more for cryptography.
const ASSUMED_MIN: Duration = Duration::from_millis(50);
/// Most that is assumed: a measurement on a day when everything was slow must
/// not keep a lost packet waiting for long. Narrowband radio takes about that.
const ASSUMED_MAX: Duration = Duration::from_secs(2);
/// Packets are sent again after so many times what is assumed, so that a
/// handshake that took longer may have been answered for the copy.
const REPEATED_AFTER: u32 = 3;

/// What is known of the way to one server.
pub(super) struct Pace {
    scope: Option<Arc<Scope>>,
    /// The application chose what to assume.
    chosen: bool,
    /// What to assume where nothing is known.
    default: Duration,
    known: Option<PathRtt>,
    /// What the current attempt assumes on the way home.
    assumed: Option<Duration>,
    /// What the handshake took; the first answer may take longer than the
    /// others, because a radio wakes up, or the server is slow.
    handshake: Option<Duration>,
}

impl Pace {
    pub(super) fn new(
        scope: Option<Arc<Scope>>,
        known: Option<PathRtt>,
        default: Duration,
        chosen: bool,
    ) -> Self {
        Self {
            scope,
            chosen,
            default,
            known,
            assumed: None,
            handshake: None,
        }
    }

    /// An attempt begins; `home`: where the server was found the last time.
    pub(super) fn begin(&mut self, home: Option<SocketAddr>) {
        self.handshake = None;
        self.assumed = match (home, &self.known) {
            (Some(home), Some(known)) if !self.chosen && known.network == network(home) => {
                Some(bounded(known.micros))
            }
            _ => None,
        };
    }

    /// What to assume on the way home, if anything is known.
    pub(super) const fn assumed(&self) -> Option<Duration> {
        self.assumed
    }

    /// The handshake took so long.
    pub(super) const fn shook_hands(&mut self, took: Duration) {
        self.handshake = Some(took);
    }

    /// Takes a measurement of a connection to `home`, and keeps it if it is
    /// news.
    pub(super) fn measured(&mut self, home: SocketAddr, smoothed: Duration) {
        let Some(scope) = &self.scope else {
            return;
        };
        let repeated = self.assumed.unwrap_or(self.default) * REPEATED_AFTER;
        let handshake = self.handshake.filter(|took| *took < repeated);
        let rtt = smoothed.max(handshake.unwrap_or_default());
        let micros = u32::try_from(rtt.as_micros()).unwrap_or(u32::MAX).max(1);
        let rtt = PathRtt {
            micros,
            network: network(home),
        };
        if self.known.as_ref().is_none_or(|known| is_news(known, &rtt)) {
            scope.measured(rtt.clone());
            self.known = Some(rtt);
        }
    }

    /// The server was found elsewhere.
    pub(super) fn forget(&mut self) {
        self.known = None;
    }
}

fn network(server: SocketAddr) -> String {
    network_name(server, "", server.port())
}

fn bounded(micros: u32) -> Duration {
    Duration::from_micros(micros.into()).clamp(ASSUMED_MIN, ASSUMED_MAX)
}

/// Whether the next connection would do otherwise by a quarter at least: a
/// file is not written for less.
fn is_news(known: &PathRtt, rtt: &PathRtt) -> bool {
    let (before, now) = (bounded(known.micros), bounded(rtt.micros));
    known.network != rtt.network || before.abs_diff(now) * 4 > before
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tickets::TicketFile;

    const MS: Duration = Duration::from_millis(1);

    fn home() -> SocketAddr {
        "127.0.0.1:14567".parse().expect("an address")
    }

    fn scope(dir: &std::path::Path) -> Arc<Scope> {
        let file = TicketFile::open(dir.join("tickets")).expect("opened");
        file.scope(&"quic://host".parse().expect("a URL"), "c")
    }

    /// A process that starts again, connects and measures.
    fn connects(dir: &std::path::Path, handshake: Duration, smoothed: Duration) -> Duration {
        let scope = scope(dir);
        let known = scope.place().1;
        let mut pace = Pace::new(Some(scope), known, 250 * MS, false);
        pace.begin(Some(home()));
        let assumed = pace.assumed().unwrap_or(250 * MS);
        pace.shook_hands(handshake);
        pace.measured(home(), smoothed);
        assumed
    }

    #[test]
    fn the_next_process_assumes_what_the_last_one_measured() {
        let dir = tempfile::tempdir().expect("directory");
        for (handshake, smoothed, assumed) in [
            // Nothing is known at first.
            (70 * MS, 60 * MS, 250 * MS),
            // The first answer took longer than the others.
            (65 * MS, 60 * MS, 70 * MS),
            // That was no news. It is now.
            (200 * MS, 80 * MS, 70 * MS),
            // Answered too late to be sure what was answered.
            (700 * MS, 90 * MS, 200 * MS),
            // Less and more than is believed.
            (MS, MS, 90 * MS),
            (140 * MS, 9000 * MS, 50 * MS),
            (3000 * MS, 1000 * MS, 2000 * MS),
            (MS, MS, 2000 * MS),
        ] {
            assert_eq!(connects(dir.path(), handshake, smoothed), assumed);
        }
    }

    #[test]
    fn another_network_and_a_choice_count_for_more() {
        let dir = tempfile::tempdir().expect("directory");
        connects(dir.path(), MS, 80 * MS);
        let scope = scope(dir.path());
        let known = scope.place().1.expect("known");
        let pace = |known: &PathRtt, chosen| {
            let known = Some(known.clone());
            let mut pace = Pace::new(Some(Arc::clone(&scope)), known, 250 * MS, chosen);
            pace.begin(Some(home()));
            pace.assumed()
        };
        assert_eq!(pace(&known, false), Some(80 * MS));
        assert_eq!(pace(&known, true), None);
        let elsewhere = PathRtt {
            network: "elsewhere".into(),
            ..known
        };
        assert_eq!(pace(&elsewhere, false), None);
    }
}
