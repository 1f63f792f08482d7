//! Where the way of a message leaves for the front of a session's protocol:
//! queue and publish call these functions and know no protocol.

use alloc::vec::Vec;

use dunlin_base::QoS;
use dunlin_store::StoreOp;

#[cfg(feature = "amqp")]
use crate::amqp::coordinator::Retirement;
#[cfg(feature = "amqp")]
use crate::amqp::state::End;
#[cfg(feature = "amqp")]
use crate::amqp::{concluding, filters, outcome, outgoing};
use crate::ids::{SessionIdx, SessionRef};
use crate::messages::source::Source;
#[cfg(feature = "mqtt")]
use crate::mqtt::{acks, encode, pump as mqtt_pump, records};
use crate::owners::Owners;
use crate::owners::pending::{Record, Verdict};
use crate::owners::routing::Hit;
use crate::owners::session::Session;
use crate::queues::delivering;

/// Sends what the session's queue, credit and transport allow.
pub(crate) fn pump(own: &mut Owners, s: SessionIdx) {
    match own.sessions.get(s) {
        #[cfg(feature = "mqtt")]
        Some(Session::Mqtt(_)) => mqtt_pump::pump(own, s),
        #[cfg(feature = "amqp")]
        Some(Session::Amqp(_)) => outgoing::pump(own, s),
        Some(Session::Node(_)) => delivering::pump(own, s),
        None => {}
    }
}

/// Delivers with an acknowledgement at once, where nothing has to be queued or
/// stored for it; `false`: it has to.
pub(crate) fn send_at_once(
    own: &mut Owners,
    source: &mut Source<'_>,
    hit: &Hit,
    delivery: (QoS, bool),
) -> bool {
    match own.sessions.get(hit.session) {
        #[cfg(feature = "mqtt")]
        Some(Session::Mqtt(_)) => match source.translated() {
            Some(_) => false,
            None => mqtt_pump::send_at_once(own, source, hit, delivery),
        },
        _ => false,
    }
}

/// Delivers at most once: at once, or not at all.
pub(crate) fn deliver_once(own: &mut Owners, source: &mut Source<'_>, hit: &Hit, retain: bool) {
    match own.sessions.get(hit.session) {
        #[cfg(feature = "mqtt")]
        Some(Session::Mqtt(_)) => match source.translated() {
            Some(message) => {
                let mut source = Source::of(&message, own.now);
                encode::deliver_qos0(own, &mut source, hit, retain);
            }
            None => encode::deliver_qos0(own, source, hit, retain),
        },
        #[cfg(feature = "amqp")]
        Some(Session::Amqp(_)) => outgoing::deliver_once(own, source, hit, retain),
        Some(Session::Node(_)) => delivering::deliver_once(own, source, hit, retain),
        None => {}
    }
}

/// Takes receivers out that do not want a message although their subscriptions
/// match its topic.
pub(crate) fn leave_out(own: &Owners, source: &mut Source<'_>, hits: &mut Vec<Hit>) {
    #[cfg(feature = "amqp")]
    if hits.iter().any(Hit::is_filtered) {
        filters::leave_out(own, source, hits);
    }
}

/// Answers who sent a publish.
pub(crate) fn answer(own: &mut Owners, origin: SessionRef, token: u64, verdict: Verdict) {
    match own.sessions.get(origin.at) {
        #[cfg(feature = "mqtt")]
        Some(Session::Mqtt(_)) => acks::answer_publish(own, origin, token, verdict),
        #[cfg(feature = "amqp")]
        Some(Session::Amqp(link)) => match link.end {
            End::Coordinator(_) => concluding::discharged(own, origin, token, verdict),
            _ => outcome::answer(own, origin, token, verdict),
        },
        // Nodes publish nothing that is answered.
        Some(Session::Node(_)) => {}
        None => {}
    }
}

/// What follows at their links for deliveries whose transaction is stored, or off.
#[cfg(feature = "amqp")]
pub(crate) fn conclude(own: &mut Owners, retirements: &[Retirement], stored: bool) {
    for retirement in retirements {
        concluding::conclude(own, retirement, stored);
    }
}

/// What is stored in one batch with a will.
pub(crate) fn with_will(own: &mut Owners, token: u64, record: &Record) -> Vec<StoreOp> {
    #[cfg(feature = "mqtt")]
    let ops = records::with_will(own, token, record);
    #[cfg(not(feature = "mqtt"))]
    let ops = Vec::new();
    ops
}

/// The batch of a will was stored, or refused.
pub(crate) fn after_will(own: &mut Owners, record: Record, stored: bool) {
    #[cfg(feature = "mqtt")]
    records::after_will(own, record, stored);
}
