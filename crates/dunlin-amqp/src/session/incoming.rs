//! Transfers of the peer: frames joined to messages, within the credit and the
//! bounds.

use alloc::boxed::Box;

use dunlin_amqp_codec::{
    DeliveryState, ReceiverSettleMode, SenderSettleMode, SerialNumber, Transfer, condition,
};

use super::table::Taken;
use super::{ERRANT, Session, UNATTACHED, Unsettled};
use crate::error::{Failure, Fault};
use crate::event::{Event, Message, Payload};
use crate::ids::{Delivery, LinkId};
use crate::link::{self, Link, LinkPhase, Partial, Receiver};
use crate::state::State;
use crate::tag::Tag;
use crate::transaction::Demand;
use crate::wire::Wire;

impl Session {
    /// A transfer frame with this payload.
    pub(super) fn handle_transfer(
        &mut self,
        transfer: &Transfer<'_>,
        payload: &[u8],
        wire: &mut Wire,
    ) -> Result<Taken, Failure> {
        let is_half_used = self.windows.receive().ok_or(WINDOW)?;
        self.is_flow_due |= is_half_used;
        let handle = self.links.handle_of(transfer.handle).ok_or(UNATTACHED)?;
        let Some(link) = self.links.at(handle) else {
            return Ok(Taken::Nothing);
        };
        match link.phase {
            LinkPhase::DetachSent => return Ok(Taken::Nothing),
            LinkPhase::Errant => return Err(ERRANT),
            LinkPhase::AttachSent | LinkPhase::AttachReceived | LinkPhase::Attached => {}
        }
        let link::End::Receiver(receiver) = &mut link.end else {
            let text = "a transfer to the sending end";
            return Err(fault(handle, condition::NOT_ALLOWED, text));
        };
        let partial = receiver.partial.take();
        match partial {
            Some(partial) => self.handle_further(handle, partial, transfer, payload, wire),
            None => self.handle_first(handle, transfer, payload, wire),
        }
    }

    /// The first transfer of a delivery.
    fn handle_first(
        &mut self,
        handle: u32,
        transfer: &Transfer<'_>,
        payload: &[u8],
        wire: &mut Wire,
    ) -> Result<Taken, Failure> {
        let invalid = |text| fault(handle, condition::INVALID_FIELD, text);
        let (id, tag) = self.names_of(handle, transfer)?;
        let is_full = self.received.len() >= wire.limits.unsettled_received_max;
        let Some(link) = self.links.at(handle) else {
            return Ok(Taken::Nothing);
        };
        let rcv_settle_mode = transfer.rcv_settle_mode.unwrap_or(link.rcv_settle_mode);
        if rcv_settle_mode != link.rcv_settle_mode
            && link.rcv_settle_mode == ReceiverSettleMode::First
        {
            return Err(invalid("rcv-settle-mode second on a link with first"));
        }
        let is_settled_link = link.snd_settle_mode == SenderSettleMode::Settled;
        let settled = transfer.settled.unwrap_or(is_settled_link);
        let link::End::Receiver(receiver) = &mut link.end else {
            return Ok(Taken::Nothing);
        };
        if !receiver.take_credit() {
            let text = "a delivery without link credit";
            return Err(fault(handle, condition::TRANSFER_LIMIT_EXCEEDED, text));
        }
        let resumes = resumes(receiver, handle, tag, transfer)?;
        if transfer.aborted {
            wire.events.push_back(given_up(link.id, tag, resumes));
            return Ok(Taken::Nothing);
        }
        check_size(receiver, handle, payload.len())?;
        let is_ignored = resumes == Resumes::Unknown;
        if !settled && !is_ignored {
            if is_full {
                return Err(UNSETTLED);
            }
            if receiver.tags.contains_key(&tag) {
                return Err(invalid("a delivery-tag that is in use"));
            }
            receiver.tags.insert(tag, id.0);
            self.received.insert(id.0, Unsettled::new(handle, tag));
        }
        let partial = Partial {
            id: id.0,
            tag,
            format: transfer.message_format.unwrap_or(0),
            settled,
            resume: transfer.resume,
            is_ignored,
            rcv_settle_mode,
            state: state_of(transfer.state.as_ref()),
            bytes: alloc::vec::Vec::new(),
        };
        if transfer.more {
            return self.keep(handle, Box::new(partial), payload, wire);
        }
        let Some(link) = self.links.at(handle) else {
            return Ok(Taken::Nothing);
        };
        if is_ignored {
            wire.events.push_back(Event::Void { link: link.id });
            return Ok(Taken::Nothing);
        }
        whole(link, partial, payload)
    }

