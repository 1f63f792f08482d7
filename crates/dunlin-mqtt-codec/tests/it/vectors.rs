//! Runs every case of `tests/data`.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use dunlin_mqtt_codec::{
    DecodeError, Packet, PacketType, Version, decode, decode_from_client, decode_from_server,
    decode_publish,
};
use serde_json::Value;

use crate::{model, notation};

/// One case with the version it runs in.
pub(crate) struct Case {
    pub(crate) name: String,
    pub(crate) version: Version,
    pub(crate) bytes: Vec<u8>,
    json: Value,
}

impl Case {
    fn text(&self, field: &str) -> Option<&str> {
        self.json.get(field).map(|v| v.as_str().expect("a string"))
    }

    /// The packet that the bytes stand for, if they are valid.
    pub(crate) fn packet(&self) -> Option<Packet<'_>> {
        self.json.get("packet").map(model::packet)
    }

    fn check_valid(&self, packet: &Packet<'_>) {
        let decoded = decode(&self.bytes, self.version);
        assert_eq!(decoded.as_ref(), Ok(packet), "{}", self.name);
        if self.json.get("canonical") == Some(&Value::Bool(false)) {
            return;
        }
        for source in [packet, &decoded.unwrap()] {
            let mut encoded = Vec::new();
            source.encode(self.version, &mut encoded).expect(&self.name);
            assert_eq!(encoded, self.bytes, "{}", self.name);
            let len = source.encoded_len(self.version);
            assert_eq!(len, Ok(encoded.len()), "{}", self.name);
        }
    }

    fn check_invalid(&self, want: &str) -> String {
        let error = decode(&self.bytes, self.version).expect_err(&self.name);
        assert_eq!(format!("{error:?}"), want, "{}", self.name);
        let code = format!("{:#04x}", error.reason().to_u8());
        assert_eq!(self.text("reason"), Some(code.as_str()), "{}", self.name);
        variant(&error)
    }
}

/// Name of the variant, without what it carries.
fn variant(error: &DecodeError) -> String {
    let text = format!("{error:?}");
    text.split('(').next().unwrap_or_default().to_owned()
}

/// Every case of every file, once for each version that it holds for.
pub(crate) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for path in files() {
        let text = fs::read_to_string(&path).expect("readable");
        let json: Value = serde_json::from_str(&text)
            .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        for case in json["cases"].as_array().into_iter().flatten() {
            let versions = match case.get("version").map(|v| v.as_u64()) {
                None => vec![Version::V311, Version::V5],
                Some(Some(4)) => vec![Version::V311],
                Some(Some(5)) => vec![Version::V5],
                other => panic!("{}: version {other:?}", path.display()),
            };
            for version in versions {
                let file = path.file_stem().unwrap().to_str().unwrap();
                let name = case["name"].as_str().expect("a case has a name");
                cases.push(Case {
                    name: format!("{file}: {name} ({version:?})"),
                    version,
                    bytes: notation::bytes(case["bytes"].as_str().expect("bytes")),
                    json: case.clone(),
                });
            }
        }
    }
    cases
}

fn files() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data");
    let entries = fs::read_dir(folder).expect("tests/data is there");
    let mut files: Vec<_> = entries
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|ext| ext == "json"))
        .collect();
    files.sort();
    files
}

#[test]
fn every_case() {
    let mut names = BTreeSet::new();
    for case in cases() {
        assert!(names.insert(case.name.clone()), "{} twice", case.name);
        match (case.packet(), case.text("error")) {
            (Some(packet), None) => case.check_valid(&packet),
            (None, Some(want)) => drop(case.check_invalid(want)),
            _ => panic!("{}: either a packet or an error", case.name),
        }
    }
}

/// Variants that are not faults of bytes alone, tested elsewhere.
const NOT_FROM_BYTES: [&str; 3] = ["PacketTooLarge", "PayloadFormat", "UnexpectedPacket"];

#[test]
fn every_error_has_a_case() {
    let seen: BTreeSet<String> = cases()
        .iter()
        .filter_map(|case| decode(&case.bytes, case.version).err())
        .map(|error| variant(&error))
        .collect();
    // The enum is `#[non_exhaustive]`, so its source is the only list.
    let source = include_str!("../../src/error.rs");
    let (_, body) = source.split_once("pub enum DecodeError {").unwrap();
    let (body, _) = body.split_once("\n}").unwrap();
    for line in body.lines().map(str::trim) {
        if line.starts_with(|c: char| c.is_ascii_uppercase()) {
            let name = line.split(['(', ',']).next().unwrap();
            let elsewhere = NOT_FROM_BYTES.contains(&name);
            assert_ne!(seen.contains(name), elsewhere, "cases for {name}");
        }
    }
}

/// Each side takes exactly the packets of the other (section 2.1.2), and the
/// same from them as [`decode`] does.
#[test]
fn each_side_takes_what_the_other_sends() {
    use PacketType::*;
    for case in cases() {
        let Some(packet) = case.packet() else {
            continue;
        };
        let by_client = !matches!(packet.packet_type(), ConnAck | SubAck | UnsubAck | PingResp);
        let by_server = !matches!(
            packet.packet_type(),
            Connect | Subscribe | Unsubscribe | PingReq
        );
        for (taken, result) in [
            (by_client, decode_from_client(&case.bytes, case.version)),
            (by_server, decode_from_server(&case.bytes, case.version)),
        ] {
            let want = match taken {
                true => Ok(packet.clone()),
                false => Err(DecodeError::UnexpectedPacket),
            };
            assert_eq!(result, want, "{}", case.name);
        }
    }
}

#[test]
fn a_publish_is_decoded_alike_alone() {
    let mut seen = 0;
    for case in cases() {
        let alone = decode_publish(&case.bytes, case.version);
        let is_publish = case.bytes.first().is_some_and(|first| first >> 4 == 3);
        assert_eq!(alone.is_some(), is_publish, "{}", case.name);
        if let Some(alone) = alone {
            let any = decode(&case.bytes, case.version);
            assert_eq!(alone.map(Packet::Publish), any, "{}", case.name);
            seen += 1;
        }
    }
    assert!(seen > 10, "{seen}");
}
