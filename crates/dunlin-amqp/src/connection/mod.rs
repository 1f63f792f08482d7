//! A connection: opening and closing, time-outs, and the way of a frame to its
//! session. What is called on sessions and links is in `calls`.

mod calls;
mod idle;
mod layers;
mod phase;
mod settings;

pub use phase::Phase;
pub use settings::{SaslPolicy, Settings, Side};

use core::time::Duration;

use dunlin_amqp_codec::limits::FRAME_BYTES_MIN;
use dunlin_amqp_codec::{Close, Error, Open, Performative, condition, frame};
use dunlin_base::{Instant, SendBuf, Text};

use crate::error::{CallError, Fault, Reason};
use crate::event::{Body, Event, Message};
use crate::framer::Cut;
use crate::ids::LinkId;
use crate::limits::IDLE_TIME_OUT_MIN;
use crate::session::{Range, Sessions, Taken};
use crate::wire::Wire;
use idle::Due;
use layers::{Layered, Layers};
use phase::Signal;

/// One AMQP connection over one byte stream.
#[derive(Debug)]
pub struct Connection {
    container_id: Text,
    layers: Layers,
    wire: Wire,
    sessions: Sessions,
    /// Deliveries that a disposition was about and that were not yet said.
    range: Option<Range>,
}

impl Connection {
    /// A connection over which nothing has come.
    #[must_use]
    pub fn new(now: Instant, settings: &Settings<'_>) -> Self {
        let mut wire = Wire::new(settings.limits);
        Self {
            container_id: Text::from(settings.container_id),
            layers: Layers::new(now, settings, &mut wire.out),
            wire,
            sessions: Sessions::new(),
            range: None,
        }
    }

    /// The state of the connection.
    #[must_use]
    pub const fn phase(&self) -> Phase {
        self.layers.phase
    }

