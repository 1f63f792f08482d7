//! What the bytes that come are: protocol headers, SASL frames, AMQP frames;
//! and the phase of the connection.

use alloc::vec::Vec;

use dunlin_amqp_codec::frame::{Frame, FrameType};
use dunlin_amqp_codec::{ProtocolHeader, SaslCode, SaslFrame, SaslMechanisms, condition};
use dunlin_base::Instant;

use super::idle::Idle;
use super::phase::{Phase, Signal};
use super::settings::{SaslPolicy, Settings, Side};
use crate::error::{CallError, Fault};
use crate::event::Event;
use crate::framer::{Cut, Framer, Unit};
use crate::limits::Limits;
use crate::output::Output;
use crate::sasl::{Exchange, refusal};
use crate::wire::Wire;

/// What is read next.
#[derive(Debug)]
enum Layer {
    /// The first protocol header.
    First,
    /// To a client: the SASL header.
    SaslHeader(Exchange),
    /// SASL frames.
    Sasl(Exchange),
    /// The header of AMQP after SASL.
    Second,
    /// AMQP frames.
    Frames,
    /// Nothing.
    Ended,
}

/// The way in, from bytes to frames.
#[derive(Debug)]
pub(super) struct Layers {
    pub(super) side: Side,
    sasl: SaslPolicy,
    /// A server's `sasl-mechanisms`, encoded, until it is sent.
    mechanisms: Vec<u8>,
    layer: Layer,
    pub(super) phase: Phase,
    framer: Framer,
    pub(super) idle: Idle,
}

impl Layers {
    pub(super) fn new(now: Instant, settings: &Settings<'_>, out: &mut Output) -> Self {
        let mut mechanisms = Vec::new();
        let is_sasl_client = settings.side == Side::Client && settings.sasl != SaslPolicy::Off;
        if is_sasl_client {
            out.header(ProtocolHeader::Sasl);
        } else if settings.side == Side::Server {
            let offer = SaslMechanisms {
                sasl_server_mechanisms: settings.mechanisms,
            };
            // A vector is never full.
            let _ = dunlin_amqp_codec::frame::encode_sasl(
                &SaslFrame::Mechanisms(offer),
                &mut mechanisms,
            );
        }
        Self {
            side: settings.side,
            sasl: settings.sasl,
            mechanisms,
            layer: match is_sasl_client {
                true => Layer::SaslHeader(Exchange::new()),
                false => Layer::First,
            },
            phase: Phase::Start,
            framer: Framer::default(),
            idle: Idle::new(now, settings.limits.open_time_out),
        }
    }

    pub(super) const fn is_ended(&self) -> bool {
        matches!(self.layer, Layer::Ended)
    }

    /// Bytes of a unit that has not come whole, and of what waits.
    pub(super) const fn held_bytes(&self) -> usize {
        self.framer.len()
    }

    pub(super) const fn is_amqp(&self) -> bool {
        matches!(self.layer, Layer::Frames)
    }

