//! The same over a network of several links: the dumbbell, where ten clients
//! share a bottleneck, three links from the broker.

use core::time::Duration;

use anyhow::Result;
use dunlin_link::{Action, Topology};

use super::bench::{Bench, Pace, on_thread};
use super::timing::queue_for;
use super::{Line, SelfTest, deviation};
use crate::profile;

/// Two clients of different clusters.
const ONE: &str = "c00";
const OTHER: &str = "c14";
const BROKER: &str = "broker";
const BOTTLENECK: &str = "bottleneck";

impl SelfTest {
    pub(super) fn paths(&mut self) -> Result<()> {
        let slow = dumbbell(&["delay=10ms"], &[])?;
        self.delay(slow, OTHER, BROKER, 30, "delay over 3 links of 10 ms")?;
        let queue = format!("{BOTTLENECK}.{}", queue_for(10));
        let narrow = dumbbell(&[], &["bottleneck.rate=10mbit", &queue])?;
        let what = "rate of a bottleneck, 2 senders";
        self.rate(narrow, &[ONE, OTHER], BROKER, BOTTLENECK, 10, what)?;
        self.losses_on_the_way()
    }

    /// What is left of packets that meet loss on each of three links.
    fn losses_on_the_way(&mut self) -> Result<()> {
        let sent: u32 = if self.short { 3_600 } else { 18_000 };
        let pace = Pace {
            count: sent,
            per_second: 10_000,
            len: 100,
            numbered: false,
        };
        let run = |topology: Topology| -> Result<_> {
            let bench = Bench::start(topology, BROKER)?;
            let sender = bench.sender(ONE)?;
            on_thread(|| sender.pace(pace))?;
            Ok(bench.end(Duration::ZERO))
        };
        let seen = run(dumbbell(
            &[],
            &[
                "c00.up.loss=every 10",
                "s0.up.loss=every 9",
                "bottleneck.up.loss=every 8",
            ],
        )?)?;
        // 9 of 10, 8 of 9 and 7 of 8 are 7 of 10.
        let expected = u64::from(sent) * 7 / 10;
        self.line(Line {
            what: &format!("left of {sent}, every 10, 9 and 8"),
            expected: &expected.to_string(),
            seen: &seen.received.to_string(),
            good: seen.received == expected && seen.report.trouble().is_empty(),
            timing: false,
        });
        let seen = run(dumbbell(&["up.loss=5%"], &[])?)?;
        let share = 1.0 - 0.95f64.powi(3);
        let expected = f64::from(sent) * share;
        let lost = u64::from(sent).saturating_sub(seen.received);
        let allowed = deviation(sent, share);
        let dropped: u64 = [ONE, "s0", BOTTLENECK]
            .iter()
            .map(|link| seen.lost_on(link))
            .sum();
        #[expect(clippy::cast_precision_loss, reason = "small counts")]
        let error = (lost as f64 - expected).abs();
        self.line(Line {
            what: &format!("lost of {sent}, 5% on each of 3 links"),
            expected: &format!("{expected:.0}±{allowed:.0}"),
            seen: &lost.to_string(),
            good: error <= allowed && lost == dropped && seen.report.trouble().is_empty(),
            timing: false,
        });
        Ok(())
    }
}

/// The dumbbell, with settings of all links, then of some.
fn dumbbell(all: &[&str], some: &[&str]) -> Result<Topology> {
    let mut topology = Topology::dumbbell(&profile::of(all)?)?;
    for setting in some {
        topology.apply(&Action::parse(setting)?)?;
    }
    Ok(topology)
}
