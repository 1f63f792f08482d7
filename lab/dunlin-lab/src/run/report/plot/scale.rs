//! From values to places: linear, logarithmic, or one place for each category.

use super::words;

/// Ticks wanted on an axis.
const TICKS: f64 = 5.0;
/// Decades above which the ticks between powers of ten are left out.
const DECADES_WITH_STEPS: f64 = 2.5;

/// A mapping of values to a range of pixels.
#[derive(Clone, Debug)]
pub(super) struct Scale {
    /// Logarithms, if it is logarithmic.
    low: f64,
    high: f64,
    from: f64,
    to: f64,
    log: bool,
    /// Ticks wanted on a linear one.
    ticks: f64,
    /// Where ticks are, if that does not follow from the ends.
    fixed: Vec<f64>,
}

impl Scale {
    /// A linear one that has these values and ends at a tick.
    pub(super) fn linear(low: f64, high: f64) -> Self {
        let (low, high) = proper(low, high);
        let step = step(high - low, TICKS);
        Self {
            low: (low / step).floor() * step,
            high: (high / step).ceil() * step,
            from: 0.0,
            to: 1.0,
            log: false,
            ticks: TICKS,
            fixed: Vec::new(),
        }
    }

    /// A linear one that ends where its values do.
    pub(super) fn tight(low: f64, high: f64) -> Self {
        let (low, high) = proper(low, high);
        Self {
            low,
            high,
            from: 0.0,
            to: 1.0,
            log: false,
            ticks: TICKS,
            fixed: Vec::new(),
        }
    }

    /// A logarithmic one that has these values, which are above 0.
    pub(super) fn logarithmic(low: f64, high: f64) -> Self {
        let (low, high) = if low > 0.0 && high >= low && high.is_finite() {
            (low.log10(), high.log10())
        } else {
            (0.0, 1.0)
        };
        // A third of a decade is a step of the ticks 1, 2, 5.
        let (mut low, mut high) = (
            (low * 3.0 - 0.1).floor() / 3.0,
            (high * 3.0 + 0.1).ceil() / 3.0,
        );
        if high - low < 1.0 {
            (low, high) = (low.floor(), high.ceil().max(low.floor() + 1.0));
        }
        Self {
            low,
            high,
            from: 0.0,
            to: 1.0,
            log: true,
            ticks: TICKS,
            fixed: Vec::new(),
        }
    }

    /// On these pixels.
    pub(super) const fn over(mut self, from: f64, to: f64) -> Self {
        self.from = from;
        self.to = to;
        self
    }

    /// With a tick for about as many pixels, if it is linear.
    pub(super) fn tick_every(mut self, pixels: f64) -> Self {
        self.ticks = ((self.to - self.from).abs() / pixels).clamp(3.0, 12.0);
        self
    }

    /// With ticks at these values only.
    pub(super) fn ticks_at(mut self, values: Vec<f64>) -> Self {
        self.fixed = values;
        self
    }

    /// The place of a value, moved to the nearer end if it is outside.
    pub(super) fn at(&self, value: f64) -> f64 {
        let value = if self.log {
            if value > 0.0 { value.log10() } else { self.low }
        } else {
            value
        };
        let share = ((value - self.low) / (self.high - self.low)).clamp(0.0, 1.0);
        share.mul_add(self.to - self.from, self.from)
    }

    /// The end where bars stand: 0 if the scale has it.
    pub(super) fn base(&self) -> f64 {
        if self.log { self.from } else { self.at(0.0) }
    }

    pub(super) const fn is_log(&self) -> bool {
        self.log
    }

    /// Values with a line and a label.
    pub(super) fn ticks(&self) -> Vec<(f64, String)> {
        let values = match (self.fixed.is_empty(), self.log) {
            (false, _) => self.fixed.clone(),
            (true, true) => self.powers(),
            (true, false) => self.steps(),
        };
        values
            .into_iter()
            .map(|value| (value, words::tick(value)))
            .collect()
    }

