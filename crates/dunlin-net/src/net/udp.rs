//! Datagrams: in from the sockets to their connections or to other shards,
//! and out from all connections that have something to say.

use core::net::{IpAddr, SocketAddr};
use std::io::{self, IoSliceMut};

use bytes::BytesMut;
#[cfg(test)]
use dunlin_base::ConnId;
use dunlin_base::Instant;
use dunlin_base::transport::CloseCause;
use quinn_proto::{DatagramEvent, Incoming};
use quinn_udp::{EcnCodepoint, RecvMeta};

use super::run::Handler;
use super::{Conn, Net, Report, Source, mark};
use crate::admission::{Admission, Refusal};
use crate::config::plain_addr;
use crate::quic::{QuicConn, UdpPort, carries_early_data, shard_of_datagram};
use crate::stream::{UDP_BATCH, UDP_BYTES};
use crate::{Clock, Counters, ForeignDatagram, NetLimits, RetryMode};

/// Batches read from one socket before others get a turn.
const RECV_ROUNDS_MAX: usize = 8;
/// Transmissions of one connection before others get a turn.
const TRANSMITS_MAX: usize = 8;
/// Datagrams kept for other shards; beyond it they are dropped, as a network
/// would.
const FOREIGN_MAX: usize = 4096;

/// Where a datagram comes from.
struct Arrival {
    /// Index of the endpoint it is for.
    source: usize,
    /// Index of the socket it came in by.
    via: usize,
    remote: SocketAddr,
    local_ip: Option<IpAddr>,
    ecn: Option<EcnCodepoint>,
}

/// What left of one connection.
struct Transmitted {
    transmits: usize,
    /// Bytes of the owner that went with it.
    left: usize,
    /// There may be more.
    more: bool,
}

/// Sends what a connection has to say, and its end when that is due.
fn transmit(
    quic: &mut QuicConn,
    serial: u64,
    port: &mut UdpPort,
    clock: &Clock,
    now: Instant,
    counters: &mut Counters,
    buf: &mut Vec<u8>,
) -> Transmitted {
    let std_now = clock.to_std(now);
    let (mut transmits, mut left) = (0, 0);
    quic.leave_early(clock, now);
    quic.send_copies(now, port, counters);
    while !port.is_blocked_for(serial) && transmits < TRANSMITS_MAX {
        quic.feed_datagrams(now, counters);
        buf.clear();
        let segments = port.max_segments();
        let Some(mut transmit) = quic.proto.poll_transmit(std_now, segments, buf) else {
            if let Some(credit) = quic.take_turn() {
                left += credit;
                continue;
            }
            if quic.leave(clock, now) {
                continue;
            }
            break;
        };
        transmits += 1;
        if !quic.lets_leave(&mut transmit) {
            continue;
        }
        quic.note_transmit(&transmit, buf, now);
        quic.marks.capable = port.ecn && transmit.ecn.is_some();
        port.transmit(transmit, buf, counters);
    }
    quic.flushed(transmits);
    quic.ask_for_ack(transmits);
    Transmitted {
        transmits,
        left,
        more: transmits == TRANSMITS_MAX,
    }
}

impl Net {
    /// Takes a datagram that arrived at another shard's socket. What it leads
    /// to is reported by the next [`Net::poll`].
    pub fn handle_foreign(&mut self, datagram: ForeignDatagram) {
        let source = self.sources.iter().position(
            |source| matches!(source, Source::Udp(e) if e.listener == Some(datagram.listener)),
        );
        if let Some(source) = source {
            self.now = self.config.clock.now();
            let arrival = Arrival {
                source,
                via: source,
                remote: datagram.remote,
                local_ip: datagram.local_ip,
                ecn: datagram.ecn,
            };
            self.handle_datagram(&arrival, datagram.data);
            // They are run by the next `poll`.
            for serial in self.touched.drain(..) {
                if let Some(Conn::Quic(quic)) = self.slots.get_mut(serial) {
                    quic.touched = false;
                    self.ready.push(serial);
                }
            }
        }
    }

