//! What a connection tells its driver.

use bytes::Bytes;
use dunlin_amqp_codec::{Attach, Begin, Open, ReceiverSettleMode, SaslCode, SaslMechanisms};
use dunlin_base::Text;

use crate::error::Reason;
use crate::ids::{Delivery, LinkId, SessionId};
use crate::state::State;
use crate::tag::Tag;
use crate::transaction::Demand;

/// Something that the driver acts upon; the table in the crate's opening says
/// how.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Event<'d> {
    /// To a client: what the server offers ([`Body::mechanisms`]).
    SaslMechanisms(Body),
    /// To a server: the client's choice.
    SaslInit {
        /// The mechanism.
        mechanism: Text,
        /// What the mechanism sends first, if it does.
        response: Option<Bytes>,
        /// The host that the client means.
        hostname: Option<Text>,
    },
    /// To a client: answer with [`crate::Connection::sasl_response`].
    SaslChallenge(Bytes),
    /// To a server: the answer to a challenge.
    SaslResponse(Bytes),
    /// To a client: whether it is authenticated. If not, [`Event::Closed`]
    /// follows.
    SaslOutcome {
        /// The outcome.
        code: SaslCode,
        /// As the mechanism defines it.
        data: Option<Bytes>,
    },
    /// `open` of the peer ([`Body::open`]).
    Opened(Body),
    /// `begin` of the peer ([`Body::begin`]): its own, which is answered
    /// already, or the answer to this side's.
    Begun {
        /// The session.
        session: SessionId,
        /// The peer began it.
        by_peer: bool,
        /// The frame.
        begin: Body,
    },
    /// The session is gone. Its links were before.
    Ended {
        /// The session.
        session: SessionId,
        /// Why, if not on purpose.
        error: Option<Reason>,
    },
    /// The peer wants a link ([`Body::attach`]).
    Attach {
        /// Its id from now on.
        link: LinkId,
        /// The session that it is on.
        session: SessionId,
        /// The frame.
        attach: Body,
        /// A link of this connection with the same name and direction, which
        /// this one steals. The driver detaches it with `amqp:link:stolen`.
        steals: Option<LinkId>,
    },
    /// The peer's answer to this side's `attach` ([`Body::attach`]). If it has
    /// no source or no target for what this side asked, it is refused and
    /// [`Event::Detached`] says why.
    Attached {
        /// The link.
        link: LinkId,
        /// The frame.
        attach: Body,
    },
    /// The link is gone.
    Detached {
        /// The link.
        link: LinkId,
        /// It was closed; else it may be attached again and resumed.
        closed: bool,
        /// Why, if not on purpose.
        error: Option<Reason>,
    },
    /// To the sending end: credit changed.
    Credit {
        /// The link.
        link: LinkId,
        /// Deliveries that may be sent.
        credit: u32,
        /// The receiver wants what there is, and then
        /// [`crate::Connection::drained`].
        drain: bool,
    },
    /// To the receiving end: the sender's flow state.
    Flow {
        /// The link.
        link: LinkId,
        /// Credit that is left.
        credit: u32,
        /// Deliveries that wait at the sender, if it says.
        available: Option<u32>,
        /// The sender has used up or given back all credit.
        drained: bool,
    },
    /// A message came whole.
    Message(Message<'d>),
    /// A resumed delivery was given up by the sender: what there was of it under
    /// this tag is to be forgotten.
    Aborted {
        /// The link.
        link: LinkId,
        /// The tag.
        tag: Tag,
    },
    /// Nothing came of a delivery: it was given up before it was whole, or it was to be
    /// resumed and is not known here. It has used credit.
    Void {
        /// The link.
        link: LinkId,
    },
    /// To a coordinator: begin or end a transaction.
    Demand {
        /// The delivery, which the driver settles.
        delivery: Delivery,
        /// What is to be done.
        demand: Demand,
    },
    /// The peer says what became of a delivery, of either direction.
    Disposition {
        /// The delivery.
        delivery: Delivery,
        /// Its tag.
        tag: Tag,
        /// Its state at the peer, if it says.
        state: Option<State>,
        /// The peer has settled it: it is forgotten here.
        settled: bool,
    },
    /// [`crate::Connection::send`] refused something on this session and would
    /// not now.
    WindowOpen {
        /// The session.
        session: SessionId,
    },
    /// The connection has ended. Its links and sessions were gone before. What
    /// [`crate::Connection::poll_output`] has is still to be sent.
    Closed {
        /// Why, if not on purpose.
        error: Option<Reason>,
        /// The peer's `close` said so; else this side's, a time-out or the
        /// transport.
        by_peer: bool,
    },
}

