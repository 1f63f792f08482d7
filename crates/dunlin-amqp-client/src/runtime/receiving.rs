//! A receiver within the loop: credit, what the application has not settled, and
//! what is known of that when the link is attached again.

use core::sync::atomic::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use dunlin_amqp::codec::{Attach, DeliveryState, ReceiverSettleMode};
use dunlin_amqp::{Connection, Delivery, LinkId, Message, RemoteUnsettled, State, Tag};
use tokio::sync::{mpsc, oneshot};

use crate::command::{Received, ReceiverShared, Settle};
use crate::error::{LinkError, SettleError};
use crate::limits::{HELD_MAX, WAITING_BYTES_MAX};
use crate::outcome::Outcome;
use crate::unsettled::{Restored, Unsettled};

/// A receiver.
pub(super) struct ReceiveLink {
    shared: Arc<ReceiverShared>,
    inbox: mpsc::UnboundedSender<Received>,
    /// Messages that may wait or be on their way.
    window: u32,
    /// Of them, what the sender may send.
    credit: u32,
    arrived: u64,
    arrived_bytes: u64,
    /// The largest message so far.
    largest: u64,
    /// Unsettled, by tag.
    held: BTreeMap<Tag, Held>,
    /// Of them, what the sender has yet to resume on this attachment, for which it
    /// needs credit.
    unresumed: usize,
    next_serial: u64,
    drain: Drain,
    /// The sender settles first.
    second: bool,
}

/// A delivery that the application has, or has spoken of.
struct Held {
    serial: u64,
    /// On this attachment.
    delivery: Option<Delivery>,
    said: Option<Said>,
    /// An earlier process had it and said nothing: this one has not seen it yet.
    is_unseen: bool,
}

/// What the application said, until the sender knows.
struct Said {
    state: State,
    done: oneshot::Sender<Result<(), SettleError>>,
}

/// The sender is to use up its credit. Afterwards there is none until the
/// application waits for a message, which [`ReceiverShared::is_drained`] says.
enum Drain {
    Off,
    Asked(Vec<oneshot::Sender<()>>),
}

impl ReceiveLink {
    pub(super) fn new(
        shared: Arc<ReceiverShared>,
        inbox: mpsc::UnboundedSender<Received>,
        window: u32,
        settle_mode: ReceiverSettleMode,
    ) -> Self {
        Self {
            shared,
            inbox,
            window,
            credit: 0,
            arrived: 0,
            arrived_bytes: 0,
            largest: 1,
            held: BTreeMap::new(),
            unresumed: 0,
            next_serial: 0,
            drain: Drain::Off,
            second: settle_mode == ReceiverSettleMode::Second,
        }
    }

    pub(super) fn shared(&self) -> &ReceiverShared {
        &self.shared
    }

    /// What an earlier process of the application had.
    pub(super) fn take_in(&mut self, restored: Vec<Restored>) {
        for Restored { tag, said } in restored {
            let held = Held {
                serial: self.next_serial,
                delivery: None,
                is_unseen: said.is_none(),
                said: said.map(|(state, done)| Said { state, done }),
            };
            self.next_serial += 1;
            self.held.insert(tag, held);
        }
        self.unresumed = self.held.len();
    }

    /// What another process of the application goes on with.
    pub(super) fn give_out(&self) -> Vec<Unsettled> {
        let all = self.unsettled().map(|(tag, said)| Unsettled {
            tag: Bytes::copy_from_slice(tag.as_bytes()),
            outcome: said.and_then(|said| Outcome::of(&said)),
        });
        all.collect()
    }

    /// Tags of what is not settled, and what was said of it.
    pub(super) fn unsettled(&self) -> impl Iterator<Item = (Tag, Option<DeliveryState<'_>>)> {
        self.held.iter().map(|(tag, held)| {
            let said = held.said.as_ref();
            (*tag, said.map(|said| said.state.get()))
        })
    }

