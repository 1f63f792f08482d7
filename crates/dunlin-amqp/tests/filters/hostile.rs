//! Selectors that are long, deep or slow.

use core::time::Duration;
use std::time::Instant as Clock;

use bytes::Bytes;
use dunlin_amqp::codec::{Map, Section, Value};
use dunlin_amqp::filter::{Selector, SelectorError, Subject, limits};
use dunlin_amqp::message::from_amqp;
use dunlin_base::{Instant, Text};

use crate::message;

#[test]
fn a_selector_of_100_kb_is_refused() {
    let text = "a = 1 OR ".repeat(100 * 1024 / 9) + "TRUE";
    assert_eq!(Selector::parse(&text), Err(SelectorError::TooLong));
    let many = "a=1 OR ".repeat(limits::SELECTOR_NODES_MAX / 3) + "TRUE";
    assert!(many.len() < limits::SELECTOR_BYTES_MAX);
    assert_eq!(Selector::parse(&many), Err(SelectorError::TooLong));
    let list = format!("a IN (1{})", ",1".repeat(limits::SELECTOR_NODES_MAX));
    assert_eq!(Selector::parse(&list), Err(SelectorError::TooLong));
}

#[test]
fn depth_is_bounded_and_chains_are_not_depth() {
    for (open, close) in [
        ("(", ")"),
        ("NOT ", ""),
        ("-", ""),
        ("+", ""),
        ("NOT (", ")"),
    ] {
        let nested = |levels| open.repeat(levels) + "a" + &close.repeat(levels);
        let deep = Selector::parse(&nested(limits::SELECTOR_DEPTH_MAX + 1));
        assert!(
            matches!(deep, Err(SelectorError::Depth { .. })),
            "{open}: {deep:?}"
        );
        let levels = limits::SELECTOR_DEPTH_MAX / 2;
        assert!(Selector::parse(&nested(levels)).is_ok(), "{open}");
    }
    let message = message();
    let bytes = Subject::bytes(&message, Instant::ZERO);
    let subject = Subject::of(&message, &bytes).unwrap();
    for chain in ["a=9 OR ".repeat(250) + "TRUE", "t AND ".repeat(500) + "t"] {
        assert!(Selector::parse(&chain).unwrap().matches(&subject));
    }
    let sum = "1+".repeat(500) + "a = 505";
    assert!(Selector::parse(&sum).unwrap().matches(&subject));
}

#[test]
fn a_slow_pattern_ends_without_a_match() {
    let text = "a".repeat(200_000);
    let entries = [(Value::String("s"), Value::String(&text))];
    let mut out = Vec::new();
    let map = Value::Map(Map::new(&entries));
    Section::ApplicationProperties
        .encode(&map, &mut out)
        .unwrap();
    let message = from_amqp(&Bytes::from(out), Text::from("q"), Instant::ZERO).unwrap();
    let bytes = Subject::bytes(&message, Instant::ZERO);
    let subject = Subject::of(&message, &bytes).unwrap();
    let like = format!("s LIKE '{}b'", "%a".repeat(2000));
    let selector = Selector::parse(&like).unwrap();
    let begin = Clock::now();
    assert!(!selector.matches(&subject));
    assert!(
        begin.elapsed() < Duration::from_secs(2),
        "{:?}",
        begin.elapsed()
    );
}
