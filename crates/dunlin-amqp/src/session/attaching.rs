//! Attach and detach in both directions.

use dunlin_amqp_codec::{Attach, Detach, Error, Performative, Role, condition};

use super::{Session, UNATTACHED};
use crate::error::{CallError, Failure, Fault, Reason};
use crate::event::{Body, Event};
use crate::ids::{LinkId, SessionId};
use crate::limits::LINK_NAME_BYTES_MAX;
use crate::link::{self, Link, LinkPhase};
use crate::wire::Wire;

impl Session {
    /// `attach` of the peer, whose body is `body`. `steals` is a link of another
    /// session with the same name and direction.
    pub(super) fn handle_attach(
        &mut self,
        attach: &Attach<'_>,
        body: &[u8],
        steals: Option<LinkId>,
        wire: &mut Wire,
    ) -> Result<(), Failure> {
        if attach.handle >= wire.limits.links_max {
            let text = "a handle above handle-max";
            return Err(Failure::Connection(Fault::new(
                condition::FRAMING_ERROR,
                text,
            )));
        }
        if self.links.handle_of(attach.handle).is_some() {
            let text = "the handle has a link";
            return Err(session_fault(condition::HANDLE_IN_USE, text));
        }
        if attach.name.len() > LINK_NAME_BYTES_MAX {
            let text = "a link name that is too long";
            return Err(session_fault(condition::RESOURCE_LIMIT_EXCEEDED, text));
        }
        if attach.role == Role::Sender && attach.initial_delivery_count.is_none() {
            let text = "a sender without initial-delivery-count";
            return Err(session_fault(condition::INVALID_FIELD, text));
        }
        let our_role = attach.role.other();
        let asked = self.links.iter().find(|link| {
            link.remote_handle.is_none() && link.role() == our_role && link.name == *attach.name
        });
        if let Some(handle) = asked.map(|link| link.id.handle) {
            self.handle_attach_answer(handle, attach, body, wire);
            return Ok(());
        }
        let steals = steals.or_else(|| self.find_link(attach.name, our_role));
        let handle_max = handle_max(self.remote_handle_max, wire);
        let Some(handle) = self.links.free_handle(handle_max) else {
            let text = "too many links";
            return Err(session_fault(condition::RESOURCE_LIMIT_EXCEEDED, text));
        };
        let id = new_link_id(self.id, handle, wire);
        self.links.insert(Link::offered(id, attach));
        wire.events.push_back(Event::Attach {
            link: id,
            session: self.id,
            attach: Body::new(body),
            steals,
        });
        Ok(())
    }

    /// The peer answers our `attach`.
    fn handle_attach_answer(
        &mut self,
        handle: u32,
        attach: &Attach<'_>,
        body: &[u8],
        wire: &mut Wire,
    ) {
        self.links.map_remote(attach.handle, handle);
        let Some(link) = self.links.at(handle) else {
            return;
        };
        link.handle_answer(attach);
        if link.phase == LinkPhase::Attached {
            wire.events.push_back(Event::Attached {
                link: link.id,
                attach: Body::new(body),
            });
        }
    }

    /// A link with this name and role of ours that the peer has attached.
    pub(super) fn find_link(&self, name: &str, role: Role) -> Option<LinkId> {
        let mut links = self.links.iter();
        let found = links.find(|link| {
            matches!(link.phase, LinkPhase::Attached | LinkPhase::AttachReceived)
                && link.role() == role
                && link.name == *name
        });
        found.map(|link| link.id)
    }

    /// Asks for a link. The handle of `attach` is replaced.
    pub(crate) fn attach(
        &mut self,
        attach: &Attach<'_>,
        wire: &mut Wire,
    ) -> Result<LinkId, CallError> {
        let is_name_used = |link: &Link| link.role() == attach.role && link.name == *attach.name;
        if !self.is_usable() || self.links.iter().any(is_name_used) {
            return Err(CallError::State);
        }
        let handle_max = handle_max(self.remote_handle_max, wire);
        let handle = self.links.free_handle(handle_max);
        let handle = handle.ok_or(CallError::Limit)?;
        let id = new_link_id(self.id, handle, wire);
        let link = Link::asked(id, attach);
        self.write_attach(&link, attach, wire)?;
        self.links.insert(link);
        Ok(id)
    }

