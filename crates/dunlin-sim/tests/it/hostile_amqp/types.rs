//! Bytes that are no values, or too many of them.

use dunlin_amqp::codec::{
    Described, Descriptor, Map, Open, Performative, Source, Symbol, Value, condition,
};
use dunlin_base::StreamId;
use dunlin_sim::frames::{HEADER, RawAmqp, frame, frame_of};

use super::{Scene, begin, first, from, message, receiver, sender, setup};

/// Levels of a value that nothing should have, as many as fit into a frame.
const LEVELS: usize = 6000;

/// Lists in lists.
fn nested() -> Vec<u8> {
    let mut bytes = Vec::new();
    for level in (0..LEVELS).rev() {
        // What is in a list: its count, and the constructor of one with all in it.
        let len = (level * 9 + 5) as u32;
        bytes.push(0xd0);
        bytes.extend_from_slice(&len.to_be_bytes());
        bytes.extend_from_slice(&1_u32.to_be_bytes());
    }
    bytes.push(0x40);
    bytes
}

#[test]
fn truncated_types_close_the_connection() {
    let mut scene = Scene::new(setup(2));
    let whole = frame(0, &sender("cut", 1, "some/topic"), b"");
    let body = &whole[8..];
    for cut in 1..body.len() {
        let mut wire = scene.begun();
        wire.send(&mut scene.world, &frame_of(0, &body[..cut]));
        scene.run(&mut [&mut wire]);
        let expected = format!("close {}", condition::DECODE_ERROR.as_str());
        assert_eq!(wire.said("close"), [expected], "{cut} bytes");
        scene.cut(&wire);
    }
    scene.check_served("truncated");
    scene.check_empty("truncated");
}

#[test]
fn a_conversation_cut_anywhere_leaves_nothing() {
    let mut bytes = HEADER.to_vec();
    bytes.extend(frame(0, &Performative::Open(Open::default()), b""));
    bytes.extend(frame(0, &Performative::Begin(begin()), b""));
    bytes.extend(frame(0, &sender("s", 0, "some/topic"), b""));
    bytes.extend(frame(0, &receiver("r", 1, from("some/#")), b""));
    let transfer = Performative::Transfer(first(0, b"t"));
    bytes.extend(frame(0, &transfer, &message(false, b"payload")));
    for shards in [1, 2] {
        let mut scene = Scene::new(setup(shards));
        for cut in 0..bytes.len() {
            let wire = RawAmqp::new(scene.world.open(), StreamId::CONTROL);
            wire.send(&mut scene.world, &bytes[..cut]);
            if cut % 2 == 0 {
                scene.run(&mut []);
            }
            scene.cut(&wire);
        }
        scene.check_served("cut");
        scene.check_empty("cut");
    }
}

#[test]
fn sizes_larger_than_their_frame_close_the_connection() {
    let mut scene = Scene::new(setup(2));
    // attach, whose list says that it has more than there is.
    let attach = |rest: &[u8]| [&[0x00, 0x53, 0x12], rest].concat();
    let list = [0xd0, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 1, 0x40];
    let fields = [0xd0, 0, 0, 0, 5, 0xff, 0xff, 0xff, 0xff, 0x40];
    let text = [0xd0, 0, 0, 0, 9, 0, 0, 0, 1, 0xb1, 0xff, 0xff, 0xff, 0xff];
    // desired-capabilities of open: an array of 2^31 elements without bytes.
    let array = [0xf0, 0, 0, 0, 5, 0x80, 0, 0, 0, 0x45];
    let mut begin = vec![0x00, 0x53, 0x11, 0xd0, 0, 0, 0, 30, 0, 0, 0, 7];
    begin.extend_from_slice(&[0x40, 0x43, 0x43, 0x43, 0x40, 0x40]);
    begin.extend_from_slice(&array);
    begin.extend_from_slice(&[0; 10]);
    let decode = condition::DECODE_ERROR.as_str();
    for (channel, body, expected) in [
        (0, attach(&list), decode),
        // The first field, which is the name, is null.
        (0, attach(&fields), condition::INVALID_FIELD.as_str()),
        (0, attach(&text), decode),
        (1, begin, condition::RESOURCE_LIMIT_EXCEEDED.as_str()),
    ] {
        let mut wire = scene.begun();
        wire.send(&mut scene.world, &frame_of(channel, &body));
        scene.run(&mut [&mut wire]);
        assert_eq!(
            wire.said("close"),
            [format!("close {expected}")],
            "{body:x?}"
        );
        scene.cut(&wire);
    }
    // A frame that is larger than any may be, of which nothing more comes.
    let mut wire = scene.begun();
    wire.send(&mut scene.world, &[0xff, 0xff, 0xff, 0xff]);
    scene.run(&mut [&mut wire]);
    let expected = format!("close {}", condition::FRAMING_ERROR.as_str());
    assert_eq!(wire.said("close"), [expected]);
    scene.cut(&wire);
    scene.check_served("oversized");
    scene.check_empty("oversized");
}

