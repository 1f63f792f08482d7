//! One publisher: how much it may send now, what it sends, what is
//! acknowledged. Knows no socket; time is a parameter.

use bytes::Bytes;
use dunlin_mqtt_codec::QoS;

use super::plan::Plan;
use super::schedule::Schedule;
use super::shared::{Delivered, Window};
use super::stats::Tally;
use super::wire::{STAMP_BYTES, Stamp};

/// Bytes given to the transport that have not left, at most; one message may
/// go beyond.
pub(super) const BACKLOG_BYTES_MAX: usize = 128 * 1024;
/// At saturation with QoS 0: when nothing is delivered for this long, what is
/// missing counts as lost and the publisher goes on.
const STALL_US: u64 = 500_000;

/// What publishing needs besides the publisher.
pub(super) struct Cx<'a> {
    pub(super) plan: &'a Plan,
    pub(super) window: Window,
    pub(super) now_us: u64,
    pub(super) tally: &'a mut Tally,
    /// Deliveries of this publisher's messages.
    pub(super) delivered: &'a Delivered,
    /// `None`: saturation.
    pub(super) schedule: Option<&'a mut Schedule>,
    /// Bytes that the transport has not yet sent.
    pub(super) backlog: usize,
}

/// When an acknowledgement came.
#[derive(Clone, Copy)]
pub(super) struct Now<'a> {
    pub(super) plan: &'a Plan,
    pub(super) window: Window,
    pub(super) us: u64,
}

/// What one call of [`Publisher::produce`] did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Produced {
    /// Messages.
    pub(super) messages: u64,
    /// Deliveries that they must lead to.
    pub(super) deliveries: u64,
    /// Whether more could be sent at once.
    pub(super) more: bool,
}

/// Writes the messages of one publisher in a protocol.
pub(super) trait Writer {
    /// Bytes written that were not yet given to the transport.
    fn written(&self) -> usize;

    /// Whether the broker takes another message to this topic of the publisher.
    fn may_write(&mut self, topic: usize) -> bool;

    /// Writes a message; `id` tells it from others in flight, 0 if nothing will
    /// be heard of it.
    fn write(&mut self, topic: usize, id: u16, stamp: Stamp, filler: &Bytes);
}

/// What an acknowledgement led to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Acked {
    /// The broker has taken the message over.
    Done,
    /// The broker refused the message: these deliveries will not come.
    Refused(u64),
    /// Not in flight.
    Unknown,
}

/// A message that is not yet acknowledged.
#[derive(Clone, Copy, Debug)]
struct InFlight {
    /// Intended time.
    at_us: u64,
    /// Deliveries that it must lead to.
    fan: u64,
}

/// A publisher's topics and messages in flight.
#[derive(Debug)]
pub(super) struct Publisher {
    /// Number among all publishers.
    pub(super) index: usize,
    /// Number among those of its thread.
    local: usize,
    qos: QoS,
    /// The payload after its stamp.
    filler: Bytes,
    /// Deliveries of a message, by topic.
    fans: Vec<u64>,
    cursor: usize,
    window: usize,
    /// Messages due so far (fixed rate).
    due: u64,
    sent: u64,
    /// Deliveries that everything sent must lead to.
    expected: u64,
    fan_max: u64,
    written_off: u64,
    progress: (u64, u64),
    /// Packet identifiers not in use (QoS 1 and 2).
    free: Vec<u16>,
    /// Messages in flight, by packet identifier - 1.
    in_flight: Vec<Option<InFlight>>,
}

