//! Colours, marks and dashes: the same for a system in every figure, told
//! apart by colour-blind eyes and, by mark and dash, without colour at all.

use std::collections::BTreeMap;

/// Colours of series; systems beyond them start again with another mark.
const COLOURS: usize = 10;
/// Systems with a colour of their own wherever they are drawn. Blue and green
/// are QUIC, warm colours are TCP.
const KNOWN: &[(&str, usize)] = &[
    ("dunlin-quic", 0),
    ("dunlin-quic-0rtt", 1),
    ("dunlin-quic-topic", 2),
    ("dunlin-quic-topics", 2),
    ("dunlin-quic-per-topic", 2),
    ("dunlin-quic-streams", 2),
    ("dunlin-tls", 3),
    ("mosquitto-tls", 4),
    ("mosquitto-tcp", 5),
    ("mosquitto", 5),
    ("mqttv5-quic", 6),
    ("mqttv5", 6),
];
/// The first colour for systems that are not known.
const FREE: usize = 7;

/// Light and dark: Okabe and Ito's palette, darkened where it has to be seen
/// on white and lightened for a dark ground, then three of Tol's.
const PALETTE: [(&str, &str); COLOURS] = [
    ("#0064a8", "#4aa3e8"),
    ("#4cb0e4", "#9ad6f7"),
    ("#00855f", "#2fc79a"),
    ("#b8639a", "#e29bc8"),
    ("#cc4b00", "#ff7f3f"),
    ("#dd9200", "#f5b942"),
    ("#5b5b5b", "#bdbdbd"),
    ("#882255", "#d6649c"),
    ("#7a7a1e", "#bdbd55"),
    ("#332288", "#9a8cf0"),
];

/// Shapes around the origin, about 8 pixels wide.
const SHAPES: [&str; 8] = [
    "M-3.8 0a3.8 3.8 0 1 0 7.6 0a3.8 3.8 0 1 0 -7.6 0z",
    "M-3.4 -3.4h6.8v6.8h-6.8z",
    "M0 -4.6L4.4 3.2H-4.4z",
    "M0 -4.8L4.8 0L0 4.8L-4.8 0z",
    "M0 4.6L4.4 -3.2H-4.4z",
    "M-1.5 -4.5h3v3h3v3h-3v3h-3v-3h-3v-3h3z",
    "M-4.4 -1.4L0 -4.6L4.4 -1.4L2.7 3.8H-2.7z",
    "M0 -5L1.5 -1.5L5 0L1.5 1.5L0 5L-1.5 1.5L-5 0L-1.5 -1.5z",
];

/// Patterns of lines; the first is solid.
const DASHES: usize = 6;

/// How a series looks.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Style {
    colour: usize,
    shape: usize,
    dash: usize,
    /// Bars of one colour are told apart by how much of it they have.
    shade: usize,
    /// From a paper: an outline in the colour of the text.
    paper: bool,
}

impl Style {
    /// Of the series of a paper, counted from 0.
    pub(crate) const fn paper(index: usize) -> Self {
        Self {
            colour: 0,
            shape: (3 + index) % SHAPES.len(),
            dash: 0,
            shade: 0,
            paper: true,
        }
    }

    /// The same colour, but the look of this part of the system.
    pub(crate) const fn split(self, index: usize) -> Self {
        Self {
            shape: index % SHAPES.len(),
            dash: index % DASHES,
            shade: index % 4,
            ..self
        }
    }

    /// Of a slot of its own.
    pub(crate) const fn slot(index: usize) -> Self {
        Self {
            colour: index % COLOURS,
            shape: (index + index / COLOURS) % SHAPES.len(),
            dash: index % DASHES,
            shade: 0,
            paper: false,
        }
    }

    pub(super) const fn is_paper(self) -> bool {
        self.paper
    }

    /// Class of everything in the series.
    pub(super) fn class(self) -> String {
        if self.paper {
            "paper".to_owned()
        } else {
            format!("c{}", self.colour)
        }
    }

    pub(super) fn line_class(self) -> String {
        if self.paper {
            "l pl".to_owned()
        } else {
            format!("l d{}", self.dash)
        }
    }

    pub(super) fn bar_class(self) -> String {
        format!("b o{}", self.shade)
    }

    pub(super) const fn mark_class(self) -> &'static str {
        if self.paper { "pm" } else { "m" }
    }

    pub(super) fn shape_path(self) -> &'static str {
        SHAPES.get(self.shape).copied().unwrap_or(SHAPES[0])
    }
}

/// The styles of all systems of a run.
#[derive(Clone, Debug, Default)]
pub(crate) struct Styles(BTreeMap<String, Style>);

