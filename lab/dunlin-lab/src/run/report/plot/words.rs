//! How numbers, factors and metrics are written for people, and how wide.

/// A number with three or four significant digits and no exponent.
pub(crate) fn number(value: f64) -> String {
    if !value.is_finite() {
        return "-".to_owned();
    }
    let size = value.abs();
    let text = match size {
        _ if size == 0.0 => return "0".to_owned(),
        _ if size >= 999.5 => format!("{value:.0}"),
        _ if size >= 99.95 => format!("{value:.1}"),
        _ if size >= 9.995 => format!("{value:.2}"),
        _ if size >= 0.1 => format!("{value:.3}"),
        _ if size >= 0.000_1 => format!("{value:.5}"),
        _ => return format!("{value:.1e}"),
    };
    trimmed(&text)
}

/// Without zeros that say nothing; with a minus sign that is one.
fn trimmed(text: &str) -> String {
    let text = if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.')
    } else {
        text
    };
    text.replace('-', "\u{2212}")
}

/// A number on an axis: short, with a letter for thousands and more.
pub(super) fn tick(value: f64) -> String {
    let size = value.abs();
    let (scaled, letter) = match size {
        _ if size >= 1e9 => (value / 1e9, "G"),
        _ if size >= 1e6 => (value / 1e6, "M"),
        _ if size >= 1e4 => (value / 1e3, "k"),
        _ => (value, ""),
    };
    // Ticks are multiples of a step; what is left is error of the division.
    let digits = if scaled.abs() >= 1.0 { 2 } else { 6 };
    let text = trimmed(&format!("{scaled:.digits$}"));
    let text = if text == "\u{2212}0" { "0" } else { &text };
    format!("{text}{letter}")
}

/// Ends of names of factors and what they mean on an axis.
const UNITS: &[(&str, &str)] = &[
    ("_percent", "%"),
    ("_ms", "ms"),
    ("_us", "µs"),
    ("_seconds", "s"),
    ("_s", "s"),
    ("_bytes", "bytes"),
    ("_kib", "KiB"),
    ("_mib", "MiB"),
    ("_bit", "bit/s"),
    ("_kbit", "kbit/s"),
    ("_mbit", "Mbit/s"),
];

/// `loss_percent` becomes `loss (%)`.
pub(crate) fn factor(name: &str) -> String {
    for (end, unit) in UNITS {
        if let Some(stem) = name.strip_suffix(end) {
            return format!("{} ({unit})", plain(stem));
        }
    }
    plain(name)
}

/// A factor with its value: `loss 10 %`, or just the value where that is a word.
pub(crate) fn factor_value(name: &str, value: &str) -> String {
    if value.parse::<f64>().is_err() {
        return plain(value);
    }
    for (end, unit) in UNITS {
        if let Some(stem) = name.strip_suffix(end) {
            return format!("{} {value} {unit}", plain(stem));
        }
    }
    format!("{} {value}", plain(name))
}

/// `latency (ms)`; the unit is not said twice.
pub(crate) fn metric(name: &str, unit: &str) -> String {
    // What is shown over time may have a name of its own beside its values.
    let name = name.strip_suffix("-course").unwrap_or(name);
    let name = plain(name).replace('-', " ");
    if unit.is_empty() || unit == name {
        name
    } else {
        format!("{name} ({unit})")
    }
}

/// With a capital letter.
pub(crate) fn sentence(text: &str) -> String {
    let mut chars = text.chars();
    let first = chars.next().into_iter().flat_map(char::to_uppercase);
    first.chain(chars).collect()
}

/// With minus signs for hyphens before digits that are no part of a word.
pub(crate) fn minus(text: &str) -> String {
    let mut before = ' ';
    let mut chars = text.chars().peekable();
    let mut signed = String::with_capacity(text.len());
    while let Some(c) = chars.next() {
        let digit = chars.peek().is_some_and(char::is_ascii_digit);
        let sign = c == '-' && digit && !before.is_alphanumeric();
        signed.push(if sign { '\u{2212}' } else { c });
        before = c;
    }
    signed
}

/// Identifiers as words.
fn plain(name: &str) -> String {
    name.replace('_', " ")
}

/// Width of a text at 12 pixels: rather too much than too little, for the
/// font is the reader's.
pub(super) fn width(text: &str) -> f64 {
    text.chars()
        .map(|c| match c {
            'i' | 'j' | 'l' | 'I' | '.' | ',' | ':' | ';' | '\'' | '|' | '!' => 3.9,
            'f' | 't' | 'r' | ' ' | '(' | ')' | '/' | '-' => 5.0,
            'm' | 'w' | 'M' | 'W' | '%' | '@' => 11.4,
            'A'..='Z' => 8.6,
            _ => 7.4,
        })
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        let cases = [
            (0.0, "0"),
            (12345.6, "12346"),
            (123.456, "123.5"),
            (-56.25, "−56.25"),
            (7.0, "7"),
            (0.1234, "0.123"),
            (0.001_234, "0.00123"),
            (1e-9, "1.0e-9"),
            (f64::NAN, "-"),
        ];
        for (value, text) in cases {
            assert_eq!(number(value), text);
        }
    }

    #[test]
    fn ticks_are_shorter() {
        let cases = [
            (0.0, "0"),
            (0.30000000000000004, "0.3"),
            (2500.0, "2500"),
            (25_000.0, "25k"),
            (-1_500_000.0, "−1.5M"),
            (-1e-17, "0"),
        ];
        for (value, text) in cases {
            assert_eq!(tick(value), text);
        }
    }

    #[test]
    fn text_is_set_with_care() {
        assert_eq!(sentence("packets of"), "Packets of");
        assert_eq!(sentence(""), "");
        assert_eq!(minus("-56.2 % to -60 %"), "\u{2212}56.2 % to \u{2212}60 %");
        assert_eq!(minus("0-RTT, 5-10 ms, a-1"), "0-RTT, 5-10 ms, a-1");
    }

    #[test]
    fn names_carry_their_units() {
        assert_eq!(factor("loss_percent"), "loss (%)");
        assert_eq!(factor("rtt_ms"), "rtt (ms)");
        assert_eq!(factor("link"), "link");
        assert_eq!(factor_value("loss_percent", "10"), "loss 10 %");
        assert_eq!(factor_value("testbed", "long-distance"), "long-distance");
        assert_eq!(factor_value("every", "10"), "every 10");
        assert_eq!(metric("cpu_time", "s"), "cpu time (s)");
        assert_eq!(metric("packets", "packets"), "packets");
        assert_eq!(metric("cpu-after", "%"), "cpu after (%)");
        assert_eq!(metric("memory-course", "MiB"), "memory (MiB)");
    }
}