    /// The transport is gone.
    pub(super) fn forget_attachment(&mut self) {
        self.credit = 0;
        for held in self.held.values_mut() {
            held.delivery = None;
        }
        self.unresumed = self.held.len();
        self.end_drain();
    }

    /// The link is attached: what the sender has forgotten is settled.
    pub(super) fn handle_attached(&mut self, answer: &Attach<'_>) {
        let remote = RemoteUnsettled::new(answer);
        let keeps_state = answer.unsettled.is_some();
        let second = self.second;
        self.held.retain(|tag, held| {
            let is_forgotten = held.delivery.is_none() && remote.is_forgotten(*tag);
            if is_forgotten && let Some(said) = held.said.take() {
                // A sender that has settled has heard of it.
                let _ = said.done.send(match keeps_state && second {
                    true => Ok(()),
                    false => Err(SettleError::Forgotten),
                });
            }
            !is_forgotten
        });
        let unresumed = self.held.values().filter(|held| held.delivery.is_none());
        self.unresumed = unresumed.count();
    }

    /// A message came.
    pub(super) fn handle_message(&mut self, engine: &mut Connection, message: Message<'_>) {
        self.credit = self.credit.saturating_sub(1);
        if message.resume {
            return self.resume(engine, message);
        }
        let (delivery, tag, settled) = (message.delivery, message.tag, message.settled);
        let serial = self.next_serial;
        self.next_serial += 1;
        if !self.hand_over(message, serial) {
            // The application is gone; the link goes.
            if !settled {
                let _ = engine.settle(delivery, Some(&DeliveryState::RELEASED));
            }
            return;
        }
        if !settled {
            let held = Held {
                serial,
                delivery: Some(delivery),
                said: None,
                is_unseen: false,
            };
            self.held.insert(tag, held);
        }
    }

    /// Gives a message to the application; `false`: that is gone.
    fn hand_over(&mut self, message: Message<'_>, serial: u64) -> bool {
        let (format, resumed) = (message.format, message.resume);
        let (tag, settled) = (message.tag, message.settled);
        let bytes = message.payload.into_bytes();
        let size = bytes.len() as u64;
        let received = Received {
            bytes,
            format,
            tag,
            serial,
            settled,
            resumed,
        };
        let is_there = self.inbox.send(received).is_ok();
        if is_there {
            self.arrived += 1;
            self.arrived_bytes += size;
            self.largest = self.largest.max(size);
        }
        is_there
    }

    /// The application has the message, unless only an earlier process had it: its state
    /// is news.
    fn resume(&mut self, engine: &mut Connection, message: Message<'_>) {
        let (delivery, tag) = (message.delivery, message.tag);
        if self.held.get(&tag).is_some_and(|it| it.delivery.is_none()) {
            self.unresumed = self.unresumed.saturating_sub(1);
        }
        if message.settled {
            return self.handle_settled(tag);
        }
        let second = self.second;
        let Some(held) = self.held.get_mut(&tag) else {
            return;
        };
        held.delivery = Some(delivery);
        if core::mem::take(&mut held.is_unseen) {
            let serial = held.serial;
            // Without the application the link goes.
            self.hand_over(message, serial);
            return;
        }
        match (&held.said, second) {
            (None, _) => {}
            (Some(said), true) => {
                let _ = engine.update(delivery, &said.state.get());
            }
            (Some(said), false) => {
                let _ = engine.settle(delivery, Some(&said.state.get()));
                self.handle_settled(tag);
            }
        }
    }

    /// The sender has settled, or both have.
    pub(super) fn handle_settled(&mut self, tag: Tag) {
        if let Some(said) = self.held.remove(&tag).and_then(|held| held.said) {
            let _ = said.done.send(Ok(()));
        }
    }

    /// The sender gave up a delivery, which the application may have.
    pub(super) fn handle_aborted(&mut self, tag: Tag) {
        self.credit = self.credit.saturating_sub(1);
        if let Some(said) = self.held.remove(&tag).and_then(|held| held.said) {
            let _ = said.done.send(Err(SettleError::Forgotten));
        }
    }

