//! A Rust file as seen by the rules: comments and literals blanked, functions
//! measured, test code known. Not a parser: it matches braces and keywords,
//! which is enough for counting lines.

use core::ops::Range;

/// A function with a body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Function {
    /// Name with its module, trait or type, as in `Type::name`.
    pub(crate) name: String,
    /// First line, from 1.
    pub(crate) line: usize,
    /// Lines from `fn` to the closing brace.
    pub(crate) lines: usize,
}

/// One Rust file.
#[derive(Clone, Debug)]
pub(crate) struct Source {
    /// The text with comments and literals replaced by spaces, byte by byte.
    code: String,
    /// Byte ranges compiled only for tests.
    tests: Vec<Range<usize>>,
    /// Names of modules in other files that are compiled only for tests.
    test_modules: Vec<String>,
}

impl Source {
    /// Reads a file.
    pub(crate) fn new(text: &str) -> Self {
        let code = blank(text, Comments::Blanked);
        let mut tests = Vec::new();
        let mut test_modules = Vec::new();
        for (start, _) in code.match_indices("#[cfg(") {
            let Some((end, is_test)) = test_attribute(&code, start) else {
                continue;
            };
            if is_test {
                let item_end = item_end(&code, end);
                test_modules.extend(module_elsewhere(&code[end..item_end]));
                tests.push(start..item_end);
            }
        }
        if code.contains("#![cfg(test)]") {
            tests.push(0..code.len());
        }
        Self {
            code,
            tests,
            test_modules,
        }
    }

    /// The text without comments and literals.
    pub(crate) fn code(&self) -> &str {
        &self.code
    }

    /// Modules in other files that are compiled only for tests.
    pub(crate) fn test_modules(&self) -> &[String] {
        &self.test_modules
    }

    /// Whether this byte is compiled only for tests.
    pub(crate) fn is_test(&self, at: usize) -> bool {
        self.tests.iter().any(|range| range.contains(&at))
    }

    /// Lines that are not test code.
    pub(crate) fn lines(&self) -> usize {
        let mut at = 0;
        let mut lines = 0;
        for line in self.code.split_inclusive('\n') {
            lines += usize::from(!self.is_test(at));
            at += line.len();
        }
        lines
    }

    /// Line of a byte, from 1.
    pub(crate) fn line_of(&self, at: usize) -> usize {
        self.code[..at].bytes().filter(|b| *b == b'\n').count() + 1
    }

    /// Functions that are not test code, in order.
    pub(crate) fn functions(&self) -> Vec<Function> {
        let mut found = Vec::new();
        for (at, word) in words(&self.code) {
            if word != "fn" || self.is_test(at) {
                continue;
            }
            let rest = self.code[at + 2..].trim_start();
            let name: String = rest.chars().take_while(|c| is_word(*c)).collect();
            let Some(open) = body_start(&self.code, at) else {
                continue;
            };
            if name.is_empty() {
                continue;
            }
            let end = closing(&self.code, open);
            let line = self.line_of(at);
            found.push(Function {
                name: self.qualify(at, &name),
                line,
                lines: self.line_of(end) - line + 1,
            });
        }
        found
    }

    /// Prefixes a name with the innermost `impl`, `trait` or `mod` around it.
    fn qualify(&self, at: usize, name: &str) -> String {
        let mut owner = None;
        for (start, word) in words(&self.code[..at]) {
            if !matches!(word, "impl" | "trait" | "mod") {
                continue;
            }
            let Some(open) = body_start(&self.code, start) else {
                continue;
            };
            if open < at && closing(&self.code, open) > at {
                owner = Some(header_name(&self.code[start + word.len()..open]));
            }
        }
        match owner {
            Some(owner) if !owner.is_empty() => format!("{owner}::{name}"),
            _ => name.to_owned(),
        }
    }
}

/// The text of a Rust file without strings and character literals: what its
/// author named and explained.
pub(crate) fn without_literals(text: &str) -> String {
    blank(text, Comments::Kept)
}

