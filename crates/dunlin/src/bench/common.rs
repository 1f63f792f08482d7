//! One connection of the generator, as far as it is the same with every protocol:
//! what it is for, how far it is, what it has counted.

use std::sync::Arc;

use dunlin_base::{ConnId, Instant, SendBuf, StreamId};

use super::fleet::Tickets;
use super::plan::Plan;
use super::publisher::{Acked, Now, Publisher};
use super::ready::Ready;
use super::shared::{Shared, Window};
use super::stats::{Devices, Tally, count_cause};
use super::subscriber::{Order, Received};
use super::wire::Stamp;

/// What a connection is for.
#[derive(Debug)]
pub(super) enum Role {
    Subscriber(usize, Received),
    Publisher(Box<Publisher>),
    Idle(usize),
}

/// How far a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// Not dialled.
    Waiting,
    /// Dialled, not accepted.
    Connecting,
    /// Waits for this many answers to subscriptions or links.
    Subscribing(u16),
    Ready,
    /// Over, or never come about.
    Gone,
    /// A device without a connection, until it has something to publish.
    Asleep,
    /// ... that waits until it may dial.
    Rising,
    /// ... that is dialled.
    Waking,
    /// CONNECT is written, and messages may follow; not accepted.
    Greeting,
    /// Back to sleep: DISCONNECT is written.
    Leaving,
}

impl Stage {
    /// Whether messages may be written.
    pub(super) const fn may_publish(self) -> bool {
        matches!(self, Self::Ready | Self::Greeting)
    }

    /// Whether a handshake is pending.
    pub(super) const fn is_dialled(self) -> bool {
        matches!(self, Self::Connecting | Self::Waking)
    }
}

/// A device that sleeps between messages.
#[derive(Debug, Default)]
pub(super) struct Sleeper {
    pub(super) tickets: Arc<Tickets>,
    /// Whether it is listed to be sent to sleep, and since when it has had
    /// nothing to do.
    pub(super) drowsy_since: Option<u64>,
}

/// What every connection has.
#[derive(Debug)]
pub(super) struct Common {
    pub(super) role: Role,
    pub(super) stage: Stage,
    pub(super) conn: Option<ConnId>,
    /// Bytes that wait until the loop sends them.
    pub(super) out: SendBuf,
    /// Listed to have `out` sent.
    pub(super) touched: bool,
    /// Bytes given to the transport that have not left.
    pub(super) backlog: usize,
    pub(super) dialled_us: u64,
    pub(super) last_sent_us: u64,
    pub(super) keep_alive: u16,
    pub(super) sleeper: Option<Box<Sleeper>>,
}

/// What a client needs of its thread.
pub(super) struct Cx<'a> {
    pub(super) plan: &'a Plan,
    pub(super) shared: &'a Shared,
    pub(super) tally: &'a mut Tally,
    pub(super) progress: &'a mut Progress,
    pub(super) ready: &'a mut Ready,
    pub(super) window: Window,
    pub(super) now_us: u64,
}

impl Cx<'_> {
    pub(super) fn now(&self) -> Instant {
        Instant::from_micros(self.now_us)
    }

    /// Counts what a device does, in the measured window.
    pub(super) fn count(&mut self, f: impl FnOnce(&mut Devices)) {
        if self.window.contains(self.now_us) {
            f(&mut self.tally.devices);
        }
    }
}

/// Counts since they were last made public.
#[derive(Debug, Default)]
pub(super) struct Progress {
    pub(super) received: u64,
    pub(super) acknowledged: u64,
    /// Deliveries that will not come because the message was refused.
    pub(super) refused_deliveries: u64,
    pub(super) ready: usize,
    pub(super) failed: usize,
    pub(super) lost: usize,
}

impl Common {
    pub(super) fn new(plan: &Plan, role: Role) -> Self {
        let sleeps = matches!(&role, Role::Publisher(it) if plan.fleet.sleeps(it.index));
        Self {
            sleeper: sleeps.then(Box::default),
            role,
            stage: Stage::Waiting,
            conn: None,
            out: SendBuf::new(),
            touched: false,
            backlog: 0,
            dialled_us: 0,
            last_sent_us: 0,
            keep_alive: 0,
        }
    }

    /// The stream on which everything travels.
    pub(super) const STREAM: StreamId = StreamId::CONTROL;

    /// Kind and number, which are in its identifier.
    pub(super) fn name(&self) -> (char, usize) {
        match &self.role {
            Role::Subscriber(number, _) => ('s', *number),
            Role::Publisher(publisher) => ('p', publisher.index),
            Role::Idle(number) => ('i', *number),
        }
    }

