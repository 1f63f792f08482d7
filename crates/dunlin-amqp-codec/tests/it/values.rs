//! Runs every case of `values.json`.

use dunlin_amqp_codec::{Array, Described, List, Map, Value};
use serde_json::Value as Json;

use crate::notation;

/// The cases of a file in `tests/data`.
pub(crate) fn cases(file: &str) -> Vec<Json> {
    let json: Json = serde_json::from_str(file).unwrap();
    json["cases"].as_array().unwrap().clone()
}

/// Bytes of all values.
pub(crate) fn all_bytes() -> Vec<Vec<u8>> {
    cases(include_str!("../data/values.json"))
        .iter()
        .map(|case| notation::bytes(case["bytes"].as_str().unwrap()))
        .collect()
}

/// The same value, built from slices instead of received bytes. Memory is not
/// given back, which tests need not.
pub(crate) fn built(value: Value<'static>) -> Value<'static> {
    match value {
        Value::List(list) => {
            Value::List(List::new(list.iter().map(built).collect::<Vec<_>>().leak()))
        }
        Value::Array(array) => Value::Array(Array::new(
            array.iter().map(built).collect::<Vec<_>>().leak(),
        )),
        Value::Map(map) => {
            let entries: Vec<_> = map.iter().map(|(k, v)| (built(k), built(v))).collect();
            Value::Map(Map::new(entries.leak()))
        }
        Value::Described(described) => {
            let value = Box::leak(Box::new(built(described.value())));
            Value::Described(Described::new(described.descriptor, value))
        }
        plain => plain,
    }
}

/// Arrays whose elements have a descriptor each only come from a peer.
fn can_be_built(value: &Value<'_>) -> bool {
    match value {
        Value::Array(array) => array.iter().all(|element| match element {
            Value::Described(described) => !matches!(described.value(), Value::Described(_)),
            _ => true,
        }),
        _ => true,
    }
}

#[test]
fn every_case() {
    for case in cases(include_str!("../data/values.json")) {
        let name = case["name"].as_str().unwrap();
        let bytes: &'static [u8] = notation::bytes(case["bytes"].as_str().unwrap()).leak();
        let value = Value::decode(bytes).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(format!("{value:?}"), case["value"], "{name}");

        let is_canonical = case.get("canonical") != Some(&Json::Bool(false));
        let again = value.to_vec().unwrap();
        assert_eq!(again.len(), value.encoded_len(), "{name}");
        if is_canonical {
            assert_eq!(again, bytes, "{name}");
        }
        if !can_be_built(&value) {
            continue;
        }
        let built = built(value);
        assert_eq!(built, value, "{name}");
        let written = built.to_vec().unwrap();
        assert_eq!(written.len(), built.encoded_len(), "{name}");
        if is_canonical {
            assert_eq!(written, bytes, "{name}");
        }
        assert_eq!(Value::decode(&written), Ok(value), "{name}");
    }
}

#[test]
fn long_ones_have_lengths_of_four_bytes() {
    let text = "x".repeat(256);
    let list = [Value::Null; 256];
    for (value, len) in [
        (Value::String(&text), 5 + 256),
        (Value::String(&text[..255]), 2 + 255),
        (Value::Binary(text.as_bytes()), 5 + 256),
        (Value::List(List::new(&list)), 9 + 256),
        (Value::List(List::new(&list[..255])), 9 + 255),
        (Value::List(List::new(&list[..254])), 3 + 254),
    ] {
        let bytes = value.to_vec().unwrap();
        assert_eq!(bytes.len(), len);
        assert_eq!(Value::decode(&bytes), Ok(value));
    }
}

#[test]
fn an_array_has_one_type() {
    for values in [
        &[Value::Uint(1), Value::Ulong(1)][..],
        &[Value::Null, Value::Bool(true)],
        &[
            Value::Described(Described::new(
                dunlin_amqp_codec::Descriptor::Code(1),
                &Value::Null,
            )),
            Value::Null,
        ],
    ] {
        let array = Value::Array(Array::new(values));
        assert!(array.to_vec().is_err(), "{array:?}");
    }
}

#[test]
fn a_map_is_searched_by_symbol_and_string() {
    let entries = [
        (
            Value::Symbol(dunlin_amqp_codec::condition::NOT_FOUND),
            Value::Uint(1),
        ),
        (Value::String("b"), Value::Uint(2)),
        (Value::String("b"), Value::Uint(3)),
    ];
    let map = Map::new(&entries);
    assert_eq!(map.get("amqp:not-found"), Some(Value::Uint(1)));
    assert_eq!(map.get("b"), Some(Value::Uint(2)));
    assert_eq!(map.get("c"), None);
}
