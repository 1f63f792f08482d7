//! How long a session lives without a connection, and when its will is
//! published.

use alloc::boxed::Box;
use core::time::Duration;

use dunlin_base::{Instant, Message};
use dunlin_mqtt_codec::{Connect, Disconnect, ReasonCode, Version, Will as WillOfConnect};

use crate::server::{Fault, delivery};

/// The expiry that stands for none.
const NEVER: u32 = u32::MAX;

/// A will.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Will {
    /// What is published; its `expires` is not set, as that counts from the
    /// publication.
    pub message: Message,
    /// Will Delay Interval in seconds.
    pub delay_secs: u32,
    /// Message Expiry Interval in seconds.
    pub message_expiry_secs: Option<u32>,
}

impl Will {
    /// The will of a CONNECT.
    #[must_use]
    pub fn of(will: &WillOfConnect<'_>) -> Self {
        Self {
            message: delivery::will_message(will),
            delay_secs: will.properties.delay_interval.unwrap_or(0),
            message_expiry_secs: will.properties.message_expiry_interval,
        }
    }

    /// The message, published now.
    #[must_use]
    pub fn publish(self, now: Instant) -> Message {
        let secs = self.message_expiry_secs;
        Message {
            expires: secs.map(|secs| now + Duration::from_secs(u64::from(secs))),
            ..self.message
        }
    }
}

/// What a deadline of a session brings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Due {
    /// Nothing yet.
    Nothing,
    /// Publish the will; the session goes on.
    Will(Box<Will>),
    /// The session ends; [`Lifetime::take_will`] has its will.
    End,
}

/// Expiry and will of a session.
#[derive(Clone, Debug, Default)]
pub struct Lifetime {
    expiry_secs: u32,
    disconnected_at: Option<Instant>,
    will: Option<Box<Will>>,
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

    /// The will, if it was not published.
    #[must_use]
    pub fn will(&self) -> Option<&Will> {
        self.will.as_deref()
    }

    /// The session has a connection, and the will of its CONNECT.
    pub fn handle_connected(&mut self, expiry_secs: u32, will: Option<Box<Will>>) {
        *self = Self {
            expiry_secs,
            disconnected_at: None,
            will,
        };
    }

    /// Takes a DISCONNECT, which may say how long the session is to live, at most
    /// `max`; whether it did.
    ///
    /// # Errors
    ///
    /// A session that ends with its connection cannot be prolonged.
    pub fn handle_disconnect(
        &mut self,
        disconnect: &Disconnect<'_>,
        max: u32,
    ) -> Result<bool, Fault> {
        let asked = disconnect.properties.session_expiry_interval;
        if let Some(expiry_secs) = asked {
            self.change(expiry_secs, max)?;
        }
        //= mqtt5#[MQTT-3.14.4-3]
        if disconnect.reason == ReasonCode::Success {
            self.will = None;
        }
        Ok(asked.is_some())
    }

    fn change(&mut self, expiry_secs: u32, max: u32) -> Result<(), Fault> {
        //= mqtt5#[MQTT-3.14.2-2]
        if self.expiry_secs == 0 && expiry_secs != 0 {
            return Err(Fault::protocol(
                "a session that ends with its connection cannot be prolonged",
            ));
        }
        self.expiry_secs = expiry_secs.min(max);
        Ok(())
    }

    /// The session lost its connection; `with_will`: not in a way that takes its
    /// will back. [`Lifetime::handle_deadline`] says what follows.
    pub fn handle_lost(&mut self, at: Instant, with_will: bool) {
        self.disconnected_at = Some(at);
        if !with_will {
            self.will = None;
        }
    }

