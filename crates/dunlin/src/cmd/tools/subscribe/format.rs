//! The `-F` language of `mosquitto_sub`: a line of text with `%` specifiers,
//! `@` time specifiers and `\` escapes. Knows no connection.

use std::io::{self, Write};

use dunlin_client::Message;

use super::context::Context;
use super::json;

/// Widest field; more is a typing error.
const WIDTH_MAX: usize = 10_000;

/// A parsed format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Format {
    parts: Vec<Part>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Literal(Vec<u8>),
    Field { what: char, layout: Layout },
    Time(char),
}

/// `%-010.5x`: alignment, fill, width, precision.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Layout {
    left: bool,
    zeros: bool,
    width: usize,
    precision: Option<usize>,
}

/// What is wrong with a format.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum FormatError {
    #[error("Incomplete format specifier.")]
    Incomplete,
    #[error("Invalid format specifier '{0}'.")]
    Specifier(char),
    #[error("Incomplete escape specifier.")]
    IncompleteEscape,
    #[error("Invalid escape specifier '{0}'.")]
    Escape(char),
    #[error("Incomplete time specifier.")]
    IncompleteTime,
    #[error("Field width of more than {WIDTH_MAX} characters.")]
    Width,
}

impl Format {
    /// Reads a format.
    pub(super) fn parse(text: &str) -> Result<Self, FormatError> {
        let mut parser = Parser {
            rest: text.chars(),
            parts: Vec::new(),
            literal: Vec::new(),
        };
        while let Some(char) = parser.rest.next() {
            match char {
                '%' => parser.field()?,
                '@' => parser.time()?,
                '\\' => parser.escape()?,
                char => parser.push(char),
            }
        }
        parser.flush();
        Ok(Self {
            parts: parser.parts,
        })
    }

    /// Writes one message. A payload that is not JSON is an error of
    /// [`io::ErrorKind::InvalidData`].
    pub(super) fn write(
        &self,
        message: &Message,
        context: &Context,
        out: &mut impl Write,
    ) -> io::Result<()> {
        for part in &self.parts {
            match part {
                Part::Literal(bytes) => out.write_all(bytes)?,
                Part::Time(specifier) => {
                    out.write_all(context.now.strftime(*specifier).as_bytes())?
                }
                Part::Field { what, layout } => {
                    let value = value(*what, message, context)?;
                    layout.write(*what, &value, out)?;
                }
            }
        }
        Ok(())
    }
}

struct Parser<'a> {
    rest: core::str::Chars<'a>,
    parts: Vec<Part>,
    literal: Vec<u8>,
}

impl Parser<'_> {
    fn push(&mut self, char: char) {
        self.literal
            .extend_from_slice(char.encode_utf8(&mut [0; 4]).as_bytes());
    }

    fn flush(&mut self) {
        if !self.literal.is_empty() {
            self.parts
                .push(Part::Literal(core::mem::take(&mut self.literal)));
        }
    }

    fn field(&mut self) -> Result<(), FormatError> {
        let mut layout = Layout::default();
        let mut next = self.rest.next();
        while let Some(flag @ ('-' | '0')) = next {
            layout.left |= flag == '-';
            layout.zeros |= flag == '0';
            next = self.rest.next();
        }
        (layout.width, next) = self.number(next)?;
        if next == Some('.') {
            let first = self.rest.next();
            let (precision, after) = self.number(first)?;
            (layout.precision, next) = (Some(precision), after);
        }
        match next.ok_or(FormatError::Incomplete)? {
            '%' => self.push('%'),
            what if "ACDEFIJPRSUXjlmpqrtx".contains(what) => {
                self.flush();
                self.parts.push(Part::Field { what, layout });
            }
            other => return Err(FormatError::Specifier(other)),
        }
        Ok(())
    }

    fn number(&mut self, mut next: Option<char>) -> Result<(usize, Option<char>), FormatError> {
        let mut number = 0;
        while let Some(digit) = next.and_then(|char| char.to_digit(10)) {
            number = number * 10 + digit as usize;
            if number > WIDTH_MAX {
                return Err(FormatError::Width);
            }
            next = self.rest.next();
        }
        Ok((number, next))
    }

    fn time(&mut self) -> Result<(), FormatError> {
        match self.rest.next().ok_or(FormatError::IncompleteTime)? {
            '@' => self.push('@'),
            specifier => {
                self.flush();
                self.parts.push(Part::Time(specifier));
            }
        }
        Ok(())
    }

    fn escape(&mut self) -> Result<(), FormatError> {
        let char = match self.rest.next().ok_or(FormatError::IncompleteEscape)? {
            '\\' => '\\',
            '0' => '\0',
            'a' => '\x07',
            'e' => '\x1b',
            'n' => '\n',
            'r' => '\r',
            't' => '\t',
            'v' => '\x0b',
            other => return Err(FormatError::Escape(other)),
        };
        self.push(char);
        Ok(())
    }
}

