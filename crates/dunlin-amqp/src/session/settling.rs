//! Dispositions in both directions: what became of deliveries.

use dunlin_amqp_codec::{Disposition, Role, SerialNumber};

use super::{Session, Unsettled};
use crate::error::CallError;
use crate::event::Event;
use crate::ids::{Delivery, SessionId};
use crate::link::LinkPhase;
use crate::state::State;
use crate::wire::Wire;
use dunlin_queue::Window;

/// A range of deliveries that the peer spoke of, which is gone through one by
/// one.
#[derive(Debug)]
pub(crate) struct Range {
    pub(super) session: SessionId,
    /// This side's role.
    role: Role,
    next: SerialNumber,
    last: SerialNumber,
    settled: bool,
    state: Option<State>,
}

impl Session {
    /// A `disposition` of the peer: the deliveries that it is about; `None` if
    /// its last comes before its first.
    pub(super) fn handle_disposition(&self, disposition: &Disposition<'_>) -> Option<Range> {
        let last = disposition.last.unwrap_or(disposition.first);
        disposition.first.count_to(last)?;
        Some(Range {
            session: self.id,
            role: disposition.role.other(),
            next: disposition.first,
            last,
            settled: disposition.settled,
            state: disposition.state.as_ref().and_then(State::new),
        })
    }

    /// The next delivery of a range that the driver knows.
    pub(super) fn next_disposition(
        &mut self,
        range: &mut Range,
        wire: &mut Wire,
    ) -> Option<Event<'static>> {
        let is_outcome = range.state.as_ref().is_some_and(State::is_terminal);
        loop {
            let table = match range.role {
                Role::Sender => &mut self.outgoing.unsettled,
                Role::Receiver => &mut self.received,
            };
            let (id, unsettled) = first_in(table, range.next, range.last)?;
            let Unsettled { handle, tag, .. } = unsettled;
            range.next = SerialNumber(id).next();
            let known = table.get_mut(id).filter(|_| !range.settled);
            if known.is_some_and(|it| !it.hears(is_outcome)) {
                continue;
            }
            if range.settled {
                match range.role {
                    Role::Sender => {
                        self.outgoing.unsettled.remove(id);
                        self.outgoing.report_window(&self.windows, wire);
                    }
                    Role::Receiver => self.forget_received(handle, id),
                }
            }
            if let Some(link) = self.links.at(handle)
                && link.phase == LinkPhase::Attached
            {
                let link = link.id;
                return Some(Event::Disposition {
                    delivery: Delivery { link, id },
                    tag,
                    state: range.state.clone(),
                    settled: range.settled,
                });
            }
        }
    }

    /// Says something of a delivery, and settles it or not.
    pub(crate) fn dispose(
        &mut self,
        delivery: Delivery,
        state: Option<State>,
        settled: bool,
        wire: &mut Wire,
    ) -> Result<(), CallError> {
        let link = self.links.get(delivery.link).ok_or(CallError::Gone)?;
        if link.phase != LinkPhase::Attached {
            return Err(CallError::State);
        }
        let (role, id) = (link.role(), delivery.id);
        let table = match role {
            Role::Sender => &self.outgoing.unsettled,
            Role::Receiver => &self.received,
        };
        let handle = delivery.link.handle;
        if table.get(id).is_none_or(|it| it.handle != handle) {
            return Err(CallError::Gone);
        }
        match role {
            Role::Sender if settled => {
                self.outgoing.unsettled.remove(id);
                self.outgoing.report_window(&self.windows, wire);
            }
            Role::Receiver if settled => self.forget_received(handle, id),
            _ => {}
        }
        // A discharge must not overtake it, on whichever session that is.
        let at_once = state.as_ref().is_some_and(State::is_transactional);
        if self.dispositions.push(role, id, settled, state) || at_once {
            self.dispositions.flush(self.id.channel, &mut wire.out);
        }
        Ok(())
    }
}

/// The first unsettled delivery from `first` to `last`.
fn first_in(
    table: &Window<u32, Unsettled>,
    first: SerialNumber,
    last: SerialNumber,
) -> Option<(u32, Unsettled)> {
    if last.is_before(first) {
        return None;
    }
    let oldest = SerialNumber(table.oldest()?);
    let from = if first.is_before(oldest) {
        oldest
    } else {
        first
    };
    let (id, unsettled) = table.at_or_after(from.0)?;
    (!last.is_before(SerialNumber(id))).then_some((id, *unsettled))
}
