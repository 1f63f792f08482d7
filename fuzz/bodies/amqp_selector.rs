//! Any text as a selector: parsing and evaluation do not panic, and the same
//! selector says the same twice.

use bytes::Bytes;
use dunlin_amqp::filter::{Selector, Subject};
use dunlin_amqp::message::from_amqp;
use dunlin_base::{Instant, Text};

/// Application properties `a` (an int) and `s` (a string), and a subject.
const MESSAGE: &[u8] = b"\0\x53\x73\xc0\x07\x04\x40\x40\x40\xa1\x01t\
    \0\x53\x74\xc1\x0b\x04\xa1\x01a\x54\x05\xa1\x01s\xa1\x00\0\x53\x75\xa0\0";

/// One input.
pub(crate) fn run(data: &[u8]) {
    let Ok(text) = core::str::from_utf8(data) else {
        return;
    };
    let bytes = Bytes::from_static(MESSAGE);
    let message = from_amqp(&bytes, Text::from("q"), Instant::ZERO).expect("valid");
    let bytes = Subject::bytes(&message, Instant::ZERO);
    let subject = Subject::of(&message, &bytes).expect("valid");
    for parse in [Selector::parse, Selector::parse_sql] {
        let Ok(selector) = parse(text) else {
            continue;
        };
        assert_eq!(parse(text).as_ref().ok(), Some(&selector));
        assert_eq!(selector.matches(&subject), selector.matches(&subject));
    }
}
