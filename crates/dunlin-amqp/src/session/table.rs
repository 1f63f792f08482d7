//! The sessions of a connection, by the channels of both sides, and which
//! frame goes to which.

use alloc::boxed::Box;
use alloc::vec::Vec;

use dunlin_amqp_codec::{Begin, End, Error, Performative, Role, condition};

use super::settling::Range;
use super::{Session, SessionPhase};
use crate::error::{CallError, Failure, Fault, Reason};
use crate::event::{Body, Event, Message};
use crate::ids::{Delivery, LinkId, SessionId};
use crate::link;
use crate::transaction::Demand;
use crate::wire::Wire;

/// What a frame was.
#[derive(Debug)]
pub(crate) enum Taken {
    /// Its events are in the queue, if it has any.
    Nothing,
    /// A message, whose payload is that of this frame.
    Whole(Message<'static>),
    /// A message, put together from frames.
    Joined(Message<'static>),
    /// A message to the coordinator.
    Demand(Delivery, Demand),
    /// Deliveries that the peer spoke of.
    Range(Range),
}

/// Sessions by our channel, and our channels by the peer's.
#[derive(Debug)]
pub(crate) struct Sessions {
    places: Vec<Option<Box<Session>>>,
    by_remote: Vec<Option<u16>>,
    /// Our channels of sessions that have something to write.
    dirty: Vec<u16>,
    remote_channel_max: u16,
}

impl Sessions {
    pub(crate) const fn new() -> Self {
        Self {
            places: Vec::new(),
            by_remote: Vec::new(),
            dirty: Vec::new(),
            remote_channel_max: u16::MAX,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.places.iter().flatten().count()
    }

    /// Deliveries that came and are not settled, on one link or on all.
    pub(crate) fn unsettled_received(&self, link: Option<LinkId>) -> usize {
        let Some(id) = link else {
            let sessions = self.places.iter().flatten();
            return sessions.map(|session| session.received.len()).sum();
        };
        let session = self.places.get(usize::from(id.channel));
        let link = session.and_then(|session| session.as_ref()?.links.get(id));
        match link.map(|link| &link.end) {
            Some(link::End::Receiver(receiver)) => receiver.tags.len(),
            Some(link::End::Sender(_)) | None => 0,
        }
    }

    /// `channel-max` of the peer.
    pub(crate) const fn set_remote_channel_max(&mut self, max: u16) {
        self.remote_channel_max = max;
    }

    /// A frame of the peer, with the bytes of its body.
    pub(crate) fn handle_frame(
        &mut self,
        channel: u16,
        performative: &Performative<'_>,
        body: &[u8],
        payload: &[u8],
        wire: &mut Wire,
    ) -> Result<Taken, Fault> {
        if channel >= wire.limits.sessions_max {
            let text = "a channel above channel-max";
            return Err(Fault::new(condition::FRAMING_ERROR, text));
        }
        if let Performative::Begin(begin) = performative {
            self.handle_begin(channel, begin, body, wire)?;
            return Ok(Taken::Nothing);
        }
        let ours = self.by_remote.get(usize::from(channel)).copied().flatten();
        let ours = ours.ok_or(Fault::new(
            condition::ILLEGAL_STATE,
            "a frame on a channel without a session",
        ))?;
        if let Performative::End(end) = performative {
            self.handle_end(ours, end, wire);
            return Ok(Taken::Nothing);
        }
        let steals = match performative {
            Performative::Attach(attach) => self.find_link(attach.name, attach.role.other()),
            _ => None,
        };
        let Some(session) = self.at(ours) else {
            return Ok(Taken::Nothing);
        };
        if session.phase != SessionPhase::Mapped {
            return Ok(Taken::Nothing);
        }
        let taken = session.handle_frame(performative, body, payload, steals, wire);
        let taken = match taken {
            Ok(taken) => taken,
            Err(Failure::Connection(fault)) => return Err(fault),
            Err(Failure::Session(fault)) => {
                session.fail(fault, wire);
                Taken::Nothing
            }
            Err(Failure::Link(handle, fault)) => {
                session.fail_link(handle, fault, wire);
                Taken::Nothing
            }
        };
        self.mark(ours);
        Ok(taken)
    }

    fn handle_begin(
        &mut self,
        channel: u16,
        begin: &Begin<'_>,
        body: &[u8],
        wire: &mut Wire,
    ) -> Result<(), Fault> {
        let place = usize::from(channel);
        if self.by_remote.get(place).copied().flatten().is_some() {
            let text = "the channel has a session";
            return Err(Fault::new(condition::ILLEGAL_STATE, text));
        }
        let ours = match begin.remote_channel {
            Some(ours) => ours,
            None => {
                let full = Fault::new(condition::RESOURCE_LIMIT_EXCEEDED, "too many sessions");
                self.insert(SessionPhase::Mapped, wire).ok_or(full)?
            }
        };
        let wrong = Fault::new(condition::ILLEGAL_STATE, "begin answers no begin");
        let session = self.at(ours).ok_or(wrong)?;
        if session.remote_channel.is_some() {
            return Err(wrong);
        }
        session.handle_begin(channel, begin);
        let by_peer = begin.remote_channel.is_none();
        if by_peer {
            // The fields of ours fit into the smallest frame.
            let _ = session.write_begin(&Begin::default(), wire);
        }
        if session.phase == SessionPhase::Mapped {
            wire.events.push_back(Event::Begun {
                session: session.id,
                by_peer,
                begin: Body::new(body),
            });
        }
        if place >= self.by_remote.len() {
            self.by_remote.resize(place + 1, None);
        }
        if let Some(mapped) = self.by_remote.get_mut(place) {
            *mapped = Some(ours);
        }
        Ok(())
    }

    fn handle_end(&mut self, ours: u16, end: &End<'_>, wire: &mut Wire) {
        let Some(session) = self.at(ours) else {
            return;
        };
        let error = end.error.map(Reason::from);
        if session.phase == SessionPhase::Mapped {
            session.detach_all(wire, error.as_ref());
            let _ = session.end(None, wire);
        }
        if session.phase != SessionPhase::Discarding {
            let session = session.id;
            wire.events.push_back(Event::Ended { session, error });
        }
        self.remove(ours);
    }

    /// Begins a session.
    pub(crate) fn begin(
        &mut self,
        begin: &Begin<'_>,
        wire: &mut Wire,
    ) -> Result<SessionId, CallError> {
        let channel = self.insert(SessionPhase::BeginSent, wire);
        let channel = channel.ok_or(CallError::Limit)?;
        let session = self.at(channel).ok_or(CallError::Limit)?;
        let id = session.id;
        if let Err(error) = session.write_begin(begin, wire) {
            self.remove(channel);
            return Err(error);
        }
        Ok(id)
    }

    /// Ends a session.
    pub(crate) fn end(
        &mut self,
        id: SessionId,
        error: Option<&Error<'_>>,
        wire: &mut Wire,
    ) -> Result<(), CallError> {
        let session = self.at(id.channel).filter(|session| session.id == id);
        let session = session.ok_or(CallError::Gone)?;
        if !session.is_usable() {
            return Err(CallError::State);
        }
        session.end(error, wire)
    }

    /// The session of a link, for a call. It is looked at by
    /// [`Sessions::flush`].
    pub(crate) fn of_link(&mut self, link: LinkId) -> Option<&mut Session> {
        self.mark(link.channel);
        self.at(link.channel).filter(|session| session.is_usable())
    }

    /// The session with this id, for a call.
    pub(crate) fn get(&mut self, id: SessionId) -> Option<&mut Session> {
        self.at(id.channel).filter(|session| session.id == id)
    }

    /// The next event of a range.
    pub(crate) fn next_disposition(
        &mut self,
        range: &mut Range,
        wire: &mut Wire,
    ) -> Option<Event<'static>> {
        let session = self.get(range.session)?;
        session.next_disposition(range, wire)
    }

    /// Writes what sessions have gathered.
    pub(crate) fn flush(&mut self, wire: &mut Wire) {
        for channel in core::mem::take(&mut self.dirty) {
            if let Some(session) = self.at(channel) {
                session.is_dirty = false;
                session.flush(wire);
            }
        }
    }

    /// The connection has ended: links, then sessions.
    pub(crate) fn end_all(&mut self, wire: &mut Wire, error: Option<&Reason>) {
        for session in self.places.iter_mut().flatten() {
            session.detach_all(wire, error);
            if session.phase != SessionPhase::Discarding {
                wire.events.push_back(Event::Ended {
                    session: session.id,
                    error: error.cloned(),
                });
            }
        }
        *self = Self::new();
    }

    fn find_link(&self, name: &str, role: Role) -> Option<LinkId> {
        let mut sessions = self.places.iter().flatten();
        sessions.find_map(|session| session.find_link(name, role))
    }

    fn insert(&mut self, phase: SessionPhase, wire: &mut Wire) -> Option<u16> {
        let free = self.places.iter().position(Option::is_none);
        let place = free.unwrap_or(self.places.len());
        let channel = u16::try_from(place).ok()?;
        if channel >= wire.limits.sessions_max || channel > self.remote_channel_max {
            return None;
        }
        if free.is_none() {
            self.places.push(None);
        }
        let id = SessionId {
            channel,
            serial: wire.next_serial(),
        };
        let window = wire.limits.incoming_window;
        *self.places.get_mut(place)? = Some(Box::new(Session::new(id, phase, window)));
        Some(channel)
    }

    fn remove(&mut self, channel: u16) {
        let place = self.places.get_mut(usize::from(channel));
        if let Some(session) = place.and_then(Option::take)
            && let Some(remote) = session.remote_channel
            && let Some(mapped) = self.by_remote.get_mut(usize::from(remote))
        {
            *mapped = None;
        }
        while self.places.last().is_some_and(Option::is_none) {
            self.places.pop();
        }
        while self.by_remote.last().is_some_and(Option::is_none) {
            self.by_remote.pop();
        }
    }

    fn at(&mut self, channel: u16) -> Option<&mut Session> {
        self.places.get_mut(usize::from(channel))?.as_deref_mut()
    }

    /// The session is looked at by [`Sessions::flush`].
    fn mark(&mut self, channel: u16) {
        if let Some(session) = self.at(channel)
            && !core::mem::replace(&mut session.is_dirty, true)
        {
            self.dirty.push(channel);
        }
    }
}

impl Session {
    /// A frame of the peer on this session.
    fn handle_frame(
        &mut self,
        performative: &Performative<'_>,
        body: &[u8],
        payload: &[u8],
        steals: Option<LinkId>,
        wire: &mut Wire,
    ) -> Result<Taken, Failure> {
        match performative {
            Performative::Transfer(transfer) => self.handle_transfer(transfer, payload, wire),
            Performative::Disposition(disposition) => {
                let range = self.handle_disposition(disposition);
                let text = "a range that ends before it begins";
                let fault = Fault::new(condition::INVALID_FIELD, text);
                range.map(Taken::Range).ok_or(Failure::Session(fault))
            }
            Performative::Flow(flow) => {
                self.handle_flow(flow, wire)?;
                Ok(Taken::Nothing)
            }
            Performative::Attach(attach) => {
                self.handle_attach(attach, body, steals, wire)?;
                Ok(Taken::Nothing)
            }
            Performative::Detach(detach) => {
                self.handle_detach(detach, wire)?;
                Ok(Taken::Nothing)
            }
            _ => Err(Failure::Connection(Fault::new(
                condition::ILLEGAL_STATE,
                "a frame that is not one of a session",
            ))),
        }
    }
}