/// An event with its own memory: all but a message have that already.
macro_rules! owned {
    ($event:expr, $($Name:ident { $($field:ident),+ })+, $($Single:ident)+) => {
        match $event {
            Event::Message(message) => Event::Message(message.into_owned()),
            $(Event::$Name { $($field),+ } => Event::$Name { $($field),+ },)+
            $(Event::$Single(it) => Event::$Single(it),)+
        }
    };
}

impl Event<'_> {
    /// The event with its own memory; lent bytes of a message are copied.
    #[must_use]
    pub fn into_owned(self) -> Event<'static> {
        owned!(
            self,
            SaslInit { mechanism, response, hostname }
            SaslOutcome { code, data }
            Begun { session, by_peer, begin }
            Ended { session, error }
            Attach { link, session, attach, steals }
            Attached { link, attach }
            Detached { link, closed, error }
            Credit { link, credit, drain }
            Flow { link, credit, available, drained }
            Aborted { link, tag }
            Void { link }
            Demand { delivery, demand }
            Disposition { delivery, tag, state, settled }
            WindowOpen { session }
            Closed { error, by_peer },
            SaslMechanisms SaslChallenge SaslResponse Opened
        )
    }
}

/// A message that came whole.
#[derive(Clone, Debug)]
pub struct Message<'d> {
    /// The delivery; if it is settled, only its link is of use.
    pub delivery: Delivery,
    /// Its tag.
    pub tag: Tag,
    /// Format of the message, 0 for AMQP.
    pub format: u32,
    /// The sender has settled it.
    pub settled: bool,
    /// Which end settles first.
    pub rcv_settle_mode: ReceiverSettleMode,
    /// State at the sender, such as a transaction.
    pub state: Option<State>,
    /// The delivery is resumed: its tag was known before.
    pub resume: bool,
    /// The sections, as they were sent.
    pub payload: Payload<'d>,
}

impl Message<'_> {
    /// The message with its own memory.
    #[must_use]
    pub fn into_owned(self) -> Message<'static> {
        Message {
            delivery: self.delivery,
            tag: self.tag,
            format: self.format,
            settled: self.settled,
            rcv_settle_mode: self.rcv_settle_mode,
            state: self.state,
            resume: self.resume,
            payload: Payload::Owned(self.payload.into_bytes()),
        }
    }
}

/// Bytes of a message.
#[derive(Clone, Debug)]
pub enum Payload<'d> {
    /// A part of what was given to [`crate::Connection::poll_event`].
    Lent(&'d [u8]),
    /// Put together from several reads or frames.
    Owned(Bytes),
}

impl Payload<'_> {
    /// The bytes with their own memory; lent ones are copied.
    #[must_use]
    pub fn into_bytes(self) -> Bytes {
        match self {
            Self::Lent(bytes) => Bytes::copy_from_slice(bytes),
            Self::Owned(bytes) => bytes,
        }
    }
}

impl AsRef<[u8]> for Payload<'_> {
    fn as_ref(&self) -> &[u8] {
        match self {
            Self::Lent(bytes) => bytes,
            Self::Owned(bytes) => bytes,
        }
    }
}

/// A performative of the peer with its own memory. It was decoded once, and is
/// decoded again when it is looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Body(pub(crate) Bytes);

impl Body {
    pub(crate) fn new(body: &[u8]) -> Self {
        Self(Bytes::copy_from_slice(body))
    }

    /// Its bytes.
    #[must_use]
    pub const fn bytes_len(&self) -> usize {
        self.0.len()
    }

    /// It as `open`.
    #[must_use]
    pub fn open(&self) -> Option<Open<'_>> {
        Open::decode(&self.0).ok()
    }

    /// It as `begin`.
    #[must_use]
    pub fn begin(&self) -> Option<Begin<'_>> {
        Begin::decode(&self.0).ok()
    }

    /// It as `attach`.
    #[must_use]
    pub fn attach(&self) -> Option<Attach<'_>> {
        Attach::decode(&self.0).ok()
    }

    /// It as `sasl-mechanisms`.
    #[must_use]
    pub fn mechanisms(&self) -> Option<SaslMechanisms<'_>> {
        SaslMechanisms::decode(&self.0).ok()
    }
}
