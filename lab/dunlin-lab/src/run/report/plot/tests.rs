//! Structure of pictures: what there is of what, and that no label is cut off
//! or covers another.

use super::model::{Curve, Invalid, Point, Series};
use super::style::Style;
use super::*;

const NAMES: [&str; 3] = ["Dunlin, QUIC", "Mosquitto, TLS 1.3", "paper: MQTT over TCP"];

fn point(series: usize, x: f64, value: f64, spread: f64) -> Point {
    Point {
        series,
        x,
        value,
        low: value - spread,
        high: value + spread,
        tip: "a < b".to_owned(),
    }
}

fn plot(form: Form, x: XAxis, panels: usize) -> Plot {
    let panel = Panel {
        title: Some("long-distance".to_owned()),
        points: vec![
            point(0, 0.0, 8.0, 1.0),
            point(1, 0.0, 19.0, 2.0),
            point(2, 0.0, 24.0, f64::NAN),
            point(0, 1.0, 9.0, f64::NAN),
        ],
        curves: Vec::new(),
        invalid: vec![Invalid {
            series: 1,
            x: 1.0,
            tip: "late".to_owned(),
        }],
    };
    Plot {
        name: "Packets \"of\" a handshake".to_owned(),
        x,
        x_label: "testbed".to_owned(),
        y_label: "packets".to_owned(),
        form,
        log: false,
        series: NAMES
            .iter()
            .enumerate()
            .map(|(index, name)| Series {
                name: (*name).to_owned(),
                style: if index == 2 {
                    Style::paper(0)
                } else {
                    Style::slot(index)
                },
            })
            .collect(),
        panels: vec![panel; panels],
    }
}

fn categories() -> XAxis {
    XAxis::Categories(vec!["wired".to_owned(), "wireless".to_owned()])
}

/// Points of each line of this colour and width.
fn lines(svg: &str, colour: &str, width: u32) -> Vec<usize> {
    let style = format!("stroke=\"{colour}\" stroke-width=\"{width}\"");
    svg.lines()
        .filter(|line| line.starts_with("<polyline") && line.contains(&style))
        .filter_map(|line| Some(line.split_once(" points=\"")?.1.split_once('"')?.0))
        .map(|points| points.split_whitespace().count())
        .collect()
}

fn count(svg: &str, part: &str) -> usize {
    svg.matches(part).count()
}

/// Colours of the first two series.
const FIRST: &str = "#0064A8";

#[test]
fn bars_have_whiskers_papers_have_marks_and_invalid_cells_have_crosses() {
    let svg = draw(&plot(Form::Bars, categories(), 1));
    // Each with those of the legend: two bars, a mark and a cross; a bar is an
    // area with its outline, on a ground; a whisker is three lines, and a point
    // without an interval has none.
    assert_eq!(count(&svg, "<rect"), 1 + 2 * (3 + 2));
    assert_eq!(count(&svg, "<polygon"), 1 + 1);
    assert_eq!(count(&svg, "stroke-width=\"2\""), 2 * (1 + 1));
    assert_eq!(lines(&svg, "#24292F", 1).len(), 2 * 3 + 2);
    assert!(svg.contains("aria-label=\"Packets &quot;of&quot; a handshake\""));
    let log = Plot {
        log: true,
        ..plot(Form::Bars, categories(), 1)
    };
    let svg = draw(&log);
    assert_eq!((count(&svg, "<rect"), count(&svg, "<circle")), (1, 2 * 3));
}

#[test]
fn lines_have_marks_and_dashes() {
    let svg = draw(&plot(Form::Lines, XAxis::Numbers { log: false }, 2));
    // A line needs two points; the legend shows one of each series.
    assert_eq!(lines(&svg, FIRST, 2), [2, 2, 2]);
    assert_eq!(count(&svg, "<circle"), 2 * (2 * 2 + 1));
    assert_eq!(count(&svg, "<polygon"), 2 + 1 + 2 + 1);
}