impl Layout {
    /// Precision cuts texts, as `printf` does for strings.
    fn write(&self, what: char, value: &[u8], out: &mut impl Write) -> io::Result<()> {
        let is_number = matches!(what, 'A' | 'E' | 'F' | 'l' | 'm' | 'q' | 'r');
        let value = match self.precision {
            Some(precision) if !is_number => value.get(..precision).unwrap_or(value),
            _ => value,
        };
        let fill = self.width.saturating_sub(value.len());
        let with = if self.zeros && !self.left { b"0" } else { b" " };
        let pad = |out: &mut dyn Write| (0..fill).try_for_each(|_| out.write_all(with));
        if !self.left {
            pad(out)?;
        }
        out.write_all(value)?;
        if self.left {
            pad(out)?;
        }
        Ok(())
    }
}

fn value(what: char, message: &Message, context: &Context) -> io::Result<Vec<u8>> {
    let properties = message.properties.as_deref();
    let text = |text: Option<&dunlin_base::Text>| {
        text.map_or_else(Vec::new, |text| text.as_bytes().to_vec())
    };
    Ok(match what {
        'C' => text(properties.and_then(|p| p.content_type.as_ref())),
        'D' => properties
            .and_then(|p| p.correlation_data.as_ref())
            .map_or_else(Vec::new, |data| data.to_vec()),
        'E' => message
            .expires_in
            .map_or_else(Vec::new, |expiry| expiry.as_secs().to_string().into()),
        'F' => properties
            .and_then(|p| p.payload_is_utf8)
            .map_or_else(Vec::new, |utf8| u8::from(utf8).to_string().into()),
        'I' => context.now.iso_8601().into(),
        'J' | 'j' => return json::message(message, context, what == 'J'),
        'l' => message.payload.len().to_string().into(),
        'm' => message
            .packet_id
            .map_or(0, |id| id.get())
            .to_string()
            .into(),
        'P' => user_properties(message),
        'p' => message.payload.to_vec(),
        'q' => (message.qos as u8).to_string().into(),
        'R' => text(properties.and_then(|p| p.response_topic.as_ref())),
        'r' => u8::from(message.retain).to_string().into(),
        'S' => message
            .subscription_ids
            .first()
            .map_or_else(Vec::new, |id| id.to_string().into()),
        't' => message.topic.as_bytes().to_vec(),
        'U' => context.now.unix().into(),
        'x' => hex(&message.payload, b"0123456789abcdef"),
        'X' => hex(&message.payload, b"0123456789ABCDEF"),
        // 'A': the library has resolved topic aliases already.
        _ => Vec::new(),
    })
}

fn user_properties(message: &Message) -> Vec<u8> {
    let properties = message.properties.as_deref();
    let pairs = properties.map_or(&[][..], |p| p.user_properties.as_slice());
    let pairs: Vec<String> = pairs.iter().map(|(k, v)| format!("{k}:{v}")).collect();
    pairs.join(" ").into_bytes()
}

fn hex(bytes: &[u8], digits: &[u8; 16]) -> Vec<u8> {
    let digit = |nibble: u8| digits.get(usize::from(nibble)).copied().unwrap_or(b'?');
    let pairs = bytes
        .iter()
        .map(|byte| [digit(byte >> 4), digit(byte & 15)]);
    pairs.flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_formats_are_refused_with_the_reason() {
        let cases = [
            ("%", FormatError::Incomplete),
            ("%-", FormatError::Incomplete),
            ("%z", FormatError::Specifier('z')),
            ("%@", FormatError::Specifier('@')),
            ("%99999p", FormatError::Width),
            ("\\", FormatError::IncompleteEscape),
            ("\\x", FormatError::Escape('x')),
            ("@", FormatError::IncompleteTime),
        ];
        for (text, want) in cases {
            assert_eq!(Format::parse(text), Err(want), "{text}");
        }
    }

    #[test]
    fn fields_are_laid_out_as_by_mosquitto() {
        let cases = [
            ("%5l", "    6"),
            ("%05l", "00006"),
            ("%-5l|", "6    |"),
            ("%.2p", "ab"),
            ("%10p", "    abcdef"),
            ("%-10p|", "abcdef    |"),
            ("%010p", "0000abcdef"),
            ("%-010p|", "abcdef    |"),
            ("%.1l", "6"),
            ("100%%\\t@@", "100%\t@"),
        ];
        for (text, want) in cases {
            let mut out = Vec::new();
            for part in Format::parse(text).expect(text).parts {
                match part {
                    Part::Literal(bytes) => out.extend(bytes),
                    Part::Field { what: 'l', layout } => {
                        layout.write('l', b"6", &mut out).expect("a vector");
                    }
                    Part::Field { what, layout } => {
                        layout.write(what, b"abcdef", &mut out).expect("a vector");
                    }
                    Part::Time(_) => {}
                }
            }
            assert_eq!(String::from_utf8_lossy(&out), want, "{text}");
        }
    }
}
