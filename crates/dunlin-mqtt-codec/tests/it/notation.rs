//! Bytes as text: hexadecimal digits, with ASCII text between single quotes
//! and blanks wherever they help.

/// The bytes that `text` stands for.
pub(crate) fn bytes(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (at, part) in text.split('\'').enumerate() {
        if at % 2 == 1 {
            bytes.extend_from_slice(part.as_bytes());
            continue;
        }
        let digits: Vec<u8> = part.bytes().filter(|b| !b.is_ascii_whitespace()).collect();
        assert_eq!(digits.len() % 2, 0, "odd number of digits in {text:?}");
        for pair in digits.chunks(2) {
            let pair = str::from_utf8(pair).unwrap();
            let byte = u8::from_str_radix(pair, 16);
            bytes.push(byte.unwrap_or_else(|_| panic!("{pair:?} in {text:?}")));
        }
    }
    bytes
}

#[test]
fn digits_and_text_mix() {
    assert_eq!(bytes("30 03 0001'a'"), [0x30, 3, 0, 1, b'a']);
}
