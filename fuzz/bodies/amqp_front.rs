//! Two clients of AMQP on one broker shard: links to topics and queues, messages,
//! credit, outcomes, bytes that are changed on their way or come from nowhere,
//! connections that break, time. Nothing panics, no entry is missing that must be
//! there, the budget is counted right, and no connection is left when all are closed.

use core::time::Duration;

use bytes::Bytes;
use dunlin_amqp::codec::{
    AnyTarget, Attach, Begin, DeliveryState, Open, Role, SerialNumber, Source, Symbols, Target,
};
use dunlin_amqp::{
    Connection, Delivery, Event, Limits, LinkId, SaslPolicy, Sending, SessionId, Settings, Side,
    Tag,
};
use dunlin_base::transport::{CloseCause, NetCommandKind, NetEvent, NetEventKind, Peer, Transport};
use dunlin_base::{ConnId, Instant, SendBuf, ShardId, StreamId, Text};
use dunlin_broker::auth::{Anonymous, AuthPolicy};
use dunlin_broker::{Config, Input, Output, Shard};
use dunlin_store::{MemoryStore, Request, StoreDone};

/// What links are attached to; the third is refused.
const ADDRESSES: [&str; 6] = ["t/1", "t/#", "", "/queues/q", "$share/g/t/1", "/topics/t/1"];

/// Rounds of an exchange: both sides have little to say.
const ROUNDS_MAX: usize = 64;

struct Client {
    conn: ConnId,
    engine: Connection,
    session: Option<SessionId>,
    links: Vec<LinkId>,
    deliveries: Vec<Delivery>,
}

struct World {
    shard: Shard,
    store: MemoryStore,
    now: Instant,
    serial: u64,
    clients: Vec<Client>,
    sent: Vec<(ConnId, Vec<u8>)>,
    /// Is added to a byte of the next output of a client, at this place.
    change: Option<(u8, u8)>,
}

/// One input.
pub(crate) fn run(data: &[u8]) {
    let mut input = data.iter().copied();
    let mut config = Config {
        listeners: vec![AuthPolicy {
            anonymous: Anonymous::Always,
            passwords: false,
            certificates: false,
            tokens: false,
            ..AuthPolicy::default()
        }],
        ..Config::default()
    };
    // Small, so that limits are met.
    config.sending.inflight_max = 3;
    config.sending.send_backlog_bytes = 200;
    config.clients.receive_maximum = 3;
    config.sessions.queue_messages_max = 4;
    config.sys.interval = Duration::ZERO;
    let now = Instant::from_micros(1_000_000);
    let mut world = World {
        shard: Shard::new(config, now),
        store: MemoryStore::new(),
        now,
        serial: 0,
        clients: Vec::new(),
        sent: Vec::new(),
        change: None,
    };
    for _ in 0..2 {
        let client = world.connect();
        world.clients.push(client);
    }
    while let Some(op) = input.next() {
        world.operate(op, &mut || input.next().unwrap_or_default());
        world.exchange();
    }
    for at in 0..world.clients.len() {
        world.close(world.clients[at].conn);
    }
    world.wait(Duration::from_secs(600));
    let census = world.shard.census();
    assert_eq!(
        (census.conns, census.miscounted_bytes),
        (0, 0),
        "{census:?}"
    );
    assert_eq!(
        world.shard.stats().internal_errors,
        0,
        "entries are missing"
    );
}

impl World {
    fn connect(&mut self) -> Client {
        self.serial += 1;
        let conn = ConnId::new(ShardId(0), self.serial);
        let peer = Peer {
            addr: ([127, 0, 0, 1], 1).into(),
            transport: Transport::Tcp,
            listener: 0,
            identity: None,
            protocol: Text::from_static("amqp"),
            early_data: false,
            binding: None,
        };
        self.event(conn, NetEventKind::Opened { peer });
        let settings = Settings {
            side: Side::Client,
            container_id: "client",
            sasl: SaslPolicy::Off,
            mechanisms: Symbols::default(),
            limits: Limits::default(),
        };
        let mut engine = Connection::new(self.now, &settings);
        let _ = engine.open(self.now, &Open::default());
        Client {
            conn,
            session: engine.begin(&Begin::default()).ok(),
            engine,
            links: Vec::new(),
            deliveries: Vec::new(),
        }
    }

    fn close(&mut self, conn: ConnId) {
        let cause = CloseCause::Local;
        self.event(conn, NetEventKind::Closed { cause });
    }

    fn event(&mut self, conn: ConnId, kind: NetEventKind<&[u8]>) {
        let event = NetEvent::new(conn, kind);
        self.shard.handle(self.now, Input::Net(event));
        self.carry();
    }

