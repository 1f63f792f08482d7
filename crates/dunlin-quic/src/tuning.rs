//! How QUIC behaves towards the network, for a listener or a dialled
//! connection. What a peer may take is in the
//! limits of the loop.

use core::fmt;
use core::str::FromStr;
use core::time::Duration;
use std::sync::Arc;

use dunlin_base::Repeat;
use quinn_proto::congestion::{BbrConfig, ControllerFactory, CubicConfig, NewRenoConfig};
use quinn_proto::{IdleTimeout, MtuDiscoveryConfig, TransportConfig};

use crate::ack_request;
use crate::window::Floored;

/// Shortest and longest round-trip time that can be assumed at first.
const INITIAL_RTT: core::ops::RangeInclusive<Duration> =
    Duration::from_millis(1)..=Duration::from_secs(30);
/// What is assumed unless someone says otherwise: see
/// [`QuicTuning::initial_rtt`].
const INITIAL_RTT_DEFAULT: Duration = Duration::from_millis(250);
/// Shortest and longest delay of acknowledgements that a peer can be asked for.
/// quinn-proto refuses less, and RFC 9000 more (section 18.2, `max_ack_delay`).
const ACK_DELAY: core::ops::RangeInclusive<Duration> =
    Duration::from_millis(1)..=Duration::from_millis(16_383);
/// What is asked for unless someone says otherwise: see
/// [`QuicTuning::ack_delay`].
const ACK_DELAY_DEFAULT: Duration = Duration::from_millis(5);
/// Smallest and largest congestion window to begin with: two datagrams (RFC
/// 9002 section 7.2), and what fits the largest send window.
const INITIAL_WINDOW_BYTES: core::ops::RangeInclusive<u32> = 2400..=1 << 30;
/// Fewest packets between two key updates: an update needs a round trip to be
/// confirmed before the next (RFC 9001 section 6.1).
const KEY_UPDATE_PACKETS_MIN: u64 = 16;
/// Shortest time between two key updates.
const KEY_UPDATE_INTERVAL_MIN: Duration = Duration::from_secs(1);

/// Shortest and longest silence before a peer is asked for a sign of life.
const KEEP_ALIVE: core::ops::RangeInclusive<Duration> =
    Duration::from_secs(1)..=Duration::from_secs(3600);
/// A connection is lost after so many such silences.
const KEEP_ALIVES: u32 = 3;

/// Congestion control.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Congestion {
    /// CUBIC (RFC 9438), the default.
    #[default]
    Cubic,
    /// NewReno (RFC 9002 section 7).
    NewReno,
    /// BBR, which follows the measured bandwidth rather than losses.
    Bbr,
}

impl Congestion {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Cubic, Self::NewReno, Self::Bbr];

    /// Its name in configuration files.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cubic => "cubic",
            Self::NewReno => "newreno",
            Self::Bbr => "bbr",
        }
    }

    /// With this window at first, and never less than so many datagrams.
    fn factory(
        self,
        window: Option<u32>,
        datagrams: u64,
    ) -> Arc<dyn ControllerFactory + Send + Sync> {
        macro_rules! with_window {
            ($config:ty) => {{
                let mut config = <$config>::default();
                if let Some(bytes) = window {
                    config.initial_window(bytes.into());
                }
                Arc::new(Floored { config, datagrams })
            }};
        }
        match self {
            Self::Cubic => with_window!(CubicConfig),
            Self::NewReno => with_window!(NewRenoConfig),
            Self::Bbr => with_window!(BbrConfig),
        }
    }
}

impl fmt::Display for Congestion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Congestion {
    type Err = TuningError;

    fn from_str(text: &str) -> Result<Self, TuningError> {
        Self::ALL
            .into_iter()
            .find(|c| c.name() == text)
            .ok_or(TuningError::Congestion)
    }
}

