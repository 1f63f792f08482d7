//! Names of users in what a directory is asked: in a distinguished name escaped (RFC
//! 4514), in a filter as the value of an assertion (RFC 4515), which has no syntax. A
//! filter of the configuration is parsed before a name gets into it.

use super::ber::{OCTETS, Writer};

/// What stands for the name.
const USER: &str = "{user}";

/// Longest name of a user.
const USER_BYTES_MAX: usize = 256;

/// Deepest nesting of a filter.
const DEPTH_MAX: usize = 8;

/// Longest filter.
const FILTER_BYTES_MAX: usize = 1024;

/// Whether a directory is asked about a user of this name.
pub(super) fn is_name(user: &str) -> bool {
    !user.is_empty() && user.len() <= USER_BYTES_MAX && !user.contains(char::is_control)
}

/// The distinguished name of a user.
pub(super) fn dn(template: &str, user: &str) -> String {
    let mut escaped = String::with_capacity(user.len());
    for byte in user.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-' | b'@') {
            escaped.push(char::from(byte));
        } else {
            escaped.push_str(&format!("\\{byte:02x}"));
        }
    }
    template.replace(USER, &escaped)
}

/// The name of a group: the value of the first attribute of its distinguished name, or
/// the text itself where that is none.
pub(super) fn group(text: &str) -> Option<String> {
    let Some((_, rest)) = text.split_once('=') else {
        return Some(text.trim().to_owned()).filter(|name| !name.is_empty());
    };
    let mut name = Vec::new();
    let mut bytes = rest.trim_start().bytes();
    while let Some(byte) = bytes.next() {
        match byte {
            b',' | b'+' => break,
            b'\\' => {
                let first = bytes.next()?;
                let Some(high) = char::from(first).to_digit(16) else {
                    name.push(first);
                    continue;
                };
                let low = char::from(bytes.next()?).to_digit(16)?;
                name.push(u8::try_from(high << 4 | low).ok()?);
            }
            byte => name.push(byte),
        }
    }
    let name = String::from_utf8(name).ok()?;
    Some(name.trim_end().to_owned()).filter(|name| !name.is_empty())
}

/// A filter, as the configuration has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Filter {
    And(Vec<Self>),
    Or(Vec<Self>),
    Not(Box<Self>),
    Equal(String, Vec<u8>),
    Present(String),
}

impl Filter {
    /// Parses a filter.
    ///
    /// # Errors
    /// A sentence that says what is wrong.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "`{text}` is no filter such as \"(&(objectClass=person)(uid={{user}}))\", of \
                 &, |, !, = and =*"
            )
        };
        if text.len() > FILTER_BYTES_MAX {
            return Err(wrong());
        }
        match parse(text, DEPTH_MAX) {
            Some((filter, "")) => Ok(filter),
            _ => Err(wrong()),
        }
    }

    /// Whether the name of a user is in it.
    pub(crate) fn has_user(&self) -> bool {
        match self {
            Self::And(all) | Self::Or(all) => all.iter().any(Self::has_user),
            Self::Not(inner) => inner.has_user(),
            Self::Equal(_, value) => value.windows(USER.len()).any(|it| it == USER.as_bytes()),
            Self::Present(_) => false,
        }
    }

    /// Writes it for a user.
    pub(super) fn write(&self, user: &str, out: &mut Writer) {
        match self {
            Self::And(all) => {
                out.nested(0xa0, |out| all.iter().for_each(|it| it.write(user, out)));
            }
            Self::Or(all) => {
                out.nested(0xa1, |out| all.iter().for_each(|it| it.write(user, out)));
            }
            Self::Not(inner) => {
                out.nested(0xa2, |out| inner.write(user, out));
            }
            Self::Equal(attribute, value) => {
                let value = replaced(value, user);
                out.nested(0xa3, |out| {
                    out.bytes(OCTETS, attribute.as_bytes())
                        .bytes(OCTETS, &value);
                });
            }
            Self::Present(attribute) => {
                out.bytes(0x87, attribute.as_bytes());
            }
        }
    }
}

/// A value with the name of the user in it.
fn replaced(mut value: &[u8], user: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(value.len() + user.len());
    while let Some((first, rest)) = value.split_first() {
        match value.strip_prefix(USER.as_bytes()) {
            Some(after) => {
                out.extend(user.as_bytes());
                value = after;
            }
            None => {
                out.push(*first);
                value = rest;
            }
        }
    }
    out
}

/// The filter at the beginning of a text, and what follows it.
fn parse(text: &str, depth: usize) -> Option<(Filter, &str)> {
    let rest = text.strip_prefix('(')?;
    let depth = depth.checked_sub(1)?;
    if let Some(rest) = rest.strip_prefix('!') {
        let (inner, rest) = parse(rest, depth)?;
        return Some((Filter::Not(Box::new(inner)), rest.strip_prefix(')')?));
    }
    if let Some(mut rest) = rest.strip_prefix(['&', '|']) {
        let is_and = text.starts_with("(&");
        let mut all = Vec::new();
        while rest.starts_with('(') {
            let (inner, after) = parse(rest, depth)?;
            all.push(inner);
            rest = after;
        }
        let rest = rest.strip_prefix(')')?;
        if all.is_empty() {
            return None;
        }
        let filter = match is_and {
            true => Filter::And(all),
            false => Filter::Or(all),
        };
        return Some((filter, rest));
    }
    let (item, rest) = rest.split_once(')')?;
    let (attribute, value) = item.split_once('=')?;
    if !is_attribute(attribute) {
        return None;
    }
    let filter = match value {
        "*" => Filter::Present(attribute.to_owned()),
        value => Filter::Equal(attribute.to_owned(), unescape(value)?),
    };
    Some((filter, rest))
}