    /// The id and the tag that the first transfer of a delivery gives it.
    fn names_of(
        &mut self,
        handle: u32,
        transfer: &Transfer<'_>,
    ) -> Result<(SerialNumber, Tag), Failure> {
        let invalid = |text| fault(handle, condition::INVALID_FIELD, text);
        let text = "a delivery without delivery-id";
        let id = transfer.delivery_id.ok_or_else(|| invalid(text))?;
        let tag = transfer.delivery_tag.and_then(Tag::new);
        let tag = tag.ok_or_else(|| invalid("a delivery without a delivery-tag"))?;
        if self.last_received.is_some_and(|last| !last.is_before(id)) {
            return Err(Failure::Session(Fault::new(
                condition::INVALID_FIELD,
                "a delivery-id that does not follow",
            )));
        }
        self.last_received = Some(id);
        Ok((id, tag))
    }

    /// A further transfer of a delivery.
    fn handle_further(
        &mut self,
        handle: u32,
        mut partial: Box<Partial>,
        transfer: &Transfer<'_>,
        payload: &[u8],
        wire: &mut Wire,
    ) -> Result<Taken, Failure> {
        wire.partial_bytes -= partial.bytes.len();
        let invalid = |text| fault(handle, condition::INVALID_FIELD, text);
        let id = SerialNumber(partial.id);
        if transfer.delivery_id.is_some_and(|it| it != id) {
            return Err(invalid("another delivery-id within a delivery"));
        }
        let tag = transfer.delivery_tag;
        if tag.is_some_and(|it| it != partial.tag.as_bytes()) {
            return Err(invalid("another delivery-tag within a delivery"));
        }
        let format = transfer.message_format;
        if format.is_some_and(|it| it != partial.format) {
            return Err(invalid("another message-format within a delivery"));
        }
        if transfer.aborted || transfer.settled == Some(true) {
            self.forget_received(handle, partial.id);
            partial.settled = true;
        }
        let Some(link) = self.links.at(handle) else {
            return Ok(Taken::Nothing);
        };
        let is_over = partial.is_ignored && !transfer.more;
        if transfer.aborted || is_over {
            wire.events.push_back(Event::Void { link: link.id });
            return Ok(Taken::Nothing);
        }
        if let Some(state) = state_of(transfer.state.as_ref()) {
            partial.state = Some(state);
        }
        if let link::End::Receiver(receiver) = &link.end {
            check_size(receiver, handle, partial.bytes.len() + payload.len())?;
        }
        if transfer.more {
            return self.keep(handle, partial, payload, wire);
        }
        partial.bytes.extend_from_slice(payload);
        if link.is_coordinator {
            return demand(link, &partial, &partial.bytes);
        }
        Ok(Taken::Joined(message(link.id, *partial)))
    }

    /// Keeps a delivery of which more is to come, within the budget.
    fn keep(
        &mut self,
        handle: u32,
        mut partial: Box<Partial>,
        payload: &[u8],
        wire: &mut Wire,
    ) -> Result<Taken, Failure> {
        let payload = if partial.is_ignored { &[] } else { payload };
        let bytes = partial.bytes.len() + payload.len();
        if wire.partial_bytes + bytes > wire.limits.partial_bytes_max {
            let text = "too many bytes of messages that are not complete";
            return Err(fault(handle, condition::RESOURCE_LIMIT_EXCEEDED, text));
        }
        wire.partial_bytes += bytes;
        partial.bytes.extend_from_slice(payload);
        if let Some(link) = self.links.at(handle)
            && let link::End::Receiver(receiver) = &mut link.end
        {
            receiver.partial = Some(partial);
        }
        Ok(Taken::Nothing)
    }

