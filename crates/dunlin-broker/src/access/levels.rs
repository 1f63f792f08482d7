//! Filters of an access list, split into levels once: against topic names, and
//! against other filters. Knows neither users nor effects.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::iter::Peekable;
use core::str::Split;

/// What `%u` and `%c` stand for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Names<'a> {
    pub(super) user: Name<'a>,
    pub(super) client_id: Name<'a>,
}

/// What one of them stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Name<'a> {
    /// There is none, so that lines with it do not apply.
    Absent,
    /// There is one that would match more, or less, than one level, or that
    /// would reach the server's own topics.
    Unusable,
    /// One level that matches only itself.
    Level(&'a str),
}

impl<'a> Name<'a> {
    pub(super) fn new(name: &'a str) -> Self {
        if name.is_empty() || name.contains(['$', '+', '#', '/', '\0']) {
            return Self::Unusable;
        }
        Self::Level(name)
    }

    const fn as_str(self) -> &'a str {
        match self {
            Self::Level(name) => name,
            Self::Absent | Self::Unusable => "",
        }
    }
}

/// A filter, split.
#[derive(Clone, Debug)]
pub(super) struct Levels {
    /// What every name that matches begins with: most rules are dismissed by
    /// one comparison.
    prefix: Box<str>,
    levels: Box<[Level]>,
    uses_user: bool,
    uses_client_id: bool,
}

#[derive(Clone, Debug)]
enum Level {
    /// `+`
    One,
    /// `#`
    All,
    Exactly(Box<str>),
    /// With `%u` or `%c` in it.
    Pieces(Box<[Piece]>),
}

#[derive(Clone, Debug)]
enum Piece {
    Text(Box<str>),
    User,
    ClientId,
}

impl Levels {
    /// Splits a valid filter.
    pub(super) fn parse(filter: &str, is_pattern: bool) -> Self {
        let mut split = Self {
            prefix: Box::default(),
            levels: Box::default(),
            uses_user: false,
            uses_client_id: false,
        };
        let levels = filter.split('/').map(|level| match level {
            "+" => Level::One,
            "#" => Level::All,
            _ if is_pattern => Level::with_pieces(level),
            _ => Level::Exactly(level.into()),
        });
        split.levels = levels.collect();
        split.prefix = prefix(&split.levels).into();
        let pieces = split.levels.iter().flat_map(Level::pieces);
        for piece in pieces {
            match piece {
                Piece::User => split.uses_user = true,
                Piece::ClientId => split.uses_client_id = true,
                Piece::Text(_) => {}
            }
        }
        split
    }

    /// With names in place; else what is the matter with one that is needed.
    pub(super) fn fill<'a>(&'a self, names: Names<'a>) -> Result<Filled<'a>, Name<'a>> {
        let needed = [
            (self.uses_user, names.user),
            (self.uses_client_id, names.client_id),
        ];
        for bad in [Name::Absent, Name::Unusable] {
            if needed.contains(&(true, bad)) {
                return Err(bad);
            }
        }
        Ok(Filled {
            prefix: &self.prefix,
            levels: &self.levels,
            names,
        })
    }
}

/// The levels before the first that is not literal, with the slash that must
/// follow: `a/` of `a/+`, but `a` of `a/#`, which matches `a` too.
fn prefix(levels: &[Level]) -> String {
    let mut prefix = String::new();
    for (index, level) in levels.iter().enumerate() {
        if index > 0 && !matches!(level, Level::All) {
            prefix.push('/');
        }
        let Level::Exactly(text) = level else {
            break;
        };
        prefix.push_str(text);
    }
    prefix
}

impl Level {
    fn with_pieces(level: &str) -> Self {
        let mut pieces = Vec::new();
        let mut rest = level;
        let mut from = 0;
        while let Some(at) = rest.get(from..).and_then(|tail| tail.find('%')) {
            let at = from + at;
            let piece = match rest.as_bytes().get(at + 1) {
                Some(b'u') => Piece::User,
                Some(b'c') => Piece::ClientId,
                _ => {
                    from = at + 1;
                    continue;
                }
            };
            let (text, tail) = rest.split_at(at);
            if !text.is_empty() {
                pieces.push(Piece::Text(text.into()));
            }
            pieces.push(piece);
            rest = tail.get(2..).unwrap_or_default();
            from = 0;
        }
        if pieces.is_empty() {
            return Self::Exactly(level.into());
        }
        if !rest.is_empty() {
            pieces.push(Piece::Text(rest.into()));
        }
        Self::Pieces(pieces.into())
    }

