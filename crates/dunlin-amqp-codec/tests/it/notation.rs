//! Bytes as text: hexadecimal digits, with ASCII text between single quotes
//! and blanks wherever they help. `{ … }` stands for the size of what is between
//! in one byte, and for that.

/// The bytes that `text` stands for.
pub(crate) fn bytes(text: &str) -> Vec<u8> {
    let mut open: Vec<Vec<u8>> = vec![Vec::new()];
    for (at, part) in text.split('\'').enumerate() {
        if at % 2 == 1 {
            open.last_mut().unwrap().extend_from_slice(part.as_bytes());
            continue;
        }
        let mut high = None;
        for c in part.chars().filter(|c| !c.is_ascii_whitespace()) {
            match (c, high) {
                ('{', None) => open.push(Vec::new()),
                ('}', None) => {
                    let inner = open.pop().unwrap();
                    let outer = open.last_mut().expect("as many { as }");
                    outer.push(u8::try_from(inner.len()).expect("a size of one byte"));
                    outer.extend_from_slice(&inner);
                }
                (_, None) => high = Some(digit(c, text)),
                (_, Some(first)) => {
                    open.last_mut().unwrap().push(first << 4 | digit(c, text));
                    high = None;
                }
            }
        }
        assert_eq!(high, None, "odd number of digits in {text:?}");
    }
    assert_eq!(open.len(), 1, "as many {{ as }} in {text:?}");
    open.remove(0)
}

fn digit(c: char, text: &str) -> u8 {
    let digit = c
        .to_digit(16)
        .unwrap_or_else(|| panic!("{c:?} in {text:?}"));
    digit as u8
}

#[test]
fn digits_text_and_sizes_mix() {
    assert_eq!(bytes("30 0001'a'"), [0x30, 0, 1, b'a']);
    assert_eq!(
        bytes("c0 {02 41 c0 {01 42}}"),
        [0xc0, 6, 2, 0x41, 0xc0, 2, 1, 0x42]
    );
}
