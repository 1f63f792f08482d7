//! Why a run makes no sense.

use super::{CONNECTIONS_MAX, THREADS_MAX, TOPICS_MAX};
use crate::bench::fleet::MOVING_MAX;
use crate::bench::wire::STAMP_BYTES;

/// Why a run makes no sense.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// The stamp does not fit.
    #[error("payloads carry a time stamp and need at least {STAMP_BYTES} bytes")]
    SizeTooSmall,
    /// Beyond [`CONNECTIONS_MAX`].
    #[error("at most {CONNECTIONS_MAX} connections are possible")]
    TooManyConnections,
    /// Beyond [`TOPICS_MAX`].
    #[error("at most {TOPICS_MAX} topics are possible")]
    TooManyTopics,
    /// Beyond [`THREADS_MAX`], or none.
    #[error("the number of threads must be from 1 to {THREADS_MAX}")]
    Threads,
    /// Nothing to connect.
    #[error("there is nothing to do: no publishers, no subscribers, no idle connections")]
    Nothing,
    /// A rate that is zero, negative or not a number.
    #[error("a rate must be more than 0")]
    Rate,
    /// What one protocol has and the other has not.
    #[error("{0} are of {1}")]
    OtherProtocol(&'static str, &'static str),
    /// More bytes than a packet holds.
    #[error("a payload has at most 268,000,000 bytes")]
    SizeTooLarge,
    /// Sleeping devices without times at which they wake.
    #[error("devices that sleep, and messages that arrive in some way, need --rate")]
    NoRate,
    /// Moving is QUIC's.
    #[error("only connections over QUIC can move")]
    MovesNeedQuic,
    /// Beyond [`MOVING_MAX`].
    #[error("at most {MOVING_MAX} devices of a thread can move")]
    TooManyMoving,
}
