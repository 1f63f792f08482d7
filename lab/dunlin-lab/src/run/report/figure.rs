//! From a figure that an experiment asked for and the records of a run to the
//! model of a picture.

use super::plot::model::{Curve, Form, Invalid, Panel, Plot, Point, Series, XAxis};
use super::plot::style::{Style, Styles};
use super::plot::words::{self, number};
use crate::run::experiment::{Figure, Kind, PaperPoint};
use crate::run::record::{Cell, Measure, Record};
use crate::run::stats::{Quartiles, Sample, Statistic, ecdf, quantile};
use crate::run::systems::{SYSTEMS, System};

/// Points of a distribution, and of a course.
const CURVE_POINTS: usize = 240;
/// Spread of a numeric factor above which its axis is logarithmic.
const LOG_SPREAD: f64 = 50.0;

/// A measure of the figure's metric, with the cell that it is from.
#[derive(Clone, Copy)]
struct Seen<'a> {
    cell: &'a Cell,
    measure: &'a Measure,
}

impl<'a> Seen<'a> {
    fn factor(self, name: &str) -> Option<&'a str> {
        let of = self.measure.factors.get(name);
        of.or_else(|| self.cell.factors.get(name))
            .map(String::as_str)
    }
}

/// A system, or one part of it.
#[derive(Clone, Debug, PartialEq)]
struct Line {
    system: String,
    split: Option<String>,
}

/// The model of the picture; it may have nothing in it.
pub(super) fn plot(figure: &Figure, records: &[Record], styles: &Styles) -> Plot {
    let seen = seen(figure, records);
    let facets = facets(figure, &seen);
    let lines = lines(figure, &seen, records);
    let papers = papers(figure);
    let x = x_axis(figure, &seen);
    let unit = seen.first().map_or("", |seen| seen.measure.unit.as_str());
    let metric = words::metric(figure.metric, unit);
    let (form, x_label, y_label) = match figure.kind {
        Kind::Bars { x } => (Form::Bars, words::factor(x), metric),
        Kind::Lines { x } => (Form::Lines, words::factor(x), metric),
        Kind::Cdf => (Form::Distribution, metric, "share of values".to_owned()),
        Kind::Course => (Form::Course, "time (s)".to_owned(), metric),
    };
    let drawing = Drawing {
        figure,
        seen,
        lines: &lines,
        papers: &papers,
        x: &x,
        unit,
    };
    let panels: Vec<Panel> = facets
        .iter()
        .map(|facet| drawing.panel(facet.as_deref(), records))
        .collect();
    let mut series = legend(figure, &lines, &papers, styles);
    if matches!(figure.kind, Kind::Cdf | Kind::Course) {
        // There is no place for a cross.
        for ((index, series), line) in series.iter_mut().enumerate().zip(&lines) {
            let mut curves = panels.iter().flat_map(|panel| &panel.curves);
            let mut own = records.iter().filter(|r| r.cell.system == line.system);
            if !curves.any(|curve| curve.series == index) {
                let bad = own.any(|record| invalid(figure, record).is_some());
                let why = if bad {
                    "invalid: no line"
                } else {
                    "nothing recorded"
                };
                series.name.push_str(&format!(" ({why})"));
            }
        }
    }
    Plot {
        name: figure.title.to_owned(),
        x_label,
        y_label,
        form,
        log: figure.log_y,
        series,
        panels,
        x,
    }
}

fn seen<'a>(figure: &Figure, records: &'a [Record]) -> Vec<Seen<'a>> {
    let valid = records.iter().filter(|r| r.outcome.invalid.is_none());
    valid
        .flat_map(|record| {
            let cell = &record.cell;
            let measures = record.outcome.measures.iter();
            measures.map(move |measure| Seen { cell, measure })
        })
        .filter(|seen| seen.measure.metric == figure.metric)
        .filter(|seen| {
            let mut only = figure.only.iter();
            only.all(|(factor, value)| seen.factor(factor) == Some(value))
        })
        .collect()
}

/// Adds what is not there yet.
fn add(values: &mut Vec<String>, value: &str) {
    if !values.iter().any(|known| known == value) {
        values.push(value.to_owned());
    }
}

/// Numbers ascending; words in the order of the plan.
fn arrange(values: &mut [String]) {
    let numbers: Option<Vec<f64>> = values.iter().map(|value| value.parse().ok()).collect();
    if numbers.is_some() {
        let of = |text: &String| text.parse::<f64>().unwrap_or_default();
        values.sort_by(|a, b| of(a).total_cmp(&of(b)));
    }
}

