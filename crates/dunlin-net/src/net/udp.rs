//! Datagrams: in from the sockets to their connections or to other shards,
//! and out from all connections that have something to say.

use core::net::IpAddr;
#[cfg(test)]
use core::net::SocketAddr;
use std::io::{self, IoSliceMut};

use bytes::BytesMut;
#[cfg(test)]
use dunlin_base::ConnId;
use dunlin_base::ShardId;
use dunlin_base::transport::plain_addr;
use dunlin_quic::datagram::Datagram;
use dunlin_quic::{Counters, Handled, Incoming};
use quinn_udp::RecvMeta;

use super::conns::{self, Handler};
use super::newcomers::Newcomer;
use super::{Net, paths};
use crate::admission::{Admission, Refusal, Standing};
use crate::relay::Way;
use crate::stream::{UDP_BATCH, UDP_BYTES};
use crate::{Answer, ForeignDatagram, NetLimits, RetryMode};

/// Batches read from one socket before others get a turn.
const RECV_ROUNDS_MAX: usize = 8;
/// Datagrams kept for other shards; beyond it they are dropped, as a network
/// would.
const FOREIGN_MAX: usize = 4096;

impl Net {
    /// Takes a datagram that arrived at another shard's socket. What it leads
    /// to is reported by the next [`Net::poll`].
    pub fn handle_foreign(&mut self, datagram: ForeignDatagram) {
        self.env.tick();
        if let Some(source) = self.sources.endpoint_for(&datagram, &self.env) {
            handle_datagram(self, source, (source, None), datagram.datagram);
            // They are run by the next `poll`.
            self.conns.defer_touched();
        }
    }

    /// Takes a datagram that came to a shard of another process, which sends the answers.
    /// What it leads to is reported by the next [`Net::poll`]. It begins no connection. If its
    /// connection is not known, as after a restart, the other process sends the stateless reset.
    ///
    /// The listener is the one that the other process names. Each has a key of its own for
    /// tokens of resets, and a datagram that any address of that listener knows is not answered
    /// here: so what is answered ends no connection that lives.
    pub fn handle_relayed(&mut self, by: ShardId, datagram: ForeignDatagram) {
        self.env.tick();
        if let Some(source) = self.sources.endpoint_for(&datagram, &self.env) {
            handle_datagram(self, source, (source, Some(by)), datagram.datagram);
            self.conns.defer_touched();
        }
    }

    /// Sends what another process has for a client that sent to here.
    pub fn send_answer(&mut self, answer: Answer) {
        let Answer {
            listener,
            transmit,
            contents,
        } = answer;
        let source = self.sources.endpoint_at(listener, transmit.src_ip);
        if let Some(port) = source.and_then(|source| self.sources.port_mut(source)) {
            port.transmit(transmit, &contents, &mut self.env.counters);
        }
    }

    /// Sends what has gathered: QUIC datagrams of all connections touched
    /// since the last call. Also done at the start of [`Net::poll`].
    pub fn flush(&mut self) {
        let mut listed = self.conns.take_dirty();
        if !listed.is_empty() {
            self.env.tick();
        }
        for serial in listed.drain(..) {
            flush_one(self, serial);
        }
        if self.sources.is_unsent() {
            conns::join_acks(&mut self.conns, &mut listed, &self.env);
            for serial in listed.drain(..) {
                flush_one(self, serial);
            }
        }
        self.conns.put_dirty(listed);
        send_gathered(self);
    }
}

/// Sends what has gathered at the sockets.
pub(super) fn send_gathered(net: &mut Net) {
    if net.sources.flush(&mut net.env.counters) {
        net.follow.look_soon(net.env.now);
    }
}

/// Gives its socket what one connection has.
pub(super) fn flush_one(net: &mut Net, serial: u64) {
    let (sources, answers) = (&mut net.sources, &mut net.answers);
    net.conns.flush_one(serial, sources, answers, &mut net.env);
}

/// A UDP socket takes datagrams again.
pub(super) fn unblock(net: &mut Net, source: usize) {
    if let Some(port) = net.sources.port_mut(source) {
        for serial in port.on_writable(&mut net.env.counters) {
            net.conns.quic_to_flush(serial);
        }
    }
}

