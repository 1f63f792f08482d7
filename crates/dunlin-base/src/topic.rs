//! Topic names and filters (MQTT 5.0 section 4.7 and 4.8.2).

use crate::limits::{MQTT_STRING_BYTES_MAX, TOPIC_LEVELS_MAX};

/// Why a topic name or filter is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TopicError {
    /// Names and filters have at least one character [MQTT-4.7.3-1].
    #[error("a topic must have at least one character")]
    Empty,
    /// The encoded form does not fit a UTF-8 string field [MQTT-4.7.3-3].
    #[error("a topic is at most 65,535 bytes")]
    TooLong,
    /// Contains U+0000 [MQTT-4.7.3-2].
    #[error("a topic must not contain the null character")]
    Null,
    /// A name contains `+` or `#` [MQTT-3.3.2-2].
    #[error("a topic name must not contain wildcards")]
    WildcardInName,
    /// `#` is not last or not alone in its level [MQTT-4.7.1-1].
    #[error("'#' must be the last level and alone in it")]
    MultiLevelPosition,
    /// `+` is not alone in its level [MQTT-4.7.1-2].
    #[error("'+' must be alone in its level")]
    SingleLevelPosition,
    /// More levels than [`TOPIC_LEVELS_MAX`].
    #[error("a topic has at most 128 levels")]
    TooDeep,
    /// A `$share` filter with an empty or illegal share name
    /// [MQTT-4.8.2-1], or without a filter [MQTT-4.8.2-2].
    #[error("a shared subscription has the form $share/NAME/FILTER")]
    MalformedShare,
}

/// Checks a topic name.
///
/// # Errors
/// The first rule that it breaks.
pub fn validate_name(name: &str) -> Result<(), TopicError> {
    validate_common(name)?;
    if name.bytes().any(|b| b == b'+' || b == b'#') {
        return Err(TopicError::WildcardInName);
    }
    Ok(())
}

/// Checks a topic filter without its `$share/NAME/` prefix.
///
/// # Errors
/// The first rule that it breaks.
pub fn validate_filter(filter: &str) -> Result<(), TopicError> {
    validate_common(filter)?;
    let mut levels = filter.split('/').peekable();
    while let Some(level) = levels.next() {
        if level.contains('#') && (level.len() > 1 || levels.peek().is_some()) {
            return Err(TopicError::MultiLevelPosition);
        }
        if level.contains('+') && level.len() > 1 {
            return Err(TopicError::SingleLevelPosition);
        }
    }
    Ok(())
}

fn validate_common(topic: &str) -> Result<(), TopicError> {
    if topic.is_empty() {
        return Err(TopicError::Empty);
    }
    if topic.len() > MQTT_STRING_BYTES_MAX {
        return Err(TopicError::TooLong);
    }
    let mut levels = 1;
    for byte in topic.bytes() {
        match byte {
            0 => return Err(TopicError::Null),
            b'/' => levels += 1,
            _ => {}
        }
    }
    if levels > TOPIC_LEVELS_MAX {
        return Err(TopicError::TooDeep);
    }
    Ok(())
}

/// A topic filter as subscribed: plain, or shared in a named group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Filter<'a> {
    /// Share name of `$share/NAME/FILTER`.
    pub share: Option<&'a str>,
    /// The filter that topics are matched with.
    pub filter: &'a str,
}

impl<'a> Filter<'a> {
    /// Parses and checks what a SUBSCRIBE carries.
    ///
    /// # Errors
    /// The rule that it breaks.
    pub fn parse(text: &'a str) -> Result<Self, TopicError> {
        let Some(rest) = text.strip_prefix("$share/") else {
            validate_filter(text)?;
            return Ok(Self {
                share: None,
                filter: text,
            });
        };
        let (name, filter) = rest.split_once('/').ok_or(TopicError::MalformedShare)?;
        if name.is_empty() || name.contains(['+', '#']) || filter.is_empty() {
            return Err(TopicError::MalformedShare);
        }
        validate_filter(filter)?;
        Ok(Self {
            share: Some(name),
            filter,
        })
    }

    /// Whether the filter contains a wildcard.
    #[must_use]
    pub fn has_wildcard(&self) -> bool {
        self.filter.bytes().any(|b| b == b'+' || b == b'#')
    }
}

/// Whether a (valid) filter matches a (valid) topic name.
///
/// Wildcards in the first level do not match names that begin with `$`
/// [MQTT-4.7.2-1].
#[must_use]
pub fn matches(filter: &str, name: &str) -> bool {
    if name.starts_with('$') && (filter.starts_with('+') || filter.starts_with('#')) {
        return false;
    }
    let mut names = name.split('/');
    for level in filter.split('/') {
        match (level, names.next()) {
            ("#", _) => return true,
            ("+", Some(_)) => {}
            (f, Some(n)) if f == n => {}
            _ => return false,
        }
    }
    names.next().is_none()
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::String;

    #[test]
    fn filters_match_as_section_4_7_says() {
        let cases = [
            ("sport/tennis/player1/#", "sport/tennis/player1", true),
            (
                "sport/tennis/player1/#",
                "sport/tennis/player1/ranking",
                true,
            ),
            ("sport/#", "sport", true),
            ("#", "a/b", true),
            ("#", "$SYS/x", false),
            ("+/x", "$SYS/x", false),
            ("$SYS/#", "$SYS/x", true),
            ("sport/+", "sport", false),
            ("sport/+", "sport/", true),
            ("+/+", "/finance", true),
            ("/+", "/finance", true),
            ("+", "/finance", false),
            ("a//b", "a//b", true),
            ("é/+", "é/x", true),
        ];
        for (filter, name, want) in cases {
            assert_eq!(matches(filter, name), want, "{filter} {name}");
        }
    }

    #[test]
    fn malformed_topics_are_refused_with_their_rule() {
        assert_eq!(validate_name(""), Err(TopicError::Empty));
        assert_eq!(validate_name("a/+"), Err(TopicError::WildcardInName));
        assert_eq!(validate_name("a\0"), Err(TopicError::Null));
        assert_eq!(
            validate_filter("a/#/b"),
            Err(TopicError::MultiLevelPosition)
        );
        assert_eq!(validate_filter("a#"), Err(TopicError::MultiLevelPosition));
        assert_eq!(
            validate_filter("a+/b"),
            Err(TopicError::SingleLevelPosition)
        );
        let deep: String = "a/".repeat(TOPIC_LEVELS_MAX);
        assert_eq!(validate_name(&deep), Err(TopicError::TooDeep));
        for text in [
            "$share/",
            "$share//a",
            "$share/g",
            "$share/g/",
            "$share/+/a",
        ] {
            assert_eq!(
                Filter::parse(text),
                Err(TopicError::MalformedShare),
                "{text}"
            );
        }
        let shared = Filter::parse("$share/g/a/+").expect("valid");
        assert_eq!((shared.share, shared.filter), (Some("g"), "a/+"));
    }
}
