//! Transmission of QUIC connections, which gathers until it is flushed.

use dunlin_base::transport::CloseCause;

use super::super::env::Env;
use super::super::sources::Sources;
use super::acks::{free_ack, note_ack};
use super::{Conn, Conns, Report, mark};
use crate::port::PortOf;
use crate::relay::Answers;

impl Conns {
    /// Takes the list of connections that may have something to transmit, to
    /// be given back by [`Conns::put_dirty`].
    pub(crate) fn take_dirty(&mut self) -> Vec<u64> {
        core::mem::take(&mut self.dirty)
    }

    /// Keeps the allocation, and what became listed meanwhile.
    pub(crate) fn put_dirty(&mut self, mut listed: Vec<u64>) {
        listed.append(&mut self.dirty);
        self.dirty = listed;
    }

    /// Gives its socket what a connection has.
    pub(crate) fn flush_one(
        &mut self,
        serial: u64,
        sources: &mut Sources,
        answers: &mut Answers,
        env: &mut Env,
    ) {
        let Some(Conn::Quic(quic)) = self.slots.get_mut(serial) else {
            return;
        };
        let Some(endpoint) = sources.endpoint_mut(quic.source) else {
            return;
        };
        quic.dirty = false;
        if quic.conn.awaits_owner() {
            return;
        }
        let listener = endpoint.quic.listener();
        if quic.conn.exchange(&mut endpoint.quic) {
            self.remove(serial, env);
            return;
        }
        let Some(port) = sources.port_mut(quic.via) else {
            return;
        };
        let (clock, now) = (&env.config.clock, env.now);
        let (counters, buf) = (&mut env.counters, &mut env.scratch.udp_out);
        free_ack(&self.senders, serial, quic, env.now);
        let ways = (&quic.ways, answers);
        let elsewhere = listener.filter(|_| quic.ways.has_any()).zip(Some(ways));
        let mut port = PortOf {
            port,
            serial,
            elsewhere,
        };
        let conn = quic.conn.id();
        let transmitted = quic.conn.transmit(clock, now, &mut port, buf, counters);
        if let Some(transmitted) = transmitted {
            if transmitted.has_any() {
                self.senders.note(serial, now);
            }
            if transmitted.has_more() {
                mark(&mut self.dirty, serial, &mut quic.dirty);
            }
            for (stream, bytes) in transmitted.blocked {
                self.reports.push_back(Report::Blocked(conn, stream, bytes));
            }
            for (stream, bytes) in transmitted.left {
                self.reports.push_back(Report::Sent(conn, stream, bytes));
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
        note_ack(&mut self.acks, serial, quic, env);
    }
}
