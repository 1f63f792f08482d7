//! Pictures as SVG, from a model of what is in them. Nothing is loaded, no
//! script runs, and the same model gives the same bytes.

mod axes;
mod legend;
mod marks;
pub(super) mod model;
mod scale;
pub(super) mod style;
mod svg;
pub(super) mod words;

#[cfg(test)]
pub(super) mod tests;

use axes::{Frame, Place};
use model::{Form, Panel, Plot, XAxis};
use scale::Scale;
use svg::{Anchor, Svg};

pub(super) use style::sheet;
pub(super) use svg::escape;

/// Width of every picture.
const WIDTH: f64 = 820.0;
/// Around everything.
const EDGE: f64 = 10.0;
/// Height of a lone panel's frame, and of each of several.
const HEIGHT: f64 = 300.0;
const HEIGHT_OF_MANY: f64 = 210.0;
/// Between panels.
const BETWEEN: f64 = 18.0;
/// Panels in a row, at most.
const COLUMNS: usize = 3;
/// Narrowest bar of a figure of several columns, and its narrowest panel.
const BAR_MIN: f64 = 7.0;
const PANEL_MIN: f64 = 230.0;
/// Panels share the scale upright unless their values differ by more.
const SHARE: f64 = 6.0;
/// Between ticks along.
const TICK_WIDTH: f64 = 75.0;
/// Height of an axis' name and of a panel's title.
const LABEL: f64 = 18.0;

/// Whether the picture is part of a page that has the style sheet.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Standing {
    InPage,
    Alone,
}

/// Draws a plot.
pub(super) fn draw(plot: &Plot, standing: Standing) -> String {
    let mut svg = Svg::default();
    let (left, right) = (EDGE, WIDTH - EDGE);
    let legend = legend::height(plot, left, right);
    legend::draw(&mut svg, plot, left, right, EDGE);
    let columns = columns(plot);
    let scales = scales(plot);
    let mut top = EDGE + legend + 8.0;
    let panels: Vec<(&Panel, &Scale)> = plot.panels.iter().zip(&scales).collect();
    for row in panels.chunks(columns) {
        top += draw_row(&mut svg, plot, row, columns, top);
    }
    let height = top + EDGE / 2.0;
    let style = (standing == Standing::Alone).then(sheet);
    svg.finish(WIDTH, height, &plot.name, style.as_deref())
}

/// Panels in a row, so that bars can still be told apart.
fn columns(plot: &Plot) -> usize {
    let needed = match (&plot.x, plot.form) {
        (XAxis::Categories(names), Form::Bars) => {
            let bars = names.len() as f64 * (plot.series.len() as f64 + 1.0);
            (bars * BAR_MIN + 60.0).max(PANEL_MIN)
        }
        _ => PANEL_MIN,
    };
    let fit = (WIDTH / needed).clamp(1.0, COLUMNS as f64) as usize;
    match plot.panels.len() {
        0 | 1 => 1,
        // Two and two, not three and one.
        4 if fit == 3 => 2,
        count => fit.min(count),
    }
}

/// One scale for all panels if their values are of a size, else one for each.
fn scales(plot: &Plot) -> Vec<Scale> {
    let tops: Vec<f64> = plot
        .panels
        .iter()
        .filter_map(|panel| panel.values().map(f64::abs).reduce(f64::max))
        .collect();
    let most = tops.iter().copied().fold(0.0, f64::max);
    let least = tops.iter().copied().fold(f64::INFINITY, f64::min);
    let shared = plot.log || most <= SHARE * least;
    let all = axes::upright(plot, plot.panels.iter());
    plot.panels
        .iter()
        .map(|panel| {
            if shared || panel.is_empty() {
                all.clone()
            } else {
                axes::upright(plot, core::iter::once(panel))
            }
        })
        .collect()
}

/// Draws a row of panels and says how high it is.
fn draw_row(svg: &mut Svg, plot: &Plot, row: &[(&Panel, &Scale)], columns: usize, top: f64) -> f64 {
    let titled = row.iter().any(|(panel, _)| panel.title.is_some());
    let frame_top = top + if titled { LABEL + 4.0 } else { 4.0 };
    let height = if plot.panels.len() > 1 {
        HEIGHT_OF_MANY
    } else {
        HEIGHT
    };
    let bottom = frame_top + height;
    let width = (WIDTH - 2.0 * EDGE - LABEL - BETWEEN * (columns as f64 - 1.0)) / columns as f64;
    let mut below: f64 = 0.0;
    for (index, (panel, scale)) in row.iter().enumerate() {
        let left = EDGE + LABEL + index as f64 * (width + BETWEEN);
        let frame_left = left + axes::left_margin(scale);
        let right = left + width - 6.0;
        let frame = Frame {
            left: frame_left,
            right,
            top: frame_top,
            bottom,
            x: place(plot, panel, frame_left, right),
            y: (*scale).clone().over(bottom, frame_top),
        };
        axes::draw(svg, plot, panel, &frame);
        marks::draw(svg, plot, panel, &frame);
        below = below.max(axes::bottom_margin(plot, frame.slot()));
    }
    let middle = (frame_top + bottom) / 2.0;
    svg.turned((EDGE + 9.0, middle), Anchor::Middle, -90.0, &plot.y_label);
    let centre =
        EDGE + LABEL + (width * row.len() as f64 + BETWEEN * (row.len() as f64 - 1.0)) / 2.0;
    let label = bottom + below + LABEL - 6.0;
    svg.text("", (centre, label), Anchor::Middle, &plot.x_label);
    label + 12.0 - top
}

fn place(plot: &Plot, panel: &Panel, left: f64, right: f64) -> Place {
    match (&plot.x, axes::along(plot, panel)) {
        (_, Some(scale)) => Place::Scale(scale.over(left, right).tick_every(TICK_WIDTH)),
        (XAxis::Categories(names), None) => {
            Place::Slots(left, (right - left) / names.len().max(1) as f64)
        }
        (XAxis::Numbers { .. }, None) => Place::Slots(left, right - left),
    }
}