    fn steps(&self) -> Vec<f64> {
        let step = step(self.high - self.low, self.ticks);
        let (first, last) = ((self.low / step).ceil(), (self.high / step).floor());
        let count = (last - first).clamp(0.0, 4.0 * self.ticks) as u32;
        (0..=count)
            .map(|index| (first + f64::from(index)) * step)
            .collect()
    }

    fn powers(&self) -> Vec<f64> {
        let steps: &[f64] = if self.high - self.low <= DECADES_WITH_STEPS {
            &[1.0, 2.0, 5.0]
        } else {
            &[1.0]
        };
        let (first, last) = (self.low.floor() as i32, self.high.ceil() as i32);
        // Many decades: a line for each would be a grey area.
        let every = ((last - first) / 10 + 1).max(1);
        let inside = |value: &f64| {
            let log = value.log10();
            log > self.low - 1e-9 && log < self.high + 1e-9
        };
        (first..=last)
            .filter(|power| power % every == 0)
            .flat_map(|power| steps.iter().map(move |step| step * 10_f64.powi(power)))
            .filter(inside)
            .collect()
    }
}

/// Ends that differ and are numbers.
fn proper(low: f64, high: f64) -> (f64, f64) {
    match (low.is_finite(), high.is_finite()) {
        (true, true) if high > low => (low, high),
        (true, _) if low > 0.0 => (0.0, low),
        (true, _) if low < 0.0 => (low, 0.0),
        _ => (0.0, 1.0),
    }
}

/// 1, 2, 2.5 or 5 times a power of ten.
fn step(span: f64, ticks: f64) -> f64 {
    let raw = span / ticks;
    let power = 10_f64.powf(raw.log10().floor());
    let times = match raw / power {
        r if r <= 1.0 => 1.0,
        r if r <= 2.0 => 2.0,
        r if r <= 2.5 => 2.5,
        r if r <= 5.0 => 5.0,
        _ => 10.0,
    };
    times * power
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(scale: &Scale) -> Vec<String> {
        scale.ticks().into_iter().map(|(_, label)| label).collect()
    }

    #[test]
    fn linear_scales_end_at_ticks() {
        assert_eq!(
            labels(&Scale::linear(0.0, 93.0)),
            ["0", "20", "40", "60", "80", "100"]
        );
        assert_eq!(
            labels(&Scale::linear(-56.0, 0.0)),
            ["−60", "−40", "−20", "0"]
        );
        assert_eq!(
            labels(&Scale::tight(0.0, 960.0)),
            ["0", "200", "400", "600", "800"]
        );
    }

    #[test]
    fn logarithmic_scales_have_powers_and_few_steps() {
        assert_eq!(
            labels(&Scale::logarithmic(1.4, 70.0)),
            ["1", "2", "5", "10", "20", "50", "100"]
        );
        assert_eq!(
            labels(&Scale::logarithmic(0.01, 40_000.0)),
            ["0.01", "0.1", "1", "10", "100", "1000", "10k"]
        );
    }

    #[test]
    fn values_have_places_and_stay_inside() {
        let scale = Scale::linear(0.0, 100.0).over(200.0, 0.0);
        assert_eq!(scale.at(50.0), 100.0);
        assert_eq!(scale.at(1e9), 0.0);
        assert_eq!(scale.base(), 200.0);
        let log = Scale::logarithmic(1.0, 100.0).over(0.0, 100.0);
        assert!(log.at(0.0) == 0.0 && log.at(-3.0) == 0.0);
    }

    #[test]
    fn nothing_sensible_still_has_an_axis() {
        for (low, high) in [
            (f64::NAN, f64::NAN),
            (0.0, 0.0),
            (5.0, 5.0),
            (f64::INFINITY, 0.0),
        ] {
            for scale in [Scale::linear(low, high), Scale::logarithmic(low, high)] {
                assert!(!scale.ticks().is_empty(), "{low} {high}");
                assert!(scale.at(1.0).is_finite());
            }
        }
    }
}
