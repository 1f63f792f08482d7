//! One connection's engine: how far its opening has come, and what goes out
//! when. Knows no link.

use std::sync::Arc;

use bytes::Bytes;
use dunlin_amqp::codec::{
    Begin, Map, Open, SaslCode, Symbol, Symbols, Value, capability, condition,
};
use dunlin_amqp::{Body, Connection, Reason, SaslPolicy, SessionId, Settings, Side};
use dunlin_base::Instant;
use dunlin_dial::Channel;

use super::sasl;
use crate::error::DisconnectCause;
use crate::limits;
use crate::options::{Options, STREAMS_REPEAT, StreamPolicy};
use crate::outcome::Condition;
use crate::redirect::Redirect;

/// The conversation on one transport.
pub(super) struct Exchange {
    options: Arc<Options>,
    pub(super) engine: Connection,
    sasl: Option<sasl::Exchange>,
    /// Nothing waits for an answer that need not.
    ahead: bool,
    stage: Stage,
    session: Option<SessionId>,
}

/// What has come of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Nothing that counts.
    Begun,
    /// SASL is done, or there is none.
    Authenticated,
    /// Its `open`.
    Open,
    /// This side closes.
    Closing,
    /// Its end.
    Closed,
}

impl Exchange {
    pub(super) fn new(now: Instant, options: &Arc<Options>, channel: Channel, ahead: bool) -> Self {
        let mechanism = options.mechanism();
        let opening = options.link.connect_timeout;
        let settings = Settings {
            side: Side::Client,
            container_id: &options.container_id,
            sasl: match mechanism {
                Some(_) => SaslPolicy::Required,
                None => SaslPolicy::Off,
            },
            mechanisms: Symbols::default(),
            limits: limits::engine(options.frame_bytes, options.idle_timeout, opening),
        };
        Self {
            engine: Connection::new(now, &settings),
            sasl: mechanism.map(|mechanism| sasl::Exchange::new(mechanism, channel)),
            ahead,
            stage: match mechanism {
                Some(_) => Stage::Begun,
                None => Stage::Authenticated,
            },
            session: None,
            options: Arc::clone(options),
        }
    }

    /// The server has opened, and nothing closes.
    pub(super) fn is_open(&self) -> bool {
        self.stage == Stage::Open
    }

    /// The end was said by one side.
    pub(super) fn is_closed(&self) -> bool {
        self.stage == Stage::Closed
    }

    /// Where links go, once that is possible.
    pub(super) fn session(&self) -> Option<SessionId> {
        match self.stage {
            Stage::Closing | Stage::Closed => None,
            _ => self.session,
        }
    }

    /// Writes what may be written of the opening.
    pub(super) fn advance(&mut self, now: Instant) -> Result<(), DisconnectCause> {
        if self.ahead
            && let Some(sasl) = self.sasl.as_mut().filter(|it| it.may_run_ahead())
        {
            sasl.begin(&self.options, &mut self.engine)?;
        }
        let is_short = self.sasl.as_ref().is_none_or(sasl::Exchange::is_short);
        let may_open = match self.stage {
            Stage::Begun => self.ahead && is_short,
            Stage::Authenticated => true,
            Stage::Open | Stage::Closing | Stage::Closed => false,
        };
        if may_open {
            self.open(now);
        }
        let may_begin = match self.stage {
            Stage::Open => true,
            Stage::Begun | Stage::Authenticated => self.ahead,
            Stage::Closing | Stage::Closed => false,
        };
        if may_begin && self.session.is_none() {
            // Refused before `open`.
            self.session = self.engine.begin(&Begin::default()).ok();
        }
        Ok(())
    }

    /// Sends `open`, unless it was sent.
    fn open(&mut self, now: Instant) {
        let mut properties = vec![
            (symbol("product"), Value::String("dunlin")),
            (symbol("version"), Value::String(env!("CARGO_PKG_VERSION"))),
        ];
        if self.options.streams == StreamPolicy::PerLink {
            properties.push((Value::Symbol(capability::ISOLATE), Value::Uint(1)));
            let asked = STREAMS_REPEAT.asked().map(Value::Uint);
            properties.extend(asked.map(|number| (Value::Symbol(capability::REPEAT), number)));
        }
        let open = Open {
            hostname: Some(sasl::host(&self.options)),
            properties: Some(Map::new(&properties)),
            ..Open::default()
        };
        // Refused when it was sent before.
        let _ = self.engine.open(now, &open);
    }

    /// `sasl-mechanisms` came.
    pub(super) fn handle_mechanisms(&mut self, body: &Body) -> Result<(), DisconnectCause> {
        let (Some(sasl), Some(offered)) = (&mut self.sasl, body.mechanisms()) else {
            return Ok(());
        };
        sasl.check(&offered)?;
        sasl.begin(&self.options, &mut self.engine)
    }

    /// The transport says what SASL is bound by.
    pub(super) fn bind(&mut self, data: Bytes) {
        if let Some(sasl) = &mut self.sasl {
            sasl.bind(data);
        }
    }

    /// `sasl-challenge` came.
    pub(super) fn handle_challenge(&mut self, challenge: &[u8]) -> Result<(), DisconnectCause> {
        match &mut self.sasl {
            Some(sasl) => sasl.respond(&self.options, &mut self.engine, challenge),
            None => Ok(()),
        }
    }

    /// `sasl-outcome` came.
    pub(super) fn handle_outcome(
        &mut self,
        code: SaslCode,
        data: Option<&[u8]>,
    ) -> Result<(), DisconnectCause> {
        if let Some(sasl) = &mut self.sasl {
            sasl.finish(code, data)?;
        }
        self.stage = Stage::Authenticated;
        Ok(())
    }

    /// `open` of the server came.
    pub(super) fn handle_open(&mut self) {
        if self.stage != Stage::Closing {
            self.stage = Stage::Open;
        }
    }

    /// The connection has ended; why, if this side did not want it.
    pub(super) fn handle_closed(
        &mut self,
        error: Option<&Reason>,
        by_peer: bool,
    ) -> Option<DisconnectCause> {
        let was_closing = self.stage == Stage::Closing;
        self.stage = Stage::Closed;
        let condition = error.map(|error| Condition::from(error.get()));
        let redirect = error.map(Reason::get);
        let redirect = redirect.filter(|it| it.condition == condition::CONNECTION_REDIRECT);
        if let Some(redirect) = redirect.and_then(|error| Redirect::of(&error))
            && by_peer
            && !was_closing
        {
            return Some(DisconnectCause::Redirected(redirect));
        }
        match (by_peer, condition) {
            (true, condition) if !was_closing => Some(DisconnectCause::Server(condition)),
            (false, Some(condition)) if !was_closing => Some(DisconnectCause::Peer(condition)),
            _ => None,
        }
    }

    /// Says the end; `false` if there is nothing to say it to.
    pub(super) fn close(&mut self, now: Instant) -> bool {
        if matches!(self.stage, Stage::Closing | Stage::Closed) {
            return self.stage == Stage::Closing;
        }
        self.stage = Stage::Closing;
        self.engine.close(now, None).is_ok()
    }
}

fn symbol(name: &'static str) -> Value<'static> {
    Value::Symbol(Symbol::from_static(name))
}