    /// Sends what has gathered: QUIC datagrams of all connections touched
    /// since the last call. Also done at the start of [`Net::poll`].
    pub fn flush(&mut self) {
        if self.dirty.is_empty() {
            return;
        }
        self.now = self.config.clock.now();
        let mut listed = core::mem::take(&mut self.dirty);
        for serial in listed.drain(..) {
            self.flush_one(serial);
        }
        // Keeps the allocation, and what became listed meanwhile.
        listed.append(&mut self.dirty);
        self.dirty = listed;
    }

    pub(super) fn flush_one(&mut self, serial: u64) {
        let Some(Conn::Quic(quic)) = self.slots.get_mut(serial) else {
            return;
        };
        let Some(Source::Udp(endpoint)) = self.sources.get_mut(quic.source) else {
            return;
        };
        let conn = quic.id;
        quic.dirty = false;
        if quic.awaits_owner() {
            return;
        }
        let mut drained = false;
        while let Some(event) = quic.proto.poll_endpoint_events() {
            drained |= event.is_drained();
            if let Some(event) = endpoint.proto.handle_event(quic.handle, event) {
                quic.proto.handle_event(event);
            }
        }
        if drained {
            self.remove(serial);
            return;
        }
        if quic.is_quiet() || quic.holds_back() {
            let at = quic.next_deadline(&self.config.clock);
            self.timers.arm(serial, at, &mut quic.armed);
            return;
        }
        let Some(port) = self.sources.get_mut(quic.via).and_then(Source::port_mut) else {
            return;
        };
        let clock = &self.config.clock;
        let (counters, buf) = (&mut self.counters, &mut self.scratch.udp_out);
        let Transmitted {
            transmits,
            left,
            more,
        } = transmit(quic, serial, port, clock, self.now, counters, buf);
        if more {
            mark(&mut self.dirty, serial, &mut quic.dirty);
        }
        let failed = core::mem::take(&mut port.unreachable);
        for (stream, bytes) in quic.take_blocked_news() {
            let report = Report::Blocked(quic.id, stream, bytes);
            self.reports.push_back(report);
        }
        if left > 0 && quic.is_open() {
            self.reports.push_back(Report::Sent(quic.id, left));
        }
        if quic.is_over() {
            let reports = &mut self.reports;
            quic.report(CloseCause::Local, &mut |_| {
                reports.push_back(Report::Closed(conn, CloseCause::Local));
            });
        }
        if transmits > 0 && quic.renew_keys(self.now) {
            self.counters.key_updates += 1;
        }
        quic.log_path();
        let at = quic.next_deadline(&self.config.clock);
        self.timers.arm(serial, at, &mut quic.armed);
        if failed {
            self.look_at_network();
        }
    }

    /// A UDP socket takes datagrams again.
    pub(super) fn unblock(&mut self, source: usize) {
        if let Some(port) = self.sources.get_mut(source).and_then(Source::port_mut) {
            for serial in port.on_writable(&mut self.counters) {
                if let Some(Conn::Quic(quic)) = self.slots.get_mut(serial) {
                    mark(&mut self.dirty, serial, &mut quic.dirty);
                }
            }
        }
    }

