//! How long a session lives without a connection, and when its will is due.

use core::time::Duration;

use dunlin_base::Instant;
use dunlin_mqtt_codec::{Connect, Version};

use crate::server::Fault;

/// The expiry that stands for none.
const NEVER: u32 = u32::MAX;

/// Expiry and will of a session.
#[derive(Clone, Copy, Debug, Default)]
pub struct Lifetime {
    expiry_secs: u32,
    disconnected_at: Option<Instant>,
    will_due: Option<Instant>,
}

impl Lifetime {
    /// The expiry that a CONNECT gets, where the server keeps a session for at
    /// most `max` seconds.
    #[must_use]
    pub fn asked(connect: &Connect<'_>, max: u32) -> u32 {
        let asked = connect.properties.session_expiry_interval;
        match connect.version {
            Version::V5 => asked.unwrap_or(0).min(max),
            Version::V311 if connect.clean_start => 0,
            Version::V311 => max,
        }
    }

    /// Seconds that the session outlives its connection; all ones: for ever.
    #[must_use]
    pub const fn expiry_secs(&self) -> u32 {
        self.expiry_secs
    }

    /// Whether its state outlives the connection, and so belongs in the store.
    #[must_use]
    pub const fn is_persistent(&self) -> bool {
        self.expiry_secs > 0
    }

    /// Since when it has no connection.
    #[must_use]
    pub const fn disconnected_at(&self) -> Option<Instant> {
        self.disconnected_at
    }

    /// The session has a connection.
    pub const fn handle_connected(&mut self, expiry_secs: u32) {
        self.expiry_secs = expiry_secs;
        self.disconnected_at = None;
        self.will_due = None;
    }

    /// DISCONNECT says how long the session is to live, at most `max`.
    ///
    /// # Errors
    ///
    /// A session that ends with its connection cannot be prolonged.
    pub fn change(&mut self, expiry_secs: u32, max: u32) -> Result<(), Fault> {
        //= mqtt5#[MQTT-3.14.2-2]
        if self.expiry_secs == 0 && expiry_secs != 0 {
            return Err(Fault::protocol(
                "a session that ends with its connection cannot be prolonged",
            ));
        }
        self.expiry_secs = expiry_secs.min(max);
        Ok(())
    }

    /// The session lost its connection.
    pub const fn handle_disconnected(&mut self, at: Instant) {
        self.disconnected_at = Some(at);
    }

    /// A disconnected session has a will, to be published after this delay, or
    /// with the end of the session.
    pub fn set_will(&mut self, delay_secs: u32) {
        //= mqtt5#[MQTT-3.1.3-9]
        let delay = Duration::from_secs(u64::from(delay_secs.min(self.expiry_secs)));
        self.will_due = self.disconnected_at.map(|since| since + delay);
    }

    /// The will was published, or there is none any more.
    pub const fn clear_will(&mut self) {
        self.will_due = None;
    }

    /// When the will is due.
    #[must_use]
    pub const fn will_due(&self) -> Option<Instant> {
        self.will_due
    }

    /// Whether the will is to be published now.
    #[must_use]
    pub fn is_will_due(&self, now: Instant) -> bool {
        self.will_due.is_some_and(|at| at <= now)
    }

    /// When a disconnected session ends.
    #[must_use]
    pub fn expires_at(&self) -> Option<Instant> {
        let since = self.disconnected_at?;
        let lasts = Duration::from_secs(u64::from(self.expiry_secs));
        (self.expiry_secs != NEVER).then(|| since + lasts)
    }

    /// Both deadlines.
    pub fn deadlines(&self) -> impl Iterator<Item = Instant> + use<> {
        [self.will_due, self.expires_at()].into_iter().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dunlin_mqtt_codec::ConnectProperties;

    const fn at(secs: u64) -> Instant {
        Instant::from_micros(secs * 1_000_000)
    }

    #[test]
    fn a_session_expires_so_long_after_its_connection() {
        let mut life = Lifetime::default();
        life.handle_connected(10);
        assert!(life.is_persistent());
        assert_eq!(life.expires_at(), None);
        life.handle_disconnected(at(5));
        assert_eq!(life.expires_at(), Some(at(15)));
        life.handle_connected(NEVER);
        life.handle_disconnected(at(5));
        assert_eq!(life.deadlines().count(), 0);
    }

    #[test]
    fn a_will_waits_for_its_delay_but_no_longer_than_the_session() {
        //= mqtt5#[MQTT-3.1.3-9] type=test
        let mut life = Lifetime::default();
        for (expiry, delay, due) in [(10, 4, 9), (10, 40, 15), (0, 4, 5)] {
            life.handle_connected(expiry);
            assert_eq!(life.will_due(), None);
            life.handle_disconnected(at(5));
            life.set_will(delay);
            assert_eq!(life.will_due(), Some(at(due)));
            assert!(life.is_will_due(at(due)) && !life.is_will_due(at(due - 1)));
        }
        life.clear_will();
        assert!(life.deadlines().eq([at(5)]));
    }

    #[test]
    fn a_session_that_ends_with_its_connection_is_not_prolonged() {
        //= mqtt5#[MQTT-3.14.2-2] type=test
        let mut life = Lifetime::default();
        life.handle_connected(0);
        assert!(life.change(1, 9).is_err());
        assert_eq!(life.change(0, 9), Ok(()));
        life.handle_connected(5);
        assert_eq!(life.change(100, 9), Ok(()));
        assert_eq!(life.expiry_secs(), 9);
        assert_eq!(life.change(0, 9), Ok(()));
        assert!(!life.is_persistent());
    }

    #[test]
    fn each_version_asks_in_its_own_way() {
        let connect = |version, clean_start, session_expiry_interval| Connect {
            version,
            clean_start,
            properties: ConnectProperties {
                session_expiry_interval,
                ..ConnectProperties::default()
            },
            ..Connect::default()
        };
        for (version, clean, asked, got) in [
            (Version::V5, false, None, 0),
            (Version::V5, true, Some(7), 7),
            (Version::V5, false, Some(NEVER), 9),
            (Version::V311, true, None, 0),
            (Version::V311, false, None, 9),
        ] {
            assert_eq!(Lifetime::asked(&connect(version, clean, asked), 9), got);
        }
    }
}
