//! What a driver does with SASL, sessions, links and deliveries.

use bytes::Bytes;
use dunlin_amqp_codec::{
    Attach, Begin, DeliveryState, Error, SaslChallenge, SaslCode, SaslFrame, SaslInit, SaslOutcome,
    SaslResponse,
};

use super::Connection;
use crate::error::{CallError, Reason, SendError};
use crate::ids::{Delivery, LinkId, SessionId};
use crate::session::Sending;
use crate::state::State;

impl Connection {
    /// As a client: chooses a mechanism, after [`crate::Event::SaslMechanisms`]
    /// or ahead of it.
    ///
    /// # Errors
    /// There is no SASL layer now.
    pub fn sasl_init(&mut self, init: &SaslInit<'_>) -> Result<(), CallError> {
        let frame = SaslFrame::Init(*init);
        self.layers.send_sasl(&frame, &mut self.wire.out)
    }

    /// As a client: answers a challenge.
    ///
    /// # Errors
    /// There is no SASL layer now.
    pub fn sasl_response(&mut self, response: &[u8]) -> Result<(), CallError> {
        let frame = SaslFrame::Response(SaslResponse { response });
        self.layers.send_sasl(&frame, &mut self.wire.out)
    }

    /// As a server: asks the client for more.
    ///
    /// # Errors
    /// [`CallError::Limit`] if the client was asked too often or nothing of it
    /// waits for an answer; [`CallError::State`] without a SASL layer.
    pub fn sasl_challenge(&mut self, challenge: &[u8]) -> Result<(), CallError> {
        let frame = SaslFrame::Challenge(SaslChallenge { challenge });
        let answered = self.layers.answer_sasl(&frame, &mut self.wire.out);
        answered.map(|_| ())
    }

    /// As a server: decides. If the client is refused, the connection ends.
    ///
    /// # Errors
    /// Nothing of the client waits for an answer.
    pub fn sasl_outcome(&mut self, code: SaslCode, data: Option<&[u8]>) -> Result<(), CallError> {
        let frame = SaslFrame::Outcome(SaslOutcome {
            code,
            additional_data: data,
        });
        let refused = self.layers.answer_sasl(&frame, &mut self.wire.out)?;
        if let Some(fault) = refused {
            self.finish(Some(Reason::from(fault)), false);
        }
        Ok(())
    }

    /// Begins a session. Its windows and `handle-max` are those of
    /// [`crate::Limits`].
    ///
    /// # Errors
    /// `open` was not sent, or no channel is free.
    pub fn begin(&mut self, begin: &Begin<'_>) -> Result<SessionId, CallError> {
        if !self.phase().may_send() {
            return Err(CallError::State);
        }
        self.sessions.begin(begin, &mut self.wire)
    }

    /// Ends a session. Its links are gone now, the session when the peer has
    /// answered.
    ///
    /// # Errors
    /// It is gone or ending.
    pub fn end(&mut self, session: SessionId, error: Option<&Error<'_>>) -> Result<(), CallError> {
        self.sessions.end(session, error, &mut self.wire)
    }

    /// Asks for a link. The handle of `attach` is replaced.
    ///
    /// # Errors
    /// The session is gone, this side has a link with the name and role, no
    /// handle is free, or the frame is too large.
    pub fn attach(&mut self, session: SessionId, attach: &Attach<'_>) -> Result<LinkId, CallError> {
        let session = self.sessions.get(session).ok_or(CallError::Gone)?;
        session.attach(attach, &mut self.wire)
    }

    /// Accepts a link that the peer asked for. Name, handle, role and
    /// initial-delivery-count of `answer` are replaced; settle modes, termini,
    /// unsettled map and `max-message-size` are what this side grants.
    ///
    /// # Errors
    /// The link is gone or not in question, or the frame is too large.
    pub fn accept_attach(&mut self, link: LinkId, answer: &Attach<'_>) -> Result<(), CallError> {
        let session = self.sessions.of_link(link).ok_or(CallError::Gone)?;
        session.accept_attach(link, answer, &mut self.wire)
    }

    /// Closes a link, or refuses one that the peer asked for, with an error.
    ///
    /// # Errors
    /// The link is gone or going, or the frame is too large.
    pub fn refuse_attach(&mut self, link: LinkId, error: &Error<'_>) -> Result<(), CallError> {
        self.detach(link, true, Some(error))
    }

