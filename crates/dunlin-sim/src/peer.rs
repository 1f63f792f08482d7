//! A client built on the client engine: it publishes what it is given, keeps
//! what is not acknowledged, comes back after a lost connection, and writes
//! down what it got.

use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};

use dunlin_base::{ConnId, Instant, QoS, StreamId};
use dunlin_mqtt::client::{Event, Resume, Session, Settings};
use dunlin_mqtt_codec::{
    Connect, ConnectProperties, Disconnect, PacketId, Publish, ReasonCode, Subscribe,
    SubscribeFilter, SubscribeFilters, SubscribeOptions, Version, Will,
};

use crate::link::ToClient;
use crate::world::{World, open_on, takes_connections};

/// Messages that a client has in flight either way.
const IN_FLIGHT_MAX: u16 = 20;

/// What a client wants.
#[derive(Clone, Debug)]
pub struct PeerOptions {
    /// Client identifier.
    pub client_id: String,
    /// Version of the protocol.
    pub version: Version,
    /// Session Expiry Interval in seconds; in 3.1.1 zero is Clean Session.
    pub expiry_secs: u32,
    /// Filters to subscribe to, and with which QoS.
    pub filters: Vec<(String, QoS)>,
    /// Receive Maximum.
    pub receive_maximum: u16,
}

impl PeerOptions {
    /// A client of MQTT 5.0 whose session outlives its connection.
    #[must_use]
    pub fn new(client_id: &str, filters: &[(&str, QoS)]) -> Self {
        let filters = filters.iter();
        Self {
            client_id: client_id.to_owned(),
            version: Version::V5,
            expiry_secs: 3600,
            filters: filters
                .map(|(filter, qos)| ((*filter).to_owned(), *qos))
                .collect(),
            receive_maximum: 8,
        }
    }
}

/// One message as a test sees it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PeerEvent {
    /// Topic.
    pub topic: String,
    /// Payload.
    pub payload: String,
    /// QoS.
    pub qos: QoS,
}

/// A client.
pub struct Peer {
    options: PeerOptions,
    engine: Session,
    conn: Option<ConnId>,
    partial: Vec<u8>,
    kept: BTreeMap<PacketId, PeerEvent>,
    waiting: VecDeque<PeerEvent>,
    /// Messages received, in order.
    pub received: Vec<PeerEvent>,
    /// Messages acknowledged by the server.
    pub acknowledged: Vec<PeerEvent>,
    /// Messages that the server refused.
    pub refused: Vec<PeerEvent>,
    /// Whether all subscriptions stand.
    pub subscribed: bool,
    /// Connections that a CONNACK accepted.
    pub connections: u32,
    /// CONNACKs without the session that the client had before.
    pub sessions_lost: u32,
    /// Stays away.
    pub parked: bool,
    /// Where it connects to, if that is not left to the world.
    pub at: Option<usize>,
    /// Its sessions begin empty.
    pub clean: bool,
    /// Everything it publishes is to be retained.
    pub retain: bool,
    /// Topic of its will, at QoS 1; the payload numbers the connection.
    pub will: Option<String>,
    /// Payload of the will that the server has.
    will_at_server: Option<String>,
    /// Payloads of wills that the server has to publish.
    pub wills_due: Vec<String>,
    attempts: u32,
}

impl Peer {
    /// A client that is not connected.
    #[must_use]
    pub fn new(options: PeerOptions) -> Self {
        // 3.1.1 cannot say how many messages it takes at a time.
        let inbound = match options.version {
            Version::V5 => 2 * options.receive_maximum,
            Version::V311 => 4096,
        };
        let mut settings = Settings::default();
        settings.outbound_max = IN_FLIGHT_MAX;
        settings.inbound_max = inbound;
        settings.aliases_out_max = 8;
        Self {
            options,
            engine: Session::new(settings),
            conn: None,
            partial: Vec::new(),
            kept: BTreeMap::new(),
            waiting: VecDeque::new(),
            received: Vec::new(),
            acknowledged: Vec::new(),
            refused: Vec::new(),
            subscribed: false,
            connections: 0,
            sessions_lost: 0,
            parked: false,
            at: None,
            clean: false,
            retain: false,
            will: None,
            will_at_server: None,
            wills_due: Vec::new(),
            attempts: 0,
        }
    }

    /// Its client identifier.
    #[must_use]
    pub fn client_id(&self) -> &str {
        &self.options.client_id
    }

    /// Its connection.
    #[must_use]
    pub const fn conn(&self) -> Option<ConnId> {
        self.conn
    }

