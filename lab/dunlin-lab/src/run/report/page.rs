//! The page of one run.

use std::collections::BTreeSet;

use super::claim;
use super::html::escape;
use super::html::{self, cell, numbers};
use super::plot::draw;
use super::plot::model::{Plot, XAxis};
use super::plot::words::sentence;
use super::samples;
use super::site::{Shown, scale};
use crate::run::record::Record;

/// Rows of a table of invalid cells, and seeds in a list; the JSON has all.
const ROWS_MAX: usize = 200;

/// The whole page.
pub(super) fn page(shown: &Shown) -> String {
    let header = &shown.run.header;
    let name = &header.experiment;
    let title = format!("{name} ({})", scale(header.scale));
    let mut body = String::from("<nav><a href=\"index.html\">All experiments</a></nav>\n");
    body.push_str(&format!("<h1>{}</h1>\n", escape(&title)));
    body.push_str(&head(shown));
    body.push_str("<h2>Paper said, we measured</h2>\n");
    if shown.claims.is_empty() {
        body.push_str("<p class=\"quiet\">No claims.</p>\n");
    } else {
        let summary = claim::summary(&claim::counts(shown.claims.iter()));
        body.push_str(&format!("<p>{}.</p>\n", escape(&summary)));
        body.push_str(&html::claims(&shown.claims));
        body.push_str(&format!("<p class=\"quiet\">{}</p>\n", html::LEGEND));
    }
    if !shown.figures.is_empty() {
        body.push_str("<h2>Figures</h2>\n");
    }
    for (figure, plot) in &shown.figures {
        body.push_str(&picture(figure.id, figure.title, plot));
    }
    body.push_str(&invalid(&shown.run.records));
    body.push_str(&notes(shown));
    body.push_str(&environment(shown));
    body.push_str(&seeds(&shown.run.records));
    html::page(&format!("dunlin-lab: {title}"), &body)
}

fn head(shown: &Shown) -> String {
    let header = &shown.run.header;
    let mut html = String::new();
    if let Some(experiment) = shown.experiment {
        html.push_str(&format!(
            "<p>{} <span class=\"quiet\">({})</span></p>\n",
            escape(&sentence(experiment.about())),
            escape(experiment.source())
        ));
    }
    let class = if shown.doubtful() {
        "card warn"
    } else {
        "card"
    };
    let finished = match &header.finished {
        Some(time) => format!("finished {time}"),
        None => "not finished".to_owned(),
    };
    let seconds: f64 = shown.run.records.iter().map(|r| r.seconds).sum();
    html.push_str(&format!(
        "<div class=\"{class}\"><p>{}</p><p>Started {}, {}; {:.0} s of measuring. \
         Every sample: {}.</p></div>\n",
        escape(&shown.status().join(" ")),
        escape(&header.started),
        escape(&finished),
        seconds,
        samples::links(shown)
    ));
    html
}

fn picture(id: &str, title: &str, plot: &Plot) -> String {
    let mut html = format!(
        "<figure class=\"card\" id=\"{}\"><figcaption>{}</figcaption>\n",
        escape(id),
        escape(title)
    );
    if plot.is_empty() {
        html.push_str("<p class=\"quiet\">Nothing recorded.</p></figure>\n");
        return html;
    }
    html.push_str(&draw(plot));
    let explained = escape(&plot.explained());
    html.push_str(&format!("<p class=\"quiet\">{explained}</p>\n"));
    html.push_str("<details><summary>Numbers</summary>\n");
    html.push_str(&table_of(plot));
    html.push_str("</details></figure>\n");
    html
}

/// What the picture shows, for those who cannot point at it.
fn table_of(plot: &Plot) -> String {
    let mut rows = Vec::new();
    for panel in &plot.panels {
        let title = panel.title.as_deref().unwrap_or_default();
        let points = panel.points.iter().map(|point| (point.x, &point.tip));
        let invalid = panel
            .invalid
            .iter()
            .map(|invalid| (invalid.x, &invalid.tip));
        let mut placed: Vec<(f64, &String)> = points.chain(invalid).collect();
        placed.sort_by(|a, b| a.0.total_cmp(&b.0));
        for (x, tip) in placed {
            rows.push(vec![cell(title), cell(&place(plot, x)), numbers(tip)]);
        }
        for curve in &panel.curves {
            rows.push(vec![cell(title), cell(""), numbers(&curve.tip)]);
        }
    }
    html::table(&["Plot", &plot.x_label, "Values"], rows)
}

fn place(plot: &Plot, x: f64) -> String {
    match &plot.x {
        XAxis::Categories(names) => names.get(x as usize).cloned().unwrap_or_default(),
        XAxis::Numbers { .. } => super::plot::words::number(x),
    }
}

fn invalid(records: &[Record]) -> String {
    let of: Vec<(&Record, &str)> = records
        .iter()
        .filter_map(|record| Some((record, record.outcome.invalid.as_deref()?)))
        .collect();
    if of.is_empty() {
        return String::new();
    }
    let rows = of.iter().take(ROWS_MAX).map(|(record, reason)| {
        let seed = format!("{:016x}", record.cell.seed);
        vec![
            cell(&record.cell.shown()),
            numbers(&record.cell.repetition.to_string()),
            numbers(&seed),
            cell(reason),
        ]
    });
    let mut html = String::from("<h2>Invalid cells</h2>\n");
    html.push_str(
        "<p>These are no measurements of a system: their numbers are shown nowhere.</p>\n",
    );
    html.push_str(&html::table(&["Cell", "Repetition", "Seed", "Why"], rows));
    html.push_str(&more(of.len()));
    html
}

fn more(count: usize) -> String {
    if count > ROWS_MAX {
        let rest = count - ROWS_MAX;
        format!("<p class=\"quiet\">And {rest} more, in the JSON.</p>\n")
    } else {
        String::new()
    }
}

fn notes(shown: &Shown) -> String {
    let notes = shown.notes();
    if notes.is_empty() {
        return String::new();
    }
    let mut html = String::from("<h2>Notes</h2>\n<ul>\n");
    for (note, count) in notes.iter().take(ROWS_MAX) {
        let times = if *count > 1 {
            format!(" <span class=\"quiet\">({count} cells)</span>")
        } else {
            String::new()
        };
        html.push_str(&format!("<li>{}{times}</li>\n", escape(note)));
    }
    html.push_str("</ul>\n");
    html.push_str(&more(notes.len()));
    html
}

fn environment(shown: &Shown) -> String {
    let rows = shown
        .run
        .header
        .environment
        .iter()
        .map(|(name, value)| vec![cell(name), cell(value)]);
    let mut html = String::from("<h2>Environment</h2>\n");
    html.push_str(&html::table(&["What", "Value"], rows));
    html
}

fn seeds(records: &[Record]) -> String {
    let mut seeds = BTreeSet::new();
    for record in records {
        seeds.insert(record.cell.seed);
    }
    let mut list = String::new();
    for seed in seeds.iter().take(ROWS_MAX) {
        list.push_str(&format!("<code>{seed:016x}</code> "));
    }
    format!(
        "<h2>Seeds</h2>\n<p>A cell's seed follows from the experiment, its factors and its \
         repetition; systems that are compared have the same. JSON and CSV have it with every cell.</p>\n\
         <details><summary>{} {}</summary><p>{list}</p>{}</details>\n",
        seeds.len(),
        if seeds.len() == 1 { "seed" } else { "seeds" },
        more(seeds.len())
    )
}
