//! A session: subscriptions and flows as streams come and go, PUBLISH, and
//! acknowledgements.

use core::num::NonZeroU16;
use core::time::Duration;

use alloc::sync::Arc;
use dunlin_base::Message;
use dunlin_mqtt_codec::{ReasonProperties, RetainHandling, SubscribeOptions};

use super::*;
use crate::flow::{FLOWS_MAX, FlowFlags, FlowRefused, Wanted, stream_code};
use crate::server::{Content, Delivery, Identifiers, Outgoing};

const CONTROL: StreamId = StreamId::CONTROL;
const START: Instant = Instant::ZERO;
const MAX: u16 = 10;

fn on(stream: u64, flow: u64) -> Subscription {
    Subscription {
        options: SubscribeOptions::default(),
        identifier: None,
        stream: StreamId(stream),
        flow,
    }
}

/// A persistent session with these subscriptions.
fn session(subscriptions: &[(&'static str, u64, u64)]) -> Session {
    let mut session = Session::default();
    session.lifetime.handle_connected(100, None);
    for (filter, stream, flow) in subscriptions {
        let filter = Text::from_static(filter);
        session.subscriptions.insert(filter, on(*stream, *flow));
    }
    session
}

fn flow(id: u64, stream: u64, expire_secs: u64, flags: FlowFlags) -> Wanted {
    Wanted {
        id,
        stream: StreamId(stream),
        expire_secs,
        flags,
    }
}

fn open(session: &mut Session, wanted: &Wanted) -> Result<Option<StreamId>, FlowRefused> {
    session.open_flow(wanted, START, &mut Changes::default())
}

fn names(filters: &[Text]) -> Vec<&str> {
    filters.iter().map(Text::as_str).collect()
}

fn moved(changes: &Changes) -> Vec<(&str, u64)> {
    let moved = changes.moved.iter();
    moved.map(|(f, s)| (f.as_str(), s.stream.0)).collect()
}

#[test]
fn subscriptions_of_a_stream_that_ended_go_on_or_end_with_it() {
    for (durable, expiry, stay) in [(true, 9, true), (false, 9, false), (true, 0, false)] {
        let mut session = session(&[("a", 0, 0), ("b", 4, 0), ("c", 8, 0)]);
        session.lifetime.handle_connected(expiry, None);
        let changes = session.handle_stream_ended(StreamId(4), 0, true, durable, START);
        match stay {
            true => assert_eq!(moved(&changes), [("b", 0)]),
            false => assert_eq!(names(&changes.ended), ["b"]),
        }
        assert_eq!(session.subscriptions.contains("b"), stay);
        assert!(session.subscriptions.contains("c"));
    }
}

#[test]
fn a_new_connection_has_all_subscriptions_on_control() {
    let mut session = session(&[("a", 0, 0), ("b", 4, 0)]);
    let changes = session.handle_connected(START, MAX);
    assert_eq!(moved(&changes), [("b", 0)]);
    assert!(session.handle_connected(START, MAX).moved.is_empty());
}

#[test]
fn with_the_connection_streams_without_durable_subscriptions_are_lost() {
    let mut session = session(&[("a", 0, 0), ("b", 4, 0), ("f", 8, 2), ("g", 12, 4)]);
    let keeps = FlowFlags::PERSISTENT_SUBSCRIPTIONS;
    assert_eq!(open(&mut session, &flow(2, 8, 60, keeps)), Ok(None));
    assert_eq!(open(&mut session, &flow(4, 12, 60, FlowFlags(0))), Ok(None));
    assert_eq!(names(&session.handle_streams_lost(true, START)), ["g"]);
    assert_eq!(names(&session.handle_streams_lost(false, START)), ["b"]);
    assert!(session.subscriptions.contains("f"));
}

#[test]
fn a_flow_that_ends_in_order_is_over_and_a_lost_one_is_recovered_in_time() {
    let keeps = FlowFlags::PERSISTENT_SUBSCRIPTIONS.with(FlowFlags::ABORT_IF_NO_STATE);
    for (in_order, after_secs, recovers) in
        [(true, 0, false), (false, 59, true), (false, 60, false)]
    {
        let mut session = session(&[("f", 8, 2)]);
        let first = flow(2, 8, 60, FlowFlags::PERSISTENT_SUBSCRIPTIONS);
        assert_eq!(open(&mut session, &first), Ok(None));
        let changes = session.handle_stream_ended(StreamId(8), 2, in_order, true, START);
        assert_eq!(names(&changes.ended).len(), usize::from(in_order));
        let mut changes = Changes::default();
        let now = START + Duration::from_secs(after_secs);
        let again = session.open_flow(&flow(2, 12, 60, keeps), now, &mut changes);
        if recovers {
            assert_eq!((again, moved(&changes)), (Ok(None), alloc::vec![("f", 12)]));
        } else {
            assert_eq!(again, Err(FlowRefused::Unknown));
            assert!(!session.subscriptions.contains("f"));
        }
    }
}

#[test]
fn only_a_later_stream_of_the_same_kind_takes_a_flow_over() {
    let mut session = session(&[("f", 8, 2)]);
    let none = FlowFlags(0);
    assert_eq!(open(&mut session, &flow(2, 8, 60, none)), Ok(None));
    for stream in [4, 14] {
        let refused = open(&mut session, &flow(2, stream, 60, none));
        assert_eq!(refused, Err(FlowRefused::Code(stream_code::FLOW_CANCELLED)));
    }
    let taken = open(&mut session, &flow(2, 12, 60, none));
    assert_eq!(taken, Ok(Some(StreamId(8))));
    // The old stream says nothing about the flow any more.
    let changes = session.handle_stream_ended(StreamId(8), 2, true, true, START);
    assert!(changes.ended.is_empty() && session.subscriptions.contains("f"));
}

#[test]
fn a_flow_that_begins_clean_has_no_subscriptions_left() {
    let mut session = session(&[("f", 8, 2), ("g", 12, 4)]);
    assert_eq!(open(&mut session, &flow(2, 8, 60, FlowFlags(0))), Ok(None));
    let contradicts = FlowFlags::CLEAN.with(FlowFlags::ABORT_IF_NO_STATE);
    let mut changes = Changes::default();
    let refused = session.open_flow(&flow(2, 16, 60, contradicts), START, &mut changes);
    assert_eq!(refused, Err(FlowRefused::Code(stream_code::DISCARD_STATE)));
    assert_eq!(names(&changes.ended), ["f"]);
}

#[test]
fn flows_that_cannot_be_are_refused_with_their_code() {
    let mut session = session(&[]);
    let none = FlowFlags(0);
    for (id, flags, code) in [
        (0, none, stream_code::BAD_FLOW_ID),
        (3, none, stream_code::BAD_FLOW_ID),
        (2, FlowFlags::OPTIONAL_HEADERS, stream_code::OPTIONAL_HEADER),
        (
            2,
            FlowFlags::PERSISTENT_TOPIC_ALIAS,
            stream_code::PERSISTENT_TOPIC,
        ),
    ] {
        let refused = open(&mut session, &flow(id, 4, 1, flags));
        assert_eq!(refused, Err(FlowRefused::Code(code)));
    }
    for number in 1..=FLOWS_MAX as u64 {
        let wanted = flow(2 * number, 4 * number, 1, none);
        assert_eq!(open(&mut session, &wanted), Ok(None));
    }
    let refused = open(&mut session, &flow(1000, 4000, 1, none));
    assert_eq!(refused, Err(FlowRefused::Code(stream_code::FLOW_REFUSED)));
}

#[test]
fn a_subscription_says_what_it_grants_and_whether_retained_messages_follow() {
    //= mqtt5#[MQTT-3.3.1-9] type=test
    //= mqtt5#[MQTT-3.3.1-10] type=test
    //= mqtt5#[MQTT-3.3.1-11] type=test
    for (handling, new, old) in [
        (RetainHandling::SendAtSubscribe, true, true),
        (RetainHandling::SendIfNew, true, false),
        (RetainHandling::DoNotSend, false, false),
    ] {
        let mut subscription = on(0, 0);
        subscription.options.retain_handling = handling;
        assert_eq!(subscription.wants_retained(true), new);
        assert_eq!(subscription.wants_retained(false), old);
    }
    for (qos, reason) in [
        (QoS::AtMostOnce, ReasonCode::Success),
        (QoS::AtLeastOnce, ReasonCode::GrantedQos1),
        (QoS::ExactlyOnce, ReasonCode::GrantedQos2),
    ] {
        let mut subscription = on(0, 0);
        subscription.options.qos = qos;
        assert_eq!(subscription.granted(), reason);
    }
}

fn publish(qos: QoS, packet_id: u16) -> Publish<'static> {
    Publish {
        qos,
        topic: "t",
        packet_id: NonZeroU16::new(packet_id),
        ..Publish::default()
    }
}

#[test]
fn a_publish_is_routed_once_and_within_the_receive_maximum() {
    //= mqtt5#[MQTT-3.3.4-8] type=test
    let mut session = Session::default();
    session.handle_connected(START, 1);
    let mut take = |publish: &Publish<'_>, token| {
        let admitted = session.handle_publish(publish, CONTROL, AckToken(token));
        admitted.map_err(|fault| fault.reason)
    };
    let twice = publish(QoS::ExactlyOnce, 7);
    assert_eq!(take(&twice, 2), Ok(Admission::New));
    assert_eq!(take(&twice, 3), Ok(Admission::Pending));
    let over = Err(ReasonCode::ReceiveMaximumExceeded);
    assert_eq!(take(&publish(QoS::AtLeastOnce, 8), 4), over);
    assert_eq!(take(&publish(QoS::AtMostOnce, 0), 1), Ok(Admission::New));
    session.inbound.complete(AckToken(2), ReasonCode::Success);
    assert!(session.inbound.poll_ack().is_some());
    let repeated = session.handle_publish(&twice, CONTROL, AckToken(5));
    assert_eq!(repeated, Ok(Admission::Repeated));
    assert!(session.inbound.poll_ack().is_some());
}