    /// Reads datagrams of a socket, a batch at a time, and runs the
    /// connections that they belong to after each batch.
    pub(super) fn receive(&mut self, source: usize, handler: &mut Handler<'_>) {
        let mut buf = core::mem::take(&mut self.scratch.udp_in);
        for _ in 0..RECV_ROUNDS_MAX {
            let Some(port) = self.sources.get_mut(source).and_then(Source::port_mut) else {
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
                        self.take_datagrams(source, slice, meta);
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
            self.run_touched(handler);
            if !self.is_readable(source) {
                break;
            }
        }
        self.scratch.udp_in = buf;
    }

    fn is_readable(&self, source: usize) -> bool {
        self.sources
            .get(source)
            .and_then(Source::port)
            .is_some_and(|port| port.readable)
    }

    fn run_touched(&mut self, handler: &mut Handler<'_>) {
        let mut touched = core::mem::take(&mut self.touched);
        for serial in touched.drain(..) {
            if let Some(Conn::Quic(quic)) = self.slots.get_mut(serial) {
                quic.touched = false;
                self.run_input(serial, handler);
            }
        }
        self.touched = touched;
    }

    /// Splits what the kernel coalesced.
    fn take_datagrams(&mut self, source: usize, bytes: &[u8], meta: &RecvMeta) {
        let Some(bytes) = bytes.get(..meta.len) else {
            return;
        };
        self.counters.udp_bytes_in += meta.len as u64;
        if self.answers_probe(source, bytes) {
            return;
        }
        let endpoint = self.sources.get(source).map(|s| s.endpoint(source));
        let arrival = Arrival {
            source: endpoint.unwrap_or(source),
            via: source,
            remote: meta.addr,
            local_ip: meta.dst_ip,
            ecn: meta.ecn,
        };
        let mut data = BytesMut::from(bytes);
        while !data.is_empty() {
            self.counters.datagrams_in += 1;
            let datagram = data.split_to(meta.stride.clamp(1, data.len()));
            if let Some(datagram) = self.keep_foreign(&arrival, datagram) {
                self.handle_datagram(&arrival, datagram);
            }
        }
    }

    /// Puts a datagram of another shard aside; returns all others.
    fn keep_foreign(&mut self, arrival: &Arrival, data: BytesMut) -> Option<BytesMut> {
        if self.config.shards < 2 {
            return Some(data);
        }
        let Some(Source::Udp(endpoint)) = self.sources.get(arrival.source) else {
            return Some(data);
        };
        let (Some(listener), Some(shard)) =
            (endpoint.listener, shard_of_datagram(&self.quic.cids, &data))
        else {
            return Some(data);
        };
        if shard == self.config.shard {
            return Some(data);
        }
        self.counters.datagrams_foreign += 1;
        if self.foreign.len() < FOREIGN_MAX {
            let datagram = ForeignDatagram {
                listener,
                remote: arrival.remote,
                local_ip: arrival.local_ip,
                ecn: arrival.ecn,
                data,
            };
            self.foreign.push_back((shard, datagram));
        }
        None
    }

    fn handle_datagram(&mut self, arrival: &Arrival, data: BytesMut) {
        let Some(Source::Udp(endpoint)) = self.sources.get_mut(arrival.source) else {
            return;
        };
        let (std_now, size) = (self.config.clock.to_std(self.now), data.len());
        let ecn = arrival.ecn.map(|e| e as u8);
        let ecn = ecn.and_then(quinn_proto::EcnCodepoint::from_bits);
        let early = endpoint.listener.is_some() && carries_early_data(&data);
        let buf = &mut self.scratch.udp_out;
        buf.clear();
        let event =
            endpoint
                .proto
                .handle(std_now, arrival.remote, arrival.local_ip, ecn, data, buf);
        match event {
            Some(DatagramEvent::ConnectionEvent(handle, event)) => {
                let serial = endpoint.serial(handle);
                if let Some(Conn::Quic(quic)) = self.slots.get_mut(serial) {
                    quic.proto.handle_event(event);
                    quic.on_datagram(arrival.via, arrival.local_ip, self.now);
                    if ecn == Some(quinn_proto::EcnCodepoint::Ce) {
                        quic.marks.congested_in = quic.marks.congested_in.saturating_add(1);
                        self.counters.ecn_marked_in += 1;
                    }
                    if let Some(log) = &quic.log {
                        log.udp_received(size);
                    }
                    mark(&mut self.touched, serial, &mut quic.touched);
                    if quic.may_use_tickets() {
                        self.note_tickets(serial, early);
                    }
                }
            }
            Some(DatagramEvent::NewConnection(incoming)) => {
                self.incoming(arrival.source, incoming, early);
            }
            Some(DatagramEvent::Response(transmit)) => {
                count_answer(buf, &mut self.counters);
                endpoint.port.transmit(transmit, buf, &mut self.counters);
            }
            None => {}
        }
    }

    /// A client's first packet: refuse it, ask for a proof of address, or
    /// accept it.
    fn incoming(&mut self, source: usize, incoming: Incoming, early: bool) {
        let Some(Source::Udp(endpoint)) = self.sources.get_mut(source) else {
            return;
        };
        let listener = endpoint.listener;
        let limits = &self.config.limits;
        let admission = &self.config.shared.admission;
        let ip = plain_addr(incoming.remote_address()).ip();
        let proved = incoming.remote_address_validated();
        let buf = &mut self.scratch.udp_out;
        buf.clear();
        // Before its address is proved a client costs no memory here.
        let admitted = (proved || !wants_proof(admission, ip, limits))
            .then(|| admission.admit(ip, proved, self.now, limits));
        match admitted {
            Some(Ok(())) => {}
            // Whoever comes first under a forged address must not take the
            // place of the one that the address belongs to.
            None | Some(Err(Refusal::Rate)) if !proved && limits.quic_retry != RetryMode::Never => {
                if let Ok(transmit) = endpoint.proto.retry(incoming, buf) {
                    self.counters.retries_sent += 1;
                    endpoint.port.transmit(transmit, buf, &mut self.counters);
                }
                return;
            }
            Some(Err(refusal)) => {
                refusal.count(&mut self.counters);
                let transmit = endpoint.proto.refuse(incoming, buf);
                endpoint.port.transmit(transmit, buf, &mut self.counters);
                return;
            }
            None => return,
        }
        let std_now = self.config.clock.to_std(self.now);
        let (log, logged) = endpoint.logged(self.config.qlog.as_ref(), ip, &incoming, limits);
        match endpoint.proto.accept(incoming, std_now, buf, logged) {
            Ok((handle, proto)) => {
                let (tuning, cert_name) = (endpoint.tuning.clone(), endpoint.cert_name);
                let deadline = self.now + limits.handshake_timeout;
                let Some(serial) = self.insert_quic(source, handle, proto, listener, deadline)
                else {
                    self.counters.refused_full += 1;
                    let limits = &self.config.limits;
                    self.config.shared.admission.withdraw(ip, limits);
                    let _ = self.take_notes();
                    return;
                };
                self.counters.accepted += 1;
                self.counters.address_proved += u64::from(proved);
                if let Some(Conn::Quic(quic)) = self.slots.get_mut(serial) {
                    quic.limit_keys(&tuning, self.now);
                    quic.cert_name = cert_name;
                    quic.begin_log(log, &self.config);
                    mark(&mut self.touched, serial, &mut quic.touched);
                }
                self.note_tickets(serial, early);
            }
            Err(error) => {
                admission.withdraw(ip, limits);
                self.counters.handshake_failures += 1;
                tracing::debug!(cause = %error.cause, "a QUIC connection was not accepted");
                if let Some(transmit) = error.response {
                    endpoint.port.transmit(transmit, buf, &mut self.counters);
                }
                // They are not of the next connection.
                let _ = self.take_notes();
            }
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

/// Counts what quinn-proto answers without keeping anything.
fn count_answer(answer: &[u8], counters: &mut Counters) {
    const LONG_HEADER: u8 = 0x80;
    match (answer.first(), answer.get(1..5)) {
        (Some(first), _) if first & LONG_HEADER == 0 => counters.stateless_resets += 1,
        (Some(_), Some([0, 0, 0, 0])) => counters.versions_sent += 1,
        _ => counters.stateless_refusals += 1,
    }
}

#[cfg(test)]
impl Net {
    /// Address of the first UDP socket.
    pub(crate) fn sources_addr(&self) -> SocketAddr {
        let udp = self.sources.iter().find_map(Source::port);
        udp.unwrap().local_addr().unwrap()
    }

    /// PING frames sent on the QUIC connection.
    pub(crate) fn pings(&self, conn: ConnId) -> u64 {
        match self.slots.get(conn.serial()) {
            Some(Conn::Quic(quic)) => quic.proto.stats().frame_tx.ping,
            _ => 0,
        }
    }

    /// UDP sockets that are open.
    pub(crate) fn sockets(&self) -> usize {
        self.sources.iter().filter_map(Source::port).count()
    }
}
