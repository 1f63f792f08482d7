//! Congestion control that never goes below a window of several datagrams.
//!
//! quinn-proto's controllers go down to two datagrams, and its connections
//! send only while a whole datagram fits beside what is in flight. On a path
//! that loses packets at random, a connection with small packets ends there:
//! few of them per round trip, and everything else waits. RFC 9002 section 7.2
//! recommends two datagrams as the minimum; BBR keeps four.

use core::any::Any;
use std::sync::Arc;
use std::time::Instant;

use quinn_proto::RttEstimator;
use quinn_proto::congestion::{Controller, ControllerFactory, ControllerMetrics};

/// The smallest window, in datagrams, one of which is only ever reserved.
pub(crate) const WINDOW_DATAGRAMS_MIN: u64 = 4;

/// Makes controllers with a smallest window.
pub(crate) struct Floored<F> {
    pub(crate) config: F,
    /// The smallest window, in datagrams.
    pub(crate) datagrams: u64,
}

impl<F: ControllerFactory + Clone> ControllerFactory for Floored<F> {
    fn build(self: Arc<Self>, now: Instant, current_mtu: u16) -> Box<dyn Controller> {
        let inner = Arc::new(self.config.clone()).build(now, current_mtu);
        Box::new(WithFloor {
            inner,
            datagrams: self.datagrams,
            mtu: current_mtu.into(),
        })
    }
}

struct WithFloor {
    inner: Box<dyn Controller>,
    datagrams: u64,
    mtu: u64,
}

impl Controller for WithFloor {
    fn on_sent(&mut self, now: Instant, bytes: u64, last_packet_number: u64) {
        self.inner.on_sent(now, bytes, last_packet_number);
    }

    fn on_ack(
        &mut self,
        now: Instant,
        sent: Instant,
        bytes: u64,
        app_limited: bool,
        rtt: &RttEstimator,
    ) {
        self.inner.on_ack(now, sent, bytes, app_limited, rtt);
    }

    fn on_end_acks(
        &mut self,
        now: Instant,
        in_flight: u64,
        app_limited: bool,
        largest_packet_num_acked: Option<u64>,
    ) {
        self.inner
            .on_end_acks(now, in_flight, app_limited, largest_packet_num_acked);
    }

    fn on_congestion_event(
        &mut self,
        now: Instant,
        sent: Instant,
        is_persistent_congestion: bool,
        lost_bytes: u64,
    ) {
        self.inner
            .on_congestion_event(now, sent, is_persistent_congestion, lost_bytes);
    }

    fn on_mtu_update(&mut self, new_mtu: u16) {
        self.mtu = new_mtu.into();
        self.inner.on_mtu_update(new_mtu);
    }

    fn window(&self) -> u64 {
        self.inner.window().max(self.datagrams * self.mtu)
    }

    fn metrics(&self) -> ControllerMetrics {
        let mut metrics = self.inner.metrics();
        metrics.congestion_window = self.window();
        metrics
    }

    fn clone_box(&self) -> Box<dyn Controller> {
        Box::new(Self {
            inner: self.inner.clone_box(),
            datagrams: self.datagrams,
            mtu: self.mtu,
        })
    }

    fn initial_window(&self) -> u64 {
        self.inner.initial_window()
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self.inner.into_any()
    }
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use quinn_proto::congestion::{CubicConfig, NewRenoConfig};

    use super::*;

    /// Loses a packet in each of many round trips.
    fn after_losses(factory: Arc<dyn ControllerFactory>) -> Box<dyn Controller> {
        let mut now = Instant::now();
        let mut controller = factory.build(now, 1200);
        for _ in 0..100 {
            now += Duration::from_millis(50);
            controller.on_congestion_event(now + Duration::from_millis(1), now, false, 1200);
        }
        controller
    }

    fn floored<F>(config: F) -> Arc<Floored<F>> {
        let datagrams = WINDOW_DATAGRAMS_MIN;
        Arc::new(Floored { config, datagrams })
    }

    #[test]
    fn losses_leave_a_window_of_four_datagrams() {
        let bare = after_losses(Arc::new(CubicConfig::default()));
        assert_eq!(bare.window(), 2 * 1200);
        let mut cubic = after_losses(floored(CubicConfig::default()));
        let reno = after_losses(floored(NewRenoConfig::default()));
        for controller in [&cubic, &reno] {
            assert_eq!(controller.window(), 4 * 1200);
            assert_eq!(controller.metrics().congestion_window, 4 * 1200);
            assert_eq!(controller.clone_box().window(), 4 * 1200);
        }
        cubic.on_mtu_update(1452);
        assert_eq!(cubic.window(), 4 * 1452);
        assert!(cubic.initial_window() > cubic.window());
    }
}