#[test]
fn distributions_are_steps_and_courses_are_lines() {
    let mut curves = plot(Form::Distribution, XAxis::Numbers { log: false }, 1);
    curves.panels = vec![Panel {
        curves: vec![Curve {
            series: 0,
            points: vec![(1.0, 0.5), (2.0, 1.0)],
            tip: String::new(),
        }],
        ..Panel::default()
    }];
    assert_eq!(lines(&draw(&curves), FIRST, 2), [2, 4]);
    curves.form = Form::Course;
    assert_eq!(lines(&draw(&curves), FIRST, 1), [2]);
}

#[test]
fn numbers_that_are_none_draw_nothing_that_is_none() {
    for value in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 0.0, -5.0] {
        for form in [Form::Bars, Form::Lines] {
            for log in [false, true] {
                let x = match form {
                    Form::Bars => categories(),
                    _ => XAxis::Numbers { log },
                };
                let mut bad = plot(form, x, 1);
                bad.log = log;
                bad.panels[0].points = vec![point(0, 0.0, value, 1.0)];
                let svg = draw(&bad);
                assert!(!svg.contains("NaN") && !svg.contains("inf"), "{value}");
            }
        }
    }
    let empty = Plot {
        series: Vec::new(),
        ..plot(Form::Bars, XAxis::Categories(Vec::new()), 0)
    };
    assert!(draw(&empty).ends_with("</svg>\n"));
}

#[test]
fn panels_are_beside_each_other_while_bars_can_be_distinguished() {
    let columns = |panels, names: usize| {
        let names = (0..names).map(|index| format!("name {index}")).collect();
        columns(&plot(Form::Bars, XAxis::Categories(names), panels))
    };
    assert_eq!((columns(1, 2), columns(3, 2), columns(4, 2)), (1, 3, 2));
    assert_eq!((columns(6, 2), columns(3, 9)), (3, 2));
}

#[test]
fn labels_are_inside_and_cover_no_others() {
    for panels in 1..=6 {
        for form in [Form::Bars, Form::Lines] {
            let x = match form {
                Form::Bars => categories(),
                _ => XAxis::Numbers { log: false },
            };
            let plot = plot(form, x, panels);
            legible("a plot", &draw(&plot));
        }
    }
}

/// Fails if an upright label is cut off or covers another.
pub(in crate::run::report) fn legible(name: &str, svg: &str) {
    let value = |tag: &str, attribute: &str| -> Option<f64> {
        let (_, rest) = tag.split_once(&format!(" {attribute}=\""))?;
        rest.split_once('"')?.0.parse().ok()
    };
    let view = svg.split_once("viewBox=\"0 0 ").expect("a view box").1;
    let mut view = view
        .split(['"', ' '])
        .map(|part| part.parse().unwrap_or(0.0));
    let (wide, high): (f64, f64) = (view.next().unwrap(), view.next().unwrap());
    let mut boxes: Vec<(f64, f64, f64, String)> = Vec::new();
    for part in svg.split("<text ").skip(1) {
        let (tag, rest) = part.split_once('>').expect("a tag");
        let tag = format!(" {tag}");
        let (text, _) = rest.split_once('<').expect("its end");
        if tag.contains("transform") {
            continue;
        }
        let text = text
            .trim_end()
            .replace("&lt;", "<")
            .replace("&amp;", "&")
            .replace("&quot;", "\"");
        let (Some(x), Some(y)) = (value(&tag, "x"), value(&tag, "y")) else {
            continue;
        };
        // Down from its place to where its letters stand.
        let y = match () {
            () if tag.contains("\"0.76em\"") => y + 9.0,
            () if tag.contains("\"0.5ex\"") => y + 3.0,
            () => y - 3.0,
        };
        let width = words::width(&text);
        let from = match () {
            () if tag.contains("\"middle\"") => x - width / 2.0,
            () if tag.contains("\"end\"") => x - width,
            () => x,
        };
        assert!(
            from >= 0.0 && from + width <= wide,
            "{name}: `{text}` is cut off"
        );
        assert!(y >= 9.0 && y <= high, "{name}: `{text}` is cut off");
        for (left, right, other_y, other) in &boxes {
            let beside = from + width <= *left || from >= *right;
            let apart = (y - other_y).abs() >= 11.0;
            assert!(beside || apart, "{name}: `{text}` covers `{other}`");
        }
        boxes.push((from, from + width, y, text));
    }
    assert!(!boxes.is_empty());
}
