//! Congestion control that never goes below a window of several datagrams, and
//! that lets a connection speak which has just moved.
//!
//! quinn-proto's controllers go down to two datagrams, and its connections
//! send only while a whole datagram fits beside what is in flight. On a path
//! that loses packets at random, a connection with small packets ends there:
//! few of them per round trip, and everything else waits. RFC 9002 section 7.2
//! recommends two datagrams as the minimum; BBR keeps four.
//!
//! A connection that moves to another local address begins a new window, but
//! quinn-proto counts what is in flight at the old address against it. What was
//! lost there is noticed only when something is acknowledged that goes from the
//! new one: where the window is full, that waits for a probe timeout, which has
//! doubled several times. So the window is larger by what was left behind until
//! the first acknowledgement.

use core::any::Any;
use core::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use std::time::Instant;

use quinn_proto::congestion::{Controller, ControllerFactory, ControllerMetrics};
use quinn_proto::{Connection, RttEstimator};

/// The smallest window, in datagrams, one of which is only ever reserved.
pub(crate) const WINDOW_DATAGRAMS_MIN: u64 = 4;

/// Datagrams that are taken for in flight beyond the window: probes, of which
/// each probe timeout sends two.
const PROBES_MAX: u64 = 32;

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
            since: now,
            in_flight: 0,
            left: Arc::default(),
        })
    }
}

struct WithFloor {
    inner: Box<dyn Controller>,
    datagrams: u64,
    mtu: u64,
    /// What was sent before went by another path.
    since: Instant,
    /// About so many bytes are in flight: exact after each acknowledgement, then
    /// with packets that only acknowledge and without probes of the packet size.
    in_flight: u64,
    /// Bytes left behind at another address. Shared with copies: a connection
    /// gives no other access.
    left: Arc<AtomicU64>,
}

impl WithFloor {
    /// A copy of what a connection uses.
    fn of(proto: &Connection) -> Option<Box<Self>> {
        let copy = proto.congestion_state().clone_box();
        copy.into_any().downcast().ok()
    }

    fn own_window(&self) -> u64 {
        self.inner.window().max(self.datagrams * self.mtu)
    }

    /// At most so many bytes are in flight.
    fn in_flight_max(&self) -> u64 {
        let probes = PROBES_MAX * self.mtu;
        let window = self.own_window().saturating_add(probes);
        self.in_flight.min(window)
    }

    /// So many bytes are in flight at another address.
    fn leave(&self, bytes: u64) {
        self.left.store(bytes, Ordering::Relaxed);
    }
}

/// A connection sends from another address from now on, by a path of which
/// nothing is known, or one of which only the port differs. It may send beside
/// what is in flight: a new window, or a smallest one beyond the present one.
pub(crate) fn change_path(proto: &mut Connection, only_port: bool, now: Instant) {
    let before = WithFloor::of(proto).map(|window| (window.in_flight_max(), window.own_window()));
    if !only_port {
        proto.path_changed(now);
    }
    let Some(((in_flight, window), after)) = before.zip(WithFloor::of(proto)) else {
        return;
    };
    after.leave(if only_port {
        let least = in_flight + after.datagrams * after.mtu;
        least.saturating_sub(window)
    } else {
        in_flight
    });
}

impl Controller for WithFloor {
    fn on_sent(&mut self, now: Instant, bytes: u64, last_packet_number: u64) {
        self.in_flight = self.in_flight.saturating_add(bytes);
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
        let left = self.left.load(Ordering::Relaxed);
        if sent < self.since {
            self.leave(left.saturating_sub(bytes));
            return;
        }
        if left > 0 {
            self.leave(0);
        }
        self.inner.on_ack(now, sent, bytes, app_limited, rtt);
    }

    fn on_end_acks(
        &mut self,
        now: Instant,
        in_flight: u64,
        app_limited: bool,
        largest_packet_num_acked: Option<u64>,
    ) {
        self.in_flight = in_flight;
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
        self.in_flight = self.in_flight.saturating_sub(lost_bytes);
        if sent < self.since {
            return;
        }
        self.inner
            .on_congestion_event(now, sent, is_persistent_congestion, lost_bytes);
    }

    fn on_mtu_update(&mut self, new_mtu: u16) {
        self.mtu = new_mtu.into();
        self.inner.on_mtu_update(new_mtu);
    }

    fn window(&self) -> u64 {
        let left = self.left.load(Ordering::Relaxed);
        self.own_window().saturating_add(left)
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
            since: self.since,
            in_flight: self.in_flight,
            left: Arc::clone(&self.left),
        })
    }

    fn initial_window(&self) -> u64 {
        self.inner.initial_window()
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
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

    #[test]
    fn what_is_in_flight_at_another_address_makes_room_and_does_not_count() {
        let begun = Instant::now();
        let now = begun + Duration::from_secs(1);
        let mut controller = floored(CubicConfig::default()).build(now, 1200);
        let fresh = controller.window();
        let of = |controller: &dyn Controller| {
            let copy = controller.clone_box().into_any();
            copy.downcast::<WithFloor>().unwrap()
        };
        of(&*controller).leave(30_000);
        assert_eq!(controller.window(), fresh + 30_000);
        controller.on_congestion_event(now, begun, true, 30_000);
        of(&*controller).leave(0);
        assert_eq!(controller.window(), fresh, "lost at the other address");
        controller.on_congestion_event(now, now, false, 1200);
        assert!(controller.window() < fresh, "lost at this one");
    }

    #[test]
    fn what_is_in_flight_is_known_and_bounded() {
        let now = Instant::now();
        let mut controller = WithFloor {
            inner: floored(CubicConfig::default()).build(now, 1200),
            datagrams: WINDOW_DATAGRAMS_MIN,
            mtu: 1200,
            since: now,
            in_flight: 0,
            left: Arc::default(),
        };
        controller.on_sent(now, 9000, 1);
        assert_eq!(controller.in_flight_max(), 9000);
        controller.on_end_acks(now, 5000, false, Some(1));
        controller.on_sent(now, 1000, 2);
        controller.on_congestion_event(now, now, false, 2000);
        assert_eq!(controller.in_flight_max(), 4000);
        controller.on_sent(now, u64::MAX, 3);
        let most = controller.window() + PROBES_MAX * 1200;
        assert_eq!(controller.in_flight_max(), most);
    }
}
