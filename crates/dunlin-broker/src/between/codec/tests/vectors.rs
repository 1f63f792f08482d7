//! Batches of version 1, one with each kind, call, event and command, as `version-1.txt`
//! has them: a line that says what is in a batch, then its bytes.

use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use dunlin_base::transport::{NetCommandKind, NetEventKind};

use super::any::Gen;
use super::{batch, one};
use crate::between::codec::HEAD_BYTES;
use crate::between::codec::wire::Wire;
use crate::io::BusMessage;
use crate::queues::calls::Call;

const VECTORS: &str = include_str!("version-1.txt");

/// Where the kind of the first message is.
const KIND_AT: usize = HEAD_BYTES + 8;

/// Of a new line.
const BYTES_MAX: usize = 400;

const NET: u8 = 2;
const COMMAND: u8 = 3;
const QUEUE: u8 = 17;

/// The kind of a batch's only message, and which call, event or command it is.
fn variant(bytes: &[u8]) -> Vec<u8> {
    let kind = bytes[KIND_AT];
    let at = match kind {
        NET | COMMAND => Some(KIND_AT + 9),
        QUEUE => Some(KIND_AT + 1),
        _ => None,
    };
    let mut variant = alloc::vec![kind];
    variant.extend(at.map(|at| bytes[at]));
    variant
}

/// All that there are.
fn variants() -> BTreeSet<Vec<u8>> {
    let of = |kind| match kind {
        NET => NetEventKind::<bytes::Bytes>::NUMBERS,
        COMMAND => NetCommandKind::NUMBERS,
        QUEUE => Call::NUMBERS,
        _ => &[],
    };
    let all = BusMessage::NUMBERS.iter().flat_map(|kind| match of(*kind) {
        [] => alloc::vec![alloc::vec![*kind]],
        more => more.iter().map(|it| alloc::vec![*kind, *it]).collect(),
    });
    all.collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Vec<u8> {
    let byte = |at| u8::from_str_radix(&text[at..at + 2], 16).expect("two digits");
    (0..text.len()).step_by(2).map(byte).collect()
}

#[test]
#[cfg_attr(not(feature = "amqp"), ignore = "filters of links are read by AMQP")]
fn version_1_is_what_it_was() {
    let lines: Vec<&str> = VECTORS.lines().collect();
    let mut missing = variants();
    for pair in lines.chunks(2) {
        let [says, bytes] = *pair else {
            panic!("a line without its bytes");
        };
        let bytes = unhex(bytes);
        let message = one(&bytes);
        assert_eq!(format!("{message:?}"), says);
        assert_eq!(hex(&batch(&message)), hex(&bytes), "{says}");
        missing.remove(&variant(&bytes));
    }
    // Lines for those that are new.
    let new = missing.iter().map(|variant| {
        let any = |seed| Gen::small(seed, variant).any::<BusMessage>();
        let short = (0..40).map(any).filter(|it| batch(it).len() <= BYTES_MAX);
        let richest = short.max_by_key(|it| batch(it).len()).expect("a short one");
        format!("{richest:?}\n{}\n", hex(&batch(&richest)))
    });
    let new: String = new.collect();
    assert!(new.is_empty(), "to be added to version-1.txt:\n{new}");
}
