//! One axis: linear, logarithmic, or a place for each category. It chooses the
//! ticks, which the plotting library then draws.

use core::ops::Range;

use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, Ranged, ValueFormatter};

use super::model::{Form, Panel, Plot, XAxis};
use super::words;

/// Ticks wanted on an axis.
const TICKS: f64 = 5.0;
/// Ticks at most, for all ends.
const TICKS_MAX: f64 = 20.0;
/// Decades above which the ticks between powers of ten are left out.
const DECADES_WITH_STEPS: f64 = 2.5;
/// Values along that each have their tick, because they were measured.
const MEASURED_MAX: usize = 10;

/// A mapping of values to pixels.
#[derive(Clone, Debug)]
pub(super) struct Axis {
    /// Logarithms, if it is logarithmic.
    low: f64,
    high: f64,
    log: bool,
    ticks: Vec<f64>,
}

impl Axis {
    /// A linear one that has these values and ends at a tick.
    fn linear(low: f64, high: f64) -> Self {
        let (low, high) = proper(low, high);
        let step = step(high - low, TICKS);
        Self::tight((low / step).floor() * step, (high / step).ceil() * step)
    }

    /// A linear one that ends where its values do.
    fn tight(low: f64, high: f64) -> Self {
        let (low, high) = proper(low, high);
        let step = step(high - low, TICKS);
        // What is left of a division is no reason to lose the last tick.
        let (first, last) = ((low / step - 1e-9).ceil(), (high / step + 1e-9).floor());
        let count = (last - first).clamp(0.0, TICKS_MAX) as u32;
        let ticks = (0..=count).map(|index| (first + f64::from(index)) * step);
        Self {
            low,
            high,
            log: false,
            ticks: ticks.collect(),
        }
    }

    /// A logarithmic one that has these values, which are above 0.
    fn logarithmic(low: f64, high: f64) -> Self {
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
            log: true,
            ticks: powers(low, high),
        }
    }

    /// A place for each of these names.
    fn categories(names: &[String]) -> Self {
        Self {
            low: -0.5,
            high: names.len().max(1) as f64 - 0.5,
            log: false,
            ticks: Vec::new(),
        }
    }

    /// The scale upright that has all these panels.
    pub(super) fn upright<'a>(plot: &Plot, panels: impl Iterator<Item = &'a Panel>) -> Self {
        if plot.form == Form::Distribution {
            return Self::tight(0.0, 1.0);
        }
        let (mut low, mut high, mut above) = (f64::INFINITY, f64::NEG_INFINITY, f64::INFINITY);
        for value in panels.flat_map(Panel::values) {
            (low, high) = (low.min(value), high.max(value));
            if value > 0.0 {
                above = above.min(value);
            }
        }
        if plot.log {
            Self::logarithmic(above, high)
        } else {
            Self::linear(low.min(0.0), high.max(0.0))
        }
    }

    /// What lies along: the same for all panels unless it is a distribution or a
    /// course, whose panels may differ much.
    pub(super) fn along(plot: &Plot, panel: &Panel) -> Self {
        let log = match &plot.x {
            XAxis::Categories(names) => return Self::categories(names),
            XAxis::Numbers { log } => *log,
        };
        let mut places: Vec<f64> = match plot.form {
            Form::Distribution | Form::Course => panel.places().collect(),
            _ => plot.panels.iter().flat_map(Panel::places).collect(),
        };
        places.sort_unstable_by(f64::total_cmp);
        let low = places.first().copied().unwrap_or(f64::NAN);
        let high = places.last().copied().unwrap_or(f64::NAN);
        let above = places.iter().copied().find(|place| *place > 0.0);
        let above = above.unwrap_or(f64::NAN);
        match plot.form {
            Form::Distribution if plot.log => return Self::logarithmic(above, high),
            Form::Distribution => return Self::linear(low.min(0.0), high),
            Form::Course => return Self::tight(low.min(0.0), high),
            Form::Bars | Form::Lines => {}
        }
        // Marks of the first and the last value keep off the frame.
        let spread = if high > low {
            high - low
        } else {
            high.abs().max(1.0)
        };
        let margin = 0.06 * spread;
        let mut axis = if log {
            Self::logarithmic(above, high)
        } else {
            Self::tight(low - margin, high + margin)
        };
        places.dedup();
        if places.len() <= MEASURED_MAX {
            axis.ticks = places;
        }
        axis
    }

    /// Where bars stand: at 0, or at the lower end of a logarithmic axis.
    pub(super) fn base(&self) -> f64 {
        if self.log { 0.0 } else { self.low.max(0.0) }
    }

    /// Pixels of the widest label.
    pub(super) fn widest_label(&self) -> f64 {
        let widths = self
            .ticks
            .iter()
            .map(|tick| words::width(&words::tick(*tick)));
        widths.fold(0.0, f64::max)
    }

    /// Leaves out ticks whose labels would touch each other on so many pixels.
    pub(super) fn thinned(mut self, pixels: f64) -> Self {
        let mut free_from = f64::NEG_INFINITY;
        let mut kept = core::mem::take(&mut self.ticks);
        kept.retain(|tick| {
            let x = self.share(*tick) * pixels;
            let half = words::width(&words::tick(*tick)) / 2.0;
            let fits = x - half >= free_from;
            if fits {
                free_from = x + half + 8.0;
            }
            fits
        });
        self.ticks = kept;
        self
    }

    /// How far along the axis a value is; at the nearer end if it is outside.
    fn share(&self, value: f64) -> f64 {
        let value = match self.log {
            true if value > 0.0 => value.log10(),
            true => self.low,
            false => value,
        };
        ((value - self.low) / (self.high - self.low)).clamp(0.0, 1.0)
    }
}

