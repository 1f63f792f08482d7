//! Clients of AMQP in a simulated world: the engine of one connection each, on a
//! transport or on one stream of it.

use std::collections::VecDeque;

use bytes::Bytes;
use dunlin_amqp::codec::{
    AnyTarget, Attach, Begin, Open, Role, SaslCode, SaslInit, SerialNumber, Source, Symbol,
    Symbols, Target,
};
use dunlin_amqp::{
    Body, Connection, Delivery, Event, Limits, LinkId, Reason, SaslPolicy, SendError, Sending,
    SessionId, Settings, Side, State, Tag,
};
use dunlin_base::{ConnId, Instant, SendBuf, StreamId};

use crate::link::ToClient;
use crate::world::World;

/// What a client sees. Conditions of errors are empty where there is none.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Seen {
    /// Mechanisms that the server offers.
    Mechanisms(Vec<String>),
    /// A challenge.
    Challenge(Bytes),
    /// The outcome of SASL.
    Outcome(SaslCode, Option<Bytes>),
    /// The server has opened.
    Opened,
    /// A session has ended, with this condition.
    Ended(SessionId, String),
    /// The answer to an attachment.
    Attached(LinkId, Body),
    /// A link is gone, with this condition.
    Detached(LinkId, String),
    /// Flow state of a sending end; whether it is drained.
    Flow(LinkId, bool),
    /// Credit of a link.
    Credit(LinkId, u32),
    /// A message, with its sections.
    Message(Delivery, Bytes),
    /// What became of a delivery.
    Disposition(Delivery, Option<State>),
    /// The connection has ended, with this condition.
    Closed(String),
    /// Something else.
    Other,
}

/// One connection of a client.
#[derive(Debug)]
pub struct AmqpClient {
    /// Its transport.
    pub conn: ConnId,
    /// The stream there.
    pub stream: StreamId,
    /// Its end of the conversation.
    pub engine: Connection,
    /// What happened and was not looked at.
    pub events: VecDeque<Seen>,
    /// The server has ended the stream, or the connection.
    pub is_over: bool,
    tag: u64,
}

impl AmqpClient {
    /// A client that has sent nothing. `sasl`: a mechanism with its first message.
    #[must_use]
    pub fn new(world: &World, conn: ConnId, stream: StreamId, sasl: Option<(&str, &[u8])>) -> Self {
        // None takes links from another.
        let container = format!("client-{conn:?}-{stream:?}");
        let settings = Settings {
            side: Side::Client,
            container_id: &container,
            sasl: match sasl {
                Some(_) => SaslPolicy::Required,
                None => SaslPolicy::Off,
            },
            mechanisms: Symbols::default(),
            limits: Limits::default(),
        };
        let mut client = Self {
            conn,
            stream,
            engine: Connection::new(world.now(), &settings),
            events: VecDeque::new(),
            is_over: false,
            tag: 0,
        };
        if let Some((mechanism, response)) = sasl
            && let Some(mechanism) = Symbol::new(mechanism)
        {
            let init = SaslInit {
                mechanism,
                initial_response: (!response.is_empty()).then_some(response),
                hostname: None,
            };
            // It was just made with SASL.
            let _ = client.engine.sasl_init(&init);
        }
        client
    }

    /// Sends `open` and `begin`.
    pub fn open(&mut self, now: Instant) -> Option<SessionId> {
        self.engine.open(now, &Open::default()).ok()?;
        self.engine.begin(&Begin::default()).ok()
    }

    /// Asks for a link that sends to `address`.
    pub fn sender(&mut self, session: SessionId, address: &str) -> Option<LinkId> {
        let target = Target {
            address: Some(address),
            ..Target::default()
        };
        let attach = Attach {
            name: address,
            role: Role::Sender,
            source: Some(Source::default()),
            target: Some(AnyTarget::Target(target)),
            initial_delivery_count: Some(SerialNumber(0)),
            ..Attach::default()
        };
        self.engine.attach(session, &attach).ok()
    }

    /// Asks for a link that receives from `address`, with credit.
    pub fn receiver(&mut self, session: SessionId, address: &str, credit: u32) -> Option<LinkId> {
        let source = Source {
            address: Some(address),
            ..Source::default()
        };
        let attach = Attach {
            name: address,
            role: Role::Receiver,
            source: Some(source),
            target: Some(AnyTarget::Target(Target::default())),
            ..Attach::default()
        };
        let link = self.engine.attach(session, &attach).ok()?;
        self.engine.set_credit(link, credit, false).ok()?;
        Some(link)
    }

    /// Sends a message, unsettled.
    ///
    /// # Errors
    /// What is missing.
    pub fn send(&mut self, link: LinkId, sections: &[u8]) -> Result<Delivery, SendError> {
        self.tag += 1;
        let sending = Sending::new(Tag::from(self.tag), false);
        self.engine.send(link, &sending, sections, &Bytes::new())
    }