/// Reads datagrams of a socket, a batch at a time, and runs the connections
/// that they belong to after each batch.
pub(super) fn receive(net: &mut Net, source: usize, handler: &mut Handler<'_>) {
    let mut buf = core::mem::take(&mut net.env.scratch.udp_in);
    for _ in 0..RECV_ROUNDS_MAX {
        let Some(port) = net.sources.port_mut(source) else {
            break;
        };
        let mut meta = [RecvMeta::default(); UDP_BATCH];
        let mut slices = buf.chunks_exact_mut(UDP_BYTES).map(IoSliceMut::new);
        let mut slices: [IoSliceMut<'_>; UDP_BATCH] =
            core::array::from_fn(|_| slices.next().unwrap_or_else(|| IoSliceMut::new(&mut [])));
        match port.recv(&mut slices, &mut meta) {
            Ok(n) => {
                // Fewer than asked for means that the kernel has no more;
                // what comes later is a new edge.
                port.readable = n == UDP_BATCH;
                for (slice, meta) in slices.iter().zip(&meta).take(n) {
                    take_datagrams(net, source, slice, meta);
                }
            }
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                port.readable = false;
                break;
            }
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            // An ICMP error of an earlier datagram; the socket is fine.
            Err(error) => tracing::debug!(%error, "receiving a datagram failed"),
        }
        net.conns.run_touched(&mut net.env, handler);
        let readable = net.sources.port(source).is_some_and(|port| port.readable);
        if !readable || net.conns.ends.is_full() {
            break;
        }
    }
    net.env.scratch.udp_in = buf;
}

/// Splits what the kernel coalesced.
fn take_datagrams(net: &mut Net, source: usize, bytes: &[u8], meta: &RecvMeta) {
    let Some(bytes) = bytes.get(..meta.len) else {
        return;
    };
    net.env.counters.udp_bytes_in += meta.len as u64;
    if paths::answers_probe(net, source, bytes) {
        return;
    }
    let endpoint = net.sources.endpoint_of(source);
    let mut rest = BytesMut::from(bytes);
    while !rest.is_empty() {
        net.env.counters.datagrams_in += 1;
        let datagram = Datagram {
            remote: meta.addr,
            local_ip: meta.dst_ip,
            ecn: meta.ecn.map(|ecn| ecn as u8),
            data: rest.split_to(meta.stride.clamp(1, rest.len())),
        };
        if let Some(datagram) = keep_foreign(net, endpoint, datagram) {
            handle_datagram(net, endpoint, (source, None), datagram);
        }
    }
}

/// Puts a datagram of another shard aside; returns all others.
fn keep_foreign(net: &mut Net, source: usize, datagram: Datagram) -> Option<Datagram> {
    let env = &mut net.env;
    if env.config.shards < 2 && env.config.known.is_none() {
        return Some(datagram);
    }
    let listener = net.sources.endpoint(source).and_then(|e| e.quic.listener());
    let (Some(listener), Some(shard)) = (listener, env.quic.shard_of(&datagram.data)) else {
        return Some(datagram);
    };
    if shard == env.config.number(env.config.shard) {
        return Some(datagram);
    }
    env.counters.datagrams_foreign += 1;
    if net.foreign.len() < FOREIGN_MAX {
        let datagram = ForeignDatagram { listener, datagram };
        net.foreign.push_back((shard, datagram));
    } else {
        env.counters.datagrams_foreign_dropped += 1;
    }
    None
}