/// What follows from an acknowledgement of the right kind.
fn ack(session: &mut Session, kind: PacketType, id: u16, reason: ReasonCode) -> Step {
    let ack = AckPacket {
        packet_id: NonZeroU16::new(id).expect("not zero"),
        reason,
        properties: ReasonProperties::default(),
    };
    session
        .handle_ack(kind, CONTROL, &ack)
        .expect("the right kind")
}

/// A session that has sent a message under identifier 1.
fn sent(qos: QoS) -> Session {
    let mut session = Session::default();
    session.outbound.queue.push(Delivery {
        content: Content::Held(Arc::new(Message::default())),
        seq: None,
        qos,
        retain: false,
        identifiers: Identifiers::new(),
        share: None,
        stream: CONTROL,
        level: 0,
        maybe_sent: false,
        failed: 0,
        added: None,
    });
    let next = session.outbound.poll(START, MAX);
    assert!(matches!(next, Some(Outgoing::Send(_))));
    session
}

const OK: ReasonCode = ReasonCode::Success;
const UNKNOWN: ReasonCode = ReasonCode::PacketIdentifierNotFound;

#[test]
fn what_the_client_acknowledges_is_settled() {
    let done = |step| matches!(step, Step::Settled(Received::Done { .. }));
    let mut once = sent(QoS::AtLeastOnce);
    assert!(done(ack(&mut once, PacketType::PubAck, 1, OK)));
    let mut twice = sent(QoS::ExactlyOnce);
    assert!(matches!(
        ack(&mut twice, PacketType::PubRec, 1, OK),
        Step::Answer(PacketType::PubRel, OK)
    ));
    assert!(done(ack(&mut twice, PacketType::PubComp, 1, OK)));
    assert!(matches!(
        ack(&mut twice, PacketType::PubRec, 1, OK),
        Step::Answer(PacketType::PubRel, UNKNOWN)
    ));
    //= mqtt5#[MQTT-4.3.3-4] type=test
    let mut refused = sent(QoS::ExactlyOnce);
    let reason = ReasonCode::QuotaExceeded;
    assert!(done(ack(&mut refused, PacketType::PubRec, 1, reason)));
}

