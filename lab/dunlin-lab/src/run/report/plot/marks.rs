//! Bars, points, lines, curves and the legend's samples, in pixels.

use core::ops::Range;

use plotters::element::DashedPathElement;
use plotters::prelude::{
    Circle, Color as _, Cross, PathElement, Polygon, Rectangle, ShapeStyle, Text, WHITE,
};
use plotters::style::RGBColor;
use plotters::style::text_anchor::{HPos, VPos};

use super::model::{Curve, Form, Panel, Plot, Point, Series, XAxis};
use super::style::{Shape, Style};
use super::{Area, Drawn, INK, Place, are_turned, pixel, text, turned};

/// Width of the sample before a name in the legend.
pub(super) const SAMPLE: f64 = 26.0;
/// What the cross means, where there is one.
pub(super) const INVALID: &str = "invalid: no number";

/// Share of a category that is left free at its ends.
const MARGIN: f64 = 0.12;
/// Widest bar, and widest place of a paper's mark.
const BAR: f64 = 34.0;
const PAPER: f64 = 14.0;
/// Half the width of the end of an error bar.
const CAP: i32 = 3;
/// Pixels between the marks of two series at the same number.
const DODGE: f64 = 3.0;
/// Half the size of the cross of what is invalid.
const CROSS: i32 = 4;

/// From a point of the chart to its pixel.
type At<'a> = &'a dyn Fn(f64, f64) -> Place;

/// The whole picture, in pixels, and what is to be on it.
pub(super) struct Canvas<'a, 'b> {
    pub(super) root: &'a Area<'b>,
    pub(super) plot: &'a Plot,
}

impl Canvas<'_, '_> {
    /// Draws an entry of the legend; the one after the series is the cross.
    pub(super) fn legend(&self, index: usize, (x, y): Place) -> Drawn {
        let middle = x + pixel(SAMPLE / 2.0) - 2;
        let (name, colour) = match self.plot.series.get(index) {
            Some(series) => {
                self.sample(series, (x, y), middle)?;
                (series.name.as_str(), INK)
            }
            None => {
                self.cross(INK, (middle, y))?;
                (INVALID, INK)
            }
        };
        let at = (x + pixel(SAMPLE), y);
        self.root
            .draw(&Text::new(name, at, text(colour, HPos::Left, VPos::Center)))
    }

    fn sample(&self, series: &Series, (x, y): Place, middle: i32) -> Drawn {
        let style = series.style;
        let curves = matches!(self.plot.form, Form::Distribution | Form::Course);
        if self.plot.form == Form::Bars && !self.plot.log && !style.paper {
            return self.bar(style, (middle - 8, y - 5), (middle + 8, y + 5));
        }
        if self.plot.form != Form::Bars {
            self.line(style, 2, vec![(x, y), (x + pixel(SAMPLE) - 5, y)])?;
        }
        if curves && !style.paper {
            return Ok(());
        }
        self.mark(style, (middle, y))
    }

    /// Names of categories below the frame, turned if they do not fit.
    pub(super) fn categories(&self, at: At<'_>, (along, up): (Range<i32>, Range<i32>)) -> Drawn {
        let XAxis::Categories(names) = &self.plot.x else {
            return Ok(());
        };
        let is_turned = are_turned(names, f64::from(along.end - along.start));
        for (index, name) in names.iter().enumerate() {
            let (x, _) = at(index as f64, f64::NAN);
            let label = if is_turned {
                Text::new(name.as_str(), (x, up.end + 6), turned(INK, HPos::Right))
            } else {
                let style = text(INK, HPos::Center, VPos::Top);
                Text::new(name.as_str(), (x, up.end + 6), style)
            };
            self.root.draw(&label)?;
        }
        Ok(())
    }

    /// Draws the data of a panel; bars stand at `base`.
    pub(super) fn draw(
        &self,
        panel: &Panel,
        at: At<'_>,
        base: f64,
        (_, up): (Range<i32>, Range<i32>),
    ) -> Drawn {
        for curve in &panel.curves {
            self.curve(curve, at)?;
        }
        match self.plot.form {
            Form::Bars => self.bars(panel, at, base, up.end),
            _ => self.lines(panel, at, up.end),
        }
    }

