//! Confidence intervals by resampling what was observed.
//!
//! Values of one cell share a link, its seed and a minute of the machine, so
//! they are no independent observations. Cells are drawn first, with
//! replacement, then values from each. With a single cell only the second draw
//! is left, and the interval says nothing of what another run would give.
//!
//! Values that follow each other are alike too: a lost packet delays a row of
//! messages. So runs of values are drawn from a long cell (the circular block
//! bootstrap), or its interval would be too narrow.

use dunlin_link::Random;

use super::order::quantile;

/// Resamples of one interval, when the sample is small.
const RESAMPLES_MAX: usize = 1000;
/// Resamples below which the ends of an interval are noise.
const RESAMPLES_MIN: usize = 200;
/// Values drawn for one interval; a sample of 100,000 latencies needs fewer
/// resamples for the same precision.
const DRAWS_MAX: usize = 8_000_000;
/// Values of a cell from which on rows of them are drawn, each as long as the
/// root of their number.
const ROWS_FROM: usize = 100;
/// What intervals leave out on each side.
const TAIL: f64 = 0.025;
/// Reports of the same records are the same bytes.
const SEED: u64 = 0x000d_0016;

/// Ends of the interval of 95 % of a statistic of one sample or more, which
/// are resampled independently of each other. `None` if there are too few
/// values: one observation says nothing about how far the next would be.
pub(super) fn interval(
    samples: &[&[Vec<f64>]],
    statistic: impl Fn(&mut [Vec<f64>]) -> Option<f64>,
) -> Option<(f64, f64)> {
    let values = |groups: &[Vec<f64>]| groups.iter().map(Vec::len).sum::<usize>();
    let smallest = samples.iter().map(|groups| values(groups)).min()?;
    let total: usize = samples.iter().map(|groups| values(groups)).sum();
    if smallest < 2 {
        return None;
    }
    let resamples = (DRAWS_MAX / total).clamp(RESAMPLES_MIN, RESAMPLES_MAX);
    let mut random = Random::new(SEED);
    let mut drawn: Vec<Vec<f64>> = vec![Vec::new(); samples.len()];
    let mut results = Vec::with_capacity(resamples);
    for _ in 0..resamples {
        for (groups, into) in samples.iter().zip(&mut drawn) {
            resample(groups, &mut random, into);
        }
        results.extend(statistic(&mut drawn).filter(|result| result.is_finite()));
    }
    results.sort_unstable_by(f64::total_cmp);
    Some((quantile(&results, TAIL)?, quantile(&results, 1.0 - TAIL)?))
}

fn resample(groups: &[Vec<f64>], random: &mut Random, into: &mut Vec<f64>) {
    into.clear();
    for _ in groups {
        if let Some(group) = pick(groups, random) {
            draw(group, random, into);
        }
    }
}

/// As many values as there are, in runs of neighbours.
fn draw(group: &[f64], random: &mut Random, into: &mut Vec<f64>) {
    let length = group.len();
    if length < ROWS_FROM {
        into.extend(group.iter().filter_map(|_| pick(group, random)));
        return;
    }
    let row = length.isqrt();
    let mut missing = length;
    while missing > 0 {
        let start = random.below(length as u64) as usize;
        let (before, after) = group.split_at(start);
        let taken = row.min(missing);
        let straight = taken.min(after.len());
        into.extend(after.iter().take(straight));
        into.extend(before.iter().take(taken - straight));
        missing -= taken;
    }
}

fn pick<'a, T>(from: &'a [T], random: &mut Random) -> Option<&'a T> {
    let index = random.below(u64::try_from(from.len()).ok()?);
    from.get(usize::try_from(index).ok()?)
}
