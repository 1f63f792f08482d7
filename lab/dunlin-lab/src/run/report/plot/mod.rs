//! Pictures as SVG, from a model of what is in them, drawn by `plotters`. The
//! same model gives the same bytes.

mod axis;
mod marks;
pub(super) mod model;
pub(super) mod style;
pub(super) mod words;

#[cfg(test)]
pub(super) mod tests;

use plotters::coord::Shift;
use plotters::prelude::{
    ChartBuilder, DrawingArea, DrawingAreaErrorKind, FontTransform, IntoDrawingArea as _, IntoFont,
    SVGBackend, Text, WHITE,
};
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{RGBColor, TRANSPARENT, TextStyle};

use super::html::escape;
use axis::Axis;
use marks::Canvas;
use model::{Form, Panel, Plot, XAxis};

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
/// Height of a line of text: a panel's title, labels, the name of an axis.
const LINE: f64 = 20.0;
/// Right of the frame of a panel.
const MARGIN: f64 = 8.0;
/// Size of text, of which the library makes 12 pixels.
const FONT: f64 = 15.0;

const INK: RGBColor = RGBColor(0x24, 0x29, 0x2f);
const QUIET: RGBColor = RGBColor(0x57, 0x60, 0x6a);
const AXIS: RGBColor = RGBColor(0x8c, 0x95, 0x9f);
const GRID: RGBColor = RGBColor(0xe3, 0xe7, 0xeb);

/// A place in pixels.
type Place = (i32, i32);
type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Drawn = Result<(), DrawingAreaErrorKind<std::io::Error>>;

/// Draws a plot.
pub(super) fn draw(plot: &Plot) -> String {
    let mut svg = String::new();
    if let Err(error) = picture(&mut svg, plot) {
        // Nothing is written but memory.
        return format!("<svg><desc>{}</desc></svg>\n", escape(&error.to_string()));
    }
    // What no XML may have.
    svg.retain(|c| c == '\n' || !c.is_control());
    let name = escape(&plot.name);
    svg.replacen(
        "<svg ",
        &format!("<svg role=\"img\" aria-label=\"{name}\" "),
        1,
    )
}

fn picture(svg: &mut String, plot: &Plot) -> Drawn {
    let columns = columns(plot);
    let (entries, legend) = legend(plot);
    let frame = match plot.panels.len() {
        0 | 1 => HEIGHT,
        _ => HEIGHT_OF_MANY,
    };
    let width = (WIDTH - 2.0 * EDGE - BETWEEN * (columns as f64 - 1.0)) / columns as f64;
    let below = below(plot, width);
    let row = LINE + frame + below + LINE;
    let pitch = row + EDGE;
    let rows = plot.panels.len().div_ceil(columns) as f64;
    let size = pixels((WIDTH, 2.0 * EDGE + legend + rows * pitch));
    let size = (size.0.unsigned_abs(), size.1.unsigned_abs());
    let root = SVGBackend::with_string(svg, size).into_drawing_area();
    root.fill(&WHITE)?;
    let canvas = Canvas { root: &root, plot };
    for (index, at) in entries.into_iter().enumerate() {
        canvas.legend(index, at)?;
    }
    for (index, (panel, y)) in plot.panels.iter().zip(scales(plot)).enumerate() {
        let (column, line) = ((index % columns) as f64, (index / columns) as f64);
        let at = (
            EDGE + column * (width + BETWEEN),
            EDGE + legend + line * pitch,
        );
        let area = root.clone().shrink(pixels(at), pixels((width, row)));
        draw_panel(&canvas, panel, &area, y, below)?;
    }
    root.present()
}

