//! Text with places for wildcards and names of a client.

use alloc::string::String;
use alloc::vec::Vec;

use dunlin_base::Text;
use smallvec::SmallVec;

use super::{Client, TopicRuleError};

/// Most wildcards of a filter that have names.
pub(super) const CAPTURES_MAX: usize = 9;

/// What the wildcards of a filter stand for; `None`: `#` for no level at all.
pub(super) type Captures<'t> = SmallVec<[Option<&'t str>; 4]>;

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Text(Text),
    /// `$1` to `$9`, from 0.
    Capture(usize),
    /// `%c`.
    ClientId,
    /// `%u`.
    User,
}

/// Text with places.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Template(Vec<Part>);

impl Template {
    /// Reads it; it may name so many wildcards.
    pub(super) fn parse(text: &str, captures: usize) -> Result<Self, TopicRuleError> {
        let mut parts = Vec::new();
        let mut plain = String::new();
        let mut letters = text.chars().peekable();
        while let Some(letter) = letters.next() {
            let part = match (letter, letters.peek().copied()) {
                ('$', Some(digit @ '1'..='9')) => {
                    let number = digit as u8 - b'0';
                    if usize::from(number) > captures {
                        return Err(TopicRuleError::Capture(number));
                    }
                    Part::Capture(usize::from(number) - 1)
                }
                ('%', Some('c')) => Part::ClientId,
                ('%', Some('u')) => Part::User,
                (letter, _) => {
                    plain.push(letter);
                    continue;
                }
            };
            letters.next();
            if !plain.is_empty() {
                parts.push(Part::Text(Text::from(core::mem::take(&mut plain))));
            }
            parts.push(part);
        }
        if !plain.is_empty() {
            parts.push(Part::Text(Text::from(plain)));
        }
        Ok(Self(parts))
    }

    /// With its places filled; `None`: the client has no such name, or one that would be
    /// more than a part of a level.
    pub(super) fn fill(&self, captures: &[Option<&str>], client: Client<'_>) -> Option<String> {
        let mut out = String::new();
        for part in &self.0 {
            match part {
                Part::Text(text) => out.push_str(text),
                Part::ClientId => out.push_str(plain(client.id)?),
                Part::User => out.push_str(plain(client.user?)?),
                Part::Capture(at) => match captures.get(*at)? {
                    Some(text) => out.push_str(text),
                    // `a/#` is `a` as well: with nothing below it, there is no level.
                    None if out.ends_with('/') => {
                        out.pop();
                    }
                    None => {}
                },
            }
        }
        Some(out)
    }
}

/// A name that is a part of one level, and makes no topic one of the server or of a group.
fn plain(name: &str) -> Option<&str> {
    let is_plain = !name.is_empty() && !name.contains(['/', '+', '#', '\0']);
    let is_plain = is_plain && !name.starts_with('$');
    is_plain.then_some(name)
}
