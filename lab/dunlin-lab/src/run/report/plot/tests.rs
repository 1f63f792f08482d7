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

/// How often each of these is in the picture.
fn counts(svg: &str, what: &[&str]) -> Vec<usize> {
    what.iter().map(|part| svg.matches(part).count()).collect()
}

#[test]
fn bars_have_whiskers_papers_have_marks_and_invalid_cells_have_crosses() {
    let parts = [
        "class=\"b o0\"",
        "class=\"bw\"",
        "class=\"pm\"",
        "class=\"x\"",
        ">invalid<",
        "<title>",
    ];
    let svg = draw(&plot(Form::Bars, categories(), 1), Standing::InPage);
    // Each with those of the legend: two bars, a mark and a cross; a whisker
    // is three lines, and a point without an interval has none.
    assert_eq!(counts(&svg, &parts), [3 + 2, 2 * 3, 1 + 1, 2 + 2, 1, 5]);
    assert!(svg.contains("aria-label=\"Packets &quot;of&quot; a handshake\""));
    let log = Plot {
        log: true,
        ..plot(Form::Bars, categories(), 1)
    };
    let svg = draw(&log, Standing::InPage);
    assert_eq!(counts(&svg, &["class=\"b o0\"", "class=\"m\""]), [0, 3 + 2]);
}

#[test]
fn lines_have_marks_and_dashes() {
    let lines = plot(Form::Lines, XAxis::Numbers { log: false }, 2);
    let svg = draw(&lines, Standing::InPage);
    // A line needs two points; the legend shows one of each series.
    let parts = [
        "class=\"l d0\"",
        "class=\"l d1\"",
        "class=\"m\"",
        "class=\"pm\"",
    ];
    assert_eq!(counts(&svg, &parts), [2 + 1, 1, 6 + 2, 2 + 1]);
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
    let commands = |svg: &str| {
        let (_, rest) = svg.split_once("<title></title>").expect("a curve");
        let (path, _) = rest.split_once("\"/>").expect("its end");
        path.matches('L').count()
    };
    assert_eq!(commands(&draw(&curves, Standing::InPage)), 3);
    curves.form = Form::Course;
    assert_eq!(commands(&draw(&curves, Standing::InPage)), 1);
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
                let svg = draw(&bad, Standing::Alone);
                assert!(!svg.contains("NaN") && !svg.contains("inf"), "{value}");
            }
        }
    }
    let empty = Plot {
        series: Vec::new(),
        ..plot(Form::Bars, XAxis::Categories(Vec::new()), 0)
    };
    assert!(draw(&empty, Standing::Alone).ends_with("</svg>\n"));
}

#[test]
fn panels_are_beside_each_other_while_bars_can_be_told_apart() {
    let rows = |panels, names: usize| {
        let names = (0..names).map(|index| format!("name {index}")).collect();
        let plot = plot(Form::Bars, XAxis::Categories(names), panels);
        let svg = draw(&plot, Standing::InPage);
        // Each row has the name of what is upright.
        svg.matches(">packets</text>").count()
    };
    assert_eq!(
        (rows(1, 2), rows(3, 2), rows(4, 2), rows(6, 2)),
        (1, 1, 2, 2)
    );
    assert_eq!(rows(3, 9), 2);
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
            legible("a plot", &draw(&plot, Standing::InPage));
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
        let text = text
            .replace("&lt;", "<")
            .replace("&amp;", "&")
            .replace("&quot;", "\"");
        let (Some(x), Some(y)) = (value(&tag, "x"), value(&tag, "y")) else {
            continue;
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
        assert!(y >= 10.0 && y <= high, "{name}: `{text}` is cut off");
        for (left, right, other_y, other) in &boxes {
            let beside = from + width <= *left || from >= *right;
            let apart = (y - other_y).abs() >= 11.0;
            assert!(beside || apart, "{name}: `{text}` covers `{other}`");
        }
        boxes.push((from, from + width, y, text));
    }
    assert!(!boxes.is_empty());
}
