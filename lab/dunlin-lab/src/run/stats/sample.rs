//! The values of one system and metric, chosen from the records.

use super::bootstrap;
use super::order::{Quartiles, mean, sorted};
use crate::run::experiment::Estimate;
use crate::run::record::{Cell, Measure, Record};

/// Which values of the records are meant.
#[derive(Clone, Debug)]
pub(crate) struct Pick {
    system: Option<String>,
    metric: String,
    factors: Vec<(String, String)>,
}

impl Pick {
    /// All values of a metric of a system.
    pub(crate) fn new(system: &str, metric: &str) -> Self {
        Self {
            system: Some(system.to_owned()),
            ..Self::any(metric)
        }
    }

    /// All values of a metric, of every system.
    pub(crate) fn any(metric: &str) -> Self {
        Self {
            system: None,
            metric: metric.to_owned(),
            factors: Vec::new(),
        }
    }

    /// Only where this factor, of the cell or of the measure, has this value.
    #[must_use]
    pub(crate) fn at(mut self, factor: &str, value: &str) -> Self {
        self.factors.push((factor.to_owned(), value.to_owned()));
        self
    }

    /// Whether the cell can have such values. A factor that it does not have
    /// may be one of its measures.
    fn cell(&self, cell: &Cell) -> bool {
        self.system.as_ref().is_none_or(|name| *name == cell.system)
            && self
                .factors
                .iter()
                .all(|(factor, value)| cell.factors.get(factor).is_none_or(|of| of == value))
    }

    fn measure(&self, cell: &Cell, measure: &Measure) -> bool {
        measure.metric == self.metric
            && self.factors.iter().all(|(factor, value)| {
                let of = measure.factors.get(factor);
                of.or_else(|| cell.factors.get(factor)) == Some(value)
            })
    }

    /// Measures of this metric in this record, if it is valid.
    pub(crate) fn measures<'a>(
        &'a self,
        record: &'a Record,
    ) -> impl Iterator<Item = &'a Measure> + 'a {
        let usable = record.outcome.invalid.is_none() && self.cell(&record.cell);
        record
            .outcome
            .measures
            .iter()
            .filter(move |measure| usable && self.measure(&record.cell, measure))
    }
}

/// What a sample is summed up to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Statistic {
    Mean,
    Median,
    /// From 0 to 1: 0.99 for the slowest in a hundred.
    Quantile(f64),
}

impl Statistic {
    /// `None` of no values. Changes their order.
    fn of(self, values: &mut [f64]) -> Option<f64> {
        let share = match self {
            Self::Mean => return mean(values),
            Self::Median => 0.5,
            Self::Quantile(share) => share,
        };
        select(values, share)
    }
}

/// What [`super::quantile`] gives of the sorted list, without sorting all of it.
fn select(values: &mut [f64], share: f64) -> Option<f64> {
    let last = values.len().checked_sub(1)?;
    let position = share.clamp(0.0, 1.0) * last as f64;
    let (_, lower, above) =
        values.select_nth_unstable_by(position.floor() as usize, f64::total_cmp);
    let next = above.iter().copied().min_by(f64::total_cmp);
    let rise = next.map_or(0.0, |upper| upper - *lower);
    Some(position.fract().mul_add(rise, *lower))
}

/// Values, kept apart by the cell that they come from.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sample {
    cells: Vec<Vec<f64>>,
}

impl Sample {
    /// The finite values of the valid cells.
    pub(crate) fn of(records: &[Record], pick: &Pick) -> Self {
        Self::new(records.iter().map(|record| {
            pick.measures(record)
                .flat_map(|measure| measure.values.iter().copied())
                .collect()
        }))
    }

    /// From the values of each cell.
    pub(crate) fn new(cells: impl IntoIterator<Item = Vec<f64>>) -> Self {
        let finite = |mut values: Vec<f64>| {
            values.retain(|value| value.is_finite());
            values
        };
        let mut cells: Vec<_> = cells.into_iter().map(finite).collect();
        cells.retain(|values| !values.is_empty());
        Self { cells }
    }

    /// All values, ascending.
    pub(crate) fn values(&self) -> Vec<f64> {
        sorted(&self.cells.concat())
    }

    /// Cells that have values.
    pub(crate) const fn cells(&self) -> usize {
        self.cells.len()
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.cells.is_empty()
    }

    pub(crate) fn quartiles(&self) -> Option<Quartiles> {
        Quartiles::of(&self.values())
    }

    /// The number without an interval.
    pub(crate) fn value(&self, statistic: Statistic) -> Option<f64> {
        statistic.of(&mut self.values())
    }

    /// The number and its interval.
    pub(crate) fn estimate(&self, statistic: Statistic) -> Option<Estimate> {
        let value = self.value(statistic)?;
        let ends = bootstrap::interval(&[&self.cells], |drawn| {
            statistic.of(drawn.first_mut()?.as_mut_slice())
        });
        Some(estimate(value, ends))
    }

    /// The change from the base in percent: -60 if it takes 40 % of it. `None`
    /// if one has no values or the base is 0.
    pub(crate) fn change(&self, base: &Self, statistic: Statistic) -> Option<Estimate> {
        self.against(base, statistic, |ours, theirs| {
            (ours / theirs - 1.0) * 100.0
        })
    }

    /// The difference from the base, in its unit.
    pub(crate) fn difference(&self, base: &Self, statistic: Statistic) -> Option<Estimate> {
        self.against(base, statistic, |ours, theirs| ours - theirs)
    }

    fn against(
        &self,
        base: &Self,
        statistic: Statistic,
        combine: impl Fn(f64, f64) -> f64,
    ) -> Option<Estimate> {
        let value = combine(self.value(statistic)?, base.value(statistic)?);
        if !value.is_finite() {
            return None;
        }
        let ends = bootstrap::interval(&[&self.cells, &base.cells], |drawn| {
            let [ours, theirs] = drawn else { return None };
            Some(combine(statistic.of(ours)?, statistic.of(theirs)?))
        });
        Some(estimate(value, ends))
    }
}

fn estimate(value: f64, ends: Option<(f64, f64)>) -> Estimate {
    let (low, high) = ends.unwrap_or((f64::NAN, f64::NAN));
    Estimate { value, low, high }
}

#[cfg(test)]
mod tests;
