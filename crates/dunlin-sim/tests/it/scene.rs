//! Clients of MQTT and of AMQP in one world, which come back when they have lost their
//! connections.

use core::time::Duration;

use bytes::Bytes;
use dunlin_amqp::codec::{Begin, Open, Section, Symbols};
use dunlin_amqp::{Connection, Limits, SaslPolicy, SessionId, Settings, Side};
use dunlin_base::transport::Transport;
use dunlin_base::{ConnId, Instant, SendBuf, StreamId, Text};
use dunlin_broker::NamedQueue;
use dunlin_sim::{Peer, PeerOptions, Random, Setup, ToClient, World};

/// A client of AMQP that acts upon what it hears.
pub(crate) trait Client {
    /// What all clients of a scene know.
    type Shared;

    fn line(&self) -> &Line;

    fn line_mut(&mut self) -> &mut Line;

    fn connect(&mut self, world: &mut World);

    /// Something came on its connection.
    fn handle(&mut self, world: &mut World, event: ToClient, shared: &mut Self::Shared);

    /// Sends what it has to send.
    fn proceed(&mut self, world: &mut World) {
        self.line_mut().flush(world);
    }
}

/// The connection of a client of AMQP.
pub(crate) struct Line {
    pub(crate) conn: Option<ConnId>,
    pub(crate) engine: Connection,
}

impl Line {
    pub(crate) fn new() -> Self {
        Self {
            conn: None,
            engine: engine(Instant::from_micros(1), ""),
        }
    }

    /// Begins a connection and a session. Without a name the container is one of its own,
    /// so that none takes links from another.
    pub(crate) fn open(&mut self, world: &mut World, container_id: Option<&str>) -> SessionId {
        let now = world.now();
        let conn = world.open();
        let own = format!("{conn:?}");
        self.conn = Some(conn);
        self.engine = engine(now, container_id.unwrap_or(&own));
        self.engine.open(now, &Open::default()).expect("open");
        self.engine.begin(&Begin::default()).expect("begin")
    }

    pub(crate) fn flush(&mut self, world: &mut World) {
        let mut out = SendBuf::new();
        self.engine.poll_output(world.now(), &mut out);
        let out: Vec<u8> = out.slices().flatten().copied().collect();
        if let Some(conn) = self.conn
            && !out.is_empty()
        {
            world.send(conn, StreamId::CONTROL, &out);
        }
    }

    /// The connection is lost.
    pub(crate) fn cut(&self, world: &mut World) {
        if let Some(conn) = self.conn {
            world.cut(conn);
        }
    }
}

fn engine(now: Instant, container_id: &str) -> Connection {
    let settings = Settings {
        side: Side::Client,
        container_id,
        sasl: SaslPolicy::Off,
        mechanisms: Symbols::default(),
        limits: Limits::default(),
    };
    Connection::new(now, &settings)
}

/// A world with its clients.
pub(crate) struct Scene<C: Client> {
    pub(crate) world: World,
    pub(crate) peers: Vec<Peer>,
    pub(crate) clients: Vec<C>,
    pub(crate) shared: C::Shared,
}

impl<C: Client> Scene<C> {
    /// All clients connect.
    pub(crate) fn begin(&mut self) {
        for peer in &mut self.peers {
            peer.connect(&mut self.world);
        }
        for client in &mut self.clients {
            client.connect(&mut self.world);
        }
        self.run(Duration::from_secs(1));
    }

    pub(crate) fn run(&mut self, time: Duration) {
        let until = self.world.now() + time;
        loop {
            let peers = self.peers.iter().filter_map(Peer::poll_timeout);
            let clients = self.clients.iter();
            let clients = clients.filter_map(|it| it.line().engine.deadline());
            let limit = peers.chain(clients).fold(until, |a, b| a.min(b));
            if let Some((conn, event)) = self.world.next(limit) {
                self.happen(conn, event);
                continue;
            }
            let now = self.world.now();
            if now >= until {
                return;
            }
            for peer in &mut self.peers {
                if peer.poll_timeout().is_some_and(|at| at <= now) {
                    peer.handle_timeout(&mut self.world);
                }
            }
            for client in &mut self.clients {
                let engine = &mut client.line_mut().engine;
                if engine.deadline().is_some_and(|at| at <= now) {
                    engine.on_deadline(now);
                    client.proceed(&mut self.world);
                }
            }
        }
    }

    fn happen(&mut self, conn: ConnId, event: ToClient) {
        let world = &mut self.world;
        if let Some(peer) = self.peers.iter_mut().find(|it| it.conn() == Some(conn)) {
            peer.handle(world, event);
            if peer.conn().is_none() {
                peer.connect(world);
            }
            return;
        }
        let mut clients = self.clients.iter_mut();
        if let Some(client) = clients.find(|it| it.line().conn == Some(conn)) {
            client.handle(world, event, &mut self.shared);
        }
    }
}

/// A world over TCP with the queue `jobs`, to which `jobs/#` is bound. Little of it is in
/// memory.
pub(crate) fn setup(seed: u64, random: &mut Random) -> Setup {
    let mut setup = Setup::new(2, seed);
    setup.protocol = Some("");
    setup.transport = Transport::Tcp;
    setup.pace.stores_apart = random.one_in(2);
    setup.config.sessions.queue_held_max = 3;
    setup.config.queues.named = vec![queue("jobs", &["jobs/#"])];
    setup
}

/// A queue that the configuration has, and what is bound to it.
pub(crate) fn queue(name: &'static str, topics: &[&'static str]) -> NamedQueue {
    NamedQueue {
        name: Text::from_static(name),
        topics: topics.iter().map(|it| Text::from_static(it)).collect(),
        ..NamedQueue::default()
    }
}

pub(crate) fn publisher(client_id: &str) -> Peer {
    Peer::new(PeerOptions {
        receive_maximum: 5,
        ..PeerOptions::new(client_id, &[])
    })
}

/// A durable message.
pub(crate) fn message(payload: &str) -> Vec<u8> {
    let mut bytes = vec![0x00, 0x53, 0x70, 0xc0, 2, 1, 0x41];
    Section::encode_data_start(payload.len(), &mut bytes).expect("a vector");
    bytes.extend_from_slice(payload.as_bytes());
    bytes
}

/// The payload of a message: one data section of less than 256 bytes ends it.
pub(crate) fn payload(bytes: &Bytes) -> String {
    let at = bytes.windows(3).rposition(|it| it == [0x00, 0x53, 0x75]);
    let data = at.map_or(&[][..], |at| &bytes[at + 5..]);
    String::from_utf8(data.to_vec()).expect("text")
}