impl Publisher {
    /// `filler` has the length of the longest payload.
    pub(super) fn new(plan: &Plan, index: usize, local: usize, filler: &Bytes) -> Self {
        let topics = plan.topics_of_publisher(index);
        let fans: Vec<u64> = topics.map(|t| plan.fan_of(t)).collect();
        Self {
            index,
            local,
            qos: plan.messages.qos,
            filler: filler.slice(..plan.size_of(index) - STAMP_BYTES),
            fan_max: fans.iter().copied().max().unwrap_or(0),
            fans,
            cursor: 0,
            window: plan.window(),
            due: 0,
            sent: 0,
            expected: 0,
            written_off: 0,
            progress: (0, 0),
            free: Vec::new(),
            in_flight: Vec::new(),
        }
    }

    /// The server accepted the connection and takes `receive_maximum` messages
    /// at a time.
    pub(super) fn accepted(&mut self, receive_maximum: u16) {
        if self.qos != QoS::AtMostOnce {
            let window = self.window.min(usize::from(receive_maximum));
            self.window = window;
            self.free = (1..=u16::try_from(window).unwrap_or(u16::MAX))
                .rev()
                .collect();
            self.in_flight = vec![None; window];
        }
    }

    /// One more message is due.
    pub(super) fn add_due(&mut self) {
        self.due += 1;
    }

    /// Messages due and not sent, plus those not acknowledged.
    pub(super) fn waiting(&self) -> u64 {
        let unacknowledged = self.in_flight.len() - self.free.len();
        self.due.saturating_sub(self.sent) + unacknowledged as u64
    }

    /// Messages that may be sent as far as acknowledgements and deliveries go.
    fn room(&mut self, cx: &Cx<'_>) -> usize {
        if self.qos != QoS::AtMostOnce {
            return self.free.len();
        }
        if cx.schedule.is_some() || cx.plan.pace.open_loop || self.fan_max == 0 {
            return usize::MAX;
        }
        let delivered = cx.delivered.get();
        let accounted = delivered + self.written_off;
        let outstanding = self.expected.saturating_sub(accounted);
        if outstanding == 0 || delivered != self.progress.0 {
            self.progress = (delivered, cx.now_us);
        } else if cx.now_us.saturating_sub(self.progress.1) > STALL_US {
            self.written_off += outstanding;
            self.progress = (delivered, cx.now_us);
            return self.window;
        }
        let limit = self.window as u64 * self.fan_max;
        (limit.saturating_sub(outstanding) / self.fan_max) as usize
    }

    /// Writes what may and should be sent now.
    pub(super) fn produce(&mut self, cx: &mut Cx<'_>, out: &mut impl Writer) -> Produced {
        let mut done = Produced::default();
        if cx.backlog > BACKLOG_BYTES_MAX / 2 {
            return done;
        }
        let room = self.room(cx);
        let wanted = match &cx.schedule {
            Some(_) => usize::try_from(self.due - self.sent).unwrap_or(usize::MAX),
            // Small batches would measure system calls; a quarter of the
            // window keeps both sides busy.
            None if room < (self.window / 4).max(1) => 0,
            None => room,
        };
        let mut left = room.min(wanted).min(cx.plan.pace.batch);
        while left > 0 && cx.backlog + out.written() < BACKLOG_BYTES_MAX {
            if !out.may_write(self.cursor) {
                // More is possible when the broker says so.
                return done;
            }
            done.deliveries += self.emit(cx, out);
            done.messages += 1;
            left -= 1;
        }
        done.more = left > 0 || room.min(wanted) > cx.plan.pace.batch;
        done
    }