    fn pieces(&self) -> &[Piece] {
        match self {
            Self::Pieces(pieces) => pieces,
            _ => &[],
        }
    }

    const fn is_wildcard(&self) -> bool {
        matches!(self, Self::One | Self::All)
    }

    /// Whether a level without wildcard is exactly this text.
    fn is(&self, text: &str, names: Names<'_>) -> bool {
        match self {
            Self::One | Self::All => false,
            Self::Exactly(want) => **want == *text,
            Self::Pieces(pieces) => {
                let mut rest = Some(text);
                for piece in pieces {
                    let want = match piece {
                        Piece::Text(text) => text,
                        Piece::User => names.user.as_str(),
                        Piece::ClientId => names.client_id.as_str(),
                    };
                    rest = rest.and_then(|rest| rest.strip_prefix(want));
                }
                rest == Some("")
            }
        }
    }

    /// Whether a level without wildcard begins with `$`.
    fn is_reserved(&self, names: Names<'_>) -> bool {
        let first = match self {
            Self::One | Self::All => return false,
            Self::Exactly(text) => text,
            Self::Pieces(pieces) => match pieces.first() {
                Some(Piece::Text(text)) => text,
                Some(Piece::User) => names.user.as_str(),
                Some(Piece::ClientId) => names.client_id.as_str(),
                None => "",
            },
        };
        first.starts_with('$')
    }
}

/// A filter with its names in place.
#[derive(Clone, Copy, Debug)]
pub(super) struct Filled<'a> {
    prefix: &'a str,
    levels: &'a [Level],
    names: Names<'a>,
}

impl Filled<'_> {
    /// Whether it matches a valid topic name.
    pub(super) fn matches(self, name: &str) -> bool {
        // A name has no wildcards, so matching it is covering it.
        name.starts_with(self.prefix) && self.covers(name)
    }

    /// Whether it matches every name that a valid filter matches.
    pub(super) fn covers(self, filter: &str) -> bool {
        // [MQTT-4.7.2-1]: a leading wildcard does not match `$` topics.
        if filter.starts_with('$') && self.levels.first().is_some_and(Level::is_wildcard) {
            return false;
        }
        let mut theirs = filter.split('/');
        for level in self.levels {
            match (level, theirs.next()) {
                (Level::All, _) => return true,
                (_, None | Some("#")) => return false,
                (Level::One, Some(_)) => {}
                (level, Some(text)) if text != "+" && level.is(text, self.names) => {}
                _ => return false,
            }
        }
        theirs.next().is_none()
    }

    /// Whether some name is matched by it and by a valid filter.
    pub(super) fn touches(self, filter: &str) -> bool {
        let first = self.levels.first();
        let we_are_wild = first.is_some_and(Level::is_wildcard);
        let they_are_wild = filter.starts_with(['+', '#']);
        if (we_are_wild && filter.starts_with('$'))
            || (they_are_wild && first.is_some_and(|level| level.is_reserved(self.names)))
        {
            return false;
        }
        let mut theirs = filter.split('/').peekable();
        for level in self.levels {
            match (level, theirs.next()) {
                (Level::All, _) | (_, Some("#")) => return true,
                (_, None) => return false,
                (Level::One, Some(_)) | (_, Some("+")) => {}
                (level, Some(text)) if level.is(text, self.names) => {}
                _ => return false,
            }
        }
        is_end(&mut theirs)
    }
}

/// Whether nothing more is needed: `a/#` also matches `a`.
fn is_end(theirs: &mut Peekable<Split<'_, char>>) -> bool {
    matches!(theirs.peek(), None | Some(&"#"))
}
