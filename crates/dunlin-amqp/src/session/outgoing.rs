//! Transfers to the peer: messages cut into frames, within credit and window.
//!
//! A delivery begins only when the window is open, so that at most its rest
//! waits here: one delivery for each link.

use alloc::collections::VecDeque;

use bytes::Bytes;
use dunlin_amqp_codec::{DeliveryState, ReceiverSettleMode, SerialNumber, Transfer};
use dunlin_queue::Window;

use super::windows::Windows;
use super::{KEPT_MAX, Session, Unsettled};
use crate::error::SendError;
use crate::event::Event;
use crate::ids::{LinkId, SessionId};
use crate::link::{self, FIRST, LinkPhase, Sender, SentPart};
use crate::output::Parts;
use crate::tag::Tag;
use crate::wire::Wire;

/// How a message is sent.
#[derive(Clone, Copy, Debug)]
pub struct Sending<'a> {
    /// Unique among the unsettled deliveries of the link; the driver sees to it.
    pub tag: Tag,
    /// Format of the message, 0 for AMQP.
    pub format: u32,
    /// It is settled at once: nothing comes back.
    pub settled: bool,
    /// Whether it is all of the message.
    pub extent: Extent,
    /// The delivery was unsettled when an earlier attachment ended.
    pub resume: bool,
    /// The answer may wait for others.
    pub batchable: bool,
    /// Which end settles first, if not as the link says.
    pub rcv_settle_mode: Option<ReceiverSettleMode>,
    /// State at this side, such as a transaction.
    pub state: Option<DeliveryState<'a>>,
}

/// Whether what is sent is all of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// It is.
    Whole,
    /// Further parts follow with [`crate::Connection::send_part`].
    First,
    /// A resumed delivery is given up: nothing is sent of it.
    Aborted,
}

impl Sending<'_> {
    /// A whole message of AMQP.
    #[must_use]
    pub const fn new(tag: Tag, settled: bool) -> Self {
        Self {
            tag,
            format: 0,
            settled,
            extent: Extent::Whole,
            resume: false,
            batchable: false,
            rcv_settle_mode: None,
            state: None,
        }
    }
}

/// The rest of a part, or the end of a delivery that was given up.
#[derive(Debug)]
struct Held {
    /// Our handle of the link.
    handle: u32,
    settled: bool,
    parts: Parts,
    /// Parts of the driver follow these.
    more: bool,
    aborted: bool,
}

/// What was sent on a session and is not settled, and what waits for the window.
#[derive(Debug)]
pub(super) struct Outgoing {
    session: SessionId,
    /// Deliveries to the peer, by delivery-id.
    pub(super) unsettled: Window<u32, Unsettled>,
    next_id: SerialNumber,
    /// Parts of deliveries that began.
    held: VecDeque<Held>,
    /// The driver was refused a transfer and is to hear when one is possible.
    was_refused: bool,
}

impl Session {
    /// Sends a message or its first part; the delivery-id.
    pub(crate) fn send(
        &mut self,
        link: LinkId,
        sending: &Sending<'_>,
        head: &[u8],
        body: &Bytes,
        wire: &mut Wire,
    ) -> Result<u32, SendError> {
        let (head, body) = match sending.extent {
            Extent::Whole | Extent::First => (head, body),
            Extent::Aborted => (&[][..], &Bytes::new()),
        };
        let size = (head.len() + body.len()) as u64;
        let sender = self.sender(link)?;
        if sender.part.is_some() {
            return Err(SendError::Part);
        }
        if sender.credit == 0 {
            return Err(SendError::Credit);
        }
        if !sender.takes(size) {
            return Err(SendError::MessageSize);
        }
        if !sender.may_begin(sending.resume) {
            return Err(SendError::Incomplete);
        }
        if !self.outgoing.may_transfer(&self.windows) {
            self.outgoing.was_refused = true;
            return Err(SendError::Window);
        }
        if !sending.settled && self.outgoing.unsettled.len() >= wire.limits.unsettled_sent_max {
            self.outgoing.was_refused = true;
            return Err(SendError::Unsettled);
        }
        let id = self.outgoing.next_id;
        let mut transfer = Transfer {
            handle: link.handle,
            delivery_id: Some(id),
            delivery_tag: Some(sending.tag.as_bytes()),
            message_format: Some(sending.format),
            settled: Some(sending.settled),
            more: sending.extent == Extent::First,
            rcv_settle_mode: sending.rcv_settle_mode,
            state: sending.state,
            resume: sending.resume,
            batchable: sending.batchable,
            aborted: sending.extent == Extent::Aborted,
        };
        let windows = &mut self.windows;
        self.outgoing
            .write_first(windows, &mut transfer, head, body, wire)?;
        self.outgoing.next_id = id.next();
        if let Ok(sender) = self.sender(link) {
            sender.take_credit();
            sender.part = (sending.extent == Extent::First).then_some(SentPart {
                id: id.0,
                settled: sending.settled,
                bytes: size,
            });
        }
        if !sending.settled && sending.extent != Extent::Aborted {
            let (handle, tag) = (link.handle, sending.tag);
            let unsettled = Unsettled::new(handle, tag);
            self.outgoing.unsettled.insert(id.0, unsettled);
        }
        Ok(id.0)
    }