/// Whether this is the name of an attribute.
pub(crate) fn is_attribute(name: &str) -> bool {
    let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | ';');
    !name.is_empty() && name.len() <= 128 && name.chars().all(is_part)
}

/// The value of an assertion; `None`: it has a wildcard, or a wrong escape.
fn unescape(text: &str) -> Option<Vec<u8>> {
    let mut value = Vec::new();
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        match byte {
            b'\\' => {
                let mut digit = || char::from(bytes.next()?).to_digit(16);
                value.push(u8::try_from(digit()? << 4 | digit()?).ok()?);
            }
            b'*' | b'(' => return None,
            byte => value.push(byte),
        }
    }
    Some(value)
}

#[cfg(test)]
mod tests {
    use super::super::ber::Reader;
    use super::*;

    #[test]
    fn a_name_never_becomes_syntax_of_a_distinguished_name() {
        let template = "uid={user},ou=people";
        for (user, want) in [
            ("alice", "uid=alice,ou=people"),
            ("a,ou=admins", "uid=a\\2cou\\3dadmins,ou=people"),
            (
                "a+b\\\"<>;#",
                "uid=a\\2bb\\5c\\22\\3c\\3e\\3b\\23,ou=people",
            ),
            (" é ", "uid=\\20\\c3\\a9\\20,ou=people"),
            ("{user}", "uid=\\7buser\\7d,ou=people"),
        ] {
            assert_eq!(dn(template, user), want, "{user}");
        }
        for wrong in ["", "a\0", "a\nb", &"x".repeat(USER_BYTES_MAX + 1)] {
            assert!(!is_name(wrong), "{wrong:?}");
        }
    }

    #[test]
    fn a_name_is_the_value_of_an_assertion_as_it_is() {
        let text = "(&(objectClass=person)(|(uid={user})(mail=x-{user}\\2a))(!(locked=*)))";
        let filter = Filter::parse(text).expect("a filter");
        assert!(filter.has_user());
        let name = "*)(uid=*))(|(uid=*";
        let mut out = Writer::default();
        filter.write(name, &mut out);
        let bytes = out.finish();
        // What a server reads: one conjunction of three, with the name as a value.
        let mut all = Reader::new(Reader::new(&bytes).expect(0xa0).expect("and"));
        let mut class = Reader::new(all.expect(0xa3).expect("equal"));
        assert_eq!(class.expect(OCTETS), Some(&b"objectClass"[..]));
        assert_eq!(class.expect(OCTETS), Some(&b"person"[..]));
        let mut any = Reader::new(all.expect(0xa1).expect("or"));
        let mut uid = Reader::new(any.expect(0xa3).expect("equal"));
        assert_eq!(uid.expect(OCTETS), Some(&b"uid"[..]));
        assert_eq!(uid.expect(OCTETS), Some(name.as_bytes()));
        let mut mail = Reader::new(any.expect(0xa3).expect("equal"));
        assert_eq!(mail.expect(OCTETS), Some(&b"mail"[..]));
        assert_eq!(mail.expect(OCTETS), Some(format!("x-{name}*").as_bytes()));
        let mut not = Reader::new(all.expect(0xa2).expect("not"));
        assert_eq!(not.expect(0x87), Some(&b"locked"[..]));
        assert!(all.is_empty() && any.is_empty());
    }

    #[test]
    fn filters_are_parsed_strictly() {
        let deep = format!("{}(a=b){}", "(!".repeat(20), ")".repeat(20));
        for wrong in [
            "",
            "uid=a",
            "(uid=a",
            "(uid=a))",
            "(&)",
            "(uid=a*)",
            "(uid=**)",
            "(=a)",
            "(u d=a)",
            "(uid=\\zz)",
            "(uid=\\2)",
            "(&(a=b)c)",
            "(a=(b)",
            &deep,
        ] {
            let error = Filter::parse(wrong).expect_err(wrong);
            assert!(error.contains("is no filter"), "{error}");
        }
        assert!(!Filter::parse("(a=b)").expect("a filter").has_user());
    }

    #[test]
    fn groups_have_the_name_in_front() {
        for (text, want) in [
            ("cn=ops,ou=groups,dc=x", Some("ops")),
            ("CN=Night Shift,DC=x", Some("Night Shift")),
            ("cn=a\\,b\\2b,ou=x", Some("a,b+")),
            ("cn=a+sn=b,dc=x", Some("a")),
            ("ops", Some("ops")),
            ("cn=,dc=x", None),
            ("cn=a\\", None),
            ("cn=\\ff", None),
            ("", None),
        ] {
            assert_eq!(group(text).as_deref(), want, "{text}");
        }
    }
}
