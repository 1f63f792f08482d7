//! One connection of the generator, from dialling to its end, in its protocol.

use dunlin_base::{Instant, StreamId};
use dunlin_dial::Protocol;
use dunlin_mqtt_codec::EncodeError;

use super::amqp::Amqp;
use super::common::{Common, Cx, Role, Stage};
use super::mqtt::{self, Mqtt};
use super::plan::Plan;
use super::publisher::{self, Produced};

/// What the connection speaks.
#[derive(Debug)]
enum Front {
    Mqtt(Mqtt),
    /// `None` until the transport is open.
    Amqp(Option<Box<Amqp>>),
}

#[derive(Debug)]
pub(super) struct Client {
    pub(super) common: Common,
    front: Front,
}

impl Client {
    pub(super) fn new(plan: &Plan, role: Role) -> Result<Self, EncodeError> {
        let common = Common::new(plan, role);
        let (kind, _) = common.name();
        let front = match plan.target_of(kind).protocol {
            Protocol::Amqp => Front::Amqp(None),
            _ => Front::Mqtt(Mqtt::new(plan, &common.role)?),
        };
        Ok(Self { common, front })
    }

    /// The transport is open: the protocol begins.
    pub(super) fn on_opened(&mut self, cx: &mut Cx<'_>) {
        let common = &mut self.common;
        match &mut self.front {
            Front::Mqtt(mqtt) => {
                mqtt.restart();
                if let Err(error) = mqtt::connect(common, cx.plan) {
                    common.fail(format!("cannot say CONNECT: {error}"), cx);
                } else if common.stage == Stage::Waking {
                    // With a ticket, what is due leaves in the first flight.
                    common.stage = Stage::Greeting;
                }
            }
            Front::Amqp(amqp) => *amqp = Some(Box::new(Amqp::begin(common, cx))),
        }
    }

    pub(super) fn on_bytes(&mut self, stream: StreamId, data: &[u8], cx: &mut Cx<'_>) {
        let common = &mut self.common;
        match &mut self.front {
            Front::Mqtt(mqtt) => mqtt.on_bytes(common, stream, data, cx),
            Front::Amqp(Some(amqp)) if stream == Common::STREAM => amqp.on_bytes(common, data, cx),
            Front::Amqp(_) => {}
        }
    }

    /// The broker sends no more on a stream; without the first one nothing
    /// goes on.
    pub(super) fn on_stream_end(&mut self, stream: StreamId, cx: &mut Cx<'_>) {
        if stream == Common::STREAM {
            self.common.fail("the broker ended the stream".into(), cx);
        } else if let Front::Mqtt(mqtt) = &mut self.front {
            mqtt.on_stream_end(stream);
        }
    }

    /// As a publisher: writes what may and should be sent now.
    pub(super) fn produce(&mut self, cx: &mut publisher::Cx<'_>, now: Instant) -> Produced {
        let Common { role, out, .. } = &mut self.common;
        match (role, &mut self.front) {
            (Role::Publisher(publisher), Front::Mqtt(mqtt)) => {
                publisher.produce(cx, &mut mqtt.writer(out))
            }
            (Role::Publisher(publisher), Front::Amqp(Some(amqp))) => {
                let produced = publisher.produce(cx, &mut **amqp);
                amqp.flush(now, out);
                produced
            }
            _ => Produced::default(),
        }
    }

    /// Says that it is still there, when that is due.
    pub(super) fn keep_alive(&mut self, cx: &mut Cx<'_>) {
        let common = &mut self.common;
        // Half of it, so that a busy broker is not taken for a dead client.
        let after = u64::from(common.keep_alive) * 500_000;
        let silent = cx.now_us.saturating_sub(common.last_sent_us);
        match &mut self.front {
            Front::Mqtt(_) if common.stage == Stage::Ready && after > 0 && silent >= after => {
                mqtt::put_ping(common, cx.plan);
            }
            Front::Amqp(Some(amqp)) => amqp.on_time(common, cx),
            _ => {}
        }
    }

    /// Ends what the protocol has begun.
    pub(super) fn put_disconnect(&mut self, plan: &Plan, now: Instant) {
        match &mut self.front {
            Front::Mqtt(_) => mqtt::put_disconnect(&mut self.common, plan),
            Front::Amqp(Some(amqp)) => amqp.close(now, &mut self.common.out),
            Front::Amqp(None) => {}
        }
    }
}