    /// Whether the transport can be closed: the connection has ended and all
    /// output was taken.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.layers.is_ended() && self.wire.out.is_empty()
    }

    /// Bytes that are held because what they belong to has not come whole, or
    /// waits for the driver's decision.
    #[must_use]
    pub const fn unfinished_bytes(&self) -> usize {
        self.wire.partial_bytes + self.layers.held_bytes()
    }

    /// Deliveries of the peer that are not settled, on one link or on all.
    #[must_use]
    pub fn unsettled_received(&self, link: Option<LinkId>) -> usize {
        self.sessions.unsettled_received(link)
    }

    /// Sessions, those included that wait for the peer's `end`.
    #[must_use]
    pub fn sessions(&self) -> usize {
        self.sessions.len()
    }

    /// The next event, from what was left over and then from `data`; `None`
    /// when all of `data` has been taken. The driver has done what the table in
    /// the crate's opening says before it calls again.
    pub fn poll_event<'d>(&mut self, now: Instant, data: &mut &'d [u8]) -> Option<Event<'d>> {
        if !data.is_empty() {
            self.layers.idle.note_received(now);
        }
        loop {
            if let Some(event) = self.wire.events.pop_front() {
                return Some(event);
            }
            if let Some(range) = &mut self.range {
                match self.sessions.next_disposition(range, &mut self.wire) {
                    // What else the range causes comes after it.
                    Some(event) => self.wire.events.push_front(event),
                    None => self.range = None,
                }
                continue;
            }
            let cut = self.layers.next_unit(data, &self.wire.limits);
            let handled = match cut {
                Ok(None) => return None,
                Ok(Some(cut)) => self.handle_unit(now, cut),
                Err(fault) => Err(fault),
            };
            match handled {
                Ok(None) => {}
                Ok(Some(message)) => return Some(Event::Message(message)),
                Err(fault) => self.fail(now, fault),
            }
        }
    }

    /// A header or a frame of the peer.
    fn handle_unit<'d>(
        &mut self,
        now: Instant,
        cut: Cut<'d>,
    ) -> Result<Option<Message<'d>>, Fault> {
        if self.layers.expects_header() {
            self.layers
                .handle_header(cut.as_ref(), &mut self.wire.out)?;
            return Ok(None);
        }
        let Some(frame) = frame::split(cut.as_ref(), u32::MAX)? else {
            return Ok(None);
        };
        match self.layers.handle_frame(&frame, &mut self.wire)? {
            Layered::Amqp => {}
            Layered::Sasl => return Ok(None),
            Layered::Refused(fault) => return Err(fault),
        }
        if frame.body.is_empty() {
            return Ok(None);
        }
        let decoded = Performative::decode(frame.body);
        let is_late = self.phase().is_closing();
        let (performative, payload) = match decoded {
            Err(_) if is_late => return Ok(None),
            decoded => decoded?,
        };
        let taken = match performative {
            Performative::Open(open) => {
                self.handle_open(&open, frame.channel, frame.body)?;
                Taken::Nothing
            }
            Performative::Close(close) => {
                self.handle_close(now, close.error)?;
                Taken::Nothing
            }
            // Between our `close` and the peer's.
            _ if is_late => Taken::Nothing,
            _ if self.phase() != Phase::Opened => {
                let text = "a frame before open";
                return Err(Fault::new(condition::ILLEGAL_STATE, text));
            }
            _ => {
                let (channel, body) = (frame.channel, frame.body);
                let wire = &mut self.wire;
                self.sessions
                    .handle_frame(channel, &performative, body, payload, wire)?
            }
        };
        let range = frame.len - payload.len()..frame.len;
        Ok(match taken {
            Taken::Nothing => None,
            Taken::Range(range) => {
                self.range = Some(range);
                None
            }
            Taken::Demand(delivery, demand) => {
                let event = Event::Demand { delivery, demand };
                self.wire.events.push_back(event);
                None
            }
            Taken::Joined(message) => Some(message),
            Taken::Whole(message) => {
                let mut message: Message<'d> = message;
                message.payload = cut.payload(range);
                Some(message)
            }
        })
    }

    /// `open` of the peer.
    fn handle_open(&mut self, open: &Open<'_>, channel: u16, body: &[u8]) -> Result<(), Fault> {
        if channel != 0 {
            let text = "open on another channel than 0";
            return Err(Fault::new(condition::FRAMING_ERROR, text));
        }
        let phase = self.phase().received(Signal::Open);
        self.layers.phase = phase.ok_or(Fault::new(condition::ILLEGAL_STATE, "a second open"))?;
        if open.max_frame_size < FRAME_BYTES_MIN {
            let text = "max-frame-size below 512";
            return Err(Fault::new(condition::INVALID_FIELD, text));
        }
        self.wire.out.set_frame_bytes_max(open.max_frame_size);
        self.sessions.set_remote_channel_max(open.channel_max);
        let millis = open.idle_time_out.filter(|millis| *millis > 0);
        let time_out = millis.map(|millis| Duration::from_millis(millis.into()));
        if time_out.is_some_and(|time_out| time_out < IDLE_TIME_OUT_MIN) {
            let text = "idle-time-out is too short";
            return Err(Fault::new(condition::NOT_ALLOWED, text));
        }
        match self.phase() {
            Phase::Opened => self.note_opened(),
            Phase::OpenRcvd => {}
            _ => return Ok(()),
        }
        self.layers.idle.set_peer(time_out);
        self.wire.events.push_back(Event::Opened(Body::new(body)));
        Ok(())
    }

    /// Both sides have opened.
    fn note_opened(&mut self) {
        self.layers.idle.set_step(None);
        self.layers.idle.watch(self.wire.limits.idle_time_out);
    }

    /// Sends `open`. Container id, frame size, channels and idle time-out of
    /// `open` are replaced by those of [`Settings`]. A client waits for nothing
    /// before it, nor after it for [`Connection::begin`].
    ///
    /// # Errors
    /// It was sent before, or its frame is larger than 512 bytes and the peer's
    /// `open` has not come.
    pub fn open(&mut self, now: Instant, open: &Open<'_>) -> Result<(), CallError> {
        let is_client = self.layers.side == Side::Client;
        let may = match self.phase() {
            Phase::Start | Phase::HdrSent => is_client && !self.layers.is_ended(),
            Phase::HdrExch | Phase::OpenRcvd => true,
            _ => false,
        };
        if !may {
            return Err(CallError::State);
        }
        let limits = &self.wire.limits;
        let half = limits.idle_time_out.map(|time_out| time_out / 2);
        let frame = Performative::Open(Open {
            container_id: &self.container_id,
            max_frame_size: limits.frame_bytes_max,
            channel_max: limits.sessions_max.saturating_sub(1),
            idle_time_out: half.map(|half| u32::try_from(half.as_millis()).unwrap_or(u32::MAX)),
            ..*open
        });
        if !self.wire.out.takes(&frame) {
            return Err(CallError::FrameSize);
        }
        self.layers.write_header(&mut self.wire.out);
        self.wire.out.write(0, &frame)?;
        if let Some(phase) = self.phase().sent(Signal::Open) {
            self.layers.phase = phase;
        }
        if self.phase() == Phase::Opened {
            self.layers.idle.note_sent(now);
            self.note_opened();
        }
        Ok(())
    }

    /// Closes the connection. [`Event::Closed`] follows when the peer has
    /// answered, or does not in time.
    ///
    /// # Errors
    /// It is closed or closing already.
    pub fn close(&mut self, now: Instant, error: Option<&Error<'_>>) -> Result<(), CallError> {
        if self.layers.is_ended() || self.phase().is_closing() {
            return Err(CallError::State);
        }
        let reason = error.copied().map(Reason::from);
        self.write_close(now, error.copied())?;
        self.sessions.end_all(&mut self.wire, reason.as_ref());
        self.range = None;
        if self.phase() == Phase::End {
            self.finish(reason, false);
        }
        Ok(())
    }

    /// Writes `close`, and before it what it must follow. Without a header of
    /// AMQP from both sides the connection just ends.
    fn write_close(&mut self, now: Instant, error: Option<Error<'_>>) -> Result<(), CallError> {
        self.sessions.flush(&mut self.wire);
        if matches!(self.phase(), Phase::HdrExch | Phase::OpenRcvd) {
            self.open(now, &Open::default())?;
        }
        let Some(phase) = self.phase().sent(Signal::Close) else {
            self.layers.phase = Phase::End;
            return Ok(());
        };
        let close = Performative::Close(Close { error });
        self.wire.out.write(0, &close)?;
        self.layers.phase = phase;
        let time_out = self.wire.limits.close_time_out;
        self.layers.idle.stop();
        self.layers.idle.set_step(Some(now + time_out));
        Ok(())
    }

    /// `close` of the peer.
    fn handle_close(&mut self, now: Instant, error: Option<Error<'_>>) -> Result<(), Fault> {
        let was = self.phase();
        let early = Fault::new(condition::ILLEGAL_STATE, "close before open");
        self.layers.phase = was.received(Signal::Close).ok_or(early)?;
        let reason = error.map(Reason::from);
        let by_peer = self.phase() == Phase::CloseRcvd;
        if by_peer {
            self.sessions.end_all(&mut self.wire, reason.as_ref());
            // Without an error it fits into every frame.
            let _ = self.write_close(now, None);
        }
        if was == Phase::Discarding {
            self.layers.end();
        } else {
            self.finish(reason, by_peer);
        }
        Ok(())
    }

    /// The peer broke a rule of the connection, or was silent.
    fn fail(&mut self, now: Instant, fault: Fault) {
        if self.layers.is_ended() || self.phase() == Phase::Discarding {
            self.layers.end();
            return;
        }
        let reason = Reason::from(fault);
        let was_closing = self.phase().is_closing();
        self.range = None;
        // An error of this crate fits into every frame.
        let waits = self.layers.is_amqp()
            && !was_closing
            && self.write_close(now, Some(fault.as_error())).is_ok()
            && self.phase().is_closing();
        self.sessions.end_all(&mut self.wire, Some(&reason));
        if !waits {
            self.finish(Some(reason), false);
            return;
        }
        self.layers.phase = Phase::Discarding;
        self.wire.events.push_back(Event::Closed {
            error: Some(reason),
            by_peer: false,
        });
    }

    /// The connection has ended; the driver hears it once.
    fn finish(&mut self, error: Option<Reason>, by_peer: bool) {
        if !self.layers.is_ended() {
            self.layers.end();
            self.wire.events.push_back(Event::Closed { error, by_peer });
        }
    }

    /// The transport is gone: what it carried is lost. The events of the end
    /// follow.
    pub fn handle_closed(&mut self) {
        let fault = Fault::new(condition::CONNECTION_FORCED, "the transport was closed");
        let reason = Reason::from(fault);
        self.range = None;
        self.sessions.end_all(&mut self.wire, Some(&reason));
        if self.phase() == Phase::Discarding {
            self.layers.end();
        } else {
            self.finish(Some(reason), false);
        }
    }

    /// Moves what is to be sent to the end of `out`.
    pub fn poll_output(&mut self, now: Instant, out: &mut SendBuf) {
        self.sessions.flush(&mut self.wire);
        if !self.wire.out.is_empty() {
            self.layers.idle.note_sent(now);
            self.wire.out.drain_to(out);
        }
    }

    /// When [`Connection::on_deadline`] is to be called.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        self.layers.idle.deadline()
    }

    /// Time has passed: events and output may follow.
    pub fn on_deadline(&mut self, now: Instant) {
        match self.layers.idle.due(now) {
            None => {}
            Some(Due::Heartbeat) => {
                self.wire.out.empty_frame();
                self.layers.idle.note_sent(now);
            }
            Some(Due::Silence) => {
                let text = "nothing came within the idle time-out";
                let fault = Fault::new(condition::RESOURCE_LIMIT_EXCEEDED, text);
                self.fail(now, fault);
            }
            Some(Due::Step) => {
                let text = "opening or closing took too long";
                let fault = Fault::new(condition::RESOURCE_LIMIT_EXCEEDED, text);
                self.fail(now, fault);
            }
        }
    }
}