    /// Nothing came of a delivery but that it used credit.
    pub(super) const fn handle_void(&mut self) {
        self.credit = self.credit.saturating_sub(1);
    }

    /// The sender's flow state.
    pub(super) fn handle_flow(&mut self, credit: u32, drained: bool) {
        self.credit = credit;
        if drained {
            self.end_drain();
        }
    }

    /// The application says what became of a delivery.
    pub(super) fn settle(&mut self, engine: Option<&mut Connection>, settle: Settle) {
        let Settle {
            tag,
            serial,
            state,
            done,
        } = settle;
        let second = self.second;
        let held = self.held.get_mut(&tag).filter(|it| it.serial == serial);
        let Some(held) = held else {
            let _ = done.send(Err(SettleError::Forgotten));
            return;
        };
        if held.said.is_some() {
            // The first word counts.
            return;
        }
        let sent = match engine.zip(held.delivery) {
            Some((engine, delivery)) if second => engine.update(delivery, &state.get()).is_ok(),
            Some((engine, delivery)) => engine.settle(delivery, Some(&state.get())).is_ok(),
            None => false,
        };
        held.said = Some(Said { state, done });
        if sent && !second {
            self.handle_settled(tag);
        }
    }

    /// Has the sender use up its credit.
    pub(super) fn drain(
        &mut self,
        engine: Option<(&mut Connection, LinkId)>,
        done: oneshot::Sender<()>,
    ) {
        let Some((engine, link)) = engine.filter(|_| self.credit > 0) else {
            // Nothing is on its way.
            self.shared.is_drained.store(true, Ordering::Release);
            let _ = done.send(());
            return;
        };
        if let Drain::Asked(all) = &mut self.drain {
            all.push(done);
            return;
        }
        self.drain = Drain::Asked(vec![done]);
        if engine.set_credit(link, self.credit, true).is_err() {
            self.end_drain();
        }
    }

    fn end_drain(&mut self) {
        if let Drain::Asked(all) = core::mem::replace(&mut self.drain, Drain::Off) {
            self.shared.is_drained.store(true, Ordering::Release);
            for done in all {
                let _ = done.send(());
            }
        }
    }

    /// Messages and bytes that wait for the application.
    fn waiting(&self) -> (u64, u64) {
        let taken = self.shared.taken.load(Ordering::Acquire);
        let taken_bytes = self.shared.taken_bytes.load(Ordering::Acquire);
        let messages = self.arrived.saturating_sub(taken);
        (messages, self.arrived_bytes.saturating_sub(taken_bytes))
    }

    /// Gives credit when half of it is used up.
    pub(super) fn top_up(&mut self, engine: &mut Connection, link: LinkId) {
        let is_drained = self.shared.is_drained.load(Ordering::Acquire);
        let is_draining = is_drained || matches!(self.drain, Drain::Asked(_));
        if is_draining || self.credit > self.window / 2 {
            return;
        }
        let (messages, bytes) = self.waiting();
        let by_bytes = WAITING_BYTES_MAX.saturating_sub(bytes) / self.largest;
        let room = u64::from(self.window).saturating_sub(messages);
        // One message may be larger than the bound.
        let room = room.min(by_bytes.max(u64::from(messages == 0)));
        let room = room.min(HELD_MAX.saturating_sub(self.held.len()) as u64);
        // What is resumed does not wait for the application again. A sender that uses
        // this credit for other messages fills a second window, and gets no more.
        let resumed = match messages <= u64::from(self.window) {
            true => u64::from(self.window).min(self.unresumed as u64),
            false => 0,
        };
        let room = u32::try_from(room + resumed).unwrap_or(u32::MAX);
        if room > self.credit && engine.set_credit(link, room, false).is_ok() {
            self.credit = room;
        }
    }

    /// The link is over.
    pub(super) fn end(self, why: &LinkError) {
        self.shared.status.set_ended(why.clone());
    }
}