    /// Sends a further part of the delivery that has begun on the link.
    pub(crate) fn send_part(
        &mut self,
        link: LinkId,
        body: &Bytes,
        more: bool,
        wire: &mut Wire,
    ) -> Result<(), SendError> {
        let sender = self.sender(link)?;
        let mut part = sender.part.ok_or(SendError::Part)?;
        part.bytes += body.len() as u64;
        if !sender.takes(part.bytes) {
            return Err(SendError::MessageSize);
        }
        if !self.outgoing.may_transfer(&self.windows) {
            self.outgoing.was_refused = true;
            return Err(SendError::Window);
        }
        if let Ok(sender) = self.sender(link) {
            sender.part = more.then_some(part);
        }
        let parts = Parts {
            head: Bytes::new(),
            body: body.clone(),
        };
        let held = Held {
            handle: link.handle,
            settled: part.settled,
            parts,
            more,
            aborted: false,
        };
        self.outgoing.hold(held, &mut self.windows, wire);
        Ok(())
    }

    /// Gives up the delivery that has begun on the link. It is settled.
    pub(crate) fn abort(&mut self, link: LinkId, wire: &mut Wire) -> Result<(), SendError> {
        let part = self.sender(link)?.part.take().ok_or(SendError::Part)?;
        self.outgoing.unsettled.remove(part.id);
        self.outgoing.drop_held(link.handle);
        let held = Held {
            handle: link.handle,
            settled: part.settled,
            parts: Parts::default(),
            more: false,
            aborted: true,
        };
        self.outgoing.hold(held, &mut self.windows, wire);
        Ok(())
    }

    /// The sending end with this id, attached.
    pub(crate) fn sender(&mut self, link: LinkId) -> Result<&mut Sender, SendError> {
        let link = self.links.get_mut(link).ok_or(SendError::Link)?;
        match (link.phase, &mut link.end) {
            (LinkPhase::Attached, link::End::Sender(sender)) => Ok(sender),
            _ => Err(SendError::Link),
        }
    }

    /// Deliveries that [`Session::send`] would take now. A driver that
    /// has link credit, and may send none, hears when it may.
    pub(crate) fn credit(&mut self, link: LinkId, unsettled_max: usize) -> u32 {
        let credit = self.sender(link).map_or(0, |sender| sender.credit);
        let room = unsettled_max.saturating_sub(self.outgoing.unsettled.len());
        if !self.outgoing.may_transfer(&self.windows) || room == 0 {
            self.outgoing.was_refused |= credit > 0;
            return 0;
        }
        credit.min(u32::try_from(room).unwrap_or(u32::MAX))
    }

    /// The driver has sent all there was: the rest of the credit is given back.
    pub(crate) fn drained(&mut self, link: LinkId) -> Result<(), SendError> {
        self.sender(link)?.drained();
        self.mark_flow(link.handle);
        Ok(())
    }
}

impl Outgoing {
    pub(super) fn new(session: SessionId) -> Self {
        Self {
            session,
            unsettled: Window::keeping(KEPT_MAX),
            next_id: FIRST,
            held: VecDeque::new(),
            was_refused: false,
        }
    }

    /// Whether the window is open and none waits for it.
    fn may_transfer(&self, windows: &Windows) -> bool {
        windows.is_open() && self.held.is_empty()
    }

    /// Writes the first frame, and the others if the window takes them.
    fn write_first(
        &mut self,
        windows: &mut Windows,
        transfer: &mut Transfer<'_>,
        head: &[u8],
        body: &Bytes,
        wire: &mut Wire,
    ) -> Result<(), SendError> {
        let channel = self.session.channel;
        if wire.out.transfer_whole(channel, transfer, head, body) {
            windows.send();
            return Ok(());
        }
        let parts = Parts {
            head: Bytes::copy_from_slice(head),
            body: body.clone(),
        };
        let mut held = Held {
            handle: transfer.handle,
            settled: transfer.settled.unwrap_or_default(),
            parts,
            more: transfer.more,
            aborted: false,
        };
        // The frames of the peer are too small for the state.
        let written = wire
            .out
            .transfer_part(channel, transfer, &mut held.parts, held.more);
        written.map_err(|_| SendError::MessageSize)?;
        windows.send();
        self.hold(held, windows, wire);
        Ok(())
    }

    fn hold(&mut self, held: Held, windows: &mut Windows, wire: &mut Wire) {
        self.held.push_back(held);
        self.pump(windows, wire);
    }

    /// Sends what waits while the window is open.
    pub(super) fn pump(&mut self, windows: &mut Windows, wire: &mut Wire) {
        while windows.is_open()
            && let Some(mut held) = self.held.pop_front()
        {
            let mut transfer = Transfer {
                handle: held.handle,
                settled: held.settled.then_some(true),
                aborted: held.aborted,
                ..Transfer::default()
            };
            let channel = self.session.channel;
            // Without a tag and a state the fields fit into the smallest frame.
            let _ = wire
                .out
                .transfer_part(channel, &mut transfer, &mut held.parts, held.more);
            windows.send();
            if !held.parts.is_empty() {
                self.held.push_front(held);
            }
        }
    }

    /// Says that a transfer is possible, if one was refused.
    pub(super) fn report_window(&mut self, windows: &Windows, wire: &mut Wire) {
        let has_room = self.unsettled.len() < wire.limits.unsettled_sent_max;
        if self.was_refused && self.may_transfer(windows) && has_room {
            self.was_refused = false;
            let session = self.session;
            wire.events.push_back(Event::WindowOpen { session });
        }
    }

    /// Whether a delivery of the link waits for the window.
    pub(super) fn is_held(&self, handle: u32) -> bool {
        self.held.iter().any(|held| held.handle == handle)
    }

    /// What waits of a link is not sent any more.
    pub(super) fn drop_held(&mut self, handle: u32) {
        self.held.retain(|held| held.handle != handle);
    }

    /// The session ends: the driver hears of nothing but that.
    pub(super) const fn note_ended(&mut self) {
        self.was_refused = false;
    }
}