    fn bars(&self, panel: &Panel, at: At<'_>, base: f64, bottom: i32) -> Drawn {
        let slot = f64::from(at(1.0, 0.0).0 - at(0.0, 0.0).0).abs();
        let names = match &self.plot.x {
            XAxis::Categories(names) => names.len(),
            XAxis::Numbers { .. } => 1,
        };
        // A lone category has no other to measure the distance to.
        let lone = 2.0 * f64::from(at(0.0, 0.0).0 - at(-0.5, 0.0).0);
        let slot = if names < 2 { lone } else { slot };
        let places = places(&self.plot.series, panel, slot);
        let place = |series: usize| places.get(series).copied().unwrap_or_default();
        for point in &panel.points {
            let (offset, width) = place(point.series);
            let (x, y) = at(point.x, point.value);
            let x = x + pixel(offset);
            let style = self.style(point.series);
            if style.paper {
                self.mark(style, (x, y))?;
            } else if self.plot.log {
                // A bar's length means nothing where there is no zero.
                self.whisker(style.colour, x, point, at)?;
                self.mark(style, (x, y))?;
            } else {
                let (half, foot) = (pixel((width - 2.0).max(1.0) / 2.0), at(point.x, base).1);
                self.bar(style, (x - half, y.min(foot)), (x + half, y.max(foot)))?;
                self.whisker(INK, x, point, at)?;
            }
        }
        for invalid in &panel.invalid {
            let (offset, _) = place(invalid.series);
            let x = at(invalid.x, 0.0).0 + pixel(offset);
            let colour = self.style(invalid.series).colour;
            self.cross(colour, (x, bottom - CROSS - 3))?;
        }
        Ok(())
    }

    fn lines(&self, panel: &Panel, at: At<'_>, bottom: i32) -> Drawn {
        let own = self.plot.series.iter().filter(|s| !s.style.paper).count();
        for (index, series) in self.plot.series.iter().enumerate() {
            let style = series.style;
            let dodge = if style.paper || self.plot.form != Form::Lines {
                0.0
            } else {
                (index as f64 - (own as f64 - 1.0) / 2.0) * DODGE
            };
            let mut points: Vec<&Point> = panel.points.iter().collect();
            points.retain(|point| point.series == index && point.value.is_finite());
            points.sort_by(|a, b| a.x.total_cmp(&b.x));
            let place = |point: &Point| {
                let (x, y) = at(point.x, point.value);
                (x + pixel(dodge), y)
            };
            let line: Vec<Place> = points.iter().map(|point| place(point)).collect();
            if line.len() > 1 {
                self.line(style, 2, line)?;
            }
            for point in points {
                self.whisker(style.colour, place(point).0, point, at)?;
                self.mark(style, place(point))?;
            }
        }
        // Crosses of several series at one place are beside each other.
        for (index, invalid) in panel.invalid.iter().enumerate() {
            let before = panel.invalid.get(..index).unwrap_or_default();
            let same = before.iter().filter(|other| other.x == invalid.x).count();
            let x = at(invalid.x, 0.0).0 + pixel(same as f64 * 2.6 * f64::from(CROSS));
            let colour = self.style(invalid.series).colour;
            self.cross(colour, (x, bottom - CROSS - 3))?;
        }
        Ok(())
    }

    fn curve(&self, curve: &Curve, at: At<'_>) -> Drawn {
        let style = self.style(curve.series);
        let places = curve.points.iter().map(|(x, y)| at(*x, *y));
        let points: Vec<Place> = if self.plot.form == Form::Distribution {
            // The share rises at a value, not before it.
            let mut share = at(0.0, 0.0).1;
            let steps = places.flat_map(|(x, y)| {
                let before = core::mem::replace(&mut share, y);
                [(x, before), (x, y)]
            });
            steps.collect()
        } else {
            places.collect()
        };
        match (points.as_slice(), self.plot.form) {
            ([at], _) => self.mark(style, *at),
            (_, Form::Course) => self.line(style, 1, points),
            _ => self.line(style, 2, points),
        }
    }

