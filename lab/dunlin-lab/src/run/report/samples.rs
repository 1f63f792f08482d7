//! Every sample of a run as JSON and as CSV, for other programs.
//!
//! Invalid cells are there with their reason and without their numbers.

use std::collections::BTreeSet;
use std::io::{self, Write};

use serde_json::{Value, json};

use super::claim::{Row, Verdict};
use super::html::escape;
use super::site::Shown;
use crate::run::experiment::{Claim, Estimate, Target};
use crate::run::record::{Measure, Outcome, Record};

/// Of the JSON; changes when a reader would have to.
const VERSION: u32 = 2;

/// Samples above which there is no CSV: it would be of hundreds of megabytes,
/// many times what the JSON takes.
const CSV_ROWS_MAX: usize = 2_000_000;

/// Whether the run has a CSV.
pub(super) fn has_csv(shown: &Shown) -> bool {
    shown.samples() <= CSV_ROWS_MAX
}

/// Links to what is written here, as HTML.
pub(super) fn links(shown: &Shown) -> String {
    let stem = escape(&shown.stem);
    let json = format!("<a href=\"{stem}.json\">JSON</a>");
    if has_csv(shown) {
        format!("{json}, <a href=\"{stem}.csv\">CSV</a>")
    } else {
        let millions = shown.samples() / 1_000_000;
        format!("{json} (no CSV: {millions} million samples)")
    }
}

/// Writes the run as one JSON object.
pub(super) fn json(shown: &Shown, to: &mut dyn Write) -> io::Result<()> {
    let claims: Vec<Value> = shown.claims.iter().map(claim).collect();
    let head = json!({"format": "dunlin-lab report", "version": VERSION});
    write!(to, "{{\n\"about\": {head},\n\"run\": ")?;
    serde_json::to_writer(&mut *to, &shown.run.header)?;
    write!(to, ",\n\"claims\": {},\n\"cells\": [", Value::Array(claims))?;
    for (index, record) in shown.run.records.iter().enumerate() {
        to.write_all(if index == 0 { b"\n" } else { b",\n" })?;
        if record.outcome.invalid.is_some() {
            serde_json::to_writer(&mut *to, &numberless(record))?;
        } else {
            serde_json::to_writer(&mut *to, record)?;
        }
    }
    to.write_all(b"\n]\n}\n")
}

fn numberless(record: &Record) -> Record {
    Record {
        cell: record.cell.clone(),
        outcome: Outcome {
            measures: Vec::new(),
            invalid: record.outcome.invalid.clone(),
            notes: record.outcome.notes.clone(),
        },
        seconds: record.seconds,
    }
}

fn claim(row: &Row) -> Value {
    let claim = &row.claim;
    let causes = row.causes.iter().map(|found| {
        json!({
            "experiment": found.experiment,
            "what": found.claim.what,
            "measured": measured(&found.claim),
            "unit": found.claim.unit,
            "target": target(&found.claim),
            "verdict": Verdict::alone(&found.claim).key(),
        })
    });
    json!({
        "what": claim.what,
        "paper": claim.paper,
        "measured": measured(claim),
        "unit": claim.unit,
        "target": target(claim),
        "verdict": Verdict::of(row).key(),
        "reason": claim.reason,
        "causes": causes.collect::<Vec<Value>>(),
    })
}

fn target(claim: &Claim) -> Option<Value> {
    claim.target.map(|target| match target {
        Target::AtMost(most) => json!({"at_most": most}),
        Target::AtLeast(least) => json!({"at_least": least}),
    })
}

fn measured(claim: &Claim) -> Option<Value> {
    let Estimate { value, low, high } = claim.measured?;
    Some(json!({"value": value, "low": low, "high": high}))
}

/// Writes the run as a table with a row for each sample. `at_seconds` is empty
/// but for values of a course.
pub(super) fn csv(shown: &Shown, to: &mut dyn Write) -> io::Result<()> {
    let records = &shown.run.records;
    let names = factors(records);
    let mut head = vec!["experiment", "scale", "system", "repetition", "seed"];
    head.extend(names.iter().copied());
    head.extend(["metric", "unit", "at_seconds", "value", "invalid"]);
    row(to, &head)?;
    let scale = super::site::scale(shown.run.header.scale);
    for record in records {
        let cell = &record.cell;
        let (repetition, seed) = (cell.repetition.to_string(), format!("{:016x}", cell.seed));
        let start = [
            shown.run.header.experiment.as_str(),
            scale,
            &cell.system,
            &repetition,
            &seed,
        ];
        if let Some(reason) = &record.outcome.invalid {
            let of = |name: &&str| cell.factors.get(*name).map_or("", String::as_str);
            let mut fields = start.to_vec();
            fields.extend(names.iter().map(of));
            fields.extend(["", "", "", "", reason]);
            row(to, &fields)?;
            continue;
        }
        for measure in &record.outcome.measures {
            let of = |name: &&str| {
                let own = measure.factors.get(*name);
                own.or_else(|| cell.factors.get(*name))
                    .map_or("", String::as_str)
            };
            let mut fields = start.to_vec();
            fields.extend(names.iter().map(of));
            fields.extend([measure.metric.as_str(), measure.unit.as_str()]);
            samples(to, &fields, measure)?;
        }
    }
    Ok(())
}

fn samples(to: &mut dyn Write, start: &[&str], measure: &Measure) -> io::Result<()> {
    let values = measure.values.iter().map(|value| (String::new(), *value));
    let course = measure
        .series
        .iter()
        .map(|(at, value)| (at.to_string(), *value));
    for (at, value) in values.chain(course) {
        let value = if value.is_finite() {
            value.to_string()
        } else {
            String::new()
        };
        let mut fields = start.to_vec();
        fields.extend([at.as_str(), value.as_str(), ""]);
        row(to, &fields)?;
    }
    Ok(())
}

fn factors(records: &[Record]) -> BTreeSet<&str> {
    let of_cells = records.iter().flat_map(|r| r.cell.factors.keys());
    let measures = records.iter().flat_map(|r| &r.outcome.measures);
    let of_measures = measures.flat_map(|measure| measure.factors.keys());
    of_cells.chain(of_measures).map(String::as_str).collect()
}

/// As RFC 4180 has it, with bare line feeds.
fn row(to: &mut dyn Write, fields: &[&str]) -> io::Result<()> {
    for (index, field) in fields.iter().enumerate() {
        if index > 0 {
            to.write_all(b",")?;
        }
        if field.contains(['"', ',', '\n', '\r']) {
            write!(to, "\"{}\"", field.replace('"', "\"\""))?;
        } else {
            to.write_all(field.as_bytes())?;
        }
    }
    to.write_all(b"\n")
}