impl Styles {
    /// Known systems look alike everywhere; others get what is free, in the
    /// order of their names.
    pub(crate) fn of<'a>(systems: impl IntoIterator<Item = &'a str>) -> Self {
        let mut styles: BTreeMap<String, Style> = systems
            .into_iter()
            .map(|system| (system.to_owned(), Style::default()))
            .collect();
        let mut free = FREE;
        for (system, style) in &mut styles {
            let known = KNOWN.iter().find(|(name, _)| name == system);
            let slot = known.map_or(free, |(_, slot)| *slot);
            free += usize::from(known.is_none());
            *style = Style::slot(slot);
        }
        Self(styles)
    }

    /// The first style if the system is not among them.
    pub(crate) fn system(&self, system: &str) -> Style {
        self.0.get(system).copied().unwrap_or_default()
    }
}

/// The style sheet of pictures, for a light and a dark ground.
pub(crate) fn sheet() -> String {
    let mut sheet = String::from(
        ".plot{font:12px system-ui,-apple-system,\"Segoe UI\",Roboto,Helvetica,Arial,sans-serif}\n\
         .plot text{fill:#24292f}.plot .quiet{fill:#57606a}.plot .bold{font-weight:600}\n\
         .plot .ground{fill:#fff}.plot .grid{stroke:#e3e7eb;fill:none}\n\
         .plot .axis{stroke:#8c959f;fill:none}\n\
         .plot .l{stroke:currentColor;fill:none;stroke-width:1.7;stroke-linejoin:round}\n\
         .plot .thin{stroke-width:1.1}.plot .w{stroke:currentColor;fill:none;stroke-width:1.1}\n\
         .plot .b{fill:currentColor}.plot .bw{stroke:#24292f;fill:none;stroke-width:1}\n\
         .plot .o1{fill-opacity:.55}.plot .o2{fill-opacity:.25}.plot .o3{fill-opacity:0}\n\
         .plot .o1,.plot .o2,.plot .o3{stroke:currentColor;stroke-width:1}\n\
         .plot .m{fill:currentColor}.plot .paper{color:#24292f}\n\
         .plot .pm{fill:#fff;stroke:currentColor;stroke-width:1.6}\n\
         .plot .pl{stroke-width:1;stroke-dasharray:1 3}\n\
         .plot .d1{stroke-dasharray:7 3}.plot .d2{stroke-dasharray:2 2.5}\n\
         .plot .d3{stroke-dasharray:9 3 2 3}.plot .d4{stroke-dasharray:5 2}\n\
         .plot .d5{stroke-dasharray:12 3 2 3 2 3}\n\
         .plot .x{stroke:currentColor;stroke-width:1.8;fill:none}\n\
         .plot text.bad{fill:#b3261e}.plot .bad{color:#b3261e}\n",
    );
    for (index, (light, _)) in PALETTE.iter().enumerate() {
        sheet.push_str(&format!(".plot .c{index}{{color:{light}}}"));
    }
    sheet.push_str(
        "\n@media(prefers-color-scheme:dark){\
         .plot text{fill:#e6edf3}.plot .quiet{fill:#9da7b1}.plot .ground{fill:#161b22}\
         .plot .grid{stroke:#2b323b}.plot .axis{stroke:#6e7681}.plot .paper{color:#e6edf3}\
         .plot .pm{fill:#161b22}.plot .bw{stroke:#e6edf3}\
         .plot text.bad{fill:#ff8a80}.plot .bad{color:#ff8a80}\n",
    );
    for (index, (_, dark)) in PALETTE.iter().enumerate() {
        sheet.push_str(&format!(".plot .c{index}{{color:{dark}}}"));
    }
    sheet.push_str("}\n");
    sheet
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn systems_look_alike_wherever_they_are_drawn() {
        let all = Styles::of(["mosquitto-tls", "dunlin-quic", "other", "another"]);
        let some = Styles::of(["dunlin-quic"]);
        assert_eq!(all.system("dunlin-quic"), some.system("dunlin-quic"));
        let looks: Vec<_> = ["mosquitto-tls", "dunlin-quic", "other", "another"]
            .map(|system| all.system(system).class())
            .to_vec();
        for (index, look) in looks.iter().enumerate() {
            assert!(!looks[..index].contains(look), "{looks:?}");
        }
    }

    #[test]
    fn colours_can_be_told_from_the_ground() {
        for (light, dark) in PALETTE {
            assert!(contrast(light, "#ffffff") >= 2.3, "{light}");
            assert!(contrast(dark, "#161b22") >= 4.5, "{dark}");
        }
    }

    fn contrast(a: &str, b: &str) -> f64 {
        let (a, b) = (luminance(a), luminance(b));
        (a.max(b) + 0.05) / (a.min(b) + 0.05)
    }

    fn luminance(hex: &str) -> f64 {
        let part = |at: usize| {
            let value = u8::from_str_radix(&hex[at..at + 2], 16).expect("a colour");
            let value = f64::from(value) / 255.0;
            if value <= 0.04045 {
                value / 12.92
            } else {
                ((value + 0.055) / 1.055).powf(2.4)
            }
        };
        0.2126 * part(1) + 0.7152 * part(3) + 0.0722 * part(5)
    }
}
