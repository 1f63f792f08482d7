//! What a tunnel carries: TCP connections, QUIC connections, and which belongs
//! to which.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use dunlin_base::transport::{NetEvent, NetEventKind};
use dunlin_base::{ConnId, Instant, StreamId};
use dunlin_dial::{Context, DialError, Key, LinkOptions, Protocol, Resolved, Resolver};
use dunlin_net::Net;

use super::Complain;
use super::carrier::{Carrier, Fate, is_usual};
use super::pipe::Pipe;
use crate::causes::sentence;

/// What a tunnel carries.
pub(super) struct State {
    complain: Complain,
    link: Arc<LinkOptions>,
    /// Without early data: for when it came to nothing.
    careful: Arc<LinkOptions>,
    /// TCP connections on one QUIC connection.
    streams_max: u32,
    /// The last QUIC connection heard nothing.
    was_silent: bool,
    next_key: u64,
    /// QUIC connections, and attempts.
    conns: HashMap<ConnId, Key>,
    carriers: HashMap<Key, Carrier>,
    pipes: HashMap<ConnId, Pipe>,
    /// Streams that the broker opened: they carry nothing.
    unwanted: Vec<(ConnId, StreamId)>,
    touched: BTreeSet<Key>,
    /// Carriers that wait for a time.
    timed: BTreeSet<Key>,
    /// Pipes with something to pass on.
    flowing: BTreeSet<ConnId>,
    /// TCP connections that ended before their streams.
    broken: Vec<ConnId>,
    /// TCP connections whose streams were reset.
    refused: Vec<ConnId>,
}

impl State {
    pub(super) fn new(mut link: LinkOptions, streams_max: u32, complain: Complain) -> Self {
        // The clients come again, and each time the broker is dialled.
        link.reconnect = None;
        let protocol = link.url.protocol();
        let mut careful = link.clone();
        careful.early_data = false;
        Self {
            complain,
            link: Arc::new(link),
            careful: Arc::new(careful),
            streams_max: match protocol {
                Protocol::Amqp => streams_max,
                _ => 1,
            },
            was_silent: false,
            next_key: 0,
            conns: HashMap::new(),
            carriers: HashMap::new(),
            pipes: HashMap::new(),
            unwanted: Vec::new(),
            touched: BTreeSet::new(),
            timed: BTreeSet::new(),
            flowing: BTreeSet::new(),
            broken: Vec::new(),
            refused: Vec::new(),
        }
    }

