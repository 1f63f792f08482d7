//! A message (section 3.2): where its sections are. The bytes stay as they
//! came; what is in a section is read when it is asked for.

use core::iter;
use core::ops::Range;

use crate::field::read_whole;
use crate::reader::Reader;
use crate::value::Check;
use crate::{DecodeError, Header, Map, Properties, Section, Value, code};

/// Where the sections of a message are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message<'a> {
    bytes: &'a [u8],
    /// Where each part ends, in the order of [`Part`]; it begins where the part
    /// before it ends, and is empty if it is not there.
    ends: [usize; PARTS],
    body: BodyKind,
}

/// Parts of a message in their order; all data or sequence sections are one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Part {
    Header,
    DeliveryAnnotations,
    MessageAnnotations,
    Properties,
    ApplicationProperties,
    Body,
    Footer,
}

const PARTS: usize = Part::Footer as usize + 1;

impl Part {
    const fn of(section: Section) -> Self {
        match section {
            Section::Header => Self::Header,
            Section::DeliveryAnnotations => Self::DeliveryAnnotations,
            Section::MessageAnnotations => Self::MessageAnnotations,
            Section::Properties => Self::Properties,
            Section::ApplicationProperties => Self::ApplicationProperties,
            Section::Data | Section::AmqpSequence | Section::AmqpValue => Self::Body,
            Section::Footer => Self::Footer,
        }
    }
}

/// What the body of a message is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum BodyKind {
    /// No section; the specification asks for one, and some clients leave it out.
    #[default]
    Missing,
    /// Data sections.
    Data,
    /// Sequence sections.
    Sequence,
    /// One value.
    Value,
}

impl BodyKind {
    const fn of(section: Section) -> Option<Self> {
        Some(match section {
            Section::Data => Self::Data,
            Section::AmqpSequence => Self::Sequence,
            Section::AmqpValue => Self::Value,
            _ => return None,
        })
    }
}

impl<'a> Message<'a> {
    /// Finds the sections of the message that `bytes` are. What is in them is
    /// not looked at; [`Message::check`] does.
    ///
    /// # Errors
    /// A section is unknown, does not end, or comes too late or twice.
    pub fn scan(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        let mut r = Reader::new(bytes);
        let mut ends = [0; PARTS];
        let mut body = BodyKind::Missing;
        let mut last = None;
        while !r.is_empty() {
            let section = Section::read(&mut r)?;
            skip_value(&mut r)?;
            let part = Part::of(section);
            let is_more_of_body = part == Part::Body
                && section != Section::AmqpValue
                && BodyKind::of(section) == Some(body);
            if last >= Some(part) && !(last == Some(part) && is_more_of_body) {
                return Err(DecodeError::SectionOrder);
            }
            body = BodyKind::of(section).unwrap_or(body);
            last = Some(part);
            let end = bytes.len() - r.len();
            for later in ends.iter_mut().skip(part as usize) {
                *later = end;
            }
        }
        Ok(Self { bytes, ends, body })
    }

    fn range(&self, part: Part) -> Range<usize> {
        let at = part as usize;
        let start = at
            .checked_sub(1)
            .and_then(|before| self.ends.get(before))
            .copied()
            .unwrap_or(0);
        let end = self.ends.get(at).copied().unwrap_or(start);
        start..end
    }