    /// Writes one message; returns the deliveries that it must lead to.
    fn emit(&mut self, cx: &mut Cx<'_>, out: &mut impl Writer) -> u64 {
        let at_us = match &mut cx.schedule {
            Some(schedule) => schedule.due(self.local, self.sent),
            None => cx.now_us,
        };
        let packet_id = self.free.pop().unwrap_or(0);
        let fan = self.fans.get(self.cursor).copied().unwrap_or(0);
        let stamp = Stamp {
            at_us,
            publisher: self.index as u32,
            seq: self.sent as u32,
        };
        out.write(self.cursor, packet_id, stamp, &self.filler);
        if let Some(slot) = self.slot(packet_id) {
            *slot = Some(InFlight { at_us, fan });
        }
        self.cursor = (self.cursor + 1) % self.fans.len().max(1);
        self.sent += 1;
        self.expected += fan;
        let measured = u64::from(cx.window.contains(at_us));
        cx.tally.sent += measured;
        cx.tally.expected += measured * fan;
        if measured > 0
            && let Some(phase) = cx.tally.phase_of(cx.plan.part.as_ref(), at_us)
        {
            phase.sent += 1;
            phase.expected += fan;
        }
        cx.tally.sent_in_window += u64::from(cx.window.contains(cx.now_us));
        if cx.schedule.is_none() {
            cx.tally.offered += measured;
        }
        fan
    }

    fn slot(&mut self, packet_id: u16) -> Option<&mut Option<InFlight>> {
        self.in_flight
            .get_mut(usize::from(packet_id).checked_sub(1)?)
    }

    /// Whether a message of this number waits for its acknowledgement.
    pub(super) fn is_in_flight(&self, id: u16) -> bool {
        let slot = usize::from(id).checked_sub(1);
        slot.and_then(|slot| self.in_flight.get(slot))
            .is_some_and(Option::is_some)
    }

    /// The broker has taken over a message, or refused it.
    pub(super) fn on_ack(
        &mut self,
        id: u16,
        refused: bool,
        now: Now<'_>,
        tally: &mut Tally,
    ) -> Acked {
        let Now { plan, window, us } = now;
        let Some(slot) = self.slot(id) else {
            return Acked::Unknown;
        };
        let Some(InFlight { at_us, fan }) = *slot else {
            return Acked::Unknown;
        };
        *slot = None;
        self.free.push(id);
        if window.contains(at_us) {
            if refused {
                tally.refused += 1;
                tally.expected = tally.expected.saturating_sub(fan);
                if let Some(phase) = tally.phase_of(plan.part.as_ref(), at_us) {
                    phase.expected = phase.expected.saturating_sub(fan);
                }
            } else {
                tally.acknowledged += 1;
                tally.ack_latency.record(us.saturating_sub(at_us));
            }
        }
        if refused {
            return Acked::Refused(fan);
        }
        tally.acknowledged_in_window += u64::from(window.contains(us));
        Acked::Done
    }
}