    /// A delivery of the peer is settled.
    pub(super) fn forget_received(&mut self, handle: u32, id: u32) {
        if let Some(unsettled) = self.received.take(id)
            && let Some(link) = self.links.at(handle)
            && let link::End::Receiver(receiver) = &mut link.end
        {
            receiver.tags.remove(&unsettled.tag);
            if let Some(partial) = &mut receiver.partial {
                partial.settled |= partial.id == id;
            }
        }
    }
}

/// Whether a delivery was unsettled before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Resumes {
    /// It is new.
    No,
    /// It was, and this side knows it.
    Known,
    /// It was, and this side does not know it: it is not looked at.
    Unknown,
}

fn resumes(
    receiver: &mut Receiver,
    handle: u32,
    tag: Tag,
    transfer: &Transfer<'_>,
) -> Result<Resumes, Failure> {
    if transfer.resume {
        return Ok(match receiver.resumable.take(&tag) {
            true => Resumes::Known,
            false => Resumes::Unknown,
        });
    }
    if receiver.resumable.takes_new() {
        return Ok(Resumes::No);
    }
    let text = "a new delivery while the unsettled map is incomplete";
    Err(fault(handle, condition::ILLEGAL_STATE, text))
}

/// What the driver hears of a delivery that is given up with its first transfer.
const fn given_up(link: LinkId, tag: Tag, resumes: Resumes) -> Event<'static> {
    match resumes {
        Resumes::Known => Event::Aborted { link, tag },
        Resumes::No | Resumes::Unknown => Event::Void { link },
    }
}

/// A delivery that came in one transfer.
fn whole(link: &Link, partial: Partial, payload: &[u8]) -> Result<Taken, Failure> {
    if link.is_coordinator {
        return demand(link, &partial, payload);
    }
    Ok(Taken::Whole(message(link.id, partial)))
}

/// A message to the coordinator that came whole.
fn demand(link: &Link, partial: &Partial, payload: &[u8]) -> Result<Taken, Failure> {
    let handle = link.id.handle;
    if partial.settled {
        let text = "a settled message to a coordinator";
        return Err(fault(handle, condition::NOT_ALLOWED, text));
    }
    let demand = Demand::decode(payload);
    let invalid = Fault::new(condition::DECODE_ERROR, "neither declare nor discharge");
    let delivery = Delivery {
        link: link.id,
        id: partial.id,
    };
    match demand {
        Ok(demand) => Ok(Taken::Demand(delivery, demand)),
        Err(_) => Err(Failure::Link(handle, invalid)),
    }
}

/// The message of a delivery that came whole.
fn message(link: LinkId, partial: Partial) -> Message<'static> {
    Message {
        delivery: Delivery {
            link,
            id: partial.id,
        },
        tag: partial.tag,
        format: partial.format,
        settled: partial.settled,
        rcv_settle_mode: partial.rcv_settle_mode,
        state: partial.state,
        resume: partial.resume,
        payload: Payload::Owned(partial.bytes.into()),
    }
}

fn check_size(receiver: &Receiver, handle: u32, bytes: usize) -> Result<(), Failure> {
    if receiver.takes(bytes) {
        return Ok(());
    }
    let text = "a message larger than max-message-size";
    Err(fault(handle, condition::MESSAGE_SIZE_EXCEEDED, text))
}

fn state_of(state: Option<&DeliveryState<'_>>) -> Option<State> {
    state.and_then(State::new)
}

const fn fault(
    handle: u32,
    condition: dunlin_amqp_codec::Symbol<'static>,
    text: &'static str,
) -> Failure {
    Failure::Link(handle, Fault::new(condition, text))
}

const WINDOW: Failure = Failure::Session(Fault::new(
    condition::WINDOW_VIOLATION,
    "a transfer outside of the incoming window",
));

const UNSETTLED: Failure = Failure::Session(Fault::new(
    condition::RESOURCE_LIMIT_EXCEEDED,
    "too many unsettled deliveries",
));