/// Values of the facet; one nameless panel if there is none.
fn facets(figure: &Figure, seen: &[Seen<'_>]) -> Vec<Option<String>> {
    let Some(factor) = figure.facet else {
        return vec![None];
    };
    let mut values = Vec::new();
    for value in seen.iter().filter_map(|seen| seen.factor(factor)) {
        add(&mut values, value);
    }
    for value in figure.paper.iter().filter_map(|point| point.facet) {
        add(&mut values, value);
    }
    arrange(&mut values);
    if values.is_empty() {
        return vec![None];
    }
    values.into_iter().map(Some).collect()
}

/// Systems in the order of the plan, each with its parts; also those of which
/// nothing is valid.
fn lines(figure: &Figure, seen: &[Seen<'_>], records: &[Record]) -> Vec<Line> {
    let mut systems = Vec::new();
    for record in records {
        add(&mut systems, &record.cell.system);
    }
    // Those of other names after those that are known, in the plan's order.
    systems.sort_by_key(|id| {
        let place = SYSTEMS.iter().position(|system| system.id == id);
        place.unwrap_or(SYSTEMS.len())
    });
    let mut lines = Vec::new();
    for system in systems {
        let mut splits = Vec::new();
        let own = seen.iter().filter(|seen| seen.cell.system == system);
        for split in own.filter_map(|seen| seen.factor(figure.split?)) {
            add(&mut splits, split);
        }
        arrange(&mut splits);
        if splits.len() == 1 {
            // The name of the system says it already.
            splits.clear();
        }
        let has = seen.iter().any(|seen| seen.cell.system == system);
        let bad = records
            .iter()
            .any(|r| r.cell.system == system && invalid(figure, r).is_some());
        if splits.is_empty() && (has || bad) {
            lines.push(Line {
                system,
                split: None,
            });
        } else {
            lines.extend(splits.into_iter().map(|split| Line {
                system: system.clone(),
                split: Some(split),
            }));
        }
    }
    lines
}

/// Why a record of this figure is invalid. What it would have measured is not
/// always known, so only the factors of its cell are asked.
fn invalid<'a>(figure: &Figure, record: &'a Record) -> Option<&'a str> {
    let reason = record.outcome.invalid.as_deref()?;
    let mut only = figure.only.iter();
    let meant = only.all(|(factor, value)| {
        let of = record.cell.factors.get(*factor);
        of.is_none_or(|of| of == value)
    });
    meant.then_some(reason)
}

fn papers(figure: &Figure) -> Vec<&'static str> {
    let mut names: Vec<&'static str> = Vec::new();
    for point in &figure.paper {
        if !names.contains(&point.series) {
            names.push(point.series);
        }
    }
    names
}

fn x_axis(figure: &Figure, seen: &[Seen<'_>]) -> XAxis {
    let (factor, bars) = match figure.kind {
        Kind::Bars { x } => (x, true),
        Kind::Lines { x } => (x, false),
        Kind::Cdf | Kind::Course => return XAxis::Numbers { log: false },
    };
    let mut values = Vec::new();
    for value in seen.iter().filter_map(|seen| seen.factor(factor)) {
        add(&mut values, value);
    }
    for point in &figure.paper {
        add(&mut values, point.x);
    }
    arrange(&mut values);
    let numbers: Option<Vec<f64>> = values.iter().map(|value| value.parse().ok()).collect();
    match numbers {
        Some(numbers) if !bars && !numbers.is_empty() => {
            let low = numbers.first().copied().unwrap_or_default();
            let high = numbers.last().copied().unwrap_or_default();
            let log = low > 0.0 && high >= LOG_SPREAD * low;
            XAxis::Numbers { log }
        }
        _ => XAxis::Categories(values),
    }
}

fn legend(figure: &Figure, lines: &[Line], papers: &[&str], styles: &Styles) -> Vec<Series> {
    let mut systems: Vec<&str> = lines.iter().map(|line| line.system.as_str()).collect();
    systems.dedup();
    let mut splits = Vec::new();
    for split in lines.iter().filter_map(|line| line.split.as_deref()) {
        add(&mut splits, split);
    }
    arrange(&mut splits);
    let ours = lines.iter().map(|line| {
        let whole = styles.system(&line.system);
        let (Some(split), Some(factor)) = (&line.split, figure.split) else {
            return Series {
                name: title(&line.system).to_owned(),
                style: whole,
            };
        };
        let index = splits.iter().position(|known| known == split);
        let index = index.unwrap_or_default();
        let value = words::factor_value(factor, split);
        if systems.len() == 1 {
            // Its parts have the colours to themselves.
            return Series {
                name: value,
                style: Style::slot(index),
            };
        }
        Series {
            name: format!("{} \u{b7} {value}", title(&line.system)),
            style: whole.split(index),
        }
    });
    let theirs = papers.iter().enumerate().map(|(index, name)| Series {
        name: (*name).to_owned(),
        style: Style::paper(index),
    });
    ours.chain(theirs).collect()
}

/// What all panels of a figure share.
struct Drawing<'a> {
    figure: &'a Figure,
    seen: Vec<Seen<'a>>,
    lines: &'a [Line],
    papers: &'a [&'static str],
    x: &'a XAxis,
    unit: &'a str,
}