/// The type that an `impl` is for, or the name of a trait or module.
fn header_name(header: &str) -> String {
    let mut depth = 0usize;
    let mut flat = String::new();
    let mut previous = ' ';
    for c in header.chars() {
        match c {
            '<' => depth += 1,
            '>' if previous != '-' => depth = depth.saturating_sub(1),
            _ if depth == 0 => flat.push(c),
            _ => {}
        }
        previous = c;
    }
    let flat = flat.split(" where ").next().unwrap_or_default();
    let subject = flat.rsplit(" for ").next().unwrap_or_default();
    let subject = subject.split(':').next_back().unwrap_or_default();
    let word = subject
        .split(|c| !is_word(c))
        .find(|w| !matches!(*w, "" | "mut" | "dyn"));
    word.unwrap_or_default().to_owned()
}

/// `name` when an item is `mod name;`, that is, a module in another file.
fn module_elsewhere(item: &str) -> Option<String> {
    let item = item.trim().strip_suffix(';')?;
    let (_, name) = item.rsplit_once("mod ")?;
    let name = name.trim();
    name.chars().all(is_word).then(|| name.to_owned())
}

/// End of the `#[cfg(…)]` that starts here, and whether it asks for tests.
fn test_attribute(code: &str, start: usize) -> Option<(usize, bool)> {
    let length = code[start..].find(']')? + 1;
    let attribute = &code[start..start + length];
    let mut is_test = false;
    for (at, word) in words(attribute) {
        if word == "test" {
            is_test = !attribute[..at].ends_with("not(");
        }
    }
    Some((start + length, is_test))
}

/// End of the item that starts after an attribute.
fn item_end(code: &str, start: usize) -> usize {
    match body_start(code, start) {
        Some(open) => closing(code, open) + 1,
        None => code[start..]
            .find(';')
            .map_or(code.len(), |at| start + at + 1),
    }
}

/// Where the first `{` outside parentheses and brackets is, if no `;` comes
/// before it.
fn body_start(code: &str, start: usize) -> Option<usize> {
    let mut depth = 0usize;
    for (at, byte) in code.bytes().enumerate().skip(start) {
        match byte {
            b'(' | b'[' => depth += 1,
            b')' | b']' => depth = depth.saturating_sub(1),
            b'{' if depth == 0 => return Some(at),
            b';' if depth == 0 => return None,
            _ => {}
        }
    }
    None
}

/// The brace that closes the one at `open`; the end when there is none.
fn closing(code: &str, open: usize) -> usize {
    let mut depth = 0usize;
    for (at, byte) in code.bytes().enumerate().skip(open) {
        match byte {
            b'{' => depth += 1,
            b'}' => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    return at;
                }
            }
            _ => {}
        }
    }
    code.len()
}

fn is_word(c: char) -> bool {
    c == '_' || c.is_alphanumeric()
}

/// The words of a text and where they start.
fn words(code: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut at = 0;
    code.split(|c| !is_word(c)).filter_map(move |word| {
        let start = at;
        let separator = code[start + word.len()..].chars().next();
        at = start + word.len() + separator.map_or(0, char::len_utf8);
        (!word.is_empty()).then_some((start, word))
    })
}

/// What becomes of comments.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Comments {
    Blanked,
    Kept,
}

/// Replaces strings and character literals by spaces, comments as well if that
/// is asked for, keeping line ends and the place of every other byte.
fn blank(text: &str, comments: Comments) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let end = literal_end(text, at);
        if end == at {
            out.push(bytes[at]);
            at += 1;
            continue;
        }
        if bytes[at] == b'/' && comments == Comments::Kept {
            out.extend(&bytes[at..end]);
            at = end;
            continue;
        }
        let blanked = bytes[at..end]
            .iter()
            .map(|b| if *b == b'\n' { b'\n' } else { b' ' });
        out.extend(blanked);
        at = end;
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// End of the comment or literal that starts at `at`; `at` when none does.
fn literal_end(text: &str, at: usize) -> usize {
    let bytes = text.as_bytes();
    let rest = &bytes[at..];
    let in_word = at > 0 && (bytes[at - 1] == b'_' || bytes[at - 1].is_ascii_alphanumeric());
    match rest {
        [b'/', b'/', ..] => find(bytes, at, b"\n"),
        [b'/', b'*', ..] => block_comment_end(bytes, at),
        [b'"', ..] => string_end(bytes, at),
        [b'r', b'"' | b'#', ..] if !in_word => raw_string_end(bytes, at, at + 1),
        [b'b' | b'c', b'r', b'"' | b'#', ..] if !in_word => raw_string_end(bytes, at, at + 2),
        [b'\'', ..] => char_end(text, at),
        _ => at,
    }
}