    /// Whether everything it was given to publish is answered for and all its
    /// subscriptions stand.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.kept.is_empty() && self.waiting.is_empty() && (self.parked || self.subscribed)
    }

    /// When it wants [`Peer::handle_timeout`].
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.engine.poll_timeout()
    }

    /// Opens a connection and sends CONNECT, if it has none and a shard takes connections.
    pub fn connect(&mut self, world: &mut World) {
        if self.conn.is_some() || self.parked || !takes_connections(world, self.at) {
            return;
        }
        let conn = match self.at {
            Some(place) => open_on(world, place, "mqtt"),
            None => world.open(),
        };
        self.conn = Some(conn);
        let is_v5 = self.options.version == Version::V5;
        let client_id = self.options.client_id.clone();
        self.attempts += 1;
        let payload = format!("{client_id} {}", self.attempts);
        let will = self.will.as_deref().map(|topic| Will {
            topic,
            payload: payload.as_bytes(),
            qos: QoS::AtLeastOnce,
            ..Will::default()
        });
        let connect = Connect {
            version: self.options.version,
            clean_start: self.clean || (!is_v5 && self.options.expiry_secs == 0),
            client_id: &client_id,
            keep_alive: 60,
            will,
            properties: ConnectProperties {
                session_expiry_interval: is_v5.then_some(self.options.expiry_secs),
                receive_maximum: is_v5
                    .then(|| core::num::NonZeroU16::new(self.options.receive_maximum))
                    .flatten(),
                ..ConnectProperties::default()
            },
            ..Connect::default()
        };
        let mut out = Vec::new();
        self.engine
            .connect(world.now(), &connect, &mut out)
            .expect("CONNECT");
        world.send(conn, StreamId::CONTROL, &out);
    }

    /// Breaks the connection.
    pub fn cut(&mut self, world: &mut World) {
        if let Some(conn) = self.conn {
            world.cut(conn);
            self.lost();
        }
    }

    /// Comes back on a new connection while the old one still stands.
    pub fn take_over(&mut self, world: &mut World) {
        if self.conn.is_some() && !self.parked {
            self.lost();
            self.connect(world);
        }
    }

    /// Ends the connection in good order and stays away.
    pub fn leave(&mut self, world: &mut World, expiry_secs: Option<u32>) {
        self.parked = true;
        let Some(conn) = self.conn else {
            return;
        };
        let mut out = Vec::new();
        let mut disconnect = Disconnect::default();
        disconnect.properties.session_expiry_interval = expiry_secs;
        if self
            .engine
            .disconnect(world.now(), &disconnect, &mut out)
            .is_ok()
        {
            world.send(conn, StreamId::CONTROL, &out);
            self.will_at_server = None;
        } else {
            self.cut(world);
        }
    }

    /// Publishes as soon as it can.
    pub fn publish(&mut self, world: &mut World, topic: &str, payload: String, qos: QoS) {
        self.waiting.push_back(PeerEvent {
            topic: topic.to_owned(),
            payload,
            qos,
        });
        self.flush(world);
    }

    /// Something happened on its connection.
    pub fn handle(&mut self, world: &mut World, event: ToClient) {
        match event {
            ToClient::Bytes(_, bytes) => {
                self.partial.extend_from_slice(&bytes);
                while self.handle_packet(world) {}
                self.flush(world);
            }
            ToClient::Closed(_) => self.lost(),
            ToClient::Finished(_) | ToClient::Reset(..) | ToClient::Datagram(_) => {}
        }
    }

    /// Time has passed.
    pub fn handle_timeout(&mut self, world: &mut World) {
        if self.engine.handle_timeout(world.now()).is_err() {
            self.cut(world);
            return;
        }
        self.flush(world);
    }

    fn lost(&mut self) {
        self.wills_due.extend(self.will_at_server.take());
        self.conn = None;
        self.partial.clear();
        self.engine.handle_closed();
    }

    fn handle_packet(&mut self, world: &mut World) -> bool {
        let partial = core::mem::take(&mut self.partial);
        let now = world.now();
        let mut follow = Follow::Nothing;
        let taken = match self.engine.handle_bytes(now, &partial) {
            Ok(Some((taken, event))) => {
                follow = note(
                    event,
                    &mut self.kept,
                    &mut self.received,
                    &mut self.acknowledged,
                    &mut self.refused,
                );
                taken
            }
            Ok(None) => 0,
            Err(error) => panic!(
                "{} does not like the server: {error}",
                self.options.client_id
            ),
        };
        self.partial = partial[taken..].to_vec();
        match follow {
            Follow::Nothing => {}
            Follow::Acknowledge(receipt) => {
                self.engine.acknowledge(receipt, ReasonCode::Success);
            }
            Follow::Subscribed => self.subscribed = true,
            Follow::Connected { present } => self.connected(world, present),
        }
        self.resume(world);
        taken > 0
    }

    fn connected(&mut self, world: &mut World, present: bool) {
        if !present {
            self.sessions_lost += u32::from(self.connections > 0);
            self.subscribed = self.options.filters.is_empty();
        }
        self.connections += 1;
        if self.will.is_some() {
            let payload = format!("{} {}", self.options.client_id, self.attempts);
            self.will_at_server = Some(payload);
        }
        if !self.subscribed {
            self.subscribe(world);
        }
    }

    fn subscribe(&mut self, world: &mut World) {
        let filters: Vec<SubscribeFilter<'_>> = self
            .options
            .filters
            .iter()
            .map(|(filter, qos)| SubscribeFilter {
                filter,
                options: SubscribeOptions {
                    qos: *qos,
                    ..SubscribeOptions::default()
                },
            })
            .collect();
        let subscribe = Subscribe {
            packet_id: PacketId::MIN,
            subscription_identifier: None,
            user_properties: Default::default(),
            filters: SubscribeFilters::new(&filters),
        };
        let mut out = Vec::new();
        if self
            .engine
            .subscribe(world.now(), &subscribe, &mut out)
            .is_ok()
            && let Some(conn) = self.conn
        {
            world.send(conn, StreamId::CONTROL, &out);
        }
    }

    fn resume(&mut self, world: &mut World) {
        let mut out = Vec::new();
        while let Some(resume) = self.engine.poll_resume() {
            match resume {
                Resume::Publish(id) => {
                    let Some(message) = self.kept.get(&id) else {
                        self.engine.abandon(id);
                        continue;
                    };
                    let publish = view(message, self.retain);
                    if self
                        .engine
                        .resend(world.now(), id, &publish, &mut out)
                        .is_err()
                    {
                        break;
                    }
                }
                Resume::Completed(id) => {
                    self.acknowledged.extend(self.kept.remove(&id));
                }
                // The connection that it was asked on is gone; asked again by
                // `connected`.
                _ => {}
            }
        }
        if let Some(conn) = self.conn {
            world.send(conn, StreamId::CONTROL, &out);
        }
    }

    fn flush(&mut self, world: &mut World) {
        let Some(conn) = self.conn else {
            return;
        };
        let mut out = Vec::new();
        while self
            .engine
            .poll_output(world.now(), &mut out)
            .expect("a vector has room")
        {}
        while !self.engine.is_resuming()
            && let Some(message) = self.waiting.front()
            && self.engine.can_publish(message.qos)
        {
            let Ok(id) = self
                .engine
                .publish(world.now(), &view(message, self.retain), &mut out)
            else {
                break;
            };
            let message = self.waiting.pop_front();
            if let (Some(id), Some(message)) = (id, message) {
                self.kept.insert(id, message);
            }
        }
        world.send(conn, StreamId::CONTROL, &out);
    }
}

