//! How QUIC behaves towards the network: `[quic]` says it for all listeners,
//! `quic` of a listener may say otherwise.

use dunlin_net::{Congestion, RetryMode};
use serde::{Deserialize, Serialize};

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