#[test]
fn endlessly_nested_types_close_the_connection() {
    let mut scene = Scene::new(setup(2));
    let mut body = vec![0x00, 0x53, 0x12];
    body.extend_from_slice(&nested());
    let mut wire = scene.begun();
    wire.send(&mut scene.world, &frame_of(0, &body));
    scene.run(&mut [&mut wire]);
    // The name of a link is no list.
    let refused = wire.said("close");
    let expected = format!("close {}", condition::DECODE_ERROR.as_str());
    assert_eq!(refused, [expected]);
    scene.cut(&wire);
    // As properties of a link, where any value may stand.
    let mut fields = vec![0xa1, 1, b'n', 0x43, 0x42];
    fields.extend_from_slice(&[0x40; 10]);
    let mut map = vec![0xd1];
    let value = nested();
    map.extend_from_slice(&(value.len() as u32 + 7).to_be_bytes());
    map.extend_from_slice(&[0, 0, 0, 2, 0xa3, 1, b'k']);
    map.extend_from_slice(&value);
    fields.extend_from_slice(&map);
    let mut body = vec![0x00, 0x53, 0x12, 0xd0];
    body.extend_from_slice(&(fields.len() as u32 + 4).to_be_bytes());
    body.extend_from_slice(&14_u32.to_be_bytes());
    body.extend_from_slice(&fields);
    let mut wire = scene.begun();
    wire.send(&mut scene.world, &frame_of(0, &body));
    scene.run(&mut [&mut wire]);
    let expected = format!("close {}", condition::RESOURCE_LIMIT_EXCEEDED.as_str());
    assert_eq!(wire.said("close"), [expected]);
    scene.cut(&wire);
    scene.check_served("nested");
    scene.check_empty("nested");
}

#[test]
fn endlessly_nested_messages_are_rejected() {
    let mut scene = Scene::new(setup(2));
    let mut wire = scene.sending("some/topic");
    let mut payload = vec![0x00, 0x53, 0x77];
    payload.extend_from_slice(&nested());
    scene.transfer(&wire, first(0, b"t"), &payload);
    scene.transfer(&wire, first(1, b"u"), &message(false, b"fine"));
    scene.run(&mut [&mut wire]);
    let rejected = "disposition 0-0 rejected amqp:decode-error settled";
    let accepted = "disposition 1-1 accepted settled";
    assert_eq!(wire.said("disposition"), [rejected, accepted]);
    scene.cut(&wire);
    scene.check_served("nested");
}

#[test]
fn poison_messages_are_rejected_and_others_go_on() {
    let mut scene = Scene::new(setup(2));
    let mut wire = scene.sending("witness/topic");
    let twice = [&message(true, b"")[..], &message(true, b"")[..]].concat();
    let poison: [&[u8]; 6] = [
        b"\xff",
        // Half a header, and half a data section.
        &[0x00, 0x53, 0x70, 0xc0, 20],
        &[0x00, 0x53, 0x75, 0xb0, 0xff, 0xff, 0xff, 0xff],
        // Sections out of order.
        &twice,
        // Properties that are a string, and ttl that is a list.
        &[0x00, 0x53, 0x73, 0xa1, 1, b'x', 0x00, 0x53, 0x75, 0xa0, 0],
        &[0x00, 0x53, 0x70, 0xc0, 4, 3, 0x40, 0x40, 0x45],
    ];
    for (id, payload) in (0..).zip(poison) {
        scene.transfer(&wire, first(id, &[id as u8]), payload);
        scene.run(&mut [&mut wire]);
        let expected = format!("disposition {id}-{id} rejected amqp:decode-error settled");
        assert_eq!(wire.said("disposition"), [expected], "{payload:x?}");
    }
    scene.check_served("poison");
    scene.cut(&wire);
    scene.check_empty("poison");
}

#[test]
fn a_selector_of_100_kb_fits_no_frame_and_a_long_one_no_link() {
    let mut scene = Scene::new(setup(2));
    let name = Symbol::from_static("apache.org:selector-filter:string");
    let attach = |bytes: usize| {
        let selector = "a=1 OR ".repeat(bytes / 7) + "TRUE";
        let selector = Value::String(&selector);
        let it = Described::new(Descriptor::Symbol(name), &selector);
        let bytes = Value::Described(it).to_vec().expect("it can be said");
        let entries = [(
            Value::Symbol(name),
            Value::decode(&bytes).expect("just written"),
        )];
        let source = Source {
            filter: Some(Map::new(&entries)),
            ..from("t/#")
        };
        frame(0, &receiver("selecting", 0, source), b"")
    };
    let mut wire = scene.begun();
    let long = attach(100 * 1024);
    wire.send(&mut scene.world, &long);
    scene.run(&mut [&mut wire]);
    let expected = format!("close {}", condition::FRAMING_ERROR.as_str());
    assert_eq!(wire.said("close"), [expected]);
    scene.cut(&wire);
    let mut wire = scene.begun();
    wire.send(&mut scene.world, &attach(60_000));
    scene.run(&mut [&mut wire]);
    let expected = format!("detach {}", condition::INVALID_FIELD.as_str());
    assert_eq!(wire.said("detach"), [expected]);
    scene.cut(&wire);
    scene.check_served("selector");
    scene.check_empty("selector");
}
