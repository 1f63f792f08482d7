//! Patterns of LIKE: `_` is any character, `%` any text.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::node::{Pattern, Place};

/// The places of a pattern; `None` if the escape character is at its end.
pub(super) fn pattern(text: &str, escape: Option<char>) -> Option<Pattern> {
    let mut places = Vec::new();
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        places.push(match c {
            c if Some(c) == escape => Place::Char(chars.next()?),
            '_' => Place::AnyChar,
            // Two in a row say the same as one.
            '%' if places.last() == Some(&Place::AnyText) => continue,
            '%' => Place::AnyText,
            c => Place::Char(c),
        });
    }
    Some(Box::from(places))
}

/// Whether `text` fits; `None` if the steps do not suffice to say.
pub(super) fn is_like(text: &str, pattern: &[Place], steps: &mut usize) -> Option<bool> {
    let (mut text, mut places) = (text.chars(), pattern.iter());
    // Where to go on after the last `%`, with one more character for it.
    let mut last_any: Option<(core::str::Chars<'_>, core::slice::Iter<'_, Place>)> = None;
    loop {
        *steps = steps.checked_sub(1)?;
        let (mut next_text, mut next_places) = (text.clone(), places.clone());
        match (next_text.next(), next_places.next()) {
            (None, None) => return Some(true),
            (_, Some(Place::AnyText)) => {
                last_any = Some((text.clone(), next_places.clone()));
                places = next_places;
            }
            (Some(c), Some(place)) if *place == Place::AnyChar || *place == Place::Char(c) => {
                (text, places) = (next_text, next_places);
            }
            _ => {
                let Some((from, after)) = &mut last_any else {
                    return Some(false);
                };
                if from.next().is_none() {
                    return Some(false);
                }
                (text, places) = (from.clone(), after.clone());
            }
        }
    }
}