enum Follow {
    Nothing,
    Acknowledge(dunlin_mqtt::client::Receipt),
    Subscribed,
    Connected { present: bool },
}

fn note(
    event: Event<'_>,
    kept: &mut BTreeMap<PacketId, PeerEvent>,
    received: &mut Vec<PeerEvent>,
    acknowledged: &mut Vec<PeerEvent>,
    refused: &mut Vec<PeerEvent>,
) -> Follow {
    match event {
        Event::Connected(connack) => Follow::Connected {
            present: connack.session_present,
        },
        Event::Message(publish, receipt) => {
            received.push(PeerEvent {
                topic: publish.topic.to_owned(),
                payload: String::from_utf8_lossy(publish.payload).into_owned(),
                qos: publish.qos,
            });
            receipt.map_or(Follow::Nothing, Follow::Acknowledge)
        }
        Event::Published(ack) => {
            let list = if ack.reason.is_error() {
                refused
            } else {
                acknowledged
            };
            list.extend(kept.remove(&ack.packet_id));
            Follow::Nothing
        }
        Event::Subscribed(suback) => {
            assert!(suback.reasons.iter().all(|reason| !reason.is_error()));
            Follow::Subscribed
        }
        _ => Follow::Nothing,
    }
}

fn view(message: &PeerEvent, retain: bool) -> Publish<'_> {
    Publish {
        retain,
        qos: message.qos,
        topic: &message.topic,
        payload: message.payload.as_bytes(),
        ..Publish::default()
    }
}

/// Runs clients and world for a while; those without a connection come back.
pub fn run(world: &mut World, peers: &mut [Peer], time: Duration) {
    let until = world.now() + time;
    loop {
        let timer = peers.iter().filter_map(Peer::poll_timeout).min();
        let limit = timer.map_or(until, |at| at.min(until));
        if let Some((conn, event)) = world.next(limit) {
            if let Some(peer) = peers.iter_mut().find(|peer| peer.conn == Some(conn)) {
                peer.handle(world, event);
                if peer.conn.is_none() {
                    peer.connect(world);
                }
            }
        } else if world.now() >= until {
            return;
        } else {
            for peer in peers.iter_mut() {
                if peer.poll_timeout().is_some_and(|at| at <= world.now()) {
                    peer.handle_timeout(world);
                }
            }
        }
    }
}