/// Takes a datagram for the endpoint `source` that came by the socket `via`, or by a shard
/// of another process.
fn handle_datagram(
    net: &mut Net,
    source: usize,
    (via, by): (usize, Option<ShardId>),
    datagram: Datagram,
) {
    let env = &mut net.env;
    let Some(endpoint) = net.sources.endpoint_mut(source) else {
        return;
    };
    let std_now = env.config.clock.to_std(env.now);
    let early = endpoint.quic.may_carry_early_data(&datagram.data);
    let (local_ip, remote) = (datagram.local_ip, datagram.remote);
    let buf = &mut env.scratch.udp_out;
    buf.clear();
    match endpoint.quic.handle(std_now, datagram, buf) {
        Handled::Conn(serial, input) => {
            if let Some(quic) = net.conns.quic_to_run(serial) {
                env.counters.ecn_marked_in += u64::from(input.is_congested());
                let is_direct = via == quic.via && by.is_none();
                let way = by.map(|by| Way { by, local_ip });
                let way = (remote, way);
                let local_ip = is_direct.then_some(local_ip);
                quic.take(input, way, |conn, input| {
                    conn.on_input(input, local_ip, env.now);
                });
                if quic.conn.is_accepted() && quic.conn.early_data().may_use_tickets() {
                    net.conns.note_tickets(serial, early, env);
                }
            }
        }
        // What begins a connection stays where it came.
        Handled::New(incoming) if by.is_some() => endpoint.quic.ignore(incoming),
        Handled::New(incoming) => {
            let newcomer = Newcomer {
                source,
                incoming,
                early,
            };
            match must_prove(net, &newcomer.incoming) || net.newcomers.take_place() {
                true => begin(net, newcomer),
                false => wait(net, newcomer),
            }
        }
        // Of other answers, none is for a connection that was here.
        Handled::Answer(_) if by.is_some() && !is_reset(buf) => {}
        Handled::Answer(transmit) => {
            count_answer(buf, &mut env.counters);
            match (by, endpoint.quic.listener()) {
                (Some(by), Some(listener)) => {
                    let way = (by, listener);
                    net.answers.push(way, transmit, buf, &mut env.counters);
                }
                _ => endpoint.port.transmit(transmit, buf, &mut env.counters),
            }
        }
        Handled::Nothing if early => net.newcomers.note_early_data(remote),
        Handled::Nothing => {}
    }
}

/// Has a client wait for its turn. When too many do, those whose address is not
/// proved are asked to prove it, which leaves nothing here; others are dropped, as
/// by the network.
fn wait(net: &mut Net, newcomer: Newcomer) {
    let Some(Newcomer {
        source, incoming, ..
    }) = net.newcomers.wait(newcomer)
    else {
        return;
    };
    let env = &mut net.env;
    let Some(endpoint) = net.sources.endpoint_mut(source) else {
        return;
    };
    if incoming.is_proved() || env.limits().quic_retry == RetryMode::Never {
        env.counters.newcomers_dropped += 1;
        return endpoint.quic.ignore(incoming);
    }
    let buf = &mut env.scratch.udp_out;
    buf.clear();
    if let Some(transmit) = endpoint.quic.retry(incoming, buf) {
        env.counters.retries_sent += 1;
        endpoint.port.transmit(transmit, buf, &mut env.counters);
    }
}

/// Begins handshakes that wait, as many as this turn has left.
pub(super) fn begin_waiting(net: &mut Net, handler: &mut Handler<'_>) {
    while let Some(newcomer) = net.newcomers.next() {
        begin(net, newcomer);
    }
    net.conns.run_touched(&mut net.env, handler);
}

/// Refuses the clients that wait.
pub(super) fn refuse_newcomers(net: &mut Net) {
    let env = &mut net.env;
    for Newcomer {
        source, incoming, ..
    } in net.newcomers.take_all()
    {
        if let Some(endpoint) = net.sources.endpoint_mut(source) {
            let buf = &mut env.scratch.udp_out;
            buf.clear();
            let transmit = endpoint.quic.refuse(incoming, buf);
            endpoint.port.transmit(transmit, buf, &mut env.counters);
        }
    }
}

/// Whether a client must prove its address now. Before that it costs no memory here.
fn must_prove(net: &Net, incoming: &Incoming) -> bool {
    let (env, ip) = (&net.env, plain_addr(incoming.remote()).ip());
    !incoming.is_proved() && wants_proof(env.admission(), ip, env.limits())
}

