//! Turns that wait for more datagrams.

use core::time::Duration;
use std::time::Instant as StdInstant;

use dunlin_base::StreamId;
use dunlin_base::transport::Transport;

use super::certs::{dial_to, listen_on};
use super::{Pair, Side};
use crate::{Clock, GATHER_MAX, Net, NetConfig, NetError, NetLimits};

fn gathering(gather: Duration) -> NetLimits {
    NetLimits {
        gather,
        ..NetLimits::default()
    }
}

fn waits(side: &Side) -> u64 {
    side.net.counters().turns_gathered
}

#[test]
fn a_loop_with_little_to_do_never_waits_for_more() {
    const MESSAGES: usize = 20;
    let mut pair = Pair::with_limits(gathering(GATHER_MAX), gathering(GATHER_MAX));
    let (client, _) = pair.connect(listen_on(Transport::Quic), |addr| {
        dial_to(Transport::Quic, addr)
    });
    let pause = |pair: &mut Pair| {
        let start = StdInstant::now();
        pair.until("time", |_| start.elapsed() > Duration::from_millis(10));
    };
    // The handshake may be a load.
    pause(&mut pair);
    let before = (waits(&pair.client), waits(&pair.server));
    for sent in 1..=MESSAGES {
        let _ = pair.client.send(client, StreamId::CONTROL, b"hello");
        pair.until("a message", |p| {
            p.server.received_len(StreamId::CONTROL) == 5 * sent
        });
        pause(&mut pair);
    }
    assert_eq!((waits(&pair.client), waits(&pair.server)), before);
}

#[test]
fn a_loop_with_much_to_do_waits_for_more_if_it_may() {
    /// More in a turn than any clock makes few.
    const MANY: u64 = 1 << 40;
    for gather in [Duration::ZERO, Duration::from_micros(100)] {
        let mut side = Side::new(gathering(gather));
        side.poll();
        let start = StdInstant::now();
        for turn in 1..=10 {
            side.net.add_datagrams(MANY);
            // Each waits a millisecond for the kernel: the load is measured once at
            // least.
            for _ in 0..3 {
                side.poll();
            }
            assert!(
                waits(&side) >= turn * u64::from(!gather.is_zero()),
                "{turn}"
            );
        }
        assert!(start.elapsed() >= gather * u32::try_from(waits(&side)).unwrap());
        assert_eq!(waits(&side) > 0, !gather.is_zero());
    }
}

#[test]
fn no_turn_waits_longer_than_a_millisecond() {
    let mut config = NetConfig::client(Clock::new()).unwrap();
    config.limits.gather = GATHER_MAX + Duration::from_micros(1);
    assert!(matches!(Net::new(config), Err(NetError::Config(_))));
}