    /// When to run again if nothing happens.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let carriers = self.timed.iter().filter_map(|key| self.carriers.get(key));
        carriers.filter_map(Carrier::deadline).min()
    }

    pub(super) fn on_resolved(&mut self, key: Key, attempt: u64, resolved: Resolved) {
        if let Some(carrier) = self.carriers.get_mut(&key) {
            carrier.resolved(attempt, resolved);
            self.touched.insert(key);
        }
    }

    /// Something happened. The sockets are not at hand here; what needs them
    /// happens in [`State::run`].
    pub(super) fn on_event(&mut self, now: Instant, event: NetEvent<&[u8]>) {
        let NetEvent { conn, kind } = event;
        match self.conns.get(&conn).copied() {
            Some(key) => self.on_quic(now, key, conn, kind),
            None => self.on_tcp(conn, kind),
        }
    }

    fn on_tcp(&mut self, tcp: ConnId, kind: NetEventKind<&[u8]>) {
        if let NetEventKind::Opened { .. } = kind {
            return self.accept(tcp);
        }
        // What is gone from the table needs nothing more.
        let Some(pipe) = self.pipes.get_mut(&tcp) else {
            return;
        };
        match kind {
            NetEventKind::Bytes { data, .. } => pipe.up.put(data),
            NetEventKind::StreamFinished { .. } => pipe.up.finish(),
            NetEventKind::Sent { bytes, .. } => pipe.down.sent(bytes),
            NetEventKind::Closed { .. } => return self.broken.push(tcp),
            _ => return,
        }
        self.flowing.insert(tcp);
    }

    /// A TCP client: finds it a QUIC connection.
    fn accept(&mut self, tcp: ConnId) {
        let most = self.streams_max;
        let mut carriers = self.carriers.iter_mut();
        let found = carriers.find(|(_, carrier)| carrier.has_room(most));
        let key = match found {
            Some((key, carrier)) => {
                carrier.add(tcp);
                *key
            }
            None => {
                let key = Key(self.next_key);
                self.next_key += 1;
                let link = match self.was_silent {
                    true => &self.careful,
                    false => &self.link,
                };
                let carrier = Carrier::new(key, Arc::clone(link), tcp);
                self.carriers.insert(key, carrier);
                key
            }
        };
        self.pipes.insert(tcp, Pipe::new(tcp, key));
        self.touched.insert(key);
    }

    fn on_quic(&mut self, now: Instant, key: Key, conn: ConnId, kind: NetEventKind<&[u8]>) {
        let Some(carrier) = self.carriers.get_mut(&key) else {
            return;
        };
        match kind {
            NetEventKind::Opened { peer } => carrier.opened(now, conn, peer.early_data),
            NetEventKind::EarlyData { .. } => carrier.verdict(now, conn),
            NetEventKind::StreamsAvailable { .. } => {}
            NetEventKind::Closed { cause } => {
                self.conns.remove(&conn);
                carrier.closed(now, conn, cause);
            }
            NetEventKind::Bytes { stream, data } => {
                carrier.hear(now);
                self.was_silent = false;
                match carrier.tcp(stream) {
                    Some(tcp) => self.flow_down(tcp, |pipe| pipe.down.put(data)),
                    None => self.unwanted.push((conn, stream)),
                }
                // Its round-trip time is to be noted.
            }
            NetEventKind::StreamFinished { stream } => {
                if let Some(tcp) = carrier.tcp(stream) {
                    self.flow_down(tcp, |pipe| pipe.down.finish());
                }
            }
            NetEventKind::StreamReset { stream, .. } => self.refused.extend(carrier.tcp(stream)),
            NetEventKind::Sent { .. } => {
                let paused = |tcp: &ConnId| {
                    let pipe = self.pipes.get(tcp);
                    pipe.is_some_and(|pipe| pipe.up.is_paused())
                };
                return self.flowing.extend(carrier.all().filter(paused));
            }
            _ => return,
        }
        self.touched.insert(key);
    }

    fn flow_down(&mut self, tcp: ConnId, change: impl FnOnce(&mut Pipe)) {
        if let Some(pipe) = self.pipes.get_mut(&tcp) {
            change(pipe);
            self.flowing.insert(tcp);
        }
    }

    /// Does everything that has become possible.
    pub(super) fn run(&mut self, net: &mut Net, resolver: &mut Resolver) {
        for (conn, stream) in self.unwanted.drain(..) {
            net.conn(conn).stop_stream(stream, 0);
        }
        for tcp in core::mem::take(&mut self.refused) {
            net.conn(tcp).abort();
            self.broken.push(tcp);
        }
        for tcp in core::mem::take(&mut self.broken) {
            if let Some(pipe) = self.pipes.get(&tcp) {
                pipe.reset(net);
            }
            self.forget(tcp, net, resolver);
        }
        let now = net.now();
        let due = |key: &&Key| {
            let carrier = self.carriers.get(key);
            let at = carrier.and_then(Carrier::deadline);
            at.is_some_and(|at| at <= now)
        };
        let due: Vec<Key> = self.timed.iter().filter(due).copied().collect();
        self.touched.extend(due);
        for key in core::mem::take(&mut self.touched) {
            self.run_carrier(key, net, resolver);
        }
        for tcp in core::mem::take(&mut self.flowing) {
            if self.pipes.get_mut(&tcp).is_some_and(|pipe| pipe.run(net)) {
                net.close(tcp, 0);
                self.forget(tcp, net, resolver);
            }
        }
    }

    fn run_carrier(&mut self, key: Key, net: &mut Net, resolver: &mut Resolver) {
        let Some(carrier) = self.carriers.get_mut(&key) else {
            return;
        };
        let mut context = Context {
            now: net.now(),
            net,
            conns: &mut self.conns,
            resolver,
        };
        match carrier.run(&mut context) {
            Fate::Goes(opened) => {
                let conn = carrier.conn();
                match carrier.deadline() {
                    Some(_) => self.timed.insert(key),
                    None => self.timed.remove(&key),
                };
                for (tcp, stream) in opened {
                    if let (Some(conn), Some(pipe)) = (conn, self.pipes.get_mut(&tcp)) {
                        pipe.connect(conn, stream);
                        self.flowing.insert(tcp);
                    }
                }
            }
            Fate::Over(cause) => self.end_carrier(key, &cause, net),
        }
    }

    /// The QUIC connection is gone, or did not come about: what it brought goes
    /// to the clients, and they are closed.
    fn end_carrier(&mut self, key: Key, cause: &DialError, net: &mut Net) {
        self.timed.remove(&key);
        let Some(carrier) = self.carriers.remove(&key) else {
            return;
        };
        self.was_silent = !carrier.was_heard();
        if !is_usual(cause) {
            let url = &self.link.url;
            (self.complain)(&format_args!("{url}: {}", sentence(cause)));
        }
        for tcp in carrier.all() {
            if let Some(mut pipe) = self.pipes.remove(&tcp) {
                pipe.run(net);
                net.close(tcp, 0);
            }
        }
    }

    /// A TCP connection is over. The last one of a QUIC connection ends that.
    fn forget(&mut self, tcp: ConnId, net: &mut Net, resolver: &mut Resolver) {
        let Some(pipe) = self.pipes.remove(&tcp) else {
            return;
        };
        let Some(carrier) = self.carriers.get_mut(&pipe.carrier) else {
            return;
        };
        if carrier.remove(tcp, pipe.stream()) {
            self.close_carrier(pipe.carrier, net, resolver);
        }
    }

    fn close_carrier(&mut self, key: Key, net: &mut Net, resolver: &mut Resolver) {
        self.timed.remove(&key);
        if let Some(mut carrier) = self.carriers.remove(&key) {
            let mut context = Context {
                now: net.now(),
                net,
                conns: &mut self.conns,
                resolver,
            };
            carrier.close(&mut context);
        }
    }

    /// The tunnel ends.
    pub(super) fn close_all(&mut self, net: &mut Net, resolver: &mut Resolver) {
        for (tcp, _) in self.pipes.drain() {
            net.close(tcp, 0);
        }
        let keys: Vec<Key> = self.carriers.keys().copied().collect();
        for key in keys {
            self.close_carrier(key, net, resolver);
        }
    }
}