    /// Cuts the next header or frame, unless the driver has to decide first.
    pub(super) fn next_unit<'d>(
        &mut self,
        data: &mut &'d [u8],
        limits: &Limits,
    ) -> Result<Option<Cut<'d>>, Fault> {
        let unit = match &self.layer {
            Layer::First | Layer::Second | Layer::SaslHeader(_) => Unit::Header,
            Layer::Sasl(exchange) if !exchange.waits_for_driver() => {
                Unit::Frame(limits.sasl_frame_bytes_max)
            }
            Layer::Frames if self.phase.expects_open() => Unit::Frame(limits.first_frame_bytes_max),
            Layer::Frames if self.phase != Phase::OpenRcvd => Unit::Frame(limits.frame_bytes_max),
            Layer::Sasl(_) | Layer::Frames => {
                if self.framer.keep(data, limits.waiting_bytes_max) {
                    return Ok(None);
                }
                let text = "too much before the connection was accepted";
                return Err(Fault::new(condition::RESOURCE_LIMIT_EXCEEDED, text));
            }
            Layer::Ended => {
                *data = &[];
                return Ok(None);
            }
        };
        self.framer.next(data, unit)
    }

    /// Whether the next unit is a protocol header.
    pub(super) const fn expects_header(&self) -> bool {
        matches!(
            self.layer,
            Layer::First | Layer::Second | Layer::SaslHeader(_)
        )
    }

    /// A protocol header of the peer.
    pub(super) fn handle_header(&mut self, bytes: &[u8], out: &mut Output) -> Result<(), Fault> {
        let header = ProtocolHeader::peek(bytes).ok().flatten();
        let layer = core::mem::replace(&mut self.layer, Layer::Ended);
        match (layer, header) {
            (Layer::SaslHeader(exchange), Some(ProtocolHeader::Sasl)) => {
                self.layer = Layer::Sasl(exchange);
            }
            (Layer::First, Some(ProtocolHeader::Sasl))
                if self.side == Side::Server && self.sasl != SaslPolicy::Off =>
            {
                out.header(ProtocolHeader::Sasl);
                out.bytes(&core::mem::take(&mut self.mechanisms));
                self.layer = Layer::Sasl(Exchange::new());
            }
            (Layer::First, Some(ProtocolHeader::Amqp))
                if self.side == Side::Client || self.sasl != SaslPolicy::Required =>
            {
                self.note_amqp_header(out);
            }
            (Layer::Second, Some(ProtocolHeader::Amqp)) => self.note_amqp_header(out),
            (layer, _) => {
                // The answer is a header that is taken here.
                if self.side == Side::Server {
                    out.header(match (&layer, self.sasl) {
                        (Layer::First, SaslPolicy::Required) => ProtocolHeader::Sasl,
                        _ => ProtocolHeader::Amqp,
                    });
                }
                self.layer = layer;
                let text = "another protocol than expected";
                return Err(Fault::new(condition::NOT_IMPLEMENTED, text));
            }
        }
        Ok(())
    }

    /// The peer speaks AMQP from here on.
    fn note_amqp_header(&mut self, out: &mut Output) {
        if let Some(phase) = self.phase.received(Signal::Header) {
            self.phase = phase;
            self.layer = Layer::Frames;
            self.write_header(out);
        }
    }

    /// Writes our header of AMQP, if it was not yet.
    pub(super) fn write_header(&mut self, out: &mut Output) {
        if self.phase.needs_header()
            && let Some(phase) = self.phase.sent(Signal::Header)
        {
            self.phase = phase;
            out.header(ProtocolHeader::Amqp);
        }
    }

    /// Checks that a frame belongs to the layer that is read, and takes it if
    /// that is SASL. A reason to end the connection, if it has ended here.
    pub(super) fn handle_frame(
        &mut self,
        frame: &Frame<'_>,
        wire: &mut Wire,
    ) -> Result<Layered, Fault> {
        let exchange = match (&mut self.layer, frame.frame_type) {
            (Layer::Sasl(exchange), FrameType::Sasl) => exchange,
            (Layer::Frames, FrameType::Amqp) => return Ok(Layered::Amqp),
            _ => {
                let text = "a frame of another layer";
                return Err(Fault::new(condition::FRAMING_ERROR, text));
            }
        };
        let sasl = SaslFrame::decode(frame.body)?;
        let event = match self.side {
            Side::Server => exchange.handle_client(&sasl)?,
            Side::Client => exchange.handle_server(&sasl, frame.body)?,
        };
        let code = match &event {
            Event::SaslOutcome { code, .. } => Some(*code),
            _ => None,
        };
        wire.events.push_back(event);
        Ok(match code {
            None => Layered::Sasl,
            Some(SaslCode::Ok) => {
                self.layer = Layer::Second;
                Layered::Sasl
            }
            Some(code) => Layered::Refused(refusal(code)),
        })
    }

    /// Sends a SASL frame of a client.
    pub(super) fn send_sasl(
        &self,
        frame: &SaslFrame<'_>,
        out: &mut Output,
    ) -> Result<(), CallError> {
        match &self.layer {
            Layer::SaslHeader(_) | Layer::Sasl(_) if self.side == Side::Client => out.sasl(frame),
            _ => Err(CallError::State),
        }
    }

    /// Sends a challenge or the outcome of a server; whether the client is
    /// refused.
    pub(super) fn answer_sasl(
        &mut self,
        frame: &SaslFrame<'_>,
        out: &mut Output,
    ) -> Result<Option<Fault>, CallError> {
        let Layer::Sasl(exchange) = &mut self.layer else {
            return Err(CallError::State);
        };
        if self.side == Side::Client {
            return Err(CallError::State);
        }
        let SaslFrame::Outcome(outcome) = frame else {
            if !exchange.challenge() {
                return Err(CallError::Limit);
            }
            out.sasl(frame)?;
            return Ok(None);
        };
        if !exchange.outcome() {
            return Err(CallError::State);
        }
        out.sasl(frame)?;
        if outcome.code == SaslCode::Ok {
            self.layer = Layer::Second;
            return Ok(None);
        }
        Ok(Some(refusal(outcome.code)))
    }

    /// Nothing more is read or waited for.
    pub(super) fn end(&mut self) {
        self.layer = Layer::Ended;
        self.phase = Phase::End;
        self.framer.clear();
        self.idle.stop();
    }
}

/// What a frame was.
#[derive(Debug)]
pub(super) enum Layered {
    /// Of AMQP: it is to be handled.
    Amqp,
    /// Of SASL: it has been.
    Sasl,
    /// The server refused the client.
    Refused(Fault),
}