    /// Accepts a link of the peer. Name, handle and role of `answer` are
    /// replaced.
    pub(crate) fn accept_attach(
        &mut self,
        id: LinkId,
        answer: &Attach<'_>,
        wire: &mut Wire,
    ) -> Result<(), CallError> {
        let link = self.links.get(id).ok_or(CallError::Gone)?;
        if link.phase != LinkPhase::AttachReceived {
            return Err(CallError::State);
        }
        self.write_attach(link, answer, wire)?;
        let Some(link) = self.links.get_mut(id) else {
            return Err(CallError::Gone);
        };
        link.accept(answer);
        if let link::End::Sender(sender) = &link.end
            && (sender.credit > 0 || sender.drain)
        {
            wire.events.push_back(Event::Credit {
                link: id,
                credit: sender.credit,
                drain: sender.drain,
            });
        }
        Ok(())
    }

    fn write_attach(
        &self,
        link: &Link,
        attach: &Attach<'_>,
        wire: &mut Wire,
    ) -> Result<(), CallError> {
        let initial_delivery_count = match &link.end {
            link::End::Sender(sender) => Some(sender.initial_delivery_count()),
            link::End::Receiver(_) => None,
        };
        let attach = Attach {
            name: &link.name,
            handle: link.id.handle,
            role: link.role(),
            initial_delivery_count,
            ..*attach
        };
        wire.out
            .write(self.id.channel, &Performative::Attach(attach))
    }

    /// Answers `attach` with one that has neither source nor target.
    pub(super) fn write_attach_without_terminus(
        &self,
        handle: u32,
        wire: &mut Wire,
    ) -> Result<(), CallError> {
        let mut links = self.links.iter();
        match links.find(|link| link.id.handle == handle) {
            Some(link) => self.write_attach(link, &Attach::default(), wire),
            None => Err(CallError::Gone),
        }
    }

    /// Detaches a link, or refuses it if it was not accepted.
    pub(crate) fn detach(
        &mut self,
        id: LinkId,
        closed: bool,
        error: Option<&Error<'_>>,
        wire: &mut Wire,
    ) -> Result<(), CallError> {
        let link = self.links.get(id).ok_or(CallError::Gone)?;
        match link.phase {
            LinkPhase::DetachSent | LinkPhase::Errant => return Err(CallError::State),
            LinkPhase::AttachReceived => self.write_attach_without_terminus(id.handle, wire)?,
            LinkPhase::AttachSent | LinkPhase::Attached => {}
        }
        self.write_detach(id.handle, closed, error, wire)?;
        self.forget_deliveries(id.handle, wire);
        if let Some(link) = self.links.get_mut(id) {
            link.phase = LinkPhase::DetachSent;
        }
        Ok(())
    }

    /// `detach` of the peer.
    pub(super) fn handle_detach(
        &mut self,
        detach: &Detach<'_>,
        wire: &mut Wire,
    ) -> Result<(), Failure> {
        let handle = self.links.handle_of(detach.handle).ok_or(UNATTACHED)?;
        let Some(link) = self.links.at(handle) else {
            return Ok(());
        };
        let (id, phase) = (link.id, link.phase);
        if phase == LinkPhase::AttachReceived {
            let _ = self.write_attach_without_terminus(handle, wire);
        }
        if matches!(phase, LinkPhase::AttachReceived | LinkPhase::Attached) {
            let _ = self.write_detach(handle, detach.closed, None, wire);
        }
        self.remove_link(handle, wire);
        if phase != LinkPhase::Errant {
            wire.events.push_back(Event::Detached {
                link: id,
                closed: detach.closed,
                error: detach.error.map(Reason::from),
            });
        }
        Ok(())
    }

    /// Gives the peer credit: `credit` deliveries from now.
    pub(crate) fn set_credit(
        &mut self,
        id: LinkId,
        credit: u32,
        drain: bool,
    ) -> Result<(), CallError> {
        let link = self.links.get_mut(id).ok_or(CallError::Gone)?;
        let may = matches!(link.phase, LinkPhase::AttachSent | LinkPhase::Attached);
        match &mut link.end {
            link::End::Receiver(receiver) if may => {
                receiver.set_credit(credit, drain);
            }
            _ => return Err(CallError::State),
        }
        self.mark_flow(id.handle);
        Ok(())
    }
}

/// The highest handle that both sides take.
fn handle_max(remote: u32, wire: &Wire) -> u32 {
    let ours = wire.limits.links_max.saturating_sub(1);
    ours.min(remote)
}

fn new_link_id(session: SessionId, handle: u32, wire: &mut Wire) -> LinkId {
    LinkId {
        channel: session.channel,
        handle,
        serial: wire.next_serial(),
    }
}

const fn session_fault(
    condition: dunlin_amqp_codec::Symbol<'static>,
    text: &'static str,
) -> Failure {
    Failure::Session(Fault::new(condition, text))
}
