//! Loss, counted by who receives, and compared with what the link says.

use core::time::Duration;

use anyhow::Result;
use dunlin_link::Loss;

use super::bench::{Bench, Pace, Seen, on_thread};
use super::{DEVIATIONS_99, Line, SelfTest, deviation, pair};

/// Packets a second.
const PPS: u32 = 10_000;

impl SelfTest {
    pub(super) fn losses(&mut self) -> Result<()> {
        let sent: u32 = if self.short { 4_000 } else { 20_000 };
        for text in ["5%", "every 20", "ge 1% 30%"] {
            let bench = Bench::start(pair(&[&format!("up.loss={text}")])?, "b")?;
            let sender = bench.sender("a")?;
            let pace = Pace {
                count: sent,
                per_second: PPS,
                len: 100,
                numbered: true,
            };
            on_thread(|| sender.pace(pace))?;
            let seen = bench.end(Duration::ZERO);
            let loss = Loss::parse(text)?;
            let lost = u64::from(sent).saturating_sub(seen.received);
            let expected = f64::from(sent) * loss.share();
            let allowed = match loss {
                Loss::Every(_) => 0.0,
                // Bursts of mean length 1/r vary by this much more.
                Loss::GilbertElliott {
                    to_good, to_bad, ..
                } => {
                    let correlation = 1.0 - to_good - to_bad;
                    let stretch = (1.0 + correlation) / (1.0 - correlation);
                    deviation(sent, loss.share()) * stretch.sqrt()
                }
                _ => deviation(sent, loss.share()),
            };
            #[expect(clippy::cast_precision_loss, reason = "small counts")]
            let error = (lost as f64 - expected).abs();
            self.line(Line {
                what: &format!("lost of {sent}, loss {text}"),
                expected: &format!("{expected:.0}±{allowed:.0}"),
                seen: &lost.to_string(),
                good: error <= allowed && reply(&seen, lost),
                timing: false,
            });
            match loss {
                Loss::Every(every) => self.each_of(&seen, every, sent),
                Loss::GilbertElliott { to_good, .. } => self.bursts(&seen, to_good),
                _ => {}
            }
        }
        Ok(())
    }

    /// Which packets were lost, where every N-th should be.
    fn each_of(&mut self, seen: &Seen, every: u64, sent: u32) {
        let lost = (1..=u64::from(sent)).filter(|n| seen.numbers.binary_search(n).is_err());
        let off = lost.filter(|number| number % every != 0).count();
        self.line(Line {
            what: &format!("others than the {every}th lost"),
            expected: "0",
            seen: &off.to_string(),
            good: off == 0,
            timing: false,
        });
    }

    /// How many packets in a row were lost.
    #[expect(clippy::cast_precision_loss, reason = "small counts")]
    fn bursts(&mut self, seen: &Seen, to_good: f64) {
        let gaps: Vec<u64> = seen
            .numbers
            .windows(2)
            .filter_map(|pair| Some(pair.last()?.checked_sub(*pair.first()?)?.saturating_sub(1)))
            .filter(|gap| *gap > 0)
            .collect();
        let count = gaps.len().max(1) as f64;
        let mean = gaps.iter().sum::<u64>() as f64 / count;
        let expected = 1.0 / to_good;
        let allowed = DEVIATIONS_99 * (1.0 - to_good).sqrt() / to_good / count.sqrt();
        self.line(Line {
            what: "lost in a row",
            expected: &format!("{expected:.2}±{allowed:.2}"),
            seen: &format!("{mean:.2} in {count} bursts"),
            good: (mean - expected).abs() <= allowed,
            timing: false,
        });
    }
}

/// Whether the link says the same, and no one else dropped any.
fn reply(seen: &Seen, lost: u64) -> bool {
    lost == seen.lost_on("link") && seen.report.trouble().is_empty()
}