/// How QUIC behaves towards the network.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct QuicTuning {
    /// Congestion control. Default CUBIC.
    pub congestion: Congestion,
    /// Round-trip time assumed until one is measured: when the first packets
    /// are sent again, and how fast they are paced. Default 250 ms, which is
    /// less than RFC 9002 recommends (section 6.2.2, 333 ms): a lost first
    /// packet goes again after three times that, 750 ms, and few paths are so
    /// slow that it goes for nothing.
    pub initial_rtt: Duration,
    /// Longest that the peer is asked to wait before it acknowledges what it
    /// received, if it knows how to be asked (draft-ietf-quic-ack-frequency):
    /// a lone lost packet is sent again after a round trip, four times its
    /// variation and this (RFC 9002 section 6.2.1). With more than 25 ms, five
    /// packets are acknowledged together instead of two. `None`: nothing is
    /// asked, and it is what the peer chose, mostly 25 ms. Default 5 ms.
    pub ack_delay: Option<Duration>,
    /// Bytes that may be in flight at first; `None` (default): what the
    /// congestion control chooses, about ten datagrams.
    pub initial_window: Option<u32>,
    /// Whether to search for a larger packet size than 1,200 bytes. Default
    /// true. A dialled connection that does not search asks its server not to
    /// do so either: each search costs packets, which a short connection does
    /// not earn back.
    pub mtu_discovery: bool,
    /// Whether to mark packets as capable of explicit congestion notification
    /// (RFC 9000 section 13.4). Default true; a path that mangles the marks is
    /// noticed and no longer given any.
    pub ecn: bool,
    /// Whether a listener lets its clients change their address (RFC 9000
    /// section 9). Default true; else what comes from another address is
    /// dropped, also after a NAT chose another port.
    pub migration: bool,
    /// Whether a dialled connection moves by itself when its local address
    /// disappears or the system prefers another. One over TCP, which cannot
    /// move, ends when its address disappears. Default true.
    pub follow_network: bool,
    /// Packets sent after which new keys are taken (RFC 9001 section 6);
    /// `None` (default): when the cipher's limit comes near.
    pub key_update_packets: Option<u64>,
    /// Time after which new keys are taken when something is sent; `None`
    /// (default): never for age alone.
    pub key_update_interval: Option<Duration>,
    /// Silence after which the peer is asked for a sign of life (a PING frame);
    /// after three times as long the connection is lost. `None` (default): a
    /// silent connection stays, and what is spoken on it has to notice.
    pub keep_alive: Option<Duration>,
    /// When small packets are sent twice, until the owner of a connection says
    /// otherwise. Default [`Repeat::Lone`], which costs nothing where nothing is
    /// lost.
    pub repeat: Repeat,
}

impl Default for QuicTuning {
    fn default() -> Self {
        Self {
            congestion: Congestion::Cubic,
            initial_rtt: INITIAL_RTT_DEFAULT,
            ack_delay: Some(ACK_DELAY_DEFAULT),
            initial_window: None,
            mtu_discovery: true,
            ecn: true,
            migration: true,
            follow_network: true,
            key_update_packets: None,
            key_update_interval: None,
            keep_alive: None,
            repeat: Repeat::Lone,
        }
    }
}

/// A setting of [`QuicTuning`] is out of range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TuningError {
    /// There is no such congestion control.
    #[error("it is \"cubic\", \"newreno\" or \"bbr\"")]
    Congestion,
    /// No network is like that.
    #[error("the initial round-trip time must be 1 ms to 30 s")]
    InitialRtt,
    /// No timer is so exact, or no transport parameter so large.
    #[error("the delay of acknowledgements must be 1 ms to 16383 ms")]
    AckDelay,
    /// Too small for the protocol, or larger than any send window.
    #[error("the initial window must be 2400 B to 1 GiB")]
    InitialWindow,
    /// An update would begin before the one before it is confirmed.
    #[error("at least 16 packets must be sent between key updates")]
    KeyUpdatePackets,
    /// Likewise.
    #[error("key updates must be at least 1 s apart")]
    KeyUpdateInterval,
    /// Not a time in which a connection lives.
    #[error("the keep alive must be 1 s to 1 h")]
    KeepAlive,
}

