//! Datagrams: in from the sockets to their connections or to other shards,
//! and out from all connections that have something to say.

use core::net::IpAddr;
#[cfg(test)]
use core::net::SocketAddr;
use std::io::{self, IoSliceMut};

use bytes::BytesMut;
#[cfg(test)]
use dunlin_base::ConnId;
use dunlin_base::transport::{CloseCause, plain_addr};
use dunlin_quic::datagram::Datagram;
use dunlin_quic::{Handled, Incoming};
use quinn_udp::RecvMeta;

use super::run::Handler;
use super::{Conn, Net, Report, Source, mark};
use crate::admission::{Admission, Refusal};
use crate::port::PortOf;
use crate::stream::{UDP_BATCH, UDP_BYTES};
use crate::{Counters, ForeignDatagram, NetLimits, RetryMode};

/// Batches read from one socket before others get a turn.
const RECV_ROUNDS_MAX: usize = 8;
/// Datagrams kept for other shards; beyond it they are dropped, as a network
/// would.
const FOREIGN_MAX: usize = 4096;

impl Net {
    /// Takes a datagram that arrived at another shard's socket. What it leads
    /// to is reported by the next [`Net::poll`].
    pub fn handle_foreign(&mut self, datagram: ForeignDatagram) {
        let ForeignDatagram { listener, datagram } = datagram;
        let source = self.sources.iter().position(
            |source| matches!(source, Source::Udp(e) if e.quic.listener() == Some(listener)),
        );
        if let Some(source) = source {
            self.now = self.config.clock.now();
            self.handle_datagram(source, source, datagram);
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
        quic.dirty = false;
        if quic.conn.awaits_owner() {
            return;
        }
        if quic.conn.exchange(&mut endpoint.quic) {
            self.remove(serial);
            return;
        }
        let Some(port) = self.sources.get_mut(quic.via).and_then(Source::port_mut) else {
            return;
        };
        let (clock, now) = (&self.config.clock, self.now);
        let (counters, buf) = (&mut self.counters, &mut self.scratch.udp_out);
        let mut port = PortOf { port, serial };
        let conn = quic.conn.id();
        let transmitted = quic.conn.transmit(clock, now, &mut port, buf, counters);
        let failed = transmitted.is_some() && core::mem::take(&mut port.port.unreachable);
        if let Some(transmitted) = transmitted {
            if transmitted.more {
                mark(&mut self.dirty, serial, &mut quic.dirty);
            }
            for (stream, bytes) in transmitted.blocked {
                self.reports.push_back(Report::Blocked(conn, stream, bytes));
            }
            if transmitted.left > 0 {
                self.reports.push_back(Report::Sent(conn, transmitted.left));
            }
            if quic.conn.life().is_over() {
                let reports = &mut self.reports;
                quic.conn.report(CloseCause::Local, &mut |_| {
                    reports.push_back(Report::Closed(conn, CloseCause::Local));
                });
            }
        }
        let at = quic.conn.next_deadline(clock);
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
            let port = self.sources.get(source).and_then(Source::port);
            if !port.is_some_and(|port| port.readable) {
                break;
            }
        }
        self.scratch.udp_in = buf;
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
        let endpoint = endpoint.unwrap_or(source);
        let mut rest = BytesMut::from(bytes);
        while !rest.is_empty() {
            self.counters.datagrams_in += 1;
            let datagram = Datagram {
                remote: meta.addr,
                local_ip: meta.dst_ip,
                ecn: meta.ecn.map(|ecn| ecn as u8),
                data: rest.split_to(meta.stride.clamp(1, rest.len())),
            };
            if let Some(datagram) = self.keep_foreign(endpoint, datagram) {
                self.handle_datagram(endpoint, source, datagram);
            }
        }
    }

    /// Puts a datagram of another shard aside; returns all others.
    fn keep_foreign(&mut self, source: usize, datagram: Datagram) -> Option<Datagram> {
        if self.config.shards < 2 {
            return Some(datagram);
        }
        let Some(Source::Udp(endpoint)) = self.sources.get(source) else {
            return Some(datagram);
        };
        let (Some(listener), Some(shard)) =
            (endpoint.quic.listener(), self.quic.shard_of(&datagram.data))
        else {
            return Some(datagram);
        };
        if shard == self.config.shard {
            return Some(datagram);
        }
        self.counters.datagrams_foreign += 1;
        if self.foreign.len() < FOREIGN_MAX {
            let datagram = ForeignDatagram { listener, datagram };
            self.foreign.push_back((shard, datagram));
        }
        None
    }