/// A client's first packet: refuse it, ask for a proof of address, or accept
/// it.
fn begin(net: &mut Net, newcomer: Newcomer) {
    let must_prove = must_prove(net, &newcomer.incoming);
    let Newcomer {
        source,
        incoming,
        early,
    } = newcomer;
    let env = &mut net.env;
    let Some(endpoint) = net.sources.endpoint_mut(source) else {
        return;
    };
    let ip = plain_addr(incoming.remote()).ip();
    let proved = incoming.is_proved();
    let standing = Standing::of_client(proved);
    let admitted = (!must_prove).then(|| net.conns.admit(ip, standing, env));
    let limits = &env.config.limits;
    let admission = &env.config.shared.admission;
    let buf = &mut env.scratch.udp_out;
    buf.clear();
    match admitted {
        Some(Ok(())) => {}
        // Who comes first under a forged address must not take the place of
        // the one that the address belongs to.
        None | Some(Err(Refusal::Rate)) if !proved && limits.quic_retry != RetryMode::Never => {
            if let Some(transmit) = endpoint.quic.retry(incoming, buf) {
                env.counters.retries_sent += 1;
                endpoint.port.transmit(transmit, buf, &mut env.counters);
            }
            return;
        }
        Some(Err(refusal)) => {
            refusal.count(&mut env.counters);
            let transmit = endpoint.quic.refuse(incoming, buf);
            endpoint.port.transmit(transmit, buf, &mut env.counters);
            return;
        }
        None => return,
    }
    let std_now = env.config.clock.to_std(env.now);
    let (qlog, quic_limits) = (env.config.qlog.as_ref(), env.quic.limits());
    let accepted = endpoint
        .quic
        .accept(incoming, ip, std_now, qlog, quic_limits, buf);
    match accepted {
        Ok(begun) => {
            let deadline = env.now + limits.handshake_timeout;
            let sources = &mut net.sources;
            let Some(serial) = net.conns.insert_quic(source, sources, begun, deadline, env) else {
                env.counters.refused_full += 1;
                admission.withdraw(ip, standing, limits);
                let _ = env.take_notes();
                return;
            };
            env.counters.accepted += 1;
            env.counters.address_proved += u64::from(proved);
            net.conns.quic_to_run(serial);
            net.conns.note_tickets(serial, early, env);
        }
        Err(error) => {
            admission.withdraw(ip, standing, limits);
            env.counters.handshake_failures += 1;
            tracing::debug!(cause = %error.cause, "a QUIC connection was not accepted");
            if let Some(transmit) = error.answer {
                endpoint.port.transmit(transmit, buf, &mut env.counters);
            }
            // They are not of the next connection.
            let _ = env.take_notes();
        }
    }
}

/// Whether a client that has not proved its address must do so now.
fn wants_proof(admission: &Admission, ip: IpAddr, limits: &NetLimits) -> bool {
    match limits.quic_retry {
        RetryMode::Never => false,
        RetryMode::Always => true,
        RetryMode::UnderLoad => {
            admission.pending() >= limits.quic_retry_pending || admission.is_crowded(ip, limits)
        }
    }
}

const LONG_HEADER: u8 = 0x80;

/// Whether what quinn-proto answers without keeping anything is a stateless reset.
fn is_reset(answer: &[u8]) -> bool {
    answer.first().is_some_and(|first| first & LONG_HEADER == 0)
}

/// Counts what quinn-proto answers without keeping anything.
fn count_answer(answer: &[u8], counters: &mut Counters) {
    match (answer.first(), answer.get(1..5)) {
        _ if is_reset(answer) => counters.stateless_resets += 1,
        (Some(_), Some([0, 0, 0, 0])) => counters.versions_sent += 1,
        _ => counters.stateless_refusals += 1,
    }
}

#[cfg(test)]
impl Net {
    /// Address of the first UDP socket.
    pub(crate) fn sources_addr(&self) -> SocketAddr {
        self.sources.ports().next().unwrap().local_addr().unwrap()
    }

    /// PING frames sent on the QUIC connection.
    pub(crate) fn pings(&self, conn: ConnId) -> u64 {
        let quic = self.conns.quic(conn.serial());
        quic.map_or(0, |quic| quic.conn.path().pings_sent())
    }

    /// As if so many datagrams had come.
    pub(crate) const fn add_datagrams(&mut self, count: u64) {
        self.env.counters.datagrams_in += count;
    }

    /// Connections whose acknowledgement may leave before its time.
    pub(crate) fn waiting_acks(&self) -> usize {
        self.conns.acks.len()
    }

    pub(crate) fn timer_entries(&self) -> usize {
        self.conns.timer_entries()
    }

    /// QUIC clients that wait for their handshake to begin.
    pub(crate) fn newcomers_waiting(&self) -> usize {
        self.newcomers.len()
    }

    /// UDP sockets that are open.
    pub(crate) fn sockets(&self) -> usize {
        self.sources.ports().count()
    }
}
