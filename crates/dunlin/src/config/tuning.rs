//! What `[quic]` and `quic` of a listener come to together.

use dunlin_base::Repeat;
use dunlin_net::{QuicTuning, TuningError};

use super::error::Wrong;
use super::path::Path;
use super::sections::Quic;
use super::units::Size;

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
        tuning.mtu_discovery = self.mtu_discovery.unwrap_or(quic.network.mtu_discovery);
        tuning.ecn = self.ecn.unwrap_or(quic.network.ecn);
        tuning.migration = self.migration.unwrap_or(quic.network.migration);
        if !quic.repeat_packets {
            tuning.repeat = Repeat::Never;
        }
        tuning.key_update_packets = quic.keys.key_update_packets;
        tuning.key_update_interval = quic.keys.key_update_interval.map(|span| span.0);
        tuning
    }

    /// What is wrong with it, as key and sentence.
    pub(super) fn check(&self, quic: &Quic) -> Result<(), Wrong> {
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