fn find(bytes: &[u8], from: usize, wanted: &[u8]) -> usize {
    let window = bytes.get(from..).unwrap_or_default();
    window
        .windows(wanted.len())
        .position(|w| w == wanted)
        .map_or(bytes.len(), |p| from + p)
}

fn block_comment_end(bytes: &[u8], start: usize) -> usize {
    let mut depth = 0usize;
    let mut at = start;
    while at < bytes.len() {
        match &bytes[at..] {
            [b'/', b'*', ..] => {
                depth += 1;
                at += 2;
            }
            [b'*', b'/', ..] => {
                depth -= 1;
                at += 2;
                if depth == 0 {
                    return at;
                }
            }
            _ => at += 1,
        }
    }
    bytes.len()
}

fn string_end(bytes: &[u8], start: usize) -> usize {
    let mut at = start + 1;
    while at < bytes.len() {
        match bytes[at] {
            b'\\' => at += 2,
            b'"' => return at + 1,
            _ => at += 1,
        }
    }
    bytes.len()
}

/// `hashes` is where the `#`s of a raw string begin; a raw identifier such as
/// `r#type` is no string.
fn raw_string_end(bytes: &[u8], start: usize, hashes: usize) -> usize {
    let count = bytes[hashes..].iter().take_while(|b| **b == b'#').count();
    if bytes.get(hashes + count) != Some(&b'"') {
        return start;
    }
    let mut close = vec![b'"'];
    close.resize(count + 1, b'#');
    let end = find(bytes, hashes + count + 1, &close);
    (end + close.len()).min(bytes.len())
}

/// A character literal; its closing quote distinguishes it from a lifetime.
fn char_end(text: &str, start: usize) -> usize {
    let body = &text[start + 1..];
    let Some(first) = body.chars().next() else {
        return start;
    };
    if first == '\\' {
        let escaped = body.chars().nth(1).map_or(0, char::len_utf8);
        let from = start + 2 + escaped;
        return (find(text.as_bytes(), from, b"'") + 1).min(text.len());
    }
    let after = start + 1 + first.len_utf8();
    if text[after..].starts_with('\'') {
        after + 1
    } else {
        start
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_literals_are_blanked_in_place() {
        let cases = [
            ("a // b {\nc", "a c"),
            ("a /* { /* } */ */ b", "a b"),
            (r#"f("{\"}") }"#, "f( ) }"),
            ("r#\"}\"# x", "x"),
            ("'{' 'a x '\\'' y", "'a x y"),
            ("r#type {", "r#type {"),
            ("'é' }", "}"),
            ("b\"{\" br\"{\" b'{' var\"{\"", "b b var"),
        ];
        for (text, want) in cases {
            let got = blank(text, Comments::Blanked);
            assert_eq!(got.len(), text.len(), "{text}");
            let words: Vec<&str> = got.split_whitespace().collect();
            assert_eq!(words.join(" "), want, "{text}");
        }
    }

    #[test]
    fn comments_stay_where_only_literals_go() {
        let got = without_literals("f(\"a b\"); // \"c\" 'd'\n/* e */ 'f'");
        assert_eq!(got, "f(     ); // \"c\" 'd'\n/* e */    ");
    }

    #[test]
    fn functions_are_measured_and_named() {
        let text = "\
impl<T: Fn() -> u8> Shape for core::Square<T> {
    fn area(&self) -> [u8; 2] {
        let s = \"}}\";
        // }
        s
    }
}
trait Later {
    fn later(&self);
}
fn free() {}
#[cfg(test)]
mod tests {
    fn not_counted() {}
}
";
        let got = Source::new(text).functions();
        let want = [("Square::area", 2, 5), ("free", 11, 1)];
        let got: Vec<_> = got
            .iter()
            .map(|f| (f.name.as_str(), f.line, f.lines))
            .collect();
        assert_eq!(got, want);
    }

    #[test]
    fn test_code_is_not_counted() {
        let text = "\
fn a() {}
#[cfg(not(test))]
fn b() {}
#[cfg(test)]
mod elsewhere;
#[cfg(all(test, feature = \"x\"))]
mod here {
    fn c() {}
}
";
        let source = Source::new(text);
        assert_eq!(source.test_modules(), ["elsewhere"]);
        assert_eq!(source.lines(), 3);
        let whole = Source::new("//! x\n#![cfg(test)]\nfn a() {}\n");
        assert_eq!(whole.lines(), 0);
    }
}
