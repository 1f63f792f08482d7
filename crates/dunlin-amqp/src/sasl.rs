//! The SASL layer (section 5.3): which frame may come when. Mechanisms are the
//! driver's; their bytes pass through.

use bytes::Bytes;
use dunlin_amqp_codec::{SaslCode, SaslFrame, condition};
use dunlin_base::Text;

use crate::error::Fault;
use crate::event::{Body, Event};
use crate::limits::SASL_ROUNDS_MAX;

/// What an exchange waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// Server: `sasl-init`. Client: `sasl-mechanisms`.
    First,
    /// Server: the driver.
    Driver,
    /// Server: `sasl-response`. Client: `sasl-challenge` or `sasl-outcome`.
    Next,
    /// Nothing: the outcome is known.
    Done,
}

/// An exchange of one side.
#[derive(Debug)]
pub(crate) struct Exchange {
    step: Step,
    rounds: u8,
}

impl Exchange {
    pub(crate) const fn new() -> Self {
        Self {
            step: Step::First,
            rounds: 0,
        }
    }

    /// Whether the driver has to say something before more is read.
    pub(crate) fn waits_for_driver(&self) -> bool {
        self.step == Step::Driver
    }

    /// A frame of the client.
    pub(crate) fn handle_client(&mut self, frame: &SaslFrame<'_>) -> Result<Event<'static>, Fault> {
        let event = match (self.step, frame) {
            (Step::First, SaslFrame::Init(init)) => Event::SaslInit {
                mechanism: Text::from(init.mechanism.as_str()),
                response: init.initial_response.map(Bytes::copy_from_slice),
                hostname: init.hostname.map(Text::from),
            },
            (Step::Next, SaslFrame::Response(response)) => {
                Event::SaslResponse(Bytes::copy_from_slice(response.response))
            }
            _ => return Err(OUT_OF_ORDER),
        };
        self.step = Step::Driver;
        Ok(event)
    }

    /// The server's driver sends a challenge; `false` if it must not, or has
    /// sent too many.
    pub(crate) fn challenge(&mut self) -> bool {
        if self.step != Step::Driver || self.rounds == SASL_ROUNDS_MAX {
            return false;
        }
        self.rounds += 1;
        self.step = Step::Next;
        true
    }

    /// The server's driver decides; `false` if there is nothing to decide.
    pub(crate) fn outcome(&mut self) -> bool {
        let may = self.step == Step::Driver;
        if may {
            self.step = Step::Done;
        }
        may
    }

    /// A frame of the server, whose body is `body`.
    pub(crate) fn handle_server(
        &mut self,
        frame: &SaslFrame<'_>,
        body: &[u8],
    ) -> Result<Event<'static>, Fault> {
        match (self.step, frame) {
            (Step::First, SaslFrame::Mechanisms(_)) => {
                self.step = Step::Next;
                Ok(Event::SaslMechanisms(Body::new(body)))
            }
            (Step::Next, SaslFrame::Challenge(challenge)) if self.rounds < SASL_ROUNDS_MAX => {
                self.rounds += 1;
                Ok(Event::SaslChallenge(Bytes::copy_from_slice(
                    challenge.challenge,
                )))
            }
            (Step::Next, SaslFrame::Outcome(outcome)) => {
                self.step = Step::Done;
                Ok(Event::SaslOutcome {
                    code: outcome.code,
                    data: outcome.additional_data.map(Bytes::copy_from_slice),
                })
            }
            _ => Err(OUT_OF_ORDER),
        }
    }
}

/// The reason of an exchange that failed.
pub(crate) const fn refusal(code: SaslCode) -> Fault {
    let text = match code {
        SaslCode::Auth => "authentication failed",
        _ => "authentication was not possible",
    };
    Fault::new(condition::UNAUTHORIZED_ACCESS, text)
}

const OUT_OF_ORDER: Fault = Fault::new(condition::ILLEGAL_STATE, "a SASL frame out of order");