    /// Hands what the engine has to the transport.
    pub fn flush(&mut self, world: &mut World) {
        let mut out = SendBuf::new();
        self.engine.poll_output(world.now(), &mut out);
        let bytes: Vec<u8> = out.slices().flatten().copied().collect();
        if !bytes.is_empty() {
            world.send(self.conn, self.stream, &bytes);
        }
    }

    /// Whether this came for it; takes it then.
    pub fn take(&mut self, now: Instant, conn: ConnId, event: &ToClient) -> bool {
        if conn != self.conn {
            return false;
        }
        match event {
            ToClient::Bytes(stream, bytes) if *stream == self.stream => {
                let mut data = &bytes[..];
                while let Some(event) = self.engine.poll_event(now, &mut data) {
                    self.events.push_back(Seen::of(event));
                }
            }
            ToClient::Finished(stream) | ToClient::Reset(stream, _) if *stream == self.stream => {
                self.is_over = true;
            }
            ToClient::Closed(_) => self.is_over = true,
            _ => return false,
        }
        true
    }

    /// The next event of a kind; those before it are forgotten.
    pub fn find<T>(&mut self, wanted: impl Fn(&Seen) -> Option<T>) -> Option<T> {
        while let Some(event) = self.events.pop_front() {
            if let Some(found) = wanted(&event) {
                return Some(found);
            }
        }
        None
    }

    /// The next offer of mechanisms.
    pub fn mechanisms(&mut self) -> Option<Vec<String>> {
        self.find(|seen| match seen {
            Seen::Mechanisms(names) => Some(names.clone()),
            _ => None,
        })
    }

    /// The next challenge.
    pub fn challenge(&mut self) -> Option<Bytes> {
        self.find(|seen| match seen {
            Seen::Challenge(data) => Some(data.clone()),
            _ => None,
        })
    }

    /// The outcome of SASL, with its data.
    pub fn sasl_outcome(&mut self) -> Option<(SaslCode, Option<Bytes>)> {
        self.find(|seen| match seen {
            Seen::Outcome(code, data) => Some((*code, data.clone())),
            _ => None,
        })
    }

    /// The code of the outcome of SASL.
    pub fn sasl_code(&mut self) -> Option<SaslCode> {
        self.sasl_outcome().map(|(code, _)| code)
    }

    /// Whether the server has opened.
    pub fn is_opened(&mut self) -> bool {
        let opened = |seen: &Seen| matches!(seen, Seen::Opened).then_some(());
        self.find(opened).is_some()
    }

    /// The sections of the next message.
    pub fn message(&mut self) -> Option<Bytes> {
        self.find(|seen| match seen {
            Seen::Message(_, bytes) => Some(bytes.clone()),
            _ => None,
        })
    }

    /// The condition of the next link that is gone.
    pub fn detached(&mut self) -> Option<String> {
        self.find(|seen| match seen {
            Seen::Detached(_, condition) => Some(condition.clone()),
            _ => None,
        })
    }

    /// The condition with which the connection has ended.
    pub fn closed(&mut self) -> Option<String> {
        self.find(|seen| match seen {
            Seen::Closed(condition) => Some(condition.clone()),
            _ => None,
        })
    }
}

impl Seen {
    fn of(event: Event<'_>) -> Self {
        let condition = |error: Option<Reason>| {
            let error = error.map(|error| error.get().condition.as_str().to_owned());
            error.unwrap_or_default()
        };
        match event {
            Event::SaslMechanisms(body) => {
                let offer = body.mechanisms().map(|it| it.sasl_server_mechanisms);
                let names = offer.iter().flat_map(Symbols::iter);
                Self::Mechanisms(names.map(|name| name.as_str().to_owned()).collect())
            }
            Event::SaslChallenge(data) => Self::Challenge(data),
            Event::SaslOutcome { code, data } => Self::Outcome(code, data),
            Event::Opened(_) => Self::Opened,
            Event::Ended { session, error } => Self::Ended(session, condition(error)),
            Event::Attached { link, attach } => Self::Attached(link, attach),
            Event::Detached { link, error, .. } => Self::Detached(link, condition(error)),
            Event::Flow { link, drained, .. } => Self::Flow(link, drained),
            Event::Credit { link, credit, .. } => Self::Credit(link, credit),
            Event::Message(message) => {
                Self::Message(message.delivery, message.payload.into_bytes())
            }
            Event::Disposition {
                delivery, state, ..
            } => Self::Disposition(delivery, state),
            Event::Closed { error, .. } => Self::Closed(condition(error)),
            _ => Self::Other,
        }
    }
}

/// Has clients say what they have and hear what comes, until nothing is under way.
pub fn run_amqp(world: &mut World, clients: &mut [&mut AmqpClient]) {
    loop {
        for client in &mut *clients {
            client.flush(world);
        }
        let Some((conn, event)) = world.next_before_quiet() else {
            return;
        };
        let now = world.now();
        for client in &mut *clients {
            client.take(now, conn, &event);
        }
    }
}
