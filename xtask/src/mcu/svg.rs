//! Plots as SVG, drawn by `plotters`: stacked bars and lines over time. Knows no
//! firmware.

use anyhow::{Result, anyhow};
use plotters::coord::Shift;
use plotters::element::DashedPathElement;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

/// Colours that can be distinguished, also by the colour-blind (Okabe and Ito).
const COLOURS: [RGBColor; 8] = [
    RGBColor(0x00, 0x72, 0xb2),
    RGBColor(0xe6, 0x9f, 0x00),
    RGBColor(0x00, 0x9e, 0x73),
    RGBColor(0xcc, 0x79, 0xa7),
    RGBColor(0x56, 0xb4, 0xe9),
    RGBColor(0xd5, 0x5e, 0x00),
    RGBColor(0x99, 0x99, 0x99),
    RGBColor(0xf0, 0xe4, 0x42),
];
const WIDTH: i32 = 720;
/// Left of bars, for their names, and right of them, for their labels.
const LEFT: i32 = 190;
const RIGHT: i32 = 70;
const ROW: i32 = 26;
/// Height of the title, and of the legend below it.
const TITLE: i32 = 30;
const LEGEND: i32 = 30;
/// Size of text, of which the library makes 12 pixels.
const FONT: u32 = 15;

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Drawn = Result<(), DrawingAreaErrorKind<std::io::Error>>;

/// A bar: its name, its pieces in the order of the legend, and a label.
pub(crate) struct Bar {
    pub(crate) name: String,
    pub(crate) pieces: Vec<f64>,
    pub(crate) label: String,
}

/// A value over time, with the phases that time has: each the place where it
/// begins and its name.
pub(crate) struct Curve<'a> {
    pub(crate) title: &'a str,
    pub(crate) x: &'a str,
    pub(crate) y: &'a str,
    pub(crate) points: &'a [(f64, f64)],
    pub(crate) phases: &'a [(f64, &'a str)],
    pub(crate) goal: Option<(f64, &'a str)>,
}

/// A picture with this title.
fn picture(title: &str, height: i32, draw: impl Fn(&Area<'_>) -> Drawn) -> Result<String> {
    let mut svg = String::new();
    let mut all = || -> Drawn {
        let root = SVGBackend::with_string(&mut svg, (WIDTH.unsigned_abs(), height.unsigned_abs()))
            .into_drawing_area();
        root.fill(&WHITE)?;
        let font = ("sans-serif", FONT + 2).into_font().style(FontStyle::Bold);
        root.draw(&Text::new(title, (8, 8), font.color(&BLACK)))?;
        draw(&root)?;
        root.present()
    };
    all().map_err(|error| anyhow!("cannot draw {title}: {error}"))?;
    Ok(svg)
}

fn text(along: HPos) -> TextStyle<'static> {
    let font = ("sans-serif", FONT).into_font();
    font.color(&BLACK).pos(Pos::new(along, VPos::Center))
}

/// The line of a goal.
fn goal_line(root: &Area<'_>, from: (i32, i32), to: (i32, i32)) -> Drawn {
    root.draw(&DashedPathElement::new([from, to], 4, 3, BLACK))
}

/// Bars of stacked pieces, with a line at `goal`.
///
/// # Errors
/// The library fails.
pub(crate) fn bars(
    title: &str,
    legend: &[&str],
    bars: &[Bar],
    goal: Option<(f64, &str)>,
) -> Result<String> {
    let longest = bars.iter().map(|bar| bar.pieces.iter().sum::<f64>());
    let most = longest.chain(goal.map(|goal| goal.0)).fold(1.0, f64::max);
    let top = TITLE + LEGEND;
    let rows = ROW * i32::try_from(bars.len())?;
    picture(title, top + rows + 30, |root| {
        legend_of(root, legend)?;
        let scale = f64::from(WIDTH - LEFT - RIGHT) / most;
        let x = |value: f64| value.mul_add(scale, f64::from(LEFT)).round() as i32;
        let mut y = top + ROW / 2;
        for bar in bars {
            let mut sum = 0.0;
            root.draw(&Text::new(
                bar.name.as_str(),
                (x(0.0) - 8, y),
                text(HPos::Right),
            ))?;
            for (piece, colour) in bar.pieces.iter().zip(COLOURS) {
                let from = (x(sum), y - 9);
                sum += piece;
                root.draw(&Rectangle::new([from, (x(sum), y + 9)], colour.filled()))?;
            }
            let at = (x(sum) + 6, y);
            root.draw(&Text::new(bar.label.as_str(), at, text(HPos::Left)))?;
            y += ROW;
        }
        let Some((value, name)) = goal else {
            return Ok(());
        };
        let last = y - 9;
        goal_line(root, (x(value), top), (x(value), last))?;
        root.draw(&Text::new(name, (x(value), last + 10), text(HPos::Center)))
    })
}

