//! The page of the book: claims as tables, figures as files beside it.

use super::claim::{self, Row, Verdict};
use super::plot::draw;
use super::plot::words::sentence;
use super::site::{Shown, Site};
use crate::run::record::Scale;

/// Name of the page in the book's folder.
pub(super) const PAGE: &str = "results.md";
/// Folder of the pictures beside it.
pub(super) const PICTURES: &str = "results";

/// The page, and pictures by name of their file.
pub(super) fn book(site: &Site) -> (String, Vec<(String, String)>) {
    let mut quoted = site.quoted();
    quoted.retain(|shown| !shown.is_smoke());
    let mut page = String::from(
        "# The experiments of the papers\n\n\
         <!-- Written by `make lab-book`; edits are lost. -->\n\n\
         What `dunlin-lab` measured with the experiments of the papers, beside what they said. \
         [The testbed](testbed.md) says how, and how to measure it again; \
         [Reports](reports.md) says how to read it.\n\n",
    );
    let counts = claim::counts(
        quoted
            .iter()
            .filter(|shown| shown.counts())
            .flat_map(|shown| &shown.claims),
    );
    if quoted.iter().all(|shown| shown.claims.is_empty()) {
        page.push_str("No run is stored yet.\n");
        return (page, Vec::new());
    }
    page.push_str(&format!(
        "**Claims:** {}.\n\n{}\n\n",
        claim::summary(&counts),
        super::html::LEGEND
    ));
    let mut pictures = Vec::new();
    for shown in &quoted {
        page.push_str(&section(shown, &mut pictures));
    }
    page.push_str(&environment(&quoted));
    (page, pictures)
}

fn section(shown: &Shown, pictures: &mut Vec<(String, String)>) -> String {
    let header = &shown.run.header;
    let mut text = format!("## {}\n\n", plain(&header.experiment));
    if let Some(experiment) = shown.experiment {
        text.push_str(&format!(
            "{} ({}).\n\n",
            plain(sentence(experiment.about()).trim_end_matches('.')),
            plain(experiment.source())
        ));
    }
    text.push_str(&format!(
        "{} run of {}. {}\n\n",
        match header.scale {
            Scale::Paper => "A full",
            Scale::Short => "A short",
            Scale::Smoke => "A smoke",
        },
        plain(header.started.get(..10).unwrap_or("unknown date")),
        plain(&shown.status().join(" "))
    ));
    if !shown.claims.is_empty() {
        text.push_str(&claims(&shown.claims));
    }
    for (figure, plot) in &shown.figures {
        if plot.is_empty() {
            continue;
        }
        let file = format!("{}-{}.svg", header.experiment, figure.id);
        text.push_str(&format!(
            "![{}]({PICTURES}/{file})\n\n",
            plain(figure.title)
        ));
        let (title, explained) = (plain(figure.title), plain(&plot.explained()));
        text.push_str(&format!("*{title}. {explained}*\n\n"));
        pictures.push((file, draw(plot)));
    }
    text
}

fn claims(rows: &[Row]) -> String {
    let mut text = String::from(
        "| Claim | Paper said | We measured | Target | Holds? |\n| --- | --- | --- | --- | --- |\n",
    );
    for row in rows {
        let claim = &row.claim;
        text.push_str(&format!(
            "| {} | {} | {} | {} | {} |\n",
            plain(&claim.what),
            plain(&claim::paper(claim)),
            plain(&claim::measured(claim)),
            plain(&claim::target(claim)),
            match Verdict::of(row) {
                Verdict::Fails => "**no**".to_owned(),
                _ => claim::holds(row),
            }
        ));
    }
    text.push('\n');
    for row in rows {
        let why = claim::why(row);
        if !why.is_empty() {
            let what = plain(&row.claim.what);
            text.push_str(&format!("- {what}: {}.\n", plain(&why.join("; "))));
        }
    }
    text.push('\n');
    text
}

/// What all runs have in common is said once.
fn environment(quoted: &[&Shown]) -> String {
    let mut text = String::from("## Environment\n\n| What | Value |\n| --- | --- |\n");
    let mut said: Vec<(&String, &String)> = Vec::new();
    for shown in quoted {
        for entry in &shown.run.header.environment {
            if !said.contains(&entry) {
                said.push(entry);
            }
        }
    }
    said.sort();
    for (name, value) in said {
        text.push_str(&format!("| {} | {} |\n", plain(name), plain(value)));
    }
    text
}

/// Text without what Markdown would take for its own.
fn plain(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '|' | '*' | '_' | '[' | ']' | '<' | '>' | '#' => {
                plain.push('\\');
                plain.push(c);
            }
            '\n' | '\r' => plain.push(' '),
            c => plain.push(c),
        }
    }
    plain
}
