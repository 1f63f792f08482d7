//! The short table at the end of a run: medians, a column for each system.

use std::collections::{BTreeMap, BTreeSet};

use super::experiment::Claim;
use super::record::Record;
use super::report;
use super::stats::quantile_of;
use super::systems::SYSTEMS;
use crate::console;

/// Widest first column.
const NAME_WIDTH_MAX: usize = 60;

/// Prints it.
pub(crate) fn print(records: &[Record]) {
    for line in table(records) {
        console::line(format_args!("   {line}"));
    }
    let invalid = records
        .iter()
        .filter(|record| record.outcome.invalid.is_some())
        .count();
    if invalid > 0 {
        let cells = if invalid == 1 { "cell is" } else { "cells are" };
        console::line(format_args!(
            "   {invalid} {cells} invalid and not in this table"
        ));
    }
}

/// Prints what papers said beside what was measured.
pub(crate) fn print_claims(claims: &[Claim]) {
    for claim in claims.iter().filter(|claim| claim.measured.is_some()) {
        console::line(format_args!("   {}", report::line(claim)));
    }
}

fn table(records: &[Record]) -> Vec<String> {
    let mut rows: BTreeMap<String, BTreeMap<&str, Vec<f64>>> = BTreeMap::new();
    let mut present = BTreeSet::new();
    for record in records
        .iter()
        .filter(|record| record.outcome.invalid.is_none())
    {
        for measure in &record.outcome.measures {
            if measure.values.is_empty() {
                continue;
            }
            let mut factors = record.cell.factors.clone();
            factors.extend(measure.factors.clone());
            let mut name = format!("{} [{}]", measure.metric, measure.unit);
            for (factor, value) in factors {
                name.push_str(&format!(" {factor}={value}"));
            }
            let system = record.cell.system.as_str();
            present.insert(system);
            let row = rows.entry(name).or_default();
            row.entry(system).or_default().extend(&measure.values);
        }
    }
    let mut systems: Vec<&str> = SYSTEMS.iter().map(|system| system.id).collect();
    systems.retain(|id| present.remove(id));
    // Anything else that a plan calls a system.
    systems.extend(present);
    let width = rows
        .keys()
        .map(String::len)
        .max()
        .unwrap_or(0)
        .min(NAME_WIDTH_MAX);
    let mut lines = Vec::new();
    if rows.is_empty() {
        return lines;
    }
    let mut head = format!("{:<width$}", "median");
    for system in &systems {
        head.push_str(&format!("  {system:>10}"));
    }
    lines.push(head);
    for (name, row) in rows {
        let mut line = format!("{name:<width$}");
        for system in &systems {
            let wide = system.len().max(10);
            let value = row
                .get(system)
                .map_or(f64::NAN, |values| quantile_of(values, 0.5));
            let value = if value.is_nan() {
                "-".to_owned()
            } else {
                figure(value)
            };
            line.push_str(&format!("  {value:>wide$}"));
        }
        lines.push(line);
    }
    lines
}

/// Three digits or so.
fn figure(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        x if x >= 100.0 || value.fract() == 0.0 => format!("{value:.0}"),
        x if x >= 1.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::plan::cells;
    use super::super::record::{Measure, Outcome};
    use super::*;

    #[test]
    fn systems_stand_side_by_side() {
        let factors: [(&str, &[&str]); 1] = [("loss_percent", &["0", "5"])];
        let cells = cells("x", &["mosquitto-tls", "dunlin-quic"], &factors, 2);
        let record = |(value, cell)| Record {
            cell,
            outcome: Outcome {
                measures: vec![Measure {
                    metric: "latency".to_owned(),
                    unit: "ms".to_owned(),
                    values: vec![value],
                    ..Measure::default()
                }],
                ..Outcome::default()
            },
            seconds: 1.0,
        };
        let values = [1.0, 2.5, 3.0, 4.0, 1.0, 2.5, 3.0];
        let records: Vec<Record> = values.into_iter().zip(cells).map(record).collect();
        let lines = table(&records);
        let words = |line: &str| {
            line.split_whitespace()
                .map(str::to_owned)
                .collect::<Vec<_>>()
        };
        assert_eq!(words(&lines[0]), ["median", "dunlin-quic", "mosquitto-tls"]);
        assert_eq!(
            words(&lines[1]),
            ["latency", "[ms]", "loss_percent=0", "2.50", "1"]
        );
        assert_eq!(
            words(&lines[2]),
            ["latency", "[ms]", "loss_percent=5", "4", "3"]
        );
    }
}
