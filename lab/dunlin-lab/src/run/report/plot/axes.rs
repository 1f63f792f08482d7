//! Frame, grid, ticks and labels of one panel.

use super::model::{Form, Panel, Plot, XAxis};
use super::scale::Scale;
use super::svg::{Anchor, Svg};
use super::words;

/// Height of a line of text.
const LINE: f64 = 15.0;
/// Between an axis and its labels.
const GAP: f64 = 6.0;
/// Values along that each have their tick, because they were measured.
const MEASURED_MAX: usize = 10;
/// Degrees by which labels of categories are turned when they do not fit.
const TURN: f64 = -32.0;

/// Where a panel's coordinate system is, in pixels.
#[derive(Clone, Debug)]
pub(super) struct Frame {
    pub(super) left: f64,
    pub(super) right: f64,
    pub(super) top: f64,
    pub(super) bottom: f64,
    pub(super) x: Place,
    pub(super) y: Scale,
}

/// From what is along to pixels.
#[derive(Clone, Debug)]
pub(super) enum Place {
    /// Left end and width of one category.
    Slots(f64, f64),
    Scale(Scale),
}

impl Frame {
    /// The middle of a category, or the place of a number.
    pub(super) fn x_at(&self, x: f64) -> f64 {
        match &self.x {
            Place::Slots(left, width) => left + (x + 0.5) * width,
            Place::Scale(scale) => scale.at(x),
        }
    }

    /// Pixels of a category; 0 on a numeric axis.
    pub(super) const fn slot(&self) -> f64 {
        match self.x {
            Place::Slots(_, width) => width,
            Place::Scale(_) => 0.0,
        }
    }
}

/// The scale upright that has all these panels.
pub(super) fn upright<'a>(plot: &Plot, panels: impl Iterator<Item = &'a Panel>) -> Scale {
    if plot.form == Form::Distribution {
        return Scale::tight(0.0, 1.0);
    }
    let (mut low, mut high, mut above) = (f64::INFINITY, f64::NEG_INFINITY, f64::INFINITY);
    for value in panels.flat_map(Panel::values) {
        (low, high) = (low.min(value), high.max(value));
        if value > 0.0 {
            above = above.min(value);
        }
    }
    if plot.log {
        Scale::logarithmic(above, high)
    } else {
        Scale::linear(low.min(0.0), high.max(0.0))
    }
}

/// What lies along: the same for all panels unless it is a distribution or a
/// course, whose panels may differ much.
pub(super) fn along(plot: &Plot, panel: &Panel) -> Option<Scale> {
    let XAxis::Numbers { log } = plot.x else {
        return None;
    };
    let own = matches!(plot.form, Form::Distribution | Form::Course);
    let mut places: Vec<f64> = if own {
        panel.places().collect()
    } else {
        plot.panels.iter().flat_map(Panel::places).collect()
    };
    places.sort_unstable_by(f64::total_cmp);
    let (low, high) = (places.first().copied(), places.last().copied());
    let (low, high) = (low.unwrap_or(f64::NAN), high.unwrap_or(f64::NAN));
    let above = places.iter().copied().find(|place| *place > 0.0);
    let above = above.unwrap_or(f64::NAN);
    Some(match plot.form {
        Form::Distribution if plot.log => Scale::logarithmic(above, high),
        Form::Distribution => Scale::linear(low.min(0.0), high),
        Form::Course => Scale::tight(low.min(0.0), high),
        _ => {
            // Marks of the first and the last value keep off the frame.
            let spread = if high > low {
                high - low
            } else {
                high.abs().max(1.0)
            };
            let margin = 0.06 * spread;
            let scale = if log {
                Scale::logarithmic(above, high)
            } else {
                Scale::tight(low - margin, high + margin)
            };
            places.dedup();
            if places.len() <= MEASURED_MAX {
                scale.ticks_at(places)
            } else {
                scale
            }
        }
    })
}

/// Pixels needed left of the frame for labels upright.
pub(super) fn left_margin(scale: &Scale) -> f64 {
    let labels = scale
        .ticks()
        .into_iter()
        .map(|(_, text)| words::width(&text));
    labels.fold(0.0, f64::max) + GAP + 4.0
}

/// Pixels needed below the frame for labels of what lies along.
pub(super) fn bottom_margin(plot: &Plot, slot: f64) -> f64 {
    let labels = match &plot.x {
        XAxis::Categories(names) if turned(names, slot) => {
            let longest = names
                .iter()
                .map(|name| words::width(name))
                .fold(0.0, f64::max);
            longest * TURN.to_radians().sin().abs() + LINE
        }
        _ => LINE + 3.0,
    };
    labels + GAP
}

fn turned(names: &[String], slot: f64) -> bool {
    names.iter().any(|name| words::width(name) > slot - 4.0)
}

/// Draws everything that is not data.
pub(super) fn draw(svg: &mut Svg, plot: &Plot, panel: &Panel, frame: &Frame) {
    for (value, label) in frame.y.ticks() {
        let y = frame.y.at(value);
        svg.line("grid", (frame.left, y), (frame.right, y));
        svg.text("quiet", (frame.left - GAP, y + 4.0), Anchor::End, &label);
    }
    if !frame.y.is_log() && frame.y.base() < frame.bottom - 1.0 {
        let base = frame.y.base();
        svg.line("axis", (frame.left, base), (frame.right, base));
    }
    match (&plot.x, &frame.x) {
        (XAxis::Categories(names), _) => categories(svg, names, frame),
        (_, Place::Scale(scale)) => numbers(svg, scale, frame),
        _ => {}
    }
    svg.line(
        "axis",
        (frame.left, frame.bottom),
        (frame.right, frame.bottom),
    );
    svg.line("axis", (frame.left, frame.top), (frame.left, frame.bottom));
    if let Some(title) = &panel.title {
        let middle = (frame.left + frame.right) / 2.0;
        svg.text("bold", (middle, frame.top - 8.0), Anchor::Middle, title);
    }
    if panel.is_empty() {
        let middle = (
            (frame.left + frame.right) / 2.0,
            (frame.top + frame.bottom) / 2.0,
        );
        svg.text("quiet", middle, Anchor::Middle, "nothing recorded");
    }
}

fn categories(svg: &mut Svg, names: &[String], frame: &Frame) {
    let turned = turned(names, frame.slot());
    for (index, name) in names.iter().enumerate() {
        let x = frame.x_at(index as f64);
        if index > 0 {
            let edge = x - frame.slot() / 2.0;
            svg.line("axis", (edge, frame.bottom), (edge, frame.bottom + 4.0));
        }
        if turned {
            let at = (x + 4.0, frame.bottom + GAP + 9.0);
            svg.turned(at, Anchor::End, TURN, name);
        } else {
            let at = (x, frame.bottom + GAP + 11.0);
            svg.text("", at, Anchor::Middle, name);
        }
    }
}

fn numbers(svg: &mut Svg, scale: &Scale, frame: &Frame) {
    let mut free_from = f64::NEG_INFINITY;
    for (value, label) in scale.ticks() {
        let x = scale.at(value);
        svg.line("grid", (x, frame.top), (x, frame.bottom));
        svg.line("axis", (x, frame.bottom), (x, frame.bottom + 4.0));
        let half = words::width(&label) / 2.0;
        if x - half < free_from {
            continue;
        }
        free_from = x + half + 6.0;
        let at = (x, frame.bottom + GAP + 11.0);
        svg.text("quiet", at, Anchor::Middle, &label);
    }
}
