//! Plots as SVG: stacked bars and lines over time. Knows no firmware.

use core::fmt::Write as _;

/// Colours that can be told apart, also by the colour-blind (Okabe and Ito).
const COLOURS: [&str; 8] = [
    "#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#999999", "#f0e442",
];
const WIDTH: f64 = 720.0;
const LEFT: f64 = 190.0;
const RIGHT: f64 = 70.0;
const ROW: f64 = 26.0;
const LEGEND: f64 = 40.0;

/// A bar: its name, its pieces in the order of the legend, and a label.
pub(crate) struct Bar {
    pub(crate) name: String,
    pub(crate) pieces: Vec<f64>,
    pub(crate) label: String,
}

/// Bars of stacked pieces, with a line at `goal`.
pub(crate) fn bars(
    title: &str,
    legend: &[&str],
    bars: &[Bar],
    goal: Option<(f64, &str)>,
) -> String {
    let longest = bars.iter().map(|bar| bar.pieces.iter().sum::<f64>());
    let most = longest.chain(goal.map(|goal| goal.0)).fold(1.0, f64::max);
    let scale = (WIDTH - LEFT - RIGHT) / most;
    let top = LEGEND + 30.0;
    let height = ROW.mul_add(bars.len() as f64, top) + 24.0;
    let mut out = head(title, height);
    legend_of(&mut out, legend);
    for (at, bar) in (0_u32..).zip(bars) {
        let y = ROW.mul_add(f64::from(at), top);
        let mut x = LEFT;
        text(&mut out, LEFT - 8.0, y + 13.0, "end", &bar.name);
        for (piece, colour) in bar.pieces.iter().zip(COLOURS) {
            let width = piece * scale;
            let _ = writeln!(
                out,
                r#"<rect x="{x:.1}" y="{y:.1}" width="{width:.1}" height="18" fill="{colour}"/>"#
            );
            x += width;
        }
        text(&mut out, x + 6.0, y + 13.0, "start", &bar.label);
    }
    if let Some((value, name)) = goal {
        let (x, end) = (value.mul_add(scale, LEFT), height - 18.0);
        let _ = writeln!(
            out,
            r#"<line x1="{x:.1}" y1="{top:.1}" x2="{x:.1}" y2="{end:.1}" stroke="black" stroke-dasharray="4 3"/>"#
        );
        text(&mut out, x, height - 6.0, "middle", name);
    }
    out.push_str("</svg>\n");
    out
}

/// A value over time as a filled line, with the phases that time has: each the
/// place where it begins and its name.
pub(crate) struct Curve<'a> {
    pub(crate) title: &'a str,
    pub(crate) x: &'a str,
    pub(crate) y: &'a str,
    pub(crate) points: &'a [(f64, f64)],
    pub(crate) phases: &'a [(f64, &'a str)],
    pub(crate) goal: Option<(f64, &'a str)>,
}

/// Where the area of a curve is.
const AREA: (f64, f64, f64, f64) = (60.0, 44.0, WIDTH - 80.0, 220.0);

