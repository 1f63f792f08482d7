//! Runs every case of `errors.json`.

use std::collections::BTreeSet;

use dunlin_amqp_codec::limits::FRAME_BYTES_MIN;
use dunlin_amqp_codec::{DecodeError, Message, Performative, SaslFrame, Value, frame};

use crate::notation;
use crate::values::cases;

fn error(what: &str, bytes: &[u8]) -> Option<DecodeError> {
    match what {
        "value" => Value::decode(bytes).err(),
        "performative" => Performative::decode(bytes).err(),
        "sasl" => SaslFrame::decode(bytes).err(),
        "frame" => frame::split(bytes, FRAME_BYTES_MIN).err(),
        "message" => Message::scan(bytes).and_then(|it| it.check()).err(),
        other => panic!("{other}"),
    }
}

#[test]
fn every_case() {
    let mut wrong = Vec::new();
    let mut seen = BTreeSet::new();
    for case in cases(include_str!("../data/errors.json")) {
        let name = format!("{}: {}", case["what"], case["name"]);
        let bytes = notation::bytes(case["bytes"].as_str().unwrap());
        let error = error(case["what"].as_str().unwrap(), &bytes)
            .unwrap_or_else(|| panic!("{name}: accepted"));
        let found = (format!("{error:?}"), error.condition().as_str());
        let want = (
            case["error"].as_str().unwrap(),
            case["condition"].as_str().unwrap(),
        );
        if (found.0.as_str(), found.1) != want {
            wrong.push(format!("{name}: {found:?}, not {want:?}"));
        }
        seen.insert(format!("{error:?}").split('(').next().unwrap().to_owned());
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    // The enum is `#[non_exhaustive]`, so its source is the only list.
    let source = include_str!("../../src/error.rs");
    let (_, body) = source.split_once("pub enum DecodeError {").unwrap();
    let (body, _) = body.split_once("\n}").unwrap();
    for line in body.lines().map(str::trim) {
        if line.starts_with(|c: char| c.is_ascii_uppercase()) {
            let name = line.split(['(', ',']).next().unwrap();
            // A value by itself is never out of range; fields say which they are.
            assert!(
                name == "ValueOutOfRange" || seen.contains(name),
                "{name} has no case"
            );
        }
    }
}