    /// Detaches a link, and closes it if `closed`.
    ///
    /// # Errors
    /// As [`Connection::refuse_attach`].
    pub fn detach(
        &mut self,
        link: LinkId,
        closed: bool,
        error: Option<&Error<'_>>,
    ) -> Result<(), CallError> {
        let session = self.sessions.of_link(link).ok_or(CallError::Gone)?;
        session.detach(link, closed, error, &mut self.wire)
    }

    /// As a receiver: the peer may send `credit` deliveries from now. With
    /// `drain` it sends what it has and gives the rest back
    /// ([`crate::Event::Flow`]).
    ///
    /// # Errors
    /// The link is gone, or not an attached receiver.
    pub fn set_credit(&mut self, link: LinkId, credit: u32, drain: bool) -> Result<(), CallError> {
        let session = self.sessions.of_link(link).ok_or(CallError::Gone)?;
        session.set_credit(link, credit, drain)
    }

    /// As a sender: deliveries that [`Connection::send`] would take now. Where
    /// the session and not the link has room for none,
    /// [`Event::WindowOpen`](crate::Event::WindowOpen) follows.
    #[must_use]
    pub fn credit(&mut self, link: LinkId) -> u32 {
        let max = self.wire.limits.unsettled_sent_max;
        let session = self.sessions.of_link(link);
        session.map_or(0, |session| session.credit(link, max))
    }

    /// As a sender: the link credit, also where the session has no room.
    #[must_use]
    pub fn link_credit(&mut self, link: LinkId) -> u32 {
        let session = self.sessions.of_link(link);
        let sender = session.and_then(|session| session.sender(link).ok());
        sender.map_or(0, |sender| sender.credit)
    }

    /// As a sender: how many deliveries wait, which flow states say from now on.
    ///
    /// # Errors
    /// The link does not send.
    pub fn set_available(&mut self, link: LinkId, available: u32) -> Result<(), SendError> {
        let session = self.sessions.of_link(link).ok_or(SendError::Link)?;
        session.sender(link)?.available = available;
        Ok(())
    }

    /// Sends a message: the bytes of `head`, which are copied, and then those
    /// of `body`, which are shared if they are many.
    ///
    /// # Errors
    /// What is missing; nothing has changed.
    pub fn send(
        &mut self,
        link: LinkId,
        sending: &Sending<'_>,
        head: &[u8],
        body: &Bytes,
    ) -> Result<Delivery, SendError> {
        let session = self.sessions.of_link(link).ok_or(SendError::Link)?;
        let id = session.send(link, sending, head, body, &mut self.wire)?;
        Ok(Delivery { link, id })
    }

    /// Sends a further part of the delivery that was sent last with
    /// [`Sending::more`].
    ///
    /// # Errors
    /// As [`Connection::send`].
    pub fn send_part(&mut self, link: LinkId, body: &Bytes, more: bool) -> Result<(), SendError> {
        let session = self.sessions.of_link(link).ok_or(SendError::Link)?;
        session.send_part(link, body, more, &mut self.wire)
    }

    /// Gives up the delivery of which parts were sent. It is settled.
    ///
    /// # Errors
    /// There is none.
    pub fn abort(&mut self, link: LinkId) -> Result<(), SendError> {
        let session = self.sessions.of_link(link).ok_or(SendError::Link)?;
        session.abort(link, &mut self.wire)
    }

    /// As a sender asked to drain: all there was has been sent. The rest of the
    /// credit goes back.
    ///
    /// # Errors
    /// The link does not send.
    pub fn drained(&mut self, link: LinkId) -> Result<(), SendError> {
        let session = self.sessions.of_link(link).ok_or(SendError::Link)?;
        session.drained(link)
    }

    /// Settles a delivery of either direction, with its state if there is one.
    ///
    /// # Errors
    /// The delivery is gone, or its link is not attached.
    pub fn settle(
        &mut self,
        delivery: Delivery,
        state: Option<&DeliveryState<'_>>,
    ) -> Result<(), CallError> {
        let state = state.and_then(State::new);
        let session = self.sessions.of_link(delivery.link);
        let session = session.ok_or(CallError::Gone)?;
        session.dispose(delivery, state, true, &mut self.wire)
    }

    /// Says the state of a delivery without settling it: the outcome, if the
    /// peer settles first, or how far it came.
    ///
    /// # Errors
    /// As [`Connection::settle`].
    pub fn update(
        &mut self,
        delivery: Delivery,
        state: &DeliveryState<'_>,
    ) -> Result<(), CallError> {
        let state = State::new(state);
        let session = self.sessions.of_link(delivery.link);
        let session = session.ok_or(CallError::Gone)?;
        session.dispose(delivery, state, false, &mut self.wire)
    }
}
