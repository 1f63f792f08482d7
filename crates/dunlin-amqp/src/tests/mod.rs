//! Client against server in virtual time, and each against written frames.

mod credit;
mod deliveries;
mod faults;
mod notation;
mod opening;
mod resuming;
mod sasl;
mod sessions;
mod transactions;
mod transfers;

use alloc::collections::VecDeque;
use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

use bytes::Bytes;
use dunlin_amqp_codec::{
    AnyTarget, Attach, Begin, DeliveryState, Open, Outcome, Performative, Role, SaslCode, Source,
    Symbol, Symbols, Target,
};
use dunlin_base::{Instant, SendBuf};

use crate::{
    Connection, Event, Limits, LinkId, Message, SaslPolicy, SendError, Sending, SessionId,
    Settings, Side, Tag,
};

const ACCEPTED: DeliveryState<'static> = DeliveryState::Outcome(Outcome::Accepted);

/// One side: its connection, and the events that it has had.
struct End {
    connection: Connection,
    events: VecDeque<Event<'static>>,
    /// Bytes of one read.
    chunk: usize,
}

impl End {
    fn new(side: Side, sasl: SaslPolicy, limits: Limits) -> Self {
        const MECHANISMS: [Symbol<'static>; 2] = [
            Symbol::from_static("PLAIN"),
            Symbol::from_static("ANONYMOUS"),
        ];
        let settings = Settings {
            side,
            container_id: match side {
                Side::Client => "client",
                Side::Server => "server",
            },
            sasl,
            mechanisms: Symbols::new(&MECHANISMS),
            limits,
        };
        Self {
            connection: Connection::new(NOW, &settings),
            events: VecDeque::new(),
            chunk: usize::MAX,
        }
    }

    fn output(&mut self, now: Instant) -> Vec<u8> {
        let mut out = SendBuf::new();
        self.connection.poll_output(now, &mut out);
        out.slices().flatten().copied().collect()
    }

    /// Bytes come; a server opens and accepts what is asked for.
    fn feed(&mut self, now: Instant, bytes: &[u8], accepts: bool) {
        for chunk in bytes.chunks(self.chunk.min(bytes.len().max(1))) {
            let mut data = chunk;
            while let Some(event) = self.connection.poll_event(now, &mut data) {
                let event = event.into_owned();
                if accepts {
                    self.accept(now, &event);
                }
                self.events.push_back(event);
            }
            assert!(data.is_empty(), "all is taken");
        }
        if bytes.is_empty() {
            while let Some(event) = self.connection.poll_event(now, &mut &[][..]) {
                self.events.push_back(event.into_owned());
            }
        }
    }

    fn accept(&mut self, now: Instant, event: &Event<'_>) {
        match event {
            Event::SaslInit { .. } => {
                let accepted = self.connection.sasl_outcome(SaslCode::Ok, None);
                accepted.expect("an init waits");
            }
            Event::Opened(_) => self
                .connection
                .open(now, &Open::default())
                .expect("an open waits"),
            Event::Attach { link, attach, .. } => {
                let attach = attach.attach().expect("decoded before");
                let accepted = self.connection.accept_attach(*link, &attach);
                accepted.expect("an attach waits");
            }
            _ => {}
        }
    }

    /// The next event, by name.
    fn next(&mut self) -> String {
        let event = self.events.pop_front();
        event.map_or_else(String::new, |event| notation::event(&event))
    }

    /// All events, by name.
    fn names(&mut self) -> Vec<String> {
        self.events.drain(..).map(|e| notation::event(&e)).collect()
    }

    fn message(&mut self) -> Message<'static> {
        loop {
            match self.events.pop_front() {
                Some(Event::Message(message)) => return message,
                Some(_) => {}
                None => panic!("no message came"),
            }
        }
    }

    fn send(&mut self, link: LinkId, number: u64, settled: bool, body: &[u8]) -> crate::Delivery {
        self.try_send(link, number, settled, body).expect("sent")
    }

    fn try_send(
        &mut self,
        link: LinkId,
        number: u64,
        settled: bool,
        body: &[u8],
    ) -> Result<crate::Delivery, SendError> {
        let sending = Sending::new(Tag::from(number), settled);
        let body = Bytes::copy_from_slice(body);
        self.connection.send(link, &sending, b"", &body)
    }
}

const NOW: Instant = Instant::from_micros(1_000_000);

/// Client and server with a lossless network between them.
struct Pair {
    client: End,
    server: End,
    now: Instant,
    /// The server opens and accepts by itself.
    accepts: bool,
}

impl Pair {
    fn new(sasl: SaslPolicy, client: Limits, server: Limits) -> Self {
        Self {
            client: End::new(Side::Client, sasl, client),
            server: End::new(Side::Server, sasl, server),
            now: NOW,
            accepts: true,
        }
    }

    /// Both sides are open, and the client has a session.
    fn open() -> (Self, SessionId) {
        Self::open_with(Limits::default(), Limits::default())
    }