    /// When to call [`Lifetime::handle_deadline`]; never while it has a connection.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        let deadlines = [self.will_due(), self.expires_at()];
        deadlines.into_iter().flatten().min()
    }

    /// What is due now.
    #[must_use]
    pub fn handle_deadline(&mut self, now: Instant) -> Due {
        if self.expires_at().is_some_and(|at| at <= now) {
            return Due::End;
        }
        let due = self.will_due().is_some_and(|at| at <= now);
        let will = self.will.take_if(|_| due);
        will.map_or(Due::Nothing, Due::Will)
    }

    /// Takes the will of a session that ends without a connection: it is published
    /// now.
    pub fn take_will(&mut self) -> Option<Box<Will>> {
        let lost = self.disconnected_at.is_some();
        //= mqtt5#[MQTT-3.1.2-8]
        self.will.take_if(|_| lost)
    }

    /// When the will of a session without a connection is due: after its delay, or
    /// with the end of the session.
    fn will_due(&self) -> Option<Instant> {
        //= mqtt5#[MQTT-3.1.3-9]
        let secs = self.will.as_ref()?.delay_secs.min(self.expiry_secs);
        let delay = Duration::from_secs(u64::from(secs));
        Some(self.disconnected_at? + delay)
    }

    /// When a session without a connection ends.
    fn expires_at(&self) -> Option<Instant> {
        let since = self.disconnected_at?;
        let lasts = Duration::from_secs(u64::from(self.expiry_secs));
        (self.expiry_secs != NEVER).then(|| since + lasts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dunlin_mqtt_codec::{ConnectProperties, DisconnectProperties, WillProperties};

    const fn at(secs: u64) -> Instant {
        Instant::from_micros(secs * 1_000_000)
    }

    fn will(delay_secs: u32) -> Option<Box<Will>> {
        Some(Box::new(Will {
            delay_secs,
            ..Will::default()
        }))
    }

    fn disconnect(reason: ReasonCode, expiry: Option<u32>) -> Disconnect<'static> {
        Disconnect {
            reason,
            properties: DisconnectProperties {
                session_expiry_interval: expiry,
                ..DisconnectProperties::default()
            },
        }
    }

    #[test]
    fn a_session_expires_so_long_after_its_connection() {
        let mut life = Lifetime::default();
        life.handle_connected(10, None);
        assert!(life.is_persistent());
        assert_eq!(life.deadline(), None);
        life.handle_lost(at(5), true);
        assert_eq!(life.deadline(), Some(at(15)));
        assert_eq!(life.handle_deadline(at(14)), Due::Nothing);
        assert_eq!(life.handle_deadline(at(15)), Due::End);
        life.handle_connected(NEVER, None);
        life.handle_lost(at(5), true);
        assert_eq!(life.deadline(), None);
        life.handle_connected(0, None);
        life.handle_lost(at(5), true);
        assert_eq!(life.handle_deadline(at(5)), Due::End);
    }

    #[test]
    fn a_will_waits_for_its_delay_but_no_longer_than_the_session() {
        //= mqtt5#[MQTT-3.1.3-9] type=test
        let mut life = Lifetime::default();
        for (expiry, delay, due) in [(10, 4, 9), (10, 40, 15), (NEVER, 40, 45), (0, 4, 5)] {
            life.handle_connected(expiry, will(delay));
            assert_eq!((life.deadline(), life.take_will()), (None, None));
            life.handle_lost(at(5), true);
            assert_eq!(life.deadline(), Some(at(due)));
            assert_eq!(life.handle_deadline(at(due - 1)), Due::Nothing);
            let ends = expiry <= delay;
            match life.handle_deadline(at(due)) {
                Due::Will(_) => assert!(!ends && life.will().is_none()),
                due => assert!(ends && due == Due::End && life.take_will().is_some()),
            }
            // It is published once.
            assert_eq!(life.take_will(), None);
        }
    }

    #[test]
    fn a_will_is_taken_back_by_disconnect_and_by_a_new_connection() {
        //= mqtt5#[MQTT-3.14.4-3] type=test
        let mut life = Lifetime::default();
        for (reason, kept) in [
            (ReasonCode::Success, false),
            (ReasonCode::DisconnectWithWill, true),
        ] {
            life.handle_connected(10, will(4));
            assert_eq!(
                life.handle_disconnect(&disconnect(reason, None), 9),
                Ok(false)
            );
            life.handle_lost(at(5), true);
            assert_eq!(life.will().is_some(), kept);
        }
        life.handle_connected(10, None);
        assert!(life.will().is_none());
        life.handle_connected(10, will(4));
        life.handle_lost(at(5), false);
        assert!(life.will().is_none());
    }

    #[test]
    fn the_expiry_of_a_will_counts_from_its_publication() {
        let of_connect = WillOfConnect {
            topic: "t",
            properties: WillProperties {
                delay_interval: Some(3),
                message_expiry_interval: Some(7),
                ..WillProperties::default()
            },
            ..WillOfConnect::default()
        };
        let will = Will::of(&of_connect);
        assert_eq!((will.delay_secs, will.message.expires), (3, None));
        assert_eq!(will.publish(at(5)).expires, Some(at(12)));
    }

    #[test]
    fn a_session_that_ends_with_its_connection_is_not_prolonged() {
        //= mqtt5#[MQTT-3.14.2-2] type=test
        let mut life = Lifetime::default();
        let normal = |expiry| disconnect(ReasonCode::Success, Some(expiry));
        life.handle_connected(0, None);
        assert!(life.handle_disconnect(&normal(1), 9).is_err());
        assert_eq!(life.handle_disconnect(&normal(0), 9), Ok(true));
        life.handle_connected(5, None);
        assert_eq!(life.handle_disconnect(&normal(100), 9), Ok(true));
        assert_eq!(life.expiry_secs(), 9);
        assert_eq!(life.handle_disconnect(&normal(0), 9), Ok(true));
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