#[test]
fn pubrel_frees_an_identifier_that_pubrec_has_named() {
    //= mqtt5#[MQTT-4.3.3-11] type=test
    let mut session = Session::default();
    session.handle_connected(START, MAX);
    assert!(matches!(
        ack(&mut session, PacketType::PubRel, 7, OK),
        Step::Answer(PacketType::PubComp, UNKNOWN)
    ));
    let twice = publish(QoS::ExactlyOnce, 7);
    let admitted = session.handle_publish(&twice, CONTROL, AckToken(1));
    assert_eq!(admitted, Ok(Admission::New));
    session.inbound.complete(AckToken(1), OK);
    assert!(session.inbound.poll_ack().is_some());
    let released = ack(&mut session, PacketType::PubRel, 7, OK);
    assert!(matches!(released, Step::Release));
    let again = ack(&mut session, PacketType::PubRel, 7, OK);
    assert!(matches!(again, Step::Nothing));
    let id = NonZeroU16::new(7).expect("not zero");
    assert_eq!(session.inbound.handle_released(CONTROL, id), Some(CONTROL));
}

#[test]
fn an_acknowledgement_of_the_wrong_kind_is_a_protocol_error() {
    use PacketType::{PubAck, PubComp, PubRec};
    let refused = |session: &mut Session, kind, reason| {
        let ack = AckPacket {
            packet_id: NonZeroU16::MIN,
            reason,
            properties: ReasonProperties::default(),
        };
        let step = session.handle_ack(kind, CONTROL, &ack);
        step.is_err_and(|fault| fault.reason == ReasonCode::ProtocolError)
    };
    let mut once = sent(QoS::AtLeastOnce);
    for (kind, reason) in [(PubRec, OK), (PubRec, UNKNOWN), (PubComp, OK)] {
        assert!(refused(&mut once, kind, reason), "{kind:?} for QoS 1");
    }
    assert_eq!(once.outbound.inflight(), 1);
    let mut twice = sent(QoS::ExactlyOnce);
    assert!(refused(&mut twice, PubAck, OK) && refused(&mut twice, PubComp, OK));
    ack(&mut twice, PubRec, 1, OK);
    assert!(refused(&mut twice, PubAck, OK));
    assert_eq!(twice.outbound.inflight(), 1);
    // Of an identifier that is not in use: it may have been settled before.
    let mut idle = Session::default();
    assert!(!refused(&mut idle, PubAck, OK) && !refused(&mut idle, PubComp, OK));
}
