//! What messages of another node make a shard hold, beside their bytes.

use bytes::Bytes;
use dunlin_base::{Instant, Message, MessageProperties, ShardId, Text};
use dunlin_broker::bus::{Batch, begin, encode, limits};
use dunlin_broker::{BusMessage, Holder, Holding, InterestChange, Missed, Preparation};
use dunlin_store::{SessionKey, StoreOp};

use crate::memory;

const NOW: Instant = Instant::from_micros(1_000_000);

/// Elements of the longest lists.
const MANY: usize = 60_000;

/// Bytes that operations of the store may take for each byte of theirs; there are at most
/// `BATCH_OPS_MAX` in a message.
const OPS_FACTOR_MAX: usize = 64;

/// How many times its bytes a message takes once it is read.
fn factor(message: BusMessage) -> usize {
    let mut batch = Vec::new();
    begin(NOW, &mut batch);
    encode(ShardId(0), ShardId(1), &message, &mut batch).expect("within limits");
    drop(message);
    let batch = Bytes::from(batch);
    let before = memory::held();
    let read: Result<Vec<_>, _> = Batch::open(batch.clone(), NOW).expect("a batch").collect();
    let held = memory::held_since(before);
    assert_eq!(read.expect("readable").len(), 1);
    held / batch.len()
}

fn prepared(answer: Preparation) -> BusMessage {
    BusMessage::Prepared { token: 1, answer }
}

/// Of each list the elements that take the fewest bytes.
#[test]
fn messages_of_another_node_take_few_times_their_bytes() {
    let properties = MessageProperties {
        user_properties: vec![(Text::new(), Text::new()); MANY],
        ..MessageProperties::default()
    };
    let message = Message {
        properties: Some(Box::new(properties)),
        ..Message::default()
    };
    let missed = Missed {
        message: Message::default().into(),
        shares: vec![Text::new(); MANY],
    };
    let holders = vec![(Holder::User(Text::new()), Holding::default()); MANY];
    let (token, changes) = (1, vec![InterestChange::Add(Text::new()); MANY]);
    for (what, message) in [
        (
            "changes of interest",
            BusMessage::Interest { token, changes },
        ),
        ("tokens", BusMessage::Received(vec![0; MANY])),
        ("packets", BusMessage::Messages(vec![0; MANY])),
        ("holders", BusMessage::Holders(holders)),
        ("properties", {
            let message = message.into();
            BusMessage::Retained { message }
        }),
        ("groups", {
            let missed = Some(missed);
            prepared(Preparation {
                missed,
                ..Preparation::default()
            })
        }),
    ] {
        let factor = factor(message);
        assert!(factor <= limits::LIST_MEMORY_FACTOR_MAX, "{what}: {factor}");
    }
    let topic = Text::new();
    let key = SessionKey(1);
    for op in [
        StoreOp::DeleteRetained { topic },
        StoreOp::DeleteSession { key },
    ] {
        let ops = vec![op; MANY];
        let factor = factor(prepared(Preparation {
            ops,
            ..Preparation::default()
        }));
        assert!(factor <= OPS_FACTOR_MAX, "operations: {factor}");
    }
}
