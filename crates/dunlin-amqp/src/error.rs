//! What goes wrong: faults of the peer, at their level, calls that cannot be
//! carried out, and what a peer says is wrong.

use alloc::vec::Vec;

use bytes::Bytes;
use dunlin_amqp_codec::{DecodeError, Error, Symbol, condition};

/// A rule that the peer broke, and the condition that answers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The condition.
    pub condition: Symbol<'static>,
    /// Text for people.
    pub description: &'static str,
}

impl Fault {
    pub(crate) const fn new(condition: Symbol<'static>, description: &'static str) -> Self {
        Self {
            condition,
            description,
        }
    }

    pub(crate) const fn as_error(&self) -> Error<'static> {
        Error::new(self.condition, self.description)
    }
}

impl From<DecodeError> for Fault {
    fn from(error: DecodeError) -> Self {
        Self::new(error.condition(), "a frame that cannot be decoded")
    }
}

/// A fault and what it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The connection.
    Connection(Fault),
    /// The session whose frame it was.
    Session(Fault),
    /// The link with this handle of ours, on the session whose frame it was.
    Link(u32, Fault),
}

impl From<DecodeError> for Failure {
    fn from(error: DecodeError) -> Self {
        Self::Connection(error.into())
    }
}

/// Why a link, session or connection ended, as the peer or this side said it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reason(Bytes);

impl Reason {
    /// The condition, the text, and further facts, such as where a redirect
    /// leads.
    #[must_use]
    pub fn get(&self) -> Error<'_> {
        // The bytes were encoded here, so that they can be decoded.
        Error::decode(&self.0).unwrap_or_else(|_| Error::new(condition::INTERNAL_ERROR, ""))
    }
}

impl From<Error<'_>> for Reason {
    fn from(error: Error<'_>) -> Self {
        let mut bytes = Vec::new();
        if error.encode(&mut bytes).is_err() {
            bytes.clear();
        }
        Self(bytes.into())
    }
}

impl From<Fault> for Reason {
    fn from(fault: Fault) -> Self {
        fault.as_error().into()
    }
}

/// Why a call was not carried out. Nothing has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    /// The link, session, delivery or connection is gone, or was never there.
    #[error("it is gone")]
    Gone,
    /// It cannot be done in this state, or on a link in this direction.
    #[error("not in this state")]
    State,
    /// The frame would be larger than the peer accepts.
    #[error("the frame would be larger than the peer accepts")]
    FrameSize,
    /// A table is full: of channels, handles or deliveries.
    #[error("a limit is reached")]
    Limit,
}

/// Why a message was not sent. Nothing has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SendError {
    /// The link is gone or not attached, or is not a sender.
    #[error("the link does not send")]
    Link,
    /// The receiver gave no credit for it; [`crate::Event::Credit`] follows.
    #[error("no link credit")]
    Credit,
    /// The session's window is closed; [`crate::Event::WindowOpen`] follows.
    #[error("the session window is closed")]
    Window,
    /// As many deliveries are unsettled as [`crate::Limits`] allows;
    /// [`crate::Event::WindowOpen`] follows when there are fewer.
    #[error("too many unsettled deliveries")]
    Unsettled,
    /// The message is larger than the receiver takes.
    #[error("larger than max-message-size")]
    MessageSize,
    /// One of the `unsettled` maps of the link is incomplete, and the delivery
    /// is not resumed.
    #[error("only resumed deliveries until the unsettled maps are complete")]
    Incomplete,
    /// Parts of a delivery in the wrong order: a first part within another
    /// delivery, or a further part of none.
    #[error("not the next part of a delivery")]
    Part,
}
