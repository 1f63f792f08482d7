//! The first page: all claims, all runs.

use super::claim;
use super::html::escape;
use super::html::{self, cell, numbers};
use super::samples;
use super::site::{Shown, Site, scale};

/// The whole page.
pub(super) fn page(site: &Site) -> String {
    let mut body = String::from("<h1>The experiments of the papers</h1>\n");
    let quoted = site.quoted();
    let counted = quoted.iter().filter(|shown| shown.counts());
    let all = counted.flat_map(|shown| &shown.claims);
    let summary = claim::summary(&claim::counts(all));
    if summary.is_empty() {
        body.push_str("<p class=\"quiet\">No claims yet, but of smoke runs.</p>\n");
    } else {
        body.push_str(&format!(
            "<div class=\"card\"><p>Claims, without those of smoke runs and those that isolate causes: {}.</p><p class=\"quiet\">{}</p></div>\n",
            escape(&summary),
            html::LEGEND
        ));
    }
    for sentence in &site.unreadable {
        body.push_str(&format!(
            "<div class=\"card warn\"><p>A run cannot be read: {}</p></div>\n",
            escape(sentence)
        ));
    }
    body.push_str("<h2>Runs</h2>\n");
    body.push_str(&runs(site));
    if quoted.iter().any(|shown| !shown.claims.is_empty()) {
        body.push_str("<h2>Paper said, we measured</h2>\n");
    }
    for shown in quoted {
        body.push_str(&experiment(shown));
    }
    html::page("dunlin-lab: the experiments of the papers", &body)
}

fn runs(site: &Site) -> String {
    if site.shown.is_empty() {
        return "<p class=\"quiet\">None is stored here.</p>\n".to_owned();
    }
    let rows = site.shown.iter().map(|shown| {
        let header = &shown.run.header;
        let stem = escape(&shown.stem);
        let state = match &header.finished {
            Some(finished) => cell(&format!("finished {finished}")),
            None if shown.complete() => cell("all cells recorded"),
            None => "<td class=\"open\">unfinished</td>".to_owned(),
        };
        vec![
            format!(
                "<td><a href=\"{stem}.html\">{}</a></td>",
                escape(&header.experiment)
            ),
            cell(scale(header.scale)),
            numbers(&header.started),
            state,
            numbers(&format!(
                "{} of {}",
                shown.run.records.len(),
                header.planned
            )),
            numbers(&shown.invalid().to_string()),
            format!("<td>{}</td>", samples::links(shown)),
        ]
    });
    let head = [
        "Experiment",
        "Scale",
        "Started",
        "State",
        "Cells",
        "Invalid",
        "Samples",
    ];
    html::table(&head, rows)
}

fn experiment(shown: &Shown) -> String {
    if shown.claims.is_empty() {
        return String::new();
    }
    let header = &shown.run.header;
    let source = shown
        .experiment
        .map_or("", |experiment| experiment.source());
    let state = if shown.complete() { "" } else { ", unfinished" };
    format!(
        "<h3><a href=\"{}.html\">{}</a> <span class=\"quiet\">({}; {} run{state})</span></h3>\n{}",
        escape(&shown.stem),
        escape(&header.experiment),
        escape(source),
        scale(header.scale),
        html::claims(&shown.claims)
    )
}
