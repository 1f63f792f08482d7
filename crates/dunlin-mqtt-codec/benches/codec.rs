//! Cost of the packets that travel most: `cargo bench -p dunlin-mqtt-codec`.

use core::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use dunlin_mqtt_codec::*;

const TOPIC: &str = "factory/7/line/3/robot/12/temperature";

fn publish(qos: QoS) -> Publish<'static> {
    Publish {
        qos,
        topic: TOPIC,
        packet_id: PacketId::new(7).filter(|_| qos != QoS::AtMostOnce),
        payload: &[b'x'; 64],
        ..Publish::default()
    }
}

fn packets() -> [(&'static str, Version, Packet<'static>); 6] {
    let properties = PublishProperties {
        message_expiry_interval: Some(60),
        content_type: Some("application/json"),
        response_topic: Some("reply/to/me"),
        user_properties: UserProperties::new(&[("trace", "0123456789abcdef"), ("unit", "K")]),
        ..PublishProperties::default()
    };
    let full = Publish {
        properties,
        ..publish(QoS::AtLeastOnce)
    };
    let connect = Connect {
        clean_start: true,
        keep_alive: 60,
        client_id: "robot-12",
        username: Some("robot"),
        password: Some(b"secret"),
        ..Connect::default()
    };
    [
        (
            "publish0",
            Version::V311,
            Packet::Publish(publish(QoS::AtMostOnce)),
        ),
        (
            "publish0",
            Version::V5,
            Packet::Publish(publish(QoS::AtMostOnce)),
        ),
        (
            "publish1",
            Version::V5,
            Packet::Publish(publish(QoS::AtLeastOnce)),
        ),
        ("publish1_properties", Version::V5, Packet::Publish(full)),
        (
            "puback",
            Version::V5,
            Packet::PubAck(Ack::new(PacketId::MIN, ReasonCode::Success)),
        ),
        ("connect", Version::V5, Packet::Connect(connect)),
    ]
}

fn both_ways(c: &mut Criterion) {
    let packets = packets();
    for (name, version, packet) in &packets {
        let mut bytes = Vec::new();
        packet.encode(*version, &mut bytes).expect("valid");
        let id = format!("{name}/{version:?}");
        let mut group = c.benchmark_group("codec");
        group.throughput(Throughput::Elements(1));
        group.bench_function(BenchmarkId::new("decode", &id), |b| {
            b.iter(|| decode(black_box(&bytes), *version).is_ok());
        });
        let mut out = Vec::with_capacity(bytes.len());
        group.bench_function(BenchmarkId::new("encode", &id), |b| {
            b.iter(|| {
                out.clear();
                black_box(packet).encode(*version, &mut out).is_ok()
            });
        });
        group.finish();
    }
}

/// One more receiver of a message whose header is encoded already.
fn fan_out(c: &mut Criterion) {
    let publish = publish(QoS::AtLeastOnce);
    let mut header = Vec::new();
    let layout = publish
        .encode_header(Version::V5, publish.payload.len(), &mut header)
        .expect("valid");
    let at = layout.packet_id_offset.expect("QoS 1");
    let mut out = Vec::with_capacity(256);
    c.bench_function("codec/fan_out/patched header", |b| {
        b.iter(|| {
            out.clear();
            out.extend_from_slice(black_box(&header));
            out[at..at + 2].copy_from_slice(&black_box(9u16).to_be_bytes());
            out.extend_from_slice(black_box(publish.payload));
        });
    });
}

criterion_group!(benches, both_ways, fan_out);
criterion_main!(benches);
