//! Any bytes as a message of AMQP: mapped to the neutral message and back they
//! are the same, also after MQTT has carried it.

use bytes::Bytes;
use dunlin_amqp::codec;
use dunlin_amqp::message::{Attempt, from_amqp, to_amqp, to_mqtt};
use dunlin_base::{Instant, Message, Text};

/// When all happens.
const NOW: Instant = Instant::from_micros(1_800_000_000_000_000);

/// One input.
pub(crate) fn run(data: &[u8]) {
    let bytes = Bytes::copy_from_slice(data);
    let Ok(message) = from_amqp(&bytes, Text::from("a/b"), NOW) else {
        return;
    };
    let lasting = |bytes: &[u8]| {
        let scanned = codec::Message::scan(bytes).expect("valid");
        bytes.get(scanned.lasting_range()).map(<[u8]>::to_vec)
    };
    let want = lasting(data);
    let over_mqtt = Message {
        extra: None,
        ..to_mqtt(&message).expect("what was valid")
    };
    for message in [message, over_mqtt] {
        let mut out = Vec::new();
        to_amqp(&message, NOW, Attempt::default(), &mut out).expect("room");
        assert_eq!(lasting(&out), want, "{message:?}");
    }
}