    /// Does what the shard wants until it wants nothing.
    fn carry(&mut self) {
        while let Some(output) = self.shard.poll_output() {
            match output {
                Output::Store(Request::Write(batch)) => {
                    self.store.apply(&batch);
                    let done = StoreDone::Committed { token: batch.token };
                    self.shard.handle(self.now, Input::Store(done));
                }
                Output::Store(request) => {
                    let done = self.store.handle(&request);
                    self.shard.handle(self.now, Input::Store(done));
                }
                Output::Net(command) => {
                    if let NetCommandKind::Send { data, stream } = command.kind {
                        let bytes: Vec<u8> = data.slices().flatten().copied().collect();
                        let sent = NetEventKind::Sent {
                            stream,
                            bytes: bytes.len(),
                        };
                        self.sent.push((command.conn, bytes));
                        let event = NetEvent::new(command.conn, sent);
                        self.shard.handle(self.now, Input::Net(event));
                    }
                }
                _ => {}
            }
        }
    }

    fn wait(&mut self, time: Duration) {
        let until = self.now + time;
        while let Some(due) = self.shard.poll_timeout().filter(|due| *due <= until) {
            self.now = self.now.max(due);
            self.shard.handle_timeout(self.now);
            self.carry();
        }
        self.now = until;
    }

    /// Both sides say what they have.
    fn exchange(&mut self) {
        for _ in 0..ROUNDS_MAX {
            let mut idle = true;
            for at in 0..self.clients.len() {
                let now = self.now;
                let client = &mut self.clients[at];
                let conn = client.conn;
                let mut out = SendBuf::new();
                client.engine.poll_output(now, &mut out);
                let mut out: Vec<u8> = out.slices().flatten().copied().collect();
                if !out.is_empty() {
                    idle = false;
                    if let Some((place, by)) = self.change.take() {
                        let place = usize::from(place) % out.len();
                        out[place] = out[place].wrapping_add(by);
                    }
                    let (stream, data) = (StreamId::CONTROL, &out[..]);
                    self.event(conn, NetEventKind::Bytes { stream, data });
                }
                for (to, bytes) in core::mem::take(&mut self.sent) {
                    let client = self.clients.iter_mut().find(|client| client.conn == to);
                    if let Some(client) = client {
                        idle = false;
                        client.read(now, &bytes);
                    }
                }
            }
            if idle {
                return;
            }
        }
    }

    fn operate(&mut self, op: u8, byte: &mut dyn FnMut() -> u8) {
        let at = usize::from(op & 1);
        let client = &mut self.clients[at];
        let link = match client.links.len() {
            0 => None,
            len => Some(client.links[usize::from(op >> 5) % len]),
        };
        match ((op >> 1) % 10, link) {
            (0, _) => client.attach(Role::Receiver, byte()),
            (1, _) => client.attach(Role::Sender, byte()),
            (2, Some(link)) => _ = client.engine.set_credit(link, byte().into(), op & 64 != 0),
            (3, Some(link)) => {
                let sending = Sending::new(Tag::from(u64::from(byte())), op & 64 != 0);
                let message = Bytes::from_static(&[0x00, 0x53, 0x75, 0xa0, 1, b'x']);
                let _ = client.engine.send(link, &sending, &[], &message);
            }
            (4, _) => {
                let state = match byte() % 3 {
                    0 => Some(&DeliveryState::ACCEPTED),
                    1 => Some(&DeliveryState::RELEASED),
                    _ => None,
                };
                if let Some(delivery) = client.deliveries.pop() {
                    let _ = client.engine.settle(delivery, state);
                }
            }
            (5, Some(link)) => _ = client.engine.detach(link, op & 64 != 0, None),
            (6, _) => {
                let (conn, len) = (client.conn, byte() % 32);
                let data: Vec<u8> = (0..len).map(|_| byte()).collect();
                let (stream, data) = (StreamId::CONTROL, &data[..]);
                self.event(conn, NetEventKind::Bytes { stream, data });
            }
            (7, _) => self.change = Some((byte(), byte())),
            (8, _) => {
                let conn = client.conn;
                self.close(conn);
                self.clients[at] = self.connect();
            }
            (9, _) => self.wait(Duration::from_millis(100) * u32::from(byte())),
            _ => {}
        }
    }
}

impl Client {
    fn attach(&mut self, role: Role, choice: u8) {
        let address = Some(ADDRESSES[usize::from(choice) % ADDRESSES.len()]);
        let source = Source {
            address,
            ..Source::default()
        };
        let target = Target {
            address,
            ..Target::default()
        };
        let attach = Attach {
            // Some links have the same name.
            name: ["a", "b", "c", "d"][usize::from(choice >> 6)],
            role,
            source: Some(source),
            target: Some(AnyTarget::Target(target)),
            initial_delivery_count: (role == Role::Sender).then_some(SerialNumber(0)),
            ..Attach::default()
        };
        if let Some(session) = self.session
            && let Ok(link) = self.engine.attach(session, &attach)
        {
            self.links.push(link);
        }
    }

    fn read(&mut self, now: Instant, mut data: &[u8]) {
        while let Some(event) = self.engine.poll_event(now, &mut data) {
            if let Event::Message(message) = event {
                self.deliveries.push(message.delivery);
            }
        }
    }
}
