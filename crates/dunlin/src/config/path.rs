//! How QUIC behaves towards the network: `[quic]` says it for all listeners,
//! `quic` of a listener may say otherwise.

use dunlin_net::{Congestion, QuicTuning, RetryMode};
use serde::{Deserialize, Serialize};

use super::sections::{Quic, Wrong};
use super::units::{Size, Span};

/// Congestion control.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Control {
    /// RFC 9438.
    #[default]
    Cubic,
    /// RFC 9002.
    NewReno,
    /// By measured bandwidth.
    Bbr,
}

impl From<Control> for Congestion {
    fn from(control: Control) -> Self {
        match control {
            Control::Cubic => Self::Cubic,
            Control::NewReno => Self::NewReno,
            Control::Bbr => Self::Bbr,
        }
    }
}

/// When a client must prove its address first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Retry {
    /// Never.
    Never,
    /// When there are many handshakes, or many of one address.
    #[default]
    Load,
    /// Always.
    Always,
}

impl From<Retry> for RetryMode {
    fn from(retry: Retry) -> Self {
        match retry {
            Retry::Never => Self::Never,
            Retry::Load => Self::UnderLoad,
            Retry::Always => Self::Always,
        }
    }
}

/// `quic` of a `[[listener]]`: what it does differently.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct Path {
    /// Congestion control.
    pub congestion: Option<Control>,
    /// Round-trip time assumed at first.
    pub initial_rtt: Option<Span>,
    /// How soon clients are asked to acknowledge.
    pub ack_delay: Option<Span>,
    /// Bytes that may be in flight at first.
    pub initial_window: Option<Size>,
    /// Search for a larger packet size than 1200 bytes.
    pub mtu_discovery: Option<bool>,
    /// Mark packets for explicit congestion notification.
    pub ecn: Option<bool>,
    /// Whether clients may change their address.
    pub migration: Option<bool>,
}

impl Path {
    /// What holds for a listener.
    #[must_use]
    pub fn tuning(&self, quic: &Quic) -> QuicTuning {
        let mut tuning = QuicTuning::default();
        tuning.congestion = self.congestion.unwrap_or(quic.congestion).into();
        tuning.initial_rtt = self.initial_rtt.unwrap_or(quic.initial_rtt).0;
        let ack_delay = self.ack_delay.unwrap_or(quic.ack_delay).0;
        tuning.ack_delay = Some(ack_delay).filter(|delay| !delay.is_zero());
        let window = self.initial_window.or(quic.initial_window);
        tuning.initial_window = window.map(Size::as_u32);
        tuning.mtu_discovery = self.mtu_discovery.unwrap_or(quic.mtu_discovery);
        tuning.ecn = self.ecn.unwrap_or(quic.ecn);
        tuning.migration = self.migration.unwrap_or(quic.migration);
        tuning.key_update_packets = quic.key_update_packets;
        tuning.key_update_interval = quic.key_update_interval.map(|span| span.0);
        tuning
    }

    /// What is wrong with it, as key and sentence.
    pub(super) fn check(&self, quic: &Quic) -> Result<(), Wrong> {
        use dunlin_net::TuningError;
        self.tuning(quic).check().map_err(|error| {
            let key = match error {
                TuningError::InitialRtt => "initial_rtt",
                TuningError::AckDelay => "ack_delay",
                TuningError::InitialWindow => "initial_window",
                TuningError::KeyUpdatePackets => "key_update_packets",
                TuningError::KeyUpdateInterval => "key_update_interval",
                _ => "congestion",
            };
            (key, error.to_string())
        })
    }
}