impl Ranged for Axis {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, (from, to): (i32, i32)) -> i32 {
        from + (self.share(*value) * f64::from(to - from)).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, _hint: Hint) -> Vec<f64> {
        self.ticks.clone()
    }

    fn range(&self) -> Range<f64> {
        self.low..self.high
    }
}

impl ValueFormatter<f64> for Axis {
    fn format_ext(&self, value: &f64) -> String {
        words::tick(*value)
    }
}

/// Powers of ten between these logarithms, and steps where there are few.
fn powers(low: f64, high: f64) -> Vec<f64> {
    let steps: &[f64] = if high - low <= DECADES_WITH_STEPS {
        &[1.0, 2.0, 5.0]
    } else {
        &[1.0]
    };
    let (first, last) = (low.floor() as i32, high.ceil() as i32);
    // Many decades: a line for each would be a grey area.
    let every = ((last - first) / 10 + 1).max(1);
    let inside = |value: &f64| {
        let log = value.log10();
        log > low - 1e-9 && log < high + 1e-9
    };
    (first..=last)
        .filter(|power| power % every == 0)
        .flat_map(|power| steps.iter().map(move |step| step * 10_f64.powi(power)))
        .filter(inside)
        .collect()
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

    fn labels(axis: &Axis) -> Vec<String> {
        axis.ticks.iter().map(|tick| words::tick(*tick)).collect()
    }

    #[test]
    fn linear_scales_end_at_ticks() {
        assert_eq!(
            labels(&Axis::linear(0.0, 93.0)),
            ["0", "20", "40", "60", "80", "100"]
        );
        assert_eq!(
            labels(&Axis::linear(-56.0, 0.0)),
            ["−60", "−40", "−20", "0"]
        );
        assert_eq!(
            labels(&Axis::tight(0.0, 960.0)),
            ["0", "200", "400", "600", "800"]
        );
    }

    #[test]
    fn logarithmic_scales_have_powers_and_few_steps() {
        assert_eq!(
            labels(&Axis::logarithmic(1.4, 70.0)),
            ["1", "2", "5", "10", "20", "50", "100"]
        );
        assert_eq!(
            labels(&Axis::logarithmic(0.01, 40_000.0)),
            ["0.01", "0.1", "1", "10", "100", "1000", "10k"]
        );
    }

    #[test]
    fn values_have_places_and_stay_inside() {
        let axis = Axis::linear(0.0, 100.0);
        assert_eq!(axis.map(&50.0, (200, 0)), 100);
        assert_eq!(axis.map(&1e9, (200, 0)), 0);
        let log = Axis::logarithmic(1.0, 100.0);
        assert_eq!((log.map(&0.0, (0, 9)), log.map(&-3.0, (0, 9))), (0, 0));
    }

    #[test]
    fn nothing_sensible_still_has_an_axis() {
        for (low, high) in [
            (f64::NAN, f64::NAN),
            (0.0, 0.0),
            (5.0, 5.0),
            (f64::INFINITY, 0.0),
        ] {
            for axis in [Axis::linear(low, high), Axis::logarithmic(low, high)] {
                assert!(!axis.ticks.is_empty(), "{low} {high}");
                assert!(axis.share(1.0).is_finite());
            }
        }
    }
}