fn legend_of(root: &Area<'_>, legend: &[&str]) -> Drawn {
    let (mut x, y) = (8, TITLE + 10);
    for (name, colour) in legend.iter().zip(COLOURS) {
        root.draw(&Rectangle::new(
            [(x, y - 5), (x + 10, y + 5)],
            colour.filled(),
        ))?;
        root.draw(&Text::new(*name, (x + 14, y), text(HPos::Left)))?;
        x += 24 + 6 * i32::try_from(name.len()).unwrap_or_default();
    }
    Ok(())
}

/// A number for an axis.
fn rounded(value: &f64) -> String {
    match value {
        ..10.0 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

/// Draws a curve.
///
/// # Errors
/// The library fails.
pub(crate) fn curve(curve: &Curve<'_>) -> Result<String> {
    let ends = |pick: fn(&(f64, f64)) -> f64| curve.points.iter().map(pick).fold(1.0, f64::max);
    let (x_most, y_seen) = (ends(|point| point.0), ends(|point| point.1));
    let y_most = curve.goal.map_or(y_seen, |goal| goal.0.max(y_seen)) * 1.15;
    picture(curve.title, 320, |root| {
        let area = root.clone().shrink((0, TITLE), (WIDTH - 10, 320 - TITLE));
        let mut chart = ChartBuilder::on(&area)
            .margin_top(10)
            .margin_right(20)
            .margin_left(6)
            .x_label_area_size(44)
            .y_label_area_size(64)
            .build_cartesian_2d(0.0..x_most, 0.0..y_most)?;
        chart
            .configure_mesh()
            .disable_mesh()
            .x_labels(5)
            .y_labels(5)
            .x_label_formatter(&rounded)
            .y_label_formatter(&rounded)
            .label_style(("sans-serif", FONT))
            .axis_desc_style(("sans-serif", FONT))
            .x_desc(curve.x)
            .y_desc(curve.y)
            .draw()?;
        for (at, (from, name)) in curve.phases.iter().enumerate() {
            let to = curve.phases.get(at + 1).map_or(x_most, |next| next.0);
            // The same phase has the same colour each time.
            let first = curve.phases.iter().position(|phase| phase.1 == *name);
            let colour = COLOURS.get(first.unwrap_or(at) % COLOURS.len());
            let style = colour.unwrap_or(&BLACK).mix(0.15).filled();
            let shade = Rectangle::new([(*from, 0.0), (to, y_most)], style);
            chart.draw_series([shade])?;
            let corner = chart.backend_coord(&(*from, y_most));
            let room = chart.backend_coord(&(to, y_most)).0 - corner.0;
            if room > 6 * i32::try_from(name.len()).unwrap_or(i32::MAX) {
                let at = (corner.0 + 3, corner.1 + 9);
                root.draw(&Text::new(*name, at, text(HPos::Left)))?;
            }
        }
        chart.draw_series(LineSeries::new(curve.points.iter().copied(), COLOURS[0]))?;
        let Some((value, name)) = curve.goal else {
            return Ok(());
        };
        let (from, to) = ((0.0, value), (x_most, value));
        let (from, to) = (chart.backend_coord(&from), chart.backend_coord(&to));
        goal_line(root, from, to)?;
        root.draw(&Text::new(name, (to.0, to.1 - 8), text(HPos::Right)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_have_pieces_a_label_and_a_goal() {
        let bar = Bar {
            name: "a<b".to_owned(),
            pieces: vec![1.0, 3.0],
            label: "4".to_owned(),
        };
        let out = bars("t", &["one", "two"], &[bar], Some((8.0, "goal"))).expect("drawn");
        // The ground, the legend and the bar.
        assert_eq!(out.matches("<rect").count(), 1 + 2 + 2);
        assert!(out.contains("a&lt;b") && out.contains("goal"));
        assert!(out.ends_with("</svg>\n"));
    }

    #[test]
    fn a_curve_has_its_phases() {
        let points = [(0.0, 1.0), (5.0, 9.0), (10.0, 2.0)];
        let out = curve(&Curve {
            title: "t",
            x: "x",
            y: "y",
            points: &points,
            phases: &[(0.0, "open"), (6.0, "publish")],
            goal: Some((12.0, "goal")),
        });
        let out = out.expect("drawn");
        assert_eq!(out.matches("opacity=\"0.15\"").count(), 2);
        assert!(out.contains("publish") && out.contains("goal"));
    }
}
