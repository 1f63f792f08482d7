//! Bars, points, lines and curves in a frame.

use super::axes::Frame;
use super::model::{Curve, Form, Panel, Plot, Point, Series};
use super::style::Style;
use super::svg::{Anchor, Svg};

/// Share of a category that is left free at its ends.
const MARGIN: f64 = 0.12;
/// Widest bar, in pixels.
const BAR: f64 = 34.0;
/// Widest place of a paper's mark, in pixels.
const PAPER: f64 = 14.0;
/// Half the width of the end of an error bar.
const CAP: f64 = 3.0;
/// Pixels between the marks of two series at the same number.
const DODGE: f64 = 2.5;
/// Width of a bar's place that has room for a word beside it.
const WORD: f64 = 15.0;
/// Half the size of the cross of what is invalid.
const CROSS: f64 = 4.0;

/// Where the series are within a category.
struct Slots {
    /// Offset of the middle from the middle of the category, and width.
    places: Vec<(f64, f64)>,
}

impl Slots {
    /// Bars of the series beside each other, then marks of papers.
    fn of(series: &[Series], panel: &Panel, width: f64) -> Self {
        let free = width * (1.0 - 2.0 * MARGIN);
        let here = |index: usize| {
            let mut points = panel.points.iter().map(|point| point.series);
            let mut invalid = panel.invalid.iter().map(|invalid| invalid.series);
            points.any(|series| series == index) || invalid.any(|series| series == index)
        };
        let count = |paper: bool| {
            let of = series.iter().enumerate();
            let of = of.filter(|(index, s)| s.style.is_paper() == paper && here(*index));
            of.count() as f64
        };
        let (bars, papers) = (count(false), count(true));
        let share = free / (bars + papers).max(1.0);
        let paper = share.min(PAPER);
        let bar = ((free - papers * paper) / bars.max(1.0)).min(BAR);
        let mut at = -(bars * bar + papers * paper) / 2.0;
        let places = series
            .iter()
            .enumerate()
            .map(|(index, series)| {
                let width = match series.style.is_paper() {
                    _ if !here(index) => 0.0,
                    true => paper,
                    false => bar,
                };
                at += width;
                (at - width / 2.0, width)
            })
            .collect();
        Self { places }
    }

    fn of_series(&self, series: usize) -> (f64, f64) {
        self.places.get(series).copied().unwrap_or((0.0, 0.0))
    }
}

/// Draws the data of a panel.
pub(super) fn draw(svg: &mut Svg, plot: &Plot, panel: &Panel, frame: &Frame) {
    for curve in &panel.curves {
        draw_curve(svg, plot, curve, frame);
    }
    match plot.form {
        Form::Bars => bars(svg, plot, panel, frame),
        _ => lines(svg, plot, panel, frame),
    }
}

fn style(plot: &Plot, series: usize) -> Style {
    plot.series
        .get(series)
        .map_or_else(Style::default, |series| series.style)
}

fn bars(svg: &mut Svg, plot: &Plot, panel: &Panel, frame: &Frame) {
    let slots = Slots::of(&plot.series, panel, frame.slot());
    for point in &panel.points {
        let (offset, width) = slots.of_series(point.series);
        let x = frame.x_at(point.x) + offset;
        let style = style(plot, point.series);
        let y = frame.y.at(point.value);
        svg.reply(&style.class(), &point.tip);
        if style.is_paper() {
            svg.shape(style.mark_class(), (x, y), style.shape_path());
        } else if frame.y.is_log() {
            // A bar's length means nothing where there is no zero.
            whisker(svg, "w", x, point, frame);
            svg.shape(style.mark_class(), (x, y), style.shape_path());
        } else {
            let base = frame.y.base();
            let thick = (width - 1.0).max(1.0);
            let corner = (x - thick / 2.0, y.min(base));
            svg.rect(&style.bar_class(), corner, (thick, (y - base).abs()));
            whisker(svg, "bw", x, point, frame);
        }
        svg.end();
    }
    for invalid in &panel.invalid {
        let (offset, width) = slots.of_series(invalid.series);
        let at = (frame.x_at(invalid.x) + offset, frame.bottom - CROSS - 3.0);
        cross(svg, plot, invalid.series, at, &invalid.tip);
        if width >= WORD {
            let word = (at.0 + 4.0, at.1 - CROSS - 3.0);
            svg.turned(word, Anchor::Start, -90.0, "invalid");
        }
    }
}