    /// Takes a datagram for the endpoint `source` that came by the socket
    /// `via`.
    fn handle_datagram(&mut self, source: usize, via: usize, datagram: Datagram) {
        let Some(Source::Udp(endpoint)) = self.sources.get_mut(source) else {
            return;
        };
        let std_now = self.config.clock.to_std(self.now);
        let early = endpoint.quic.may_carry_early_data(&datagram.data);
        let local_ip = datagram.local_ip;
        let buf = &mut self.scratch.udp_out;
        buf.clear();
        match endpoint.quic.handle(std_now, datagram, buf) {
            Handled::Conn(serial, input) => {
                if let Some(Conn::Quic(quic)) = self.slots.get_mut(serial) {
                    self.counters.ecn_marked_in += u64::from(input.is_congested());
                    let local_ip = (via == quic.via).then_some(local_ip);
                    quic.conn.on_input(input, local_ip, self.now);
                    mark(&mut self.touched, serial, &mut quic.touched);
                    if quic.conn.is_accepted() && quic.conn.early_data().may_use_tickets() {
                        self.note_tickets(serial, early);
                    }
                }
            }
            Handled::New(incoming) => self.incoming(source, incoming, early),
            Handled::Answer(transmit) => {
                count_answer(buf, &mut self.counters);
                endpoint.port.transmit(transmit, buf, &mut self.counters);
            }
            Handled::Nothing => {}
        }
    }

    /// A client's first packet: refuse it, ask for a proof of address, or
    /// accept it.
    fn incoming(&mut self, source: usize, incoming: Incoming, early: bool) {
        let Some(Source::Udp(endpoint)) = self.sources.get_mut(source) else {
            return;
        };
        let limits = &self.config.limits;
        let admission = &self.config.shared.admission;
        let ip = plain_addr(incoming.remote()).ip();
        let proved = incoming.is_proved();
        let buf = &mut self.scratch.udp_out;
        buf.clear();
        // Before its address is proved a client costs no memory here.
        let admitted = (proved || !wants_proof(admission, ip, limits))
            .then(|| admission.admit(ip, proved, self.now, limits));
        match admitted {
            Some(Ok(())) => {}
            // Who comes first under a forged address must not take the
            // place of the one that the address belongs to.
            None | Some(Err(Refusal::Rate)) if !proved && limits.quic_retry != RetryMode::Never => {
                if let Some(transmit) = endpoint.quic.retry(incoming, buf) {
                    self.counters.retries_sent += 1;
                    endpoint.port.transmit(transmit, buf, &mut self.counters);
                }
                return;
            }
            Some(Err(refusal)) => {
                refusal.count(&mut self.counters);
                let transmit = endpoint.quic.refuse(incoming, buf);
                endpoint.port.transmit(transmit, buf, &mut self.counters);
                return;
            }
            None => return,
        }
        let std_now = self.config.clock.to_std(self.now);
        let qlog = self.config.qlog.as_ref();
        let quic_limits = self.quic.limits();
        let accepted = endpoint
            .quic
            .accept(incoming, ip, std_now, qlog, quic_limits, buf);
        match accepted {
            Ok(begun) => {
                let deadline = self.now + limits.handshake_timeout;
                let Some(serial) = self.insert_quic(source, begun, deadline) else {
                    self.counters.refused_full += 1;
                    let limits = &self.config.limits;
                    self.config.shared.admission.withdraw(ip, limits);
                    let _ = self.take_notes();
                    return;
                };
                self.counters.accepted += 1;
                self.counters.address_proved += u64::from(proved);
                if let Some(Conn::Quic(quic)) = self.slots.get_mut(serial) {
                    mark(&mut self.touched, serial, &mut quic.touched);
                }
                self.note_tickets(serial, early);
            }
            Err(error) => {
                admission.withdraw(ip, limits);
                self.counters.handshake_failures += 1;
                tracing::debug!(cause = %error.cause, "a QUIC connection was not accepted");
                if let Some(transmit) = error.answer {
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
            Some(Conn::Quic(quic)) => quic.conn.path().pings_sent(),
            _ => 0,
        }
    }

    /// UDP sockets that are open.
    pub(crate) fn sockets(&self) -> usize {
        self.sources.iter().filter_map(Source::port).count()
    }
}
