//! Cost of the frames and messages that travel most: `cargo bench -p
//! dunlin-amqp-codec`.

use core::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use dunlin_amqp_codec::*;

fn transfer() -> Transfer<'static> {
    Transfer {
        handle: 3,
        delivery_id: Some(SerialNumber(100_000)),
        delivery_tag: Some(&[0, 0, 0, 1]),
        message_format: Some(0),
        settled: Some(false),
        ..Transfer::default()
    }
}

fn performatives(c: &mut Criterion) {
    let disposition = Disposition {
        role: Role::Receiver,
        first: SerialNumber(100_000),
        last: Some(SerialNumber(100_007)),
        settled: true,
        state: Some(DeliveryState::ACCEPTED),
        batchable: false,
    };
    let flow = Flow {
        next_incoming_id: Some(SerialNumber(100_000)),
        incoming_window: 2048,
        outgoing_window: 2048,
        handle: Some(3),
        delivery_count: Some(SerialNumber(1000)),
        link_credit: Some(100),
        ..Flow::default()
    };
    for (name, performative) in [
        ("transfer", Performative::Transfer(transfer())),
        ("disposition", disposition.into()),
        ("flow", flow.into()),
    ] {
        let mut out = Vec::with_capacity(64);
        performative.encode(&mut out).expect("valid");
        let bytes = out.clone();
        c.bench_function(&format!("amqp/decode/{name}"), |b| {
            b.iter(|| Performative::decode(black_box(&bytes)).is_ok());
        });
        c.bench_function(&format!("amqp/encode/{name}"), |b| {
            b.iter(|| {
                out.clear();
                frame::encode(1, black_box(&performative), &mut out).is_ok()
            });
        });
    }
}

fn messages(c: &mut Criterion) {
    let properties = [(Value::String("trace"), Value::String("0123456789abcdef"))];
    let header = Header {
        durable: true,
        ..Header::default()
    };
    let mut message = Vec::new();
    encode_annotated(Some(&header), None, None, &mut message).expect("valid");
    Properties {
        to: Some("queue"),
        ..Properties::default()
    }
    .encode(&mut message)
    .expect("valid");
    Section::ApplicationProperties
        .encode(&Value::Map(Map::new(&properties)), &mut message)
        .expect("valid");
    Section::encode_data_start(1024, &mut message).expect("valid");
    message.extend_from_slice(&[b'x'; 1024]);
    c.bench_function("amqp/message/scan", |b| {
        b.iter(|| Message::scan(black_box(&message)).is_ok());
    });
    c.bench_function("amqp/message/scan and header", |b| {
        b.iter(|| {
            Message::scan(black_box(&message))
                .and_then(|it| it.header())
                .is_ok()
        });
    });
    let transfer = transfer();
    let mut out = Vec::with_capacity(2048);
    c.bench_function("amqp/encode/transfer and 1 KB", |b| {
        b.iter(|| {
            out.clear();
            let done = frame::encode_transfer(1, black_box(&transfer), message.len(), &mut out);
            out.extend_from_slice(&message);
            done.is_ok()
        });
    });
}

criterion_group!(benches, performatives, messages);
criterion_main!(benches);