    fn style(&self, series: usize) -> Style {
        let series = self.plot.series.get(series);
        series.map_or_else(Style::default, |series| series.style)
    }

    fn bar(&self, style: Style, from: Place, to: Place) -> Drawn {
        let filled = style.colour.mix(style.shade).filled();
        self.root.draw(&Rectangle::new([from, to], filled))?;
        self.root
            .draw(&Rectangle::new([from, to], style.colour.stroke_width(1)))
    }

    fn line(&self, style: Style, width: u32, points: Vec<Place>) -> Drawn {
        let stroke = style.colour.stroke_width(width);
        match style.dash {
            None => self.root.draw(&PathElement::new(points, stroke)),
            Some((dash, gap)) => {
                let line = DashedPathElement::new(points, dash, gap, stroke);
                self.root.draw(&line)
            }
        }
    }

    fn mark(&self, style: Style, at: Place) -> Drawn {
        let (fill, stroke): (ShapeStyle, ShapeStyle) = match style.paper {
            true => (WHITE.filled(), style.colour.stroke_width(1)),
            false => (style.colour.filled(), style.colour.stroke_width(1)),
        };
        let corners = match style.shape {
            Shape::Circle => {
                self.root.draw(&Circle::new(at, 4, fill))?;
                return self.root.draw(&Circle::new(at, 4, stroke));
            }
            Shape::Polygon(corners) => corners,
        };
        let corner = |(x, y): &Place| (at.0 + x, at.1 + y);
        let mut outline: Vec<Place> = corners.iter().map(corner).collect();
        self.root.draw(&Polygon::new(outline.clone(), fill))?;
        outline.extend(outline.first().copied());
        self.root.draw(&PathElement::new(outline, stroke))
    }

    fn whisker(&self, colour: RGBColor, x: i32, point: &Point, at: At<'_>) -> Drawn {
        if !(point.low.is_finite() && point.high.is_finite()) {
            return Ok(());
        }
        let (low, high) = (at(point.x, point.low).1, at(point.x, point.high).1);
        let ends = [low, high].map(|end| vec![(x - CAP, end), (x + CAP, end)]);
        for line in ends.into_iter().chain([vec![(x, low), (x, high)]]) {
            self.root.draw(&PathElement::new(line, colour))?;
        }
        Ok(())
    }

    fn cross(&self, colour: RGBColor, at: Place) -> Drawn {
        self.root
            .draw(&Cross::new(at, CROSS, colour.stroke_width(2)))
    }
}

/// Where the series of a panel are within a category of this width, bars beside
/// each other, then marks of papers: the middle from the category's, the width.
fn places(series: &[Series], panel: &Panel, width: f64) -> Vec<(f64, f64)> {
    let free = width * (1.0 - 2.0 * MARGIN);
    let here = |index: usize| {
        let mut points = panel.points.iter().map(|point| point.series);
        let mut invalid = panel.invalid.iter().map(|invalid| invalid.series);
        points.any(|series| series == index) || invalid.any(|series| series == index)
    };
    let count = |paper: bool| {
        let of = series.iter().enumerate();
        let of = of.filter(|(index, s)| s.style.paper == paper && here(*index));
        of.count() as f64
    };
    let (bars, papers) = (count(false), count(true));
    let paper = (free / (bars + papers).max(1.0)).min(PAPER);
    let bar = ((free - papers * paper) / bars.max(1.0)).min(BAR);
    let mut at = -(bars * bar + papers * paper) / 2.0;
    let place = |(index, series): (usize, &Series)| {
        let width = match series.style.paper {
            _ if !here(index) => 0.0,
            true => paper,
            false => bar,
        };
        at += width;
        (at - width / 2.0, width)
    };
    series.iter().enumerate().map(place).collect()
}