impl Drawing<'_> {
    fn panel(&self, facet: Option<&str>, records: &[Record]) -> Panel {
        let title = match (self.figure.facet, facet) {
            (Some(factor), Some(value)) => Some(words::factor_value(factor, value)),
            _ => None,
        };
        let mut panel = Panel {
            title,
            ..Panel::default()
        };
        for (series, line) in self.lines.iter().enumerate() {
            let own: Vec<Seen<'_>> = self
                .seen
                .iter()
                .filter(|seen| self.is_of(line, facet, **seen))
                .copied()
                .collect();
            match self.figure.kind {
                Kind::Bars { x } | Kind::Lines { x } => {
                    self.points(&mut panel, series, x, &own);
                    self.crosses(&mut panel, series, x, facet, records);
                }
                Kind::Cdf => panel.curves.extend(self.distribution(series, &own)),
                Kind::Course => panel.curves.extend(self.courses(series, &own)),
            }
        }
        for point in &self.figure.paper {
            let here =
                self.figure.facet.is_none() || point.facet.is_none_or(|of| Some(of) == facet);
            panel.points.extend(self.paper(point).filter(|_| here));
        }
        panel
    }

    fn is_of(&self, line: &Line, facet: Option<&str>, seen: Seen<'_>) -> bool {
        let in_facet = match (self.figure.facet, facet) {
            (Some(factor), Some(_)) => seen.factor(factor) == facet,
            _ => true,
        };
        let in_split = match (self.figure.split, &line.split) {
            (Some(factor), Some(split)) => seen.factor(factor) == Some(split),
            _ => true,
        };
        seen.cell.system == line.system && in_facet && in_split
    }

    fn name(&self, series: usize) -> String {
        let line = self.lines.get(series);
        line.map_or_else(String::new, |line| match (&line.split, self.figure.split) {
            (Some(split), Some(factor)) => {
                let value = words::factor_value(factor, split);
                format!("{} \u{b7} {value}", title(&line.system))
            }
            _ => title(&line.system).to_owned(),
        })
    }

    /// Where a value of the factor along is.
    fn place(&self, value: &str) -> Option<f64> {
        match self.x {
            XAxis::Categories(names) => {
                let index = names.iter().position(|name| name == value)?;
                Some(index as f64)
            }
            XAxis::Numbers { .. } => value.parse().ok(),
        }
    }

    fn points(&self, panel: &mut Panel, series: usize, x: &str, own: &[Seen<'_>]) {
        let mut values = Vec::new();
        for value in own.iter().filter_map(|seen| seen.factor(x)) {
            add(&mut values, value);
        }
        for value in values {
            let here: Vec<Seen<'_>> = own
                .iter()
                .filter(|seen| seen.factor(x) == Some(&value))
                .copied()
                .collect();
            let sample = sample(&here);
            let point = self.place(&value).and_then(|place| {
                let name = format!("{}, {}", self.name(series), words::factor_value(x, &value));
                self.summed_up(series, place, &name, &sample)
            });
            panel.points.extend(point);
        }
    }

    fn summed_up(&self, series: usize, x: f64, name: &str, sample: &Sample) -> Option<Point> {
        let unit = self.unit;
        let count = sample.values().len();
        let counted = format!("{count} values, {} cells", sample.cells());
        let (value, low, high, tip) = match self.figure.kind {
            Kind::Bars { .. } => {
                let Quartiles {
                    lower,
                    median,
                    upper,
                    ..
                } = sample.quartiles()?;
                let said = format!(
                    "{name}: median {} {unit}, quartiles {} to {} ({counted})",
                    number(median),
                    number(lower),
                    number(upper)
                );
                (median, lower, upper, said)
            }
            _ => {
                let mean = sample.estimate(Statistic::Mean)?;
                let said = format!(
                    "{name}: mean {} {unit}, interval {} to {} ({counted})",
                    number(mean.value),
                    number(mean.low),
                    number(mean.high)
                );
                (mean.value, mean.low, mean.high, said)
            }
        };
        Some(Point {
            series,
            x,
            value,
            low,
            high,
            tip,
        })
    }

    /// Marks where all cells that would have given a number are invalid.
    fn crosses(
        &self,
        panel: &mut Panel,
        series: usize,
        x: &str,
        facet: Option<&str>,
        records: &[Record],
    ) {
        let Some(line) = self.lines.get(series) else {
            return;
        };
        let fits = |cell: &Cell, factor: Option<&str>, value: Option<&str>| match (factor, value) {
            (Some(factor), Some(value)) => {
                let of = cell.factors.get(factor);
                of.is_none_or(|of| of == value)
            }
            _ => true,
        };
        for record in records.iter().filter(|r| r.cell.system == line.system) {
            let cell = &record.cell;
            let meant = fits(cell, self.figure.facet, facet)
                && fits(cell, self.figure.split, line.split.as_deref());
            let Some(reason) = invalid(self.figure, record).filter(|_| meant) else {
                continue;
            };
            let places: Vec<f64> = match (cell.factors.get(x), self.x) {
                (Some(value), _) => self.place(value).into_iter().collect(),
                (None, XAxis::Categories(names)) => (0..names.len()).map(|i| i as f64).collect(),
                (None, XAxis::Numbers { .. }) => Vec::new(),
            };
            for place in places {
                let taken = panel.points.iter().map(|p| (p.series, p.x));
                let crossed = panel.invalid.iter().map(|i| (i.series, i.x));
                if !taken.chain(crossed).any(|at| at == (series, place)) {
                    panel.invalid.push(Invalid {
                        series,
                        x: place,
                        tip: format!("{}: invalid: {reason}", self.name(series)),
                    });
                }
            }
        }
    }

    fn distribution(&self, series: usize, own: &[Seen<'_>]) -> Option<Curve> {
        let sample = sample(own);
        let values = sample.values();
        let part = |share| quantile(&values, share).map(number);
        Some(Curve {
            series,
            points: ecdf(&values, CURVE_POINTS),
            tip: format!(
                "{}: median {}, 95 % below {}, 99 % below {} {} ({} values, {} cells)",
                self.name(series),
                part(0.5)?,
                part(0.95)?,
                part(0.99)?,
                self.unit,
                values.len(),
                sample.cells()
            ),
        })
    }

    fn courses(&self, series: usize, own: &[Seen<'_>]) -> Vec<Curve> {
        own.iter()
            .filter(|seen| !seen.measure.series.is_empty())
            .map(|seen| Curve {
                series,
                points: thinned(&seen.measure.series),
                tip: format!("{}, repetition {}", self.name(series), seen.cell.repetition),
            })
            .collect()
    }

    fn paper(&self, point: &PaperPoint) -> impl Iterator<Item = Point> {
        let index = self.papers.iter().position(|name| *name == point.series);
        let series = index.map(|index| self.lines.len() + index);
        let placed = series.zip(self.place(point.x));
        let (value, unit, name) = (point.value, self.unit, point.series);
        let x = point.x;
        placed.into_iter().map(move |(series, place)| Point {
            series,
            x: place,
            value,
            low: f64::NAN,
            high: f64::NAN,
            tip: format!("{name}, {x}: {} {unit}", number(value)),
        })
    }
}

/// What people call a system.
fn title(id: &str) -> &str {
    System::find(id).map_or(id, |system| system.title)
}

fn sample(seen: &[Seen<'_>]) -> Sample {
    // Measures of one cell, such as its roles, are one group.
    let mut cells: Vec<(&Cell, Vec<f64>)> = Vec::new();
    for Seen { cell, measure } in seen {
        match cells
            .last_mut()
            .filter(|(last, _)| core::ptr::eq(*last, *cell))
        {
            Some((_, values)) => values.extend(&measure.values),
            None => cells.push((cell, measure.values.clone())),
        }
    }
    Sample::new(cells.into_iter().map(|(_, values)| values))
}

/// A course with few enough points to draw: of each stretch the lowest and the
/// highest, so that no dip and no peak is lost.
fn thinned(series: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let finite: Vec<(f64, f64)> = series
        .iter()
        .copied()
        .filter(|(at, value)| at.is_finite() && value.is_finite())
        .collect();
    if finite.len() <= 2 * CURVE_POINTS {
        return finite;
    }
    let stretch = finite.len().div_ceil(CURVE_POINTS);
    let mut thinned = Vec::new();
    for part in finite.chunks(stretch) {
        let by_value = |a: &&(f64, f64), b: &&(f64, f64)| a.1.total_cmp(&b.1);
        let (low, high) = (part.iter().min_by(by_value), part.iter().max_by(by_value));
        let mut ends: Vec<(f64, f64)> = low.into_iter().chain(high).copied().collect();
        ends.sort_by(|a, b| a.0.total_cmp(&b.0));
        ends.dedup();
        thinned.extend(ends);
    }
    thinned
}