/// Draws a curve.
pub(crate) fn curve(curve: &Curve<'_>) -> String {
    let (left, top, width, height) = AREA;
    let ends = |pick: fn(&(f64, f64)) -> f64| curve.points.iter().map(pick).fold(1.0, f64::max);
    let (x_most, y_seen) = (ends(|point| point.0), ends(|point| point.1));
    let y_most = curve.goal.map_or(y_seen, |goal| goal.0.max(y_seen)) * 1.05;
    let place = |x: f64, y: f64| {
        let (x, y) = (x / x_most * width, y / y_most * height);
        (left + x, top + height - y)
    };
    let mut out = head(curve.title, top + height + 48.0);
    shade(&mut out, curve.phases, x_most);
    let mut path = String::new();
    for (x, y) in curve.points {
        let (x, y) = place(*x, *y);
        let _ = write!(path, "{x:.1},{y:.1} ");
    }
    let (path, colour) = (path.trim_end(), COLOURS[0]);
    let _ = writeln!(
        out,
        r#"<polyline points="{path}" fill="none" stroke="{colour}"/>"#
    );
    if let Some((value, name)) = curve.goal {
        let (_, y) = place(0.0, value);
        let end = left + width;
        let _ = writeln!(
            out,
            r#"<line x1="{left}" y1="{y:.1}" x2="{end}" y2="{y:.1}" stroke="black" stroke-dasharray="4 3"/>"#
        );
        text(&mut out, end, y - 4.0, "end", name);
    }
    for step in 0..=4 {
        let (along, up) = (x_most / 4.0, y_most / 4.0);
        let (along, up) = (along * f64::from(step), up * f64::from(step));
        let (x, y) = place(along, up);
        text(&mut out, x, top + height + 16.0, "middle", &rounded(along));
        text(&mut out, left - 6.0, y + 4.0, "end", &rounded(up));
    }
    let below = top + height + 36.0;
    text(&mut out, left + width / 2.0, below, "middle", curve.x);
    text(&mut out, left, top - 8.0, "start", curve.y);
    out.push_str("</svg>\n");
    out
}

/// The phases behind a curve, with their names where there is room.
fn shade(out: &mut String, phases: &[(f64, &str)], x_most: f64) {
    let (left, top, width, height) = AREA;
    for (at, (from, name)) in phases.iter().enumerate() {
        let to = phases.get(at + 1).map_or(x_most, |next| next.0);
        let (x, wide) = (from / x_most * width + left, (to - from) / x_most * width);
        // The same phase has the same colour each time.
        let first = phases.iter().position(|phase| phase.1 == *name);
        let colour = COLOURS[first.unwrap_or(at) % COLOURS.len()];
        let _ = writeln!(
            out,
            r#"<rect x="{x:.1}" y="{top}" width="{wide:.1}" height="{height}" fill="{colour}" opacity="0.15"/>"#
        );
        if wide > 6.0 * name.len() as f64 {
            text(out, x + 3.0, top + 12.0, "start", name);
        }
    }
}

/// A number for an axis.
fn rounded(value: f64) -> String {
    match value {
        ..10.0 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

fn head(title: &str, height: f64) -> String {
    let mut out = format!(
        r##"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0}" font-family="sans-serif" font-size="12"><rect width="100%" height="100%" fill="white"/>
"##
    );
    let _ = writeln!(
        out,
        r#"<text x="8" y="18" font-size="14" font-weight="bold">{}</text>"#,
        escaped(title)
    );
    out
}

fn legend_of(out: &mut String, legend: &[&str]) {
    let mut x = 8.0;
    for (name, colour) in legend.iter().zip(COLOURS) {
        let _ = writeln!(
            out,
            r#"<rect x="{x:.1}" y="{LEGEND}" width="10" height="10" fill="{colour}"/>"#
        );
        text(out, x + 14.0, LEGEND + 9.0, "start", name);
        x += 5.9f64.mul_add(name.len() as f64, 24.0);
    }
}

fn text(out: &mut String, x: f64, y: f64, anchor: &str, words: &str) {
    let words = escaped(words);
    let _ = writeln!(
        out,
        r#"<text x="{x:.1}" y="{y:.1}" text-anchor="{anchor}">{words}</text>"#
    );
}

fn escaped(words: &str) -> String {
    words.replace('&', "&amp;").replace('<', "&lt;")
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
        let out = bars("t", &["one", "two"], &[bar], Some((8.0, "goal")));
        assert_eq!(out.matches("height=\"18\"").count(), 2);
        assert!(out.contains("a&lt;b") && out.contains("stroke-dasharray"));
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
        assert_eq!(out.matches("opacity").count(), 2);
        assert_eq!(out.matches("<polyline").count(), 1);
    }
}