/// Draws a panel: its frame by the library, then what is in it.
fn draw_panel(
    canvas: &Canvas<'_, '_>,
    panel: &Panel,
    area: &Area<'_>,
    y: Axis,
    below: f64,
) -> Drawn {
    let plot = canvas.plot;
    let (wide, _) = area.dim_in_pixel();
    if let Some(title) = &panel.title {
        let style = text(INK, HPos::Center, VPos::Top);
        let style = TextStyle {
            font: style.font.style(plotters::style::FontStyle::Bold),
            ..style
        };
        area.draw(&Text::new(
            title.as_str(),
            (pixel(f64::from(wide) / 2.0), 0),
            style,
        ))?;
    }
    let left = y.widest_label() + LINE + 8.0;
    let x = Axis::along(plot, panel).thinned(f64::from(wide) - left - MARGIN);
    let base = y.base();
    let mut chart = ChartBuilder::on(area)
        .margin_top(pixel(LINE))
        .margin_right(pixel(MARGIN))
        .x_label_area_size(pixel(below + LINE))
        .y_label_area_size(pixel(left))
        .build_cartesian_2d(x, y)?;
    let mut mesh = chart.configure_mesh();
    if matches!(plot.x, XAxis::Categories(_)) {
        mesh.disable_x_mesh();
    }
    mesh.axis_style(AXIS)
        .bold_line_style(GRID)
        .light_line_style(TRANSPARENT)
        .set_all_tick_mark_size(4)
        .label_style(text(QUIET, HPos::Center, VPos::Top))
        .axis_desc_style(text(INK, HPos::Center, VPos::Top))
        .x_desc(plot.x_label.as_str())
        .y_desc(plot.y_label.as_str())
        .draw()?;
    let at = |x: f64, y: f64| chart.backend_coord(&(x, y));
    canvas.categories(&at, chart.plotting_area().get_pixel_range())?;
    if panel.is_empty() {
        let (along, up) = chart.plotting_area().get_pixel_range();
        let middle = ((along.start + along.end) / 2, (up.start + up.end) / 2);
        let style = text(QUIET, HPos::Center, VPos::Center);
        return canvas
            .root
            .draw(&Text::new("nothing recorded", middle, style));
    }
    canvas.draw(panel, &at, base, chart.plotting_area().get_pixel_range())
}

/// Text in this colour, with this part of it at its place.
fn text<'a>(colour: RGBColor, along: HPos, up: VPos) -> TextStyle<'a> {
    let font = ("sans-serif", FONT).into_font();
    font.color(&colour).pos(Pos::new(along, up))
}

/// The same from the bottom up.
fn turned<'a>(colour: RGBColor, along: HPos) -> TextStyle<'a> {
    text(colour, along, VPos::Center).transform(FontTransform::Rotate270)
}

fn pixel(value: f64) -> i32 {
    value.round() as i32
}

fn pixels((x, y): (f64, f64)) -> Place {
    (pixel(x), pixel(y))
}

/// Panels in a row, so that bars can still be distinguished.
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
fn scales(plot: &Plot) -> Vec<Axis> {
    let tops: Vec<f64> = plot
        .panels
        .iter()
        .filter_map(|panel| panel.values().map(f64::abs).reduce(f64::max))
        .collect();
    let most = tops.iter().copied().fold(0.0, f64::max);
    let least = tops.iter().copied().fold(f64::INFINITY, f64::min);
    let shared = plot.log || most <= SHARE * least;
    let all = Axis::upright(plot, plot.panels.iter());
    plot.panels
        .iter()
        .map(|panel| {
            if shared || panel.is_empty() {
                all.clone()
            } else {
                Axis::upright(plot, core::iter::once(panel))
            }
        })
        .collect()
}

/// Whether names of categories do not fit beside each other on so many pixels.
fn are_turned(names: &[String], width: f64) -> bool {
    let slot = width / names.len().max(1) as f64;
    names.iter().any(|name| words::width(name) > slot - 4.0)
}

/// Height of the labels below the frame of a panel of this width.
fn below(plot: &Plot, width: f64) -> f64 {
    match &plot.x {
        // The labels upright take a part of it.
        XAxis::Categories(names) if are_turned(names, width - 4.0 * LINE) => {
            let widths = names.iter().map(|name| words::width(name));
            widths.fold(LINE, f64::max) + 8.0
        }
        _ => LINE,
    }
}

/// Where each entry of the legend is, and the height of all rows.
fn legend(plot: &Plot) -> (Vec<Place>, f64) {
    let names = plot.series.iter().map(|series| series.name.as_str());
    let invalid = plot.panels.iter().any(|panel| !panel.invalid.is_empty());
    let names = names.chain(invalid.then_some(marks::INVALID));
    let (mut x, mut row) = (EDGE, 0.0);
    let mut places = Vec::new();
    for name in names {
        let width = marks::SAMPLE + words::width(name);
        if x > EDGE && x + width > WIDTH - EDGE {
            (x, row) = (EDGE, row + 1.0);
        }
        places.push(pixels((x, EDGE + (row + 0.5) * LINE)));
        x += width + BETWEEN;
    }
    let rows = if places.is_empty() { 0.0 } else { row + 1.0 };
    (places, rows * LINE + 6.0)
}
