//! Filters that are maps, and a source with several filters.

use dunlin_amqp::codec::{
    Described, Descriptor, List, Map, Symbol, Timestamp, Uuid, Value, capability,
};
use dunlin_amqp::filter::{FilterError, Filters, Subject, limits};
use dunlin_base::Instant;

use crate::message;

fn filter(descriptor: Descriptor<'static>, value: Value<'_>) -> Result<bool, FilterError> {
    let described = Value::Described(Described::new(descriptor, &value));
    let entries = [(Value::Symbol(Symbol::from_static("name")), described)];
    let (filters, known) = Filters::of(&Map::new(&entries))?;
    assert_eq!(known, entries);
    let message = message();
    let bytes = Subject::bytes(&message, Instant::ZERO);
    Ok(filters.matches(&Subject::of(&message, &bytes).unwrap()))
}

fn symbol(text: &'static str) -> Value<'static> {
    Value::Symbol(Symbol::from_static(text))
}

#[test]
fn properties() {
    for (name, value, is_match) in [
        ("subject", Value::String("temperature"), true),
        ("subject", Value::String("&p:temp"), true),
        ("subject", Value::String("&s:ature"), true),
        ("subject", Value::String("&p:x"), false),
        ("subject", Value::String("&&p:temp"), false),
        ("subject", Value::Null, false),
        ("to", Value::Null, true),
        ("content-type", Value::String("text/plain"), true),
        ("creation-time", Value::Timestamp(Timestamp(1000)), true),
        ("correlation-id", Value::Uuid(Uuid([1; 16])), true),
        ("user-id", Value::Binary(b"me"), true),
        ("user-id", Value::Binary(b"you"), false),
        ("message-id", Value::Ulong(1), false),
    ] {
        let entries = [(symbol(name), value)];
        let map = Value::Map(Map::new(&entries));
        assert_eq!(
            filter(Descriptor::Code(0x173), map),
            Ok(is_match),
            "{name} {value:?}"
        );
    }
    let entries = [(symbol("nothing"), Value::Null)];
    let map = Value::Map(Map::new(&entries));
    assert_eq!(
        filter(Descriptor::Code(0x173), map),
        Err(FilterError::Value)
    );
}

#[test]
fn application_properties() {
    let descriptor = Descriptor::Symbol(capability::APPLICATION_PROPERTIES_FILTER);
    for (name, value, is_match) in [
        ("a", Value::Ubyte(5), true),
        ("a", Value::Double(5.0), true),
        ("a", Value::String("5"), false),
        ("t", Value::Bool(true), true),
        ("s", Value::String("&p:it"), true),
        ("null", Value::Null, true),
        ("missing", Value::Null, true),
        ("missing", Value::Int(0), false),
    ] {
        let entries = [(Value::String(name), value)];
        let map = Value::Map(Map::new(&entries));
        assert_eq!(filter(descriptor, map), Ok(is_match), "{name} {value:?}");
    }
    let entries = [(Value::String("a"), Value::String("&x:"))];
    let map = Value::Map(Map::new(&entries));
    assert_eq!(filter(descriptor, map), Err(FilterError::Value));
    assert_eq!(filter(descriptor, Value::Null), Err(FilterError::Value));
}

#[test]
fn a_source_has_several_and_what_is_not_known_is_left_out() {
    let selector = Value::String("a = 5");
    let empty = Value::List(List::new(&[]));
    let entries = [
        (
            symbol("jms-selector"),
            Value::Described(Described::new(
                Descriptor::Code(0x0000_468c_0000_0004),
                &selector,
            )),
        ),
        (
            symbol("no-local"),
            Value::Described(Described::new(
                Descriptor::Symbol(capability::NO_LOCAL_FILTER),
                &empty,
            )),
        ),
        (
            symbol("other"),
            Value::Described(Described::new(Descriptor::Code(0x999), &selector)),
        ),
        (symbol("plain"), Value::String("not described")),
    ];
    let (filters, known) = Filters::of(&Map::new(&entries)).unwrap();
    assert_eq!(known, entries[..2]);
    assert!(filters.no_local && filters.needs_subject() && !filters.is_empty());
    assert!(Filters::default().is_empty());

    let many = vec![entries[0]; limits::FILTERS_MAX + 1];
    assert_eq!(Filters::of(&Map::new(&many)), Err(FilterError::TooMany));
}
