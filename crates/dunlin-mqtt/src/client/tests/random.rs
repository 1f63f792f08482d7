//! The engine against a model of a server, with random operations and random
//! breaks of the connection: what is promised holds in any order.

use alloc::collections::{BTreeMap, VecDeque};

use dunlin_mqtt_codec::{Ack, decode_from_client, peek};

use super::*;

/// A small generator; the seed is the test's name for a failure.
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }
}

/// A message of the server on its way to the client.
#[derive(Clone, Copy)]
struct Outgoing {
    n: u32,
    qos: u8,
    released: bool,
}

/// Both sides, and what each has seen.
struct Pair {
    rig: Rig,
    random: Random,
    to_client: VecDeque<Vec<u8>>,
    /// Messages of the client without their last acknowledgement.
    kept: BTreeMap<PacketId, (u32, u8)>,
    published: u32,
    /// How often the server has received each message of QoS 1 and 2.
    received: BTreeMap<(u32, u8), u32>,
    /// QoS 2 identifiers for which the server waits for PUBREL.
    recorded: Vec<PacketId>,
    outgoing: BTreeMap<PacketId, Outgoing>,
    sent: u32,
    next_id: u16,
    quota: u16,
    /// How often the application has got each message.
    delivered: BTreeMap<(u32, u8), u32>,
}

