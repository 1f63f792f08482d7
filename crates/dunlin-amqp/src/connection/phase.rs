//! States of a connection (section 2.4.6), with opening and closing ahead of
//! the peer's answers.

/// What both sides send once, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Signal {
    /// The protocol header of AMQP.
    Header,
    /// `open`.
    Open,
    /// `close`.
    Close,
}

/// The state of a connection, under the names of the specification.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Phase {
    /// Nothing was exchanged; SASL may be under way.
    #[default]
    Start,
    /// The peer's header came.
    HdrRcvd,
    /// Our header was sent.
    HdrSent,
    /// Both headers.
    HdrExch,
    /// Header and `open` were sent.
    OpenPipe,
    /// Header, `open` and `close` were sent.
    OcPipe,
    /// Headers, and the peer's `open`.
    OpenRcvd,
    /// Headers, and our `open`.
    OpenSent,
    /// Headers, and our `open` and `close`.
    ClosePipe,
    /// Both have opened.
    Opened,
    /// The peer's `close` came.
    CloseRcvd,
    /// Our `close` was sent.
    CloseSent,
    /// Our `close` was sent with an error: what comes is not looked at.
    Discarding,
    /// Both have closed, or the transport is gone.
    End,
}

impl Phase {
    /// After `signal` was sent; `None` if it must not be sent now.
    pub(crate) const fn sent(self, signal: Signal) -> Option<Self> {
        Some(match (self, signal) {
            (Self::Start, Signal::Header) => Self::HdrSent,
            (Self::HdrRcvd, Signal::Header) => Self::HdrExch,
            (Self::HdrSent, Signal::Open) => Self::OpenPipe,
            (Self::HdrExch, Signal::Open) => Self::OpenSent,
            (Self::OpenRcvd, Signal::Open) => Self::Opened,
            (Self::OpenPipe, Signal::Close) => Self::OcPipe,
            (Self::OpenSent, Signal::Close) => Self::ClosePipe,
            (Self::Opened, Signal::Close) => Self::CloseSent,
            (Self::CloseRcvd, Signal::Close) => Self::End,
            _ => return None,
        })
    }

    /// After `signal` came; `None` if it must not come now.
    pub(crate) const fn received(self, signal: Signal) -> Option<Self> {
        Some(match (self, signal) {
            (Self::Start, Signal::Header) => Self::HdrRcvd,
            (Self::HdrSent, Signal::Header) => Self::HdrExch,
            (Self::OpenPipe, Signal::Header) => Self::OpenSent,
            (Self::OcPipe, Signal::Header) => Self::ClosePipe,
            (Self::HdrExch, Signal::Open) => Self::OpenRcvd,
            (Self::OpenSent, Signal::Open) => Self::Opened,
            (Self::ClosePipe, Signal::Open) => Self::CloseSent,
            (Self::Opened, Signal::Close) => Self::CloseRcvd,
            (Self::CloseSent | Self::Discarding, Signal::Close) => Self::End,
            (Self::Discarding, Signal::Header | Signal::Open) => Self::Discarding,
            _ => return None,
        })
    }

    /// Whether our header has to be sent before anything else.
    pub(crate) const fn needs_header(self) -> bool {
        matches!(self, Self::Start | Self::HdrRcvd)
    }

    /// Whether our `open` was sent and our `close` was not.
    pub(crate) const fn may_send(self) -> bool {
        matches!(self, Self::OpenPipe | Self::OpenSent | Self::Opened)
    }

    /// Whether this side has closed and the peer has not.
    pub(crate) const fn is_closing(self) -> bool {
        matches!(
            self,
            Self::OcPipe | Self::ClosePipe | Self::CloseSent | Self::Discarding
        )
    }

    /// Whether the peer's header came, and its `open` comes next.
    pub(crate) const fn expects_open(self) -> bool {
        matches!(self, Self::HdrExch | Self::OpenSent | Self::ClosePipe)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Signal::{Close, Header, Open};

    /// A signal, and the state after it.
    type Step = Option<(Signal, Phase)>;

    /// The legal events of the figure in section 2.4.6: state, what is sent,
    /// what is received.
    const FIGURE: [(Phase, Step, Step); 14] = [
        (
            Phase::Start,
            Some((Header, Phase::HdrSent)),
            Some((Header, Phase::HdrRcvd)),
        ),
        (Phase::HdrRcvd, Some((Header, Phase::HdrExch)), None),
        (
            Phase::HdrSent,
            Some((Open, Phase::OpenPipe)),
            Some((Header, Phase::HdrExch)),
        ),
        (
            Phase::HdrExch,
            Some((Open, Phase::OpenSent)),
            Some((Open, Phase::OpenRcvd)),
        ),
        (
            Phase::OpenPipe,
            Some((Close, Phase::OcPipe)),
            Some((Header, Phase::OpenSent)),
        ),
        (Phase::OcPipe, None, Some((Header, Phase::ClosePipe))),
        (Phase::OpenRcvd, Some((Open, Phase::Opened)), None),
        (
            Phase::OpenSent,
            Some((Close, Phase::ClosePipe)),
            Some((Open, Phase::Opened)),
        ),
        (Phase::ClosePipe, None, Some((Open, Phase::CloseSent))),
        (
            Phase::Opened,
            Some((Close, Phase::CloseSent)),
            Some((Close, Phase::CloseRcvd)),
        ),
        (Phase::CloseRcvd, Some((Close, Phase::End)), None),
        (Phase::CloseSent, None, Some((Close, Phase::End))),
        (Phase::Discarding, None, Some((Close, Phase::End))),
        (Phase::End, None, None),
    ];

    #[test]
    fn every_state_and_signal_is_as_in_the_figure() {
        for (phase, sent, received) in FIGURE {
            for signal in [Header, Open, Close] {
                let expected = |of: Step| of.filter(|(s, _)| *s == signal).map(|(_, phase)| phase);
                assert_eq!(phase.sent(signal), expected(sent), "{phase:?} {signal:?}");
                if phase == Phase::Discarding && signal != Close {
                    assert_eq!(phase.received(signal), Some(phase));
                } else {
                    assert_eq!(phase.received(signal), expected(received), "{phase:?}");
                }
            }
        }
    }
}
