//! A picture before it is drawn: what is on the axes and which marks there
//! are. Numbers only; it knows no pixels and no records.

use super::style::Style;

/// One figure: panels side by side with one legend.
#[derive(Clone, Debug)]
pub(crate) struct Plot {
    /// For those who cannot see it.
    pub(crate) name: String,
    pub(crate) x: XAxis,
    pub(crate) x_label: String,
    pub(crate) y_label: String,
    pub(crate) form: Form,
    /// Of the axis that has the values: upright, except for a distribution.
    pub(crate) log: bool,
    pub(crate) series: Vec<Series>,
    pub(crate) panels: Vec<Panel>,
}

impl Plot {
    /// Whether there is nothing to draw.
    pub(crate) fn is_empty(&self) -> bool {
        self.panels.iter().all(Panel::is_empty)
    }

    /// What marks, bars and lines stand for, in sentences.
    pub(crate) fn explained(&self) -> String {
        let mut said = match self.form {
            Form::Bars if self.log => "Medians with quartiles, on a logarithmic axis.",
            Form::Bars => "Medians with quartiles.",
            Form::Lines => "Means with their confidence intervals of 95 %.",
            Form::Distribution => "The share of values at or below each one.",
            Form::Course => "A line for each repetition.",
        }
        .to_owned();
        let low = |panel: &Panel| match self.form {
            Form::Distribution => panel.places().any(|place| place <= 0.0),
            _ => panel.values().any(|value| value <= 0.0),
        };
        if self.log && self.panels.iter().any(low) {
            said.push_str(" What is not above 0 is at the edge of the logarithmic axis.");
        }
        said
    }
}

/// What lies along.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum XAxis {
    /// Marks are at the index of their category.
    Categories(Vec<String>),
    /// Marks are at their number.
    Numbers { log: bool },
}

/// What marks look like.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Form {
    Bars,
    Lines,
    Distribution,
    Course,
}

/// A row of the legend.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Series {
    pub(crate) name: String,
    pub(crate) style: Style,
}

/// One coordinate system.
#[derive(Clone, Debug, Default)]
pub(crate) struct Panel {
    pub(crate) title: Option<String>,
    pub(crate) points: Vec<Point>,
    pub(crate) curves: Vec<Curve>,
    pub(crate) invalid: Vec<Invalid>,
}

/// A value with its error bar.
#[derive(Clone, Debug)]
pub(crate) struct Point {
    /// Index into the series of the plot.
    pub(crate) series: usize,
    pub(crate) x: f64,
    pub(crate) value: f64,
    /// Ends of the error bar; NaN if there is none.
    pub(crate) low: f64,
    pub(crate) high: f64,
    /// Shown when pointed at, and in the table of numbers.
    pub(crate) tip: String,
}

/// A line of many points.
#[derive(Clone, Debug)]
pub(crate) struct Curve {
    pub(crate) series: usize,
    pub(crate) points: Vec<(f64, f64)>,
    pub(crate) tip: String,
}

/// Where a number would be if its cells had been valid.
#[derive(Clone, Debug)]
pub(crate) struct Invalid {
    pub(crate) series: usize,
    pub(crate) x: f64,
    pub(crate) tip: String,
}

impl Panel {
    /// Whether there is anything to draw.
    pub(crate) fn is_empty(&self) -> bool {
        self.points.is_empty() && self.curves.is_empty() && self.invalid.is_empty()
    }

    /// Everything upright that has to fit.
    pub(super) fn values(&self) -> impl Iterator<Item = f64> + '_ {
        let points = self
            .points
            .iter()
            .flat_map(|point| [point.value, point.low, point.high]);
        let curves = self
            .curves
            .iter()
            .flat_map(|curve| curve.points.iter().map(|(_, y)| *y));
        points.chain(curves).filter(|value| value.is_finite())
    }

    /// Everything along that has to fit.
    pub(super) fn places(&self) -> impl Iterator<Item = f64> + '_ {
        let points = self.points.iter().map(|point| point.x);
        let invalid = self.invalid.iter().map(|invalid| invalid.x);
        let curves = self
            .curves
            .iter()
            .flat_map(|curve| curve.points.iter().map(|(x, _)| *x));
        points
            .chain(invalid)
            .chain(curves)
            .filter(|place| place.is_finite())
    }
}