impl Pair {
    fn new(seed: u64) -> Self {
        Self {
            rig: Rig::connected(),
            random: Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1),
            to_client: VecDeque::new(),
            kept: BTreeMap::new(),
            published: 0,
            received: BTreeMap::new(),
            recorded: Vec::new(),
            outgoing: BTreeMap::new(),
            sent: 0,
            next_id: 1,
            quota: 4,
            delivered: BTreeMap::new(),
        }
    }

    fn step(&mut self, breaks: bool) {
        match self.random.below(if breaks { 40 } else { 39 }) {
            0..8 => self.client_publishes(),
            8..14 => self.server_publishes(),
            14..24 => self.server_reads(),
            24..34 => self.client_reads(),
            34..39 => self.application_takes(),
            _ => self.breaks(),
        }
    }

    fn client_publishes(&mut self) {
        let qos = 1 + self.random.below(2) as u8;
        let topic = alloc::format!("c/{}", self.published);
        if let Ok(Some(id)) = self.rig.publish(&topic, qos) {
            self.kept.insert(id, (self.published, qos));
            self.published += 1;
        }
    }

    fn server_publishes(&mut self) {
        let id = PacketId::new(self.next_id).expect("not zero");
        if self.quota == 0 || self.outgoing.len() >= 4 || self.outgoing.contains_key(&id) {
            return;
        }
        self.next_id = self.next_id % 6 + 1;
        let qos = 1 + self.random.below(2) as u8;
        let message = Outgoing {
            n: self.sent,
            qos,
            released: false,
        };
        self.sent += 1;
        self.outgoing.insert(id, message);
        self.send_publish(id, message, false);
    }

    fn send_publish(&mut self, id: PacketId, outgoing: Outgoing, dup: bool) {
        self.quota -= 1;
        let topic = alloc::format!("s/{}", outgoing.n);
        let mut publish = message(&topic, outgoing.qos);
        (publish.packet_id, publish.dup) = (Some(id), dup);
        self.send(&Packet::Publish(publish));
    }

    fn send(&mut self, packet: &Packet<'_>) {
        let mut bytes = Vec::new();
        packet.encode(Version::V5, &mut bytes).expect("encoded");
        self.to_client.push_back(bytes);
    }

    /// The server takes everything that the client has written.
    fn server_reads(&mut self) {
        let rig = &mut self.rig;
        while rig.engine.poll_output(rig.now, &mut rig.out).expect("room") {}
        let bytes = core::mem::take(&mut rig.out);
        let mut rest = bytes.as_slice();
        while let Some(frame) = peek(rest, u32::MAX).expect("well-formed") {
            let (packet, tail) = rest.split_at(frame.total_len);
            let packet = decode_from_client(packet, Version::V5).expect("well-formed");
            self.server_takes(packet);
            rest = tail;
        }
    }

    fn server_takes(&mut self, packet: Packet<'_>) {
        let answer = |id| Ack::new(id, ReasonCode::Success);
        match packet {
            Packet::Publish(publish) => {
                let id = publish.packet_id.expect("QoS 1 or 2");
                let n = publish.topic.trim_start_matches("c/").parse();
                let key = (n.expect("a number"), publish.qos as u8);
                if publish.qos == QoS::AtLeastOnce {
                    *self.received.entry(key).or_default() += 1;
                    return self.send(&Packet::PubAck(answer(id)));
                }
                if !self.recorded.contains(&id) {
                    self.recorded.push(id);
                    *self.received.entry(key).or_default() += 1;
                }
                self.send(&Packet::PubRec(answer(id)));
            }
            Packet::PubRel(ack) => {
                self.recorded.retain(|id| *id != ack.packet_id);
                self.send(&Packet::PubComp(answer(ack.packet_id)));
            }
            Packet::PubAck(ack) | Packet::PubComp(ack) => {
                self.outgoing.remove(&ack.packet_id);
                self.quota = (self.quota + 1).min(4);
            }
            Packet::PubRec(ack) => {
                if let Some(message) = self.outgoing.get_mut(&ack.packet_id) {
                    message.released = true;
                    self.send(&Packet::PubRel(answer(ack.packet_id)));
                }
            }
            other => unreachable!("{other:?}"),
        }
    }

    fn client_reads(&mut self) {
        let Some(bytes) = self.to_client.pop_front() else {
            return;
        };
        let rig = &mut self.rig;
        let event = rig.engine.handle_bytes(rig.now, &bytes);
        match event.expect("a lawful server").expect("whole").1 {
            Event::Message(publish, Some(receipt)) => {
                let n = publish.topic.trim_start_matches("s/").parse();
                let key = (n.expect("a number"), publish.qos as u8);
                *self.delivered.entry(key).or_default() += 1;
                rig.receipts.push(receipt);
            }
            Event::Published(ack) => {
                self.kept.remove(&ack.packet_id).expect("kept until now");
            }
            Event::Nothing | Event::Recorded(_) => {}
            other => unreachable!("{other:?}"),
        }
        while rig.engine.poll_output(rig.now, &mut rig.out).expect("room") {}
        self.send_again();
    }

    fn send_again(&mut self) {
        while let Some(resume) = self.rig.engine.poll_resume() {
            let Resume::Publish(id) = resume else {
                unreachable!("the session is never lost: {resume:?}");
            };
            let (n, qos) = self.kept[&id];
            let topic = alloc::format!("c/{n}");
            let rig = &mut self.rig;
            rig.engine
                .resend(rig.now, id, &message(&topic, qos), &mut rig.out)
                .expect("sent again");
        }
    }

    fn application_takes(&mut self) {
        let count = self.rig.receipts.len() as u64;
        if count > 0 {
            let at = self.random.below(count) as usize;
            let receipt = self.rig.receipts.swap_remove(at);
            // One of an earlier connection may have lapsed.
            self.rig.engine.acknowledge(receipt, ReasonCode::Success);
        }
    }

    /// What is on its way is lost; the server repeats in order.
    fn breaks(&mut self) {
        self.to_client.clear();
        let receipts = core::mem::take(&mut self.rig.receipts);
        self.rig.reconnect(true);
        self.rig.receipts = receipts;
        self.quota = 4;
        let mut outgoing: Vec<_> = self.outgoing.iter().map(|(id, m)| (*id, *m)).collect();
        outgoing.sort_by_key(|(_, message)| message.n);
        for (id, message) in outgoing {
            match message.released {
                true => self.send(&Packet::PubRel(Ack::new(id, ReasonCode::Success))),
                false => self.send_publish(id, message, true),
            }
        }
        self.send_again();
    }

    /// Without further messages and breaks, everything comes to its end.
    fn settle(&mut self) {
        for _ in 0..1000 {
            self.server_reads();
            self.client_reads();
            self.application_takes();
        }
    }
}

#[test]
fn promises_hold_in_any_order() {
    //= mqtt5#[MQTT-4.3.3-10] type=test
    //= mqtt5#[MQTT-4.4.0-1] type=test
    for seed in 1..=200 {
        let mut pair = Pair::new(seed);
        for _ in 0..1500 {
            pair.step(seed % 4 != 0);
        }
        pair.settle();
        assert!(pair.kept.is_empty(), "seed {seed}: {:?}", pair.kept);
        assert!(pair.outgoing.is_empty() && pair.recorded.is_empty());
        assert!(!pair.rig.engine.has_session_state(), "seed {seed}");
        assert_eq!(pair.received.len(), pair.published as usize, "seed {seed}");
        assert_eq!(pair.delivered.len(), pair.sent as usize, "seed {seed}");
        for ((n, qos), count) in pair.received.iter().chain(&pair.delivered) {
            assert!(
                *count == 1 || *qos == 1,
                "seed {seed}: {n} came {count} times"
            );
        }
        assert!(pair.published > 50 && pair.sent > 50, "seed {seed}");
    }
}