/// The payload after its stamp: bytes that no transport can compress away.
pub(super) fn filler(size: usize) -> Bytes {
    let mut state = 0x2545_f491_4f6c_dd1du64;
    (STAMP_BYTES..size)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 32) as u8
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use dunlin_base::SendBuf;

    use super::*;
    use crate::bench::mqtt::Packets;
    use crate::bench::plan::Pattern;
    use crate::bench::plan::tests::plan;
    use crate::bench::wire::Template;

    const WINDOW: Window = Window {
        start_us: 0,
        measure_us: 100,
        end_us: 1_000_000_000,
    };

    fn now(plan: &Plan, us: u64) -> Now<'_> {
        Now {
            plan,
            window: WINDOW,
            us,
        }
    }

    struct Bench {
        plan: Plan,
        tally: Tally,
        delivered: Delivered,
        publisher: Publisher,
        template: Template,
    }

    impl Bench {
        fn new(plan: Plan) -> Self {
            Self {
                publisher: Publisher::new(&plan, 0, 0, &filler(plan.size_max())),
                template: Template::new(
                    plan.sessions.version,
                    plan.messages.qos,
                    "t",
                    plan.size_max(),
                )
                .unwrap(),
                tally: Tally::default(),
                delivered: Delivered::default(),
                plan,
            }
        }

        fn produce(&mut self, now_us: u64, backlog: usize, schedule: Option<&mut Schedule>) -> u64 {
            let mut cx = Cx {
                plan: &self.plan,
                window: WINDOW,
                now_us,
                tally: &mut self.tally,
                delivered: &self.delivered,
                schedule,
                backlog,
            };
            let mut out = Packets {
                templates: core::slice::from_ref(&self.template),
                out: &mut SendBuf::new(),
            };
            self.publisher.produce(&mut cx, &mut out).messages
        }
    }

    #[test]
    fn saturation_is_bounded_by_deliveries_and_loss_is_written_off() {
        let mut plan = plan(Pattern::FanOut, 1, 3, 1);
        plan.pace.in_flight = Some(8);
        let mut bench = Bench::new(plan);
        assert_eq!(bench.produce(200, 0, None), 8);
        assert_eq!(bench.produce(201, 0, None), 0);
        (0..5).for_each(|_| bench.delivered.add());
        assert_eq!(
            bench.produce(202, 0, None),
            0,
            "less than a quarter is free"
        );
        bench.delivered.add();
        assert_eq!(bench.produce(203, 0, None), 2);
        assert_eq!(bench.produce(203 + STALL_US, 0, None), 0);
        assert_eq!(bench.produce(204 + STALL_US, 0, None), 8);
        let tally = &bench.tally;
        assert_eq!((tally.offered, tally.sent, tally.expected), (18, 18, 54));
    }

    #[test]
    fn bytes_that_do_not_leave_hold_a_publisher_back() {
        let mut plan = plan(Pattern::Pair, 1, 1, 1);
        plan.pace.open_loop = true;
        plan.messages.sizes = vec![50_000];
        let mut bench = Bench::new(plan);
        assert_eq!(bench.produce(200, BACKLOG_BYTES_MAX, None), 0);
        assert_eq!(bench.produce(200, 0, None), 3);
    }

    #[test]
    fn acknowledgements_free_the_window_of_the_server() {
        let mut plan = plan(Pattern::Pair, 1, 1, 1);
        plan.messages.qos = QoS::ExactlyOnce;
        let mut bench = Bench::new(plan);
        bench.publisher.accepted(2);
        assert_eq!(bench.produce(200, 0, None), 2);
        assert_eq!(bench.publisher.waiting(), 2);
        let mut on = |refused, now_us| {
            let (publisher, tally) = (&mut bench.publisher, &mut bench.tally);
            publisher.on_ack(1, refused, now(&bench.plan, now_us), tally)
        };
        assert_eq!(on(false, 500), Acked::Done);
        assert_eq!(on(false, 500), Acked::Unknown);
        assert_eq!(bench.tally.acknowledged, 1);
        assert_eq!(bench.tally.ack_latency.summary().max_us, 300);
        assert_eq!(bench.produce(600, 0, None), 1);
        assert!(bench.publisher.is_in_flight(1) && !bench.publisher.is_in_flight(0));
        let outcome = bench
            .publisher
            .on_ack(1, true, now(&bench.plan, 700), &mut bench.tally);
        assert_eq!((outcome, bench.tally.refused), (Acked::Refused(1), 1));
        assert_eq!(bench.tally.expected, 2, "what is refused is not lost");
    }

    #[test]
    fn late_messages_carry_the_time_at_which_they_were_due() {
        let mut plan = plan(Pattern::Pair, 1, 1, 1);
        plan.messages.qos = QoS::AtLeastOnce;
        let mut bench = Bench::new(plan);
        bench.publisher.accepted(100);
        let mut schedule = Schedule::new(1_000, 1_000.0, 1);
        schedule.announce(4_000, |_, _| bench.publisher.add_due());
        assert_eq!(bench.produce(9_000, 0, Some(&mut schedule)), 4);
        let times: Vec<u64> = bench
            .publisher
            .in_flight
            .iter()
            .flatten()
            .map(|message| message.at_us)
            .collect();
        assert_eq!(times, [1_000, 2_000, 3_000, 4_000]);
        assert_eq!(bench.produce(9_000, 0, Some(&mut schedule)), 0);
    }
}