fn lines(svg: &mut Svg, plot: &Plot, panel: &Panel, frame: &Frame) {
    let own = plot.series.iter().filter(|s| !s.style.is_paper()).count();
    for (index, series) in plot.series.iter().enumerate() {
        let points: Vec<&Point> = in_order(panel, index);
        let dodge = if series.style.is_paper() || plot.form != Form::Lines {
            0.0
        } else {
            (index as f64 - (own as f64 - 1.0) / 2.0) * DODGE
        };
        let at = |point: &Point| (frame.x_at(point.x) + dodge, frame.y.at(point.value));
        let line: Vec<_> = points.iter().map(|point| at(point)).collect();
        svg.group(&series.style.class());
        svg.polyline(&series.style.line_class(), &line);
        for point in points {
            svg.reply("", &point.tip);
            whisker(svg, "w", at(point).0, point, frame);
            let path = series.style.shape_path();
            svg.shape(series.style.mark_class(), at(point), path);
            svg.end();
        }
        svg.end();
    }
    // Crosses of several series at one place are beside each other.
    for (index, invalid) in panel.invalid.iter().enumerate() {
        let before = panel.invalid.get(..index).unwrap_or_default();
        let same = before.iter().filter(|other| other.x == invalid.x).count();
        let x = frame.x_at(invalid.x) + same as f64 * 2.6 * CROSS;
        let y = frame.bottom - CROSS - 3.0;
        cross(svg, plot, invalid.series, (x, y), &invalid.tip);
    }
}

fn in_order(panel: &Panel, series: usize) -> Vec<&Point> {
    let mut points: Vec<&Point> = panel
        .points
        .iter()
        .filter(|point| point.series == series && point.value.is_finite())
        .collect();
    points.sort_by(|a, b| a.x.total_cmp(&b.x));
    points
}

fn draw_curve(svg: &mut Svg, plot: &Plot, curve: &Curve, frame: &Frame) {
    let style = style(plot, curve.series);
    let at = |(x, y): &(f64, f64)| (frame.x_at(*x), frame.y.at(*y));
    let points: Vec<_> = if plot.form == Form::Distribution {
        // The share rises at a value, not before it.
        let mut steps = Vec::with_capacity(2 * curve.points.len());
        let mut share = frame.y.at(0.0);
        for point in &curve.points {
            let (x, y) = at(point);
            steps.push((x, share));
            steps.push((x, y));
            share = y;
        }
        steps
    } else {
        curve.points.iter().map(at).collect()
    };
    svg.reply(&style.class(), &curve.tip);
    if let [(x, y)] = points.as_slice() {
        svg.shape(style.mark_class(), (*x, *y), style.shape_path());
    }
    let thin = if plot.form == Form::Course {
        " thin"
    } else {
        ""
    };
    svg.polyline(&format!("{}{thin}", style.line_class()), &points);
    svg.end();
}

fn whisker(svg: &mut Svg, class: &str, x: f64, point: &Point, frame: &Frame) {
    if !(point.low.is_finite() && point.high.is_finite()) {
        return;
    }
    let (low, high) = (frame.y.at(point.low), frame.y.at(point.high));
    svg.line(class, (x, low), (x, high));
    for end in [low, high] {
        svg.line(class, (x - CAP, end), (x + CAP, end));
    }
}

fn cross(svg: &mut Svg, plot: &Plot, series: usize, at: (f64, f64), tip: &str) {
    svg.reply(&style(plot, series).class(), tip);
    let (x, y) = at;
    svg.line("x", (x - CROSS, y - CROSS), (x + CROSS, y + CROSS));
    svg.line("x", (x - CROSS, y + CROSS), (x + CROSS, y - CROSS));
    svg.end();
}
