//! Prometheus text exposition, version 0.0.4: families with HELP and TYPE,
//! samples with labels. It knows the format and no metric.

use core::fmt::Write as _;
use std::collections::BTreeMap;

/// Media type of the text.
pub(crate) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Labels of a sample, in the order in which they are written.
pub(crate) type Labels<'a> = &'a [(&'static str, &'a str)];

/// How the values of a family behave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Only grows, until the broker restarts.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Counts of observations by size.
    Histogram,
}

impl Kind {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

#[derive(Debug)]
struct Family {
    kind: Kind,
    help: &'static str,
    samples: String,
}

/// Families in the order of their names, each with all of its samples.
#[derive(Debug, Default)]
pub(crate) struct Exposition {
    families: BTreeMap<String, Family>,
}

impl Exposition {
    pub(crate) fn counter(
        &mut self,
        name: &str,
        help: &'static str,
        labels: Labels<'_>,
        value: u64,
    ) {
        self.sample(name, Kind::Counter, help, labels, value as f64);
    }

    pub(crate) fn gauge(&mut self, name: &str, help: &'static str, labels: Labels<'_>, value: f64) {
        self.sample(name, Kind::Gauge, help, labels, value);
    }

    /// A sample; the first of a family says what the family is.
    pub(crate) fn sample(
        &mut self,
        name: &str,
        kind: Kind,
        help: &'static str,
        labels: Labels<'_>,
        value: f64,
    ) {
        let family = self.family(name, kind, help);
        line(&mut family.samples, name, "", labels, None, value);
    }

    /// A histogram: counts of observations that did not exceed a bound and
    /// exceeded the bound before, then the sum and number of all.
    pub(crate) fn histogram(
        &mut self,
        name: &str,
        help: &'static str,
        labels: Labels<'_>,
        classes: impl Iterator<Item = (f64, u64)>,
        (sum, count): (f64, u64),
    ) {
        let samples = &mut self.family(name, Kind::Histogram, help).samples;
        let mut cumulative = 0;
        for (bound, observed) in classes {
            cumulative += observed;
            let bound = format!("{bound}");
            line(
                samples,
                name,
                "_bucket",
                labels,
                Some(&bound),
                cumulative as f64,
            );
        }
        line(samples, name, "_bucket", labels, Some("+Inf"), count as f64);
        line(samples, name, "_sum", labels, None, sum);
        line(samples, name, "_count", labels, None, count as f64);
    }

    fn family(&mut self, name: &str, kind: Kind, help: &'static str) -> &mut Family {
        self.families.entry(name.to_owned()).or_insert(Family {
            kind,
            help,
            samples: String::new(),
        })
    }

    /// Name, kind and sentence of each family, for documentation.
    #[cfg(test)]
    pub(crate) fn families(&self) -> impl Iterator<Item = (&str, Kind, &'static str)> {
        self.families
            .iter()
            .map(|(name, family)| (name.as_str(), family.kind, family.help))
    }

    /// The text.
    pub(crate) fn render(&self) -> String {
        let mut out = String::new();
        for (name, family) in &self.families {
            let help = family.help.replace('\\', "\\\\").replace('\n', "\\n");
            let kind = family.kind.name();
            // Writing to a String does not fail.
            let _ = write!(out, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
            out.push_str(&family.samples);
        }
        out
    }
}

fn line(
    out: &mut String,
    name: &str,
    suffix: &str,
    labels: Labels<'_>,
    bound: Option<&str>,
    value: f64,
) {
    out.push_str(name);
    out.push_str(suffix);
    let bound = bound.map(|bound| ("le", bound));
    let mut separator = '{';
    for (key, text) in labels.iter().copied().chain(bound) {
        let text = text
            .replace('\\', "\\\\")
            .replace('"', "\\\"")
            .replace('\n', "\\n");
        let _ = write!(out, "{separator}{key}=\"{text}\"");
        separator = ',';
    }
    if separator == ',' {
        out.push('}');
    }
    let _ = writeln!(out, " {value}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_are_written_once_with_all_their_samples() {
        let mut out = Exposition::default();
        out.counter("b_total", "Bees.", &[("shard", "0")], 7);
        out.gauge("a", "An \"a\"\\.", &[], 0.5);
        out.counter("b_total", "Bees.", &[("shard", "1"), ("x", "q\"\\\n")], 9);
        let classes = [(0.1, 1), (1.0, 2)].into_iter();
        out.histogram("c_seconds", "Sea.", &[("s", "0")], classes, (7.5, 4));
        assert_eq!(
            out.render(),
            "# HELP a An \"a\"\\\\.\n# TYPE a gauge\na 0.5\n\
             # HELP b_total Bees.\n# TYPE b_total counter\n\
             b_total{shard=\"0\"} 7\nb_total{shard=\"1\",x=\"q\\\"\\\\\\n\"} 9\n\
             # HELP c_seconds Sea.\n# TYPE c_seconds histogram\n\
             c_seconds_bucket{s=\"0\",le=\"0.1\"} 1\nc_seconds_bucket{s=\"0\",le=\"1\"} 3\n\
             c_seconds_bucket{s=\"0\",le=\"+Inf\"} 4\nc_seconds_sum{s=\"0\"} 7.5\n\
             c_seconds_count{s=\"0\"} 4\n"
        );
    }
}