    /// The broker accepted the connection and takes `window` messages at a time;
    /// so many subscriptions or links are asked for.
    pub(super) fn accepted(&mut self, subscriptions: u16, window: u16, cx: &mut Cx<'_>) {
        let took = cx.now_us.saturating_sub(self.dialled_us);
        cx.tally.connect.record(took);
        if let Role::Publisher(publisher) = &mut self.role {
            publisher.accepted(window);
        }
        self.stage = Stage::Subscribing(subscriptions.saturating_add(1));
        self.subscribed(cx);
    }

    /// The broker accepted a device again.
    pub(super) fn woken(&mut self, cx: &mut Cx<'_>) {
        self.stage = Stage::Ready;
        if cx.window.contains(cx.now_us) {
            cx.tally.devices.wakes += 1;
            cx.tally
                .wake
                .record(cx.now_us.saturating_sub(self.dialled_us));
        }
    }

    /// The connection is over.
    pub(super) fn closed(&mut self, cause: String, cx: &mut Cx<'_>) {
        self.conn = None;
        if self.stage == Stage::Leaving {
            self.stage = Stage::Asleep;
            (self.backlog, self.touched) = (0, false);
            self.out = SendBuf::new();
        } else {
            self.fail(cause, cx);
        }
    }

    /// A subscription or link was made.
    pub(super) fn subscribed(&mut self, cx: &mut Cx<'_>) {
        match self.stage {
            Stage::Subscribing(left) if left > 1 => self.stage = Stage::Subscribing(left - 1),
            Stage::Subscribing(_) => {
                self.stage = Stage::Ready;
                cx.progress.ready += 1;
            }
            _ => {}
        }
    }

    /// A message came.
    pub(super) fn received(&mut self, stamp: Option<Stamp>, cx: &mut Cx<'_>) {
        let Role::Subscriber(_, received) = &mut self.role else {
            return self.fail(
                "the broker sent a message to a client that takes none".into(),
                cx,
            );
        };
        // Messages of others on the same topic are none of our business.
        let Some(stamp) = stamp else {
            return;
        };
        let Some(delivered) = cx.shared.delivered.get(stamp.publisher as usize) else {
            return;
        };
        match received.note(stamp.publisher, stamp.seq) {
            Order::InOrder => {}
            Order::Late => cx.tally.reordered += 1,
            Order::Duplicate => {
                cx.tally.duplicates += 1;
                return;
            }
        }
        cx.tally.delivered_in_window += u64::from(cx.window.contains(cx.now_us));
        cx.progress.received += 1;
        delivered.add();
        if cx.plan.waits_for_deliveries() && cx.plan.threads == 1 {
            cx.ready.add(stamp.publisher as usize);
        }
        if cx.window.contains(stamp.at_us) {
            cx.tally.delivered += 1;
            let took = cx.now_us.saturating_sub(stamp.at_us);
            cx.tally.latency.record(took);
            if let Some(phase) = cx.tally.phase_of(cx.plan.part.as_ref(), stamp.at_us) {
                phase.delivered += 1;
                phase.latency.record(took);
            }
        }
    }

    /// Whether a message of this number waits for its acknowledgement; if not, it
    /// is the broker's mistake.
    pub(super) fn is_in_flight(&mut self, id: u16, cx: &mut Cx<'_>) -> bool {
        let is_known = matches!(&self.role, Role::Publisher(it) if it.is_in_flight(id));
        if !is_known {
            self.fail("the broker acknowledged what was not sent".into(), cx);
        }
        is_known
    }

    /// The broker has taken over a message, or refused it.
    pub(super) fn acknowledged(&mut self, id: u16, refused: bool, cx: &mut Cx<'_>) {
        if !self.is_in_flight(id, cx) {
            return;
        }
        let Role::Publisher(publisher) = &mut self.role else {
            return;
        };
        let now = Now {
            plan: cx.plan,
            window: cx.window,
            us: cx.now_us,
        };
        match publisher.on_ack(id, refused, now, cx.tally) {
            Acked::Done => cx.progress.acknowledged += 1,
            Acked::Refused(deliveries) => cx.progress.refused_deliveries += deliveries,
            Acked::Unknown => {}
        }
    }

    /// It is over, for this reason, which is counted once.
    pub(super) fn fail(&mut self, cause: String, cx: &mut Cx<'_>) {
        match self.stage {
            Stage::Gone | Stage::Leaving => return,
            Stage::Ready | Stage::Greeting => {
                cx.progress.lost += 1;
                count_cause(&mut cx.tally.losses, cause);
            }
            _ => {
                cx.progress.failed += 1;
                count_cause(&mut cx.tally.failures, cause);
            }
        }
        self.stage = Stage::Gone;
    }
}