impl QuicTuning {
    /// Whether everything is in range.
    ///
    /// # Errors
    /// The first setting that is not.
    pub fn check(&self) -> Result<(), TuningError> {
        if !INITIAL_RTT.contains(&self.initial_rtt) {
            return Err(TuningError::InitialRtt);
        }
        if self.ack_delay.is_some_and(|at| !ACK_DELAY.contains(&at)) {
            return Err(TuningError::AckDelay);
        }
        let window = self.initial_window;
        if window.is_some_and(|bytes| !INITIAL_WINDOW_BYTES.contains(&bytes)) {
            return Err(TuningError::InitialWindow);
        }
        if self
            .key_update_packets
            .is_some_and(|n| n < KEY_UPDATE_PACKETS_MIN)
        {
            return Err(TuningError::KeyUpdatePackets);
        }
        if self
            .key_update_interval
            .is_some_and(|every| every < KEY_UPDATE_INTERVAL_MIN)
        {
            return Err(TuningError::KeyUpdateInterval);
        }
        if self.keep_alive.is_some_and(|at| !KEEP_ALIVE.contains(&at)) {
            return Err(TuningError::KeepAlive);
        }
        Ok(())
    }

    /// Puts what quinn-proto knows of it into its configuration.
    pub(crate) fn apply(&self, config: &mut TransportConfig) {
        let datagrams = ack_request::window_min(self.ack_delay);
        config
            .initial_rtt(self.initial_rtt)
            .congestion_controller_factory(self.congestion.factory(self.initial_window, datagrams))
            .mtu_discovery_config(self.mtu_discovery.then(mtu_discovery))
            .ack_frequency_config(self.ack_delay.map(ack_request::config));
        if let Some(every) = self.keep_alive {
            // At most three hours, which is less than the largest there is.
            let idle = IdleTimeout::try_from(every * KEEP_ALIVES).ok();
            config
                .keep_alive_interval(Some(every))
                .max_idle_timeout(idle);
        }
    }
}

/// One probe of what Ethernet carries, and one of half the way when that is
/// lost: the usual search costs each connection five probes with their
/// acknowledgements, more than a short connection sends otherwise.
fn mtu_discovery() -> MtuDiscoveryConfig {
    /// As quinn-proto's own default: Ethernet minus IPv6 and UDP.
    const UPPER_BOUND: u16 = 1452;
    /// Half the way from 1,200 to the upper bound, and one: then the first
    /// probe is the upper bound.
    const MINIMUM_CHANGE: u16 = 127;
    let mut config = MtuDiscoveryConfig::default();
    config
        .upper_bound(UPPER_BOUND)
        .minimum_change(MINIMUM_CHANGE);
    config
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back() {
        for congestion in Congestion::ALL {
            assert_eq!(congestion.to_string().parse(), Ok(congestion));
        }
        assert_eq!("vegas".parse::<Congestion>(), Err(TuningError::Congestion));
    }

    #[test]
    fn ranges_are_checked() {
        let default = QuicTuning::default;
        assert_eq!(default().check(), Ok(()));
        let cases = [
            (
                QuicTuning {
                    initial_rtt: Duration::ZERO,
                    ..default()
                },
                TuningError::InitialRtt,
            ),
            (
                QuicTuning {
                    ack_delay: Some(Duration::ZERO),
                    ..default()
                },
                TuningError::AckDelay,
            ),
            (
                QuicTuning {
                    initial_window: Some(1200),
                    ..default()
                },
                TuningError::InitialWindow,
            ),
            (
                QuicTuning {
                    key_update_packets: Some(1),
                    ..default()
                },
                TuningError::KeyUpdatePackets,
            ),
            (
                QuicTuning {
                    key_update_interval: Some(Duration::ZERO),
                    ..default()
                },
                TuningError::KeyUpdateInterval,
            ),
            (
                QuicTuning {
                    keep_alive: Some(Duration::ZERO),
                    ..default()
                },
                TuningError::KeepAlive,
            ),
        ];
        for (tuning, error) in cases {
            assert_eq!(tuning.check(), Err(error));
        }
    }
}