    fn part(&self, part: Part) -> Option<&'a [u8]> {
        self.bytes
            .get(self.range(part))
            .filter(|bytes| !bytes.is_empty())
    }

    /// Reads a section whose value is a map.
    fn map(&self, part: Part) -> Result<Option<Map<'a>>, DecodeError> {
        let Some(bytes) = self.part(part) else {
            return Ok(None);
        };
        let mut r = Reader::new(bytes);
        Section::read(&mut r)?;
        read_whole(r.rest()).map(Some)
    }

    /// The header.
    ///
    /// # Errors
    /// The first rule that it breaks.
    pub fn header(&self) -> Result<Option<Header>, DecodeError> {
        self.part(Part::Header).map(Header::decode).transpose()
    }

    /// The delivery annotations.
    ///
    /// # Errors
    /// The first rule that they break.
    pub fn delivery_annotations(&self) -> Result<Option<Map<'a>>, DecodeError> {
        self.map(Part::DeliveryAnnotations)
    }

    /// The message annotations.
    ///
    /// # Errors
    /// The first rule that they break.
    pub fn message_annotations(&self) -> Result<Option<Map<'a>>, DecodeError> {
        self.map(Part::MessageAnnotations)
    }

    /// The properties.
    ///
    /// # Errors
    /// The first rule that they break.
    pub fn properties(&self) -> Result<Option<Properties<'a>>, DecodeError> {
        self.part(Part::Properties)
            .map(Properties::decode)
            .transpose()
    }

    /// The application properties.
    ///
    /// # Errors
    /// The first rule that they break.
    pub fn application_properties(&self) -> Result<Option<Map<'a>>, DecodeError> {
        self.map(Part::ApplicationProperties)
    }

    /// The body.
    #[must_use]
    pub fn body(&self) -> Body<'a> {
        Body {
            kind: self.body,
            bytes: self.part(Part::Body).unwrap_or(&[]),
        }
    }

    /// The footer.
    ///
    /// # Errors
    /// The first rule that it breaks.
    pub fn footer(&self) -> Result<Option<Map<'a>>, DecodeError> {
        self.map(Part::Footer)
    }

    /// Reads everything.
    ///
    /// # Errors
    /// The first rule that a section breaks.
    pub fn check(&self) -> Result<(), DecodeError> {
        self.header()?;
        self.delivery_annotations()?;
        self.message_annotations()?;
        self.properties()?;
        self.application_properties()?;
        self.body().values().try_for_each(|value| value.map(drop))?;
        self.footer().map(drop)
    }

    /// Where the body is.
    #[must_use]
    pub fn body_range(&self) -> Range<usize> {
        self.range(Part::Body)
    }

    /// Where the bare message is, which no node changes: properties,
    /// application properties and body.
    #[must_use]
    pub fn bare_range(&self) -> Range<usize> {
        self.range(Part::Properties).start..self.range(Part::Body).end
    }

    /// What goes on to all further nodes: message annotations, bare message and
    /// footer.
    #[must_use]
    pub fn lasting_range(&self) -> Range<usize> {
        self.range(Part::MessageAnnotations).start..self.bytes.len()
    }

    /// The bare message and the footer: what stays when header and annotations
    /// are written again.
    #[must_use]
    pub fn bare_and_footer(&self) -> &'a [u8] {
        self.bytes
            .get(self.range(Part::Properties).start..)
            .unwrap_or(&[])
    }
}

/// Passes over a value by its constructor and its size.
fn skip_value(r: &mut Reader<'_>) -> Result<(), DecodeError> {
    let mut code = r.u8()?;
    while code == code::DESCRIBED {
        crate::value::read_descriptor(r)?;
        code = r.u8()?;
    }
    let len = match code >> 4 {
        4 => 0,
        5 => 1,
        6 => 2,
        7 => 4,
        8 => 8,
        9 => 16,
        0xa..=0xf => return r.variable(code).map(drop),
        _ => return Err(DecodeError::UnknownCode(code)),
    };
    r.take(len).map(drop)
}

/// The body of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Body<'a> {
    /// What it is.
    pub kind: BodyKind,
    /// All of its sections, as they came.
    pub bytes: &'a [u8],
}

impl<'a> Body<'a> {
    /// The bytes of the one value section, without the descriptor of the section.
    #[must_use]
    pub fn value_bytes(&self) -> Option<&'a [u8]> {
        if self.kind != BodyKind::Value {
            return None;
        }
        let mut r = Reader::new(self.bytes);
        Section::read(&mut r).ok()?;
        Some(r.rest())
    }

    /// The value of each section; it ends after the first that is invalid.
    pub fn values(&self) -> impl Iterator<Item = Result<Value<'a>, DecodeError>> + use<'a> {
        let kind = self.kind;
        let mut r = Reader::new(self.bytes);
        iter::from_fn(move || {
            if r.is_empty() {
                return None;
            }
            let value = read_section(kind, &mut r);
            if value.is_err() {
                r = Reader::new(&[]);
            }
            Some(value)
        })
    }

    /// The bytes of each data section; nothing if it is no body of data.
    pub fn data(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let is_data = self.kind == BodyKind::Data;
        self.values().map_while(move |value| match value {
            Ok(Value::Binary(data)) if is_data => Some(data),
            _ => None,
        })
    }
}

/// Reads one section of a body of this kind.
fn read_section<'a>(kind: BodyKind, r: &mut Reader<'a>) -> Result<Value<'a>, DecodeError> {
    Section::read(r)?;
    let value = Value::read_any(r, Check::ALL)?;
    let is_valid = match kind {
        BodyKind::Data => matches!(value, Value::Binary(_)),
        BodyKind::Sequence => matches!(value, Value::List(_)),
        BodyKind::Value => true,
        BodyKind::Missing => false,
    };
    if is_valid {
        Ok(value)
    } else {
        Err(DecodeError::WrongType)
    }
}
