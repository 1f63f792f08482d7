//! Writing SVG: escaped text, short numbers, nothing of what is drawn.

use core::fmt::{Display, Write as _};

/// Elements of a picture, in drawing order.
#[derive(Clone, Debug, Default)]
pub(super) struct Svg {
    text: String,
}

/// Where a text is fixed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Anchor {
    Start,
    Middle,
    End,
}

impl Anchor {
    const fn name(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Middle => "middle",
            Self::End => "end",
        }
    }
}

impl Svg {
    /// The whole picture, with a description for those who cannot see it and
    /// the style sheet if it has to stand alone.
    pub(super) fn finish(self, width: f64, height: f64, name: &str, style: Option<&str>) -> String {
        let (width, height) = (Short(width), Short(height));
        let name = escape(name);
        let (xmlns, style, ground) = match style {
            Some(style) => (
                format!(
                    " xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\""
                ),
                format!("<style>{style}</style>\n"),
                "<rect class=\"ground\" width=\"100%\" height=\"100%\" rx=\"6\"/>\n",
            ),
            None => (String::new(), String::new(), ""),
        };
        format!(
            "<svg{xmlns} class=\"plot\" viewBox=\"0 0 {width} {height}\" role=\"img\" \
             aria-label=\"{name}\">\n{style}{ground}{}</svg>\n",
            self.text
        )
    }

    /// Opens a group; what follows is in it until [`Svg::end`].
    pub(super) fn group(&mut self, class: &str) {
        self.put(format_args!("<g class=\"{class}\">\n"));
    }

    /// Opens a group that says this when pointed at.
    pub(super) fn reply(&mut self, class: &str, tip: &str) {
        let tip = escape(tip);
        self.put(format_args!("<g class=\"{class}\"><title>{tip}</title>"));
    }

    pub(super) fn end(&mut self) {
        self.put(format_args!("</g>\n"));
    }

    pub(super) fn line(&mut self, class: &str, from: (f64, f64), to: (f64, f64)) {
        let (x1, y1, x2, y2) = (Short(from.0), Short(from.1), Short(to.0), Short(to.1));
        self.put(format_args!(
            "<path class=\"{class}\" d=\"M{x1} {y1}L{x2} {y2}\"/>"
        ));
    }

    /// A line through points; nothing if there are fewer than two.
    pub(super) fn polyline(&mut self, class: &str, points: &[(f64, f64)]) {
        if points.len() < 2 {
            return;
        }
        self.put(format_args!("<path class=\"{class}\" d=\""));
        for (index, (x, y)) in points.iter().enumerate() {
            let command = if index == 0 { "M" } else { "L" };
            self.put(format_args!("{command}{} {}", Short(*x), Short(*y)));
        }
        self.put(format_args!("\"/>\n"));
    }

    pub(super) fn rect(&mut self, class: &str, corner: (f64, f64), size: (f64, f64)) {
        let (x, y, width, height) = (
            Short(corner.0),
            Short(corner.1),
            Short(size.0.max(0.0)),
            Short(size.1.max(0.0)),
        );
        self.put(format_args!(
            "<rect class=\"{class}\" x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\"/>"
        ));
    }

    /// A closed shape, as the `d` attribute around the origin says it.
    pub(super) fn shape(&mut self, class: &str, at: (f64, f64), d: &str) {
        let (x, y) = (Short(at.0), Short(at.1));
        self.put(format_args!(
            "<path class=\"{class}\" transform=\"translate({x} {y})\" d=\"{d}\"/>"
        ));
    }

    pub(super) fn text(&mut self, class: &str, at: (f64, f64), anchor: Anchor, text: &str) {
        let (x, y, anchor, text) = (Short(at.0), Short(at.1), anchor.name(), escape(text));
        self.put(format_args!(
            "<text class=\"{class}\" x=\"{x}\" y=\"{y}\" text-anchor=\"{anchor}\">{text}</text>\n"
        ));
    }

    /// A text turned by this many degrees.
    pub(super) fn turned(&mut self, at: (f64, f64), anchor: Anchor, degrees: f64, text: &str) {
        let (x, y, anchor, text) = (Short(at.0), Short(at.1), anchor.name(), escape(text));
        let degrees = Short(degrees);
        self.put(format_args!(
            "<text transform=\"translate({x} {y}) rotate({degrees})\" \
             text-anchor=\"{anchor}\">{text}</text>\n"
        ));
    }

    fn put(&mut self, what: core::fmt::Arguments<'_>) {
        // Writing to a String does not fail.
        let _ = self.text.write_fmt(what);
    }
}

/// A coordinate with one decimal, which is finer than any screen. What is no
/// number becomes 0: a picture with a misplaced mark is still a picture, one
/// with `NaN` in it is none.
struct Short(f64);

impl Display for Short {
    fn fmt(&self, to: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let value = if self.0.is_finite() { self.0 } else { 0.0 };
        let tenths = (value * 10.0).round();
        if tenths % 10.0 == 0.0 {
            write!(to, "{}", (tenths / 10.0) as i64)
        } else {
            write!(to, "{:.1}", tenths / 10.0)
        }
    }
}

/// Text as it may stand in elements and attributes of HTML and SVG.
/// Characters that XML cannot have are left out.
pub(crate) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            '\n' | '\t' => escaped.push(' '),
            c if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') => {}
            c => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_cannot_leave_its_place() {
        assert_eq!(
            escape("</title><script>alert(\"x\" & 'y')\u{0}"),
            "&lt;/title&gt;&lt;script&gt;alert(&quot;x&quot; &amp; &#39;y&#39;)"
        );
    }

    #[test]
    fn coordinates_are_short_and_always_numbers() {
        let cases = [
            (1.0, "1"),
            (-0.04, "0"),
            (1.26, "1.3"),
            (f64::NAN, "0"),
            (f64::INFINITY, "0"),
        ];
        for (value, text) in cases {
            assert_eq!(Short(value).to_string(), text);
        }
    }

    #[test]
    fn a_picture_stands_alone_with_its_style() {
        let mut svg = Svg::default();
        svg.reply("c0", "a < b");
        svg.line("l", (0.0, 0.5), (10.0, f64::NAN));
        svg.end();
        assert_eq!(
            svg.clone().finish(20.0, 10.0, "x", None),
            "<svg class=\"plot\" viewBox=\"0 0 20 10\" role=\"img\" aria-label=\"x\">\n\
             <g class=\"c0\"><title>a &lt; b</title><path class=\"l\" d=\"M0 0.5L10 0\"/></g>\n\
             </svg>\n"
        );
        let alone = svg.finish(20.0, 10.0, "x", Some(".c0{color:red}"));
        assert!(alone.starts_with("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"20\""));
        assert!(alone.contains("<style>.c0{color:red}</style>"));
    }
}
