//! Statistics of a list of numbers, without any interval.

/// Quartiles and extremes of a list.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Quartiles {
    pub(crate) min: f64,
    pub(crate) lower: f64,
    pub(crate) median: f64,
    pub(crate) upper: f64,
    pub(crate) max: f64,
}

impl Quartiles {
    /// Of a list in any order; `None` if there is no finite number in it.
    pub(crate) fn of(values: &[f64]) -> Option<Self> {
        let sorted = sorted(values);
        Some(Self {
            min: *sorted.first()?,
            lower: quantile(&sorted, 0.25)?,
            median: quantile(&sorted, 0.5)?,
            upper: quantile(&sorted, 0.75)?,
            max: *sorted.last()?,
        })
    }
}

/// The finite ones of these numbers, ascending.
pub(super) fn sorted(values: &[f64]) -> Vec<f64> {
    let mut sorted: Vec<f64> = values.iter().copied().filter(|v| v.is_finite()).collect();
    sorted.sort_unstable_by(f64::total_cmp);
    sorted
}

/// The value below which this share of an ascending list is, from 0 to 1,
/// interpolated between neighbours as R and `NumPy` do by default.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "positions in a list"
)]
pub(crate) fn quantile(sorted: &[f64], share: f64) -> Option<f64> {
    let last = sorted.len().checked_sub(1)?;
    let position = share.clamp(0.0, 1.0) * last as f64;
    let below = position.floor();
    let lower = *sorted.get(below as usize)?;
    let upper = *sorted.get(position.ceil() as usize)?;
    Some((position - below).mul_add(upper - lower, lower))
}

/// The value below which this share of a list in any order is; NaN if there is
/// no finite number in it.
pub(crate) fn quantile_of(values: &[f64], share: f64) -> f64 {
    quantile(&sorted(values), share).unwrap_or(f64::NAN)
}

/// A number of things as a value.
#[expect(clippy::cast_precision_loss, reason = "far below 2^53")]
pub(crate) const fn float(things: u64) -> f64 {
    things as f64
}

/// `None` if there is no finite number.
#[expect(clippy::cast_precision_loss, reason = "lengths of lists")]
pub(crate) fn mean(values: &[f64]) -> Option<f64> {
    let (count, sum) = values
        .iter()
        .filter(|v| v.is_finite())
        .fold((0_usize, 0.0), |(count, sum), v| (count + 1, sum + v));
    (count > 0).then(|| sum / count as f64)
}

/// The share of the values at or below each one, with at most `points` points
/// beside the first and the last: what a plot can show.
#[expect(clippy::cast_precision_loss, reason = "lengths of lists")]
pub(crate) fn ecdf(values: &[f64], points: usize) -> Vec<(f64, f64)> {
    let sorted = sorted(values);
    let count = sorted.len();
    let step = count.div_ceil(points.max(1)).max(1);
    sorted
        .iter()
        .enumerate()
        .filter(|(index, _)| index % step == 0 || index + 1 == count)
        .map(|(index, value)| (*value, (index + 1) as f64 / count as f64))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quartiles_are_those_of_other_programs() {
        // numpy.percentile([1, 2, 3, 4, 10], [25, 50, 75]) = [2, 3, 4]
        let quartiles = Quartiles::of(&[10.0, 1.0, 3.0, 2.0, 4.0]).expect("values");
        assert_eq!(
            (quartiles.lower, quartiles.median, quartiles.upper),
            (2.0, 3.0, 4.0)
        );
        assert_eq!((quartiles.min, quartiles.max), (1.0, 10.0));
        // numpy.percentile([1, 2, 3, 4], [25, 50, 75]) = [1.75, 2.5, 3.25]
        let quartiles = Quartiles::of(&[1.0, 2.0, 3.0, 4.0]).expect("values");
        assert_eq!(
            (quartiles.lower, quartiles.median, quartiles.upper),
            (1.75, 2.5, 3.25)
        );
    }

    #[test]
    fn nothing_gives_nothing() {
        assert_eq!(Quartiles::of(&[]), None);
        assert_eq!(Quartiles::of(&[f64::NAN, f64::INFINITY]), None);
        assert_eq!(mean(&[f64::NAN]), None);
        assert_eq!(quantile(&[], 0.5), None);
        assert!(ecdf(&[], 10).is_empty());
    }

    #[test]
    fn one_value_is_all_of_its_quartiles() {
        let one = Quartiles::of(&[7.0, f64::NAN]).expect("a value");
        assert_eq!((one.lower, one.median, one.upper), (7.0, 7.0, 7.0));
    }

    #[test]
    fn a_distribution_ends_at_one_however_few_points_it_has() {
        let values: Vec<f64> = (1..=1000).map(f64::from).collect();
        let few = ecdf(&values, 10);
        assert!(few.len() <= 12);
        assert_eq!(few.first(), Some(&(1.0, 0.001)));
        assert_eq!(few.last(), Some(&(1000.0, 1.0)));
        assert_eq!(ecdf(&[3.0, 1.0], 10), [(1.0, 0.5), (3.0, 1.0)]);
    }
}