    fn open_with(client: Limits, server: Limits) -> (Self, SessionId) {
        let mut pair = Self::new(SaslPolicy::Off, client, server);
        let client = &mut pair.client.connection;
        client.open(NOW, &Open::default()).expect("opened");
        let session = client.begin(&Begin::default()).expect("begun");
        pair.run();
        assert_eq!(pair.client.names(), ["Opened server", "Begun"]);
        assert_eq!(pair.server.names(), ["Opened client", "Begun by peer"]);
        (pair, session)
    }

    /// A link of the client and the server's end of it.
    fn attach(&mut self, session: SessionId, attach: &Attach<'_>) -> (LinkId, LinkId) {
        let link = self.client.connection.attach(session, attach);
        let ours = link.expect("attached");
        self.run();
        let Some(Event::Attach { link: theirs, .. }) = self.server.events.pop_back() else {
            panic!("no attach came");
        };
        assert!(self.client.next().starts_with("Attached"));
        (ours, theirs)
    }

    /// A link on which the client sends, with credit.
    fn sender(&mut self, session: SessionId, credit: u32) -> (LinkId, LinkId) {
        let (ours, theirs) = self.attach(session, &attach("s", Role::Sender));
        self.give_credit(theirs, credit);
        assert_eq!(self.client.next(), alloc::format!("Credit {credit}"));
        (ours, theirs)
    }

    /// The server gives credit, and the client hears of it.
    fn give_credit(&mut self, link: LinkId, credit: u32) {
        let given = self.server.connection.set_credit(link, credit, false);
        given.expect("attached");
        self.run();
    }

    /// Bytes go back and forth until there are none.
    fn run(&mut self) {
        loop {
            let to_server = self.client.output(self.now);
            let to_client = self.server.output(self.now);
            if to_server.is_empty() && to_client.is_empty() {
                return;
            }
            self.server.feed(self.now, &to_server, self.accepts);
            self.client.feed(self.now, &to_client, false);
        }
    }

    fn wait(&mut self, time: Duration) {
        self.now += time;
        for end in [&mut self.client, &mut self.server] {
            let connection = &mut end.connection;
            while connection.deadline().is_some_and(|at| at <= self.now) {
                connection.on_deadline(self.now);
            }
            end.feed(self.now, &[], false);
        }
    }
}

fn attach(name: &str, role: Role) -> Attach<'_> {
    Attach {
        name,
        role,
        source: Some(Source {
            address: Some("from"),
            ..Source::default()
        }),
        target: Some(AnyTarget::Target(Target {
            address: Some("to"),
            ..Target::default()
        })),
        ..Attach::default()
    }
}

/// A server that was opened by written frames, which come next.
struct Script {
    end: End,
}

impl Script {
    fn new(limits: Limits) -> Self {
        Self {
            end: End::new(Side::Server, SaslPolicy::Optional, limits),
        }
    }

    /// After header, `open` and `begin` on channel 0.
    fn begun(limits: Limits) -> Self {
        let mut script = Self::new(limits);
        script.bytes(b"AMQP\x00\x01\x00\x00");
        script.frame(0, Performative::Open(Open::default()));
        let begin = Begin {
            incoming_window: 100,
            outgoing_window: 100,
            ..Begin::default()
        };
        let sent = script.frame(0, Performative::Begin(begin));
        assert_eq!(sent, ["begin remote=0"]);
        script.end.events.clear();
        script
    }

    /// After `attach` of a sender with handle 0, and credit for it.
    fn sending(limits: Limits, credit: u32) -> Self {
        let mut script = Self::begun(limits);
        script.frame(0, sender_attach("s", 0));
        let Some(Event::Attach { link, .. }) = script.end.events.pop_back() else {
            panic!("no attach came");
        };
        let connection = &mut script.end.connection;
        connection
            .set_credit(link, credit, false)
            .expect("attached");
        script.sent();
        script.end.events.clear();
        script
    }

    /// Bytes come; what is sent then.
    fn bytes(&mut self, bytes: &[u8]) -> Vec<String> {
        self.end.feed(NOW, bytes, true);
        self.sent()
    }

    fn frame(&mut self, channel: u16, performative: Performative<'_>) -> Vec<String> {
        self.bytes(&notation::frame(channel, &performative, b""))
    }

    fn transfer(
        &mut self,
        transfer: dunlin_amqp_codec::Transfer<'_>,
        payload: &[u8],
    ) -> Vec<String> {
        let frame = Performative::Transfer(transfer);
        self.bytes(&notation::frame(0, &frame, payload))
    }

    fn sent(&mut self) -> Vec<String> {
        notation::frames(&self.end.output(NOW))
    }
}

fn sender_attach(name: &str, handle: u32) -> Performative<'_> {
    Performative::Attach(Attach {
        handle,
        initial_delivery_count: Some(dunlin_amqp_codec::SerialNumber(0)),
        ..attach(name, Role::Sender)
    })
}
