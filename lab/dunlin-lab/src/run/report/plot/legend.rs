//! The legend above the panels, in as many rows as it takes.

use super::model::{Form, Plot, Series};
use super::svg::{Anchor, Svg};
use super::words;

/// Height of a row.
const ROW: f64 = 19.0;
/// Width of the sample before a name.
const SAMPLE: f64 = 26.0;
/// Between a name and the next sample.
const GAP: f64 = 20.0;
/// What the cross means, where there is one.
const INVALID: &str = "invalid: no number";

/// Where each entry is, and the height of all rows.
fn places(plot: &Plot, left: f64, right: f64) -> (Vec<(f64, f64)>, f64) {
    let names = plot.series.iter().map(|series| series.name.as_str());
    let invalid = has_invalid(plot).then_some(INVALID);
    let (mut x, mut row) = (left, 0.0);
    let mut places = Vec::new();
    for name in names.chain(invalid) {
        let width = SAMPLE + words::width(name);
        if x > left && x + width > right {
            (x, row) = (left, row + 1.0);
        }
        places.push((x, row * ROW));
        x += width + GAP;
    }
    let rows = if places.is_empty() { 0.0 } else { row + 1.0 };
    (places, rows * ROW)
}

fn has_invalid(plot: &Plot) -> bool {
    plot.panels.iter().any(|panel| !panel.invalid.is_empty())
}

/// Pixels that it needs between these.
pub(super) fn height(plot: &Plot, left: f64, right: f64) -> f64 {
    places(plot, left, right).1
}

/// Draws it with its upper end at `top`.
pub(super) fn draw(svg: &mut Svg, plot: &Plot, left: f64, right: f64, top: f64) {
    let (places, _) = places(plot, left, right);
    for (series, (x, row)) in plot.series.iter().zip(&places) {
        let middle = top + row + ROW / 2.0;
        sample(svg, plot, series, (*x, middle));
        let at = (x + SAMPLE, middle + 4.0);
        svg.text("", at, Anchor::Start, &series.name);
    }
    if let (true, Some((x, row))) = (has_invalid(plot), places.last()) {
        let middle = top + row + ROW / 2.0;
        let sample = x + SAMPLE / 2.0 - 2.0;
        svg.group("paper");
        for turn in [4.0, -4.0] {
            let (from, to) = ((sample - 4.0, middle - turn), (sample + 4.0, middle + turn));
            svg.line("x", from, to);
        }
        svg.end();
        svg.text("", (x + SAMPLE, middle + 4.0), Anchor::Start, INVALID);
    }
}

fn sample(svg: &mut Svg, plot: &Plot, series: &Series, at: (f64, f64)) {
    let (x, y) = at;
    let style = series.style;
    let middle = x + SAMPLE / 2.0 - 2.0;
    svg.group(&style.class());
    let marks = !matches!(plot.form, Form::Distribution | Form::Course) || style.is_paper();
    if plot.form == Form::Bars && !plot.log && !style.is_paper() {
        svg.rect(&style.bar_class(), (middle - 8.0, y - 5.0), (16.0, 10.0));
    } else {
        if plot.form != Form::Bars {
            svg.polyline(&style.line_class(), &[(x, y), (x + SAMPLE - 5.0, y)]);
        }
        if marks {
            svg.shape(style.mark_class(), (middle, y), style.shape_path());
        }
    }
    svg.end();
}
