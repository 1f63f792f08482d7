//! The words of a selector.

use alloc::borrow::Cow;
use alloc::string::String;

use super::error::SelectorError;

/// A word.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Token<'a> {
    /// A name or a key word.
    Word(&'a str),
    /// A name between double quotes or square brackets, never a key word.
    Name(Cow<'a, str>),
    /// A string literal.
    Text(Cow<'a, str>),
    Long(i64),
    Double(f64),
    Sign(&'static str),
    End,
}

/// Signs, the longer ones first.
const SIGNS: [&str; 15] = [
    "<>", "!=", "<=", ">=", "=", "<", ">", "(", ")", ",", "+", "-", "*", "/", "%",
];

/// Cuts a selector into words.
pub(super) struct Lexer<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Lexer<'a> {
    pub(super) const fn new(text: &'a str) -> Self {
        Self { text, at: 0 }
    }

    fn rest(&self) -> &'a str {
        self.text.get(self.at..).unwrap_or_default()
    }

    /// Takes the characters that `is_part` says, from the beginning.
    fn take_while(&mut self, is_part: impl Fn(char) -> bool) -> &'a str {
        let rest = self.rest();
        let len = rest.find(|c| !is_part(c)).unwrap_or(rest.len());
        self.at += len;
        rest.get(..len).unwrap_or_default()
    }

    /// The next word, and where it begins.
    pub(super) fn next(&mut self) -> Result<(Token<'a>, usize), SelectorError> {
        self.take_while(char::is_whitespace);
        let at = self.at;
        let Some(first) = self.rest().chars().next() else {
            return Ok((Token::End, at));
        };
        let token = match first {
            '\'' => Token::Text(self.quoted('\'')?),
            '"' => Token::Name(self.quoted('"')?),
            '[' => Token::Name(self.bracketed()?),
            c if is_name_start(c) => Token::Word(self.take_while(is_name_part)),
            c if c.is_ascii_digit() || (c == '.' && self.is_fraction()) => self.number()?,
            _ => {
                let rest = self.rest();
                let sign = SIGNS.into_iter().find(|sign| rest.starts_with(sign));
                let sign = sign.ok_or(SelectorError::Character { at })?;
                self.at += sign.len();
                Token::Sign(sign)
            }
        };
        Ok((token, at))
    }

    fn is_fraction(&self) -> bool {
        self.rest()
            .chars()
            .nth(1)
            .is_some_and(|c| c.is_ascii_digit())
    }

    /// Text between two `quote`s, of which two stand for one.
    fn quoted(&mut self, quote: char) -> Result<Cow<'a, str>, SelectorError> {
        let begin = self.at;
        self.at += 1;
        let mut text = String::new();
        loop {
            let part = self.take_while(|c| c != quote);
            let rest = self.rest();
            if rest.is_empty() {
                return Err(SelectorError::Unterminated { at: begin });
            }
            self.at += 1;
            if !self.rest().starts_with(quote) {
                if text.is_empty() {
                    return Ok(part.into());
                }
                text.push_str(part);
                return Ok(text.into());
            }
            self.at += 1;
            text.push_str(part);
            text.push(quote);
        }
    }

    fn bracketed(&mut self) -> Result<Cow<'a, str>, SelectorError> {
        let begin = self.at;
        self.at += 1;
        let name = self.take_while(|c| c != ']');
        if self.rest().is_empty() {
            return Err(SelectorError::Unterminated { at: begin });
        }
        self.at += 1;
        Ok(name.into())
    }

    fn number(&mut self) -> Result<Token<'a>, SelectorError> {
        let at = self.at;
        let error = SelectorError::Syntax { at };
        let rest = self.rest();
        if let Some(digits) = rest.strip_prefix("0x").or_else(|| rest.strip_prefix("0X")) {
            let len = digits.find(|c: char| !c.is_ascii_hexdigit());
            let digits = digits
                .get(..len.unwrap_or(digits.len()))
                .unwrap_or_default();
            self.at += 2 + digits.len();
            return i64::from_str_radix(digits, 16)
                .map(Token::Long)
                .map_err(|_| error);
        }
        let mut is_exact = true;
        self.take_while(|c| c.is_ascii_digit());
        if self.rest().starts_with('.') {
            is_exact = false;
            self.at += 1;
            self.take_while(|c| c.is_ascii_digit());
        }
        if self.rest().starts_with(['e', 'E']) {
            is_exact = false;
            self.at += 1;
            if self.rest().starts_with(['+', '-']) {
                self.at += 1;
            }
            self.take_while(|c| c.is_ascii_digit());
        }
        let number = self.text.get(at..self.at).unwrap_or_default();
        // What Java writes after numbers says their type.
        let suffix = self.take_while(|c| matches!(c, 'l' | 'L' | 'd' | 'D' | 'f' | 'F'));
        let is_valid = match suffix {
            "" => true,
            "l" | "L" => is_exact,
            "d" | "D" | "f" | "F" => {
                is_exact = false;
                true
            }
            _ => false,
        };
        if !is_valid || self.rest().starts_with(is_name_part) {
            return Err(error);
        }
        if is_exact {
            number.parse().map(Token::Long).map_err(|_| error)
        } else {
            number.parse().map(Token::Double).map_err(|_| error)
        }
    }
}

fn is_name_start(c: char) -> bool {
    c.is_alphabetic() || c == '_' || c == '$'
}

fn is_name_part(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '_' | '$' | '.' | ':')
}
