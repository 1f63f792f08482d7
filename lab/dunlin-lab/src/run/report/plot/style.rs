//! Colours, marks and dashes: the same for a system in every figure, distinguished
//! by colour-blind eyes and, by mark and dash, without colour at all.

use std::collections::BTreeMap;

use plotters::style::RGBColor;

use super::INK;

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

/// Okabe and Ito's palette, darkened where it has to be seen on white, then
/// three of Tol's. Systems beyond them start again with another mark.
const COLOURS: [RGBColor; 10] = [
    RGBColor(0x00, 0x64, 0xa8),
    RGBColor(0x4c, 0xb0, 0xe4),
    RGBColor(0x00, 0x85, 0x5f),
    RGBColor(0xb8, 0x63, 0x9a),
    RGBColor(0xcc, 0x4b, 0x00),
    RGBColor(0xdd, 0x92, 0x00),
    RGBColor(0x5b, 0x5b, 0x5b),
    RGBColor(0x88, 0x22, 0x55),
    RGBColor(0x7a, 0x7a, 0x1e),
    RGBColor(0x33, 0x22, 0x88),
];

/// A mark: its corners around its place.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Shape {
    Circle,
    Polygon(&'static [(i32, i32)]),
}

const SHAPES: [Shape; 6] = [
    Shape::Circle,
    Shape::Polygon(&[(-4, -4), (4, -4), (4, 4), (-4, 4)]),
    Shape::Polygon(&[(0, -5), (5, 4), (-5, 4)]),
    Shape::Polygon(&[(0, -5), (5, 0), (0, 5), (-5, 0)]),
    Shape::Polygon(&[(0, 5), (5, -4), (-5, -4)]),
    Shape::Polygon(&[(-5, -2), (0, -5), (5, -2), (3, 4), (-3, 4)]),
];

/// Patterns of lines: pixels of a dash and of the gap after it.
const DASHES: [Option<(i32, i32)>; 4] = [None, Some((7, 3)), Some((2, 3)), Some((12, 4))];
/// For lines of papers.
const DOTS: Option<(i32, i32)> = Some((1, 3));

/// How much of their colour bars of one colour have.
const SHADES: [f64; 4] = [1.0, 0.55, 0.25, 0.0];

/// How a series looks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Style {
    pub(super) colour: RGBColor,
    pub(super) shape: Shape,
    pub(super) dash: Option<(i32, i32)>,
    /// Opacity of bars.
    pub(super) shade: f64,
    /// From a paper: an outline in the colour of the text.
    pub(super) paper: bool,
}

/// One of a list that starts again at its end.
fn turn<T: Copy>(list: &[T], index: usize, other: T) -> T {
    let index = index.checked_rem(list.len()).unwrap_or_default();
    list.get(index).copied().unwrap_or(other)
}

impl Default for Style {
    fn default() -> Self {
        Self::slot(0)
    }
}

impl Style {
    /// Of the series of a paper, counted from 0.
    pub(crate) fn paper(index: usize) -> Self {
        Self {
            colour: INK,
            shape: turn(&SHAPES, 3 + index, Shape::Circle),
            dash: DOTS,
            shade: 1.0,
            paper: true,
        }
    }

    /// The same colour, but the look of this part of the system.
    pub(crate) fn split(self, index: usize) -> Self {
        Self {
            shape: turn(&SHAPES, index, Shape::Circle),
            dash: turn(&DASHES, index, None),
            shade: turn(&SHADES, index, 1.0),
            ..self
        }
    }

    /// Of a slot of its own.
    pub(crate) fn slot(index: usize) -> Self {
        Self {
            colour: turn(&COLOURS, index, INK),
            shape: turn(&SHAPES, index + index / COLOURS.len(), Shape::Circle),
            dash: turn(&DASHES, index, None),
            shade: 1.0,
            paper: false,
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn systems_look_alike_wherever_they_are_drawn() {
        let all = Styles::of(["mosquitto-tls", "dunlin-quic", "other", "another"]);
        let some = Styles::of(["dunlin-quic"]);
        assert_eq!(all.system("dunlin-quic"), some.system("dunlin-quic"));
        let looks: Vec<_> = ["mosquitto-tls", "dunlin-quic", "other", "another"]
            .map(|system| all.system(system).colour)
            .to_vec();
        for (index, look) in looks.iter().enumerate() {
            assert!(!looks[..index].contains(look), "{looks:?}");
        }
    }

    #[test]
    fn colours_stand_out_from_the_ground() {
        for colour in COLOURS {
            assert!(1.05 / (luminance(colour) + 0.05) >= 2.3, "{colour:?}");
        }
    }

    fn luminance(RGBColor(red, green, blue): RGBColor) -> f64 {
        let part = |value: u8| {
            let value = f64::from(value) / 255.0;
            if value <= 0.04045 {
                value / 12.92
            } else {
                ((value + 0.055) / 1.055).powf(2.4)
            }
        };
        0.2126 * part(red) + 0.7152 * part(green) + 0.0722 * part(blue)
    }
}
