//! A look over the connections of a loop, for metrics: how many there are, and
//! how a sample of the QUIC paths does. Costs nothing until it is asked for.

use dunlin_base::ConnId;
use dunlin_base::transport::Transport;

use super::{Conn, Net};
use crate::QuicStats;

/// Transports that connections are counted by.
const TRANSPORTS: [Transport; 5] = [
    Transport::Quic,
    Transport::Tcp,
    Transport::Tls,
    Transport::Ws,
    Transport::Wss,
];

/// Connections by transport.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Held {
    counts: [usize; TRANSPORTS.len()],
}

impl Held {
    /// Every transport with the number of its connections, those in their
    /// handshake or still closing included.
    pub fn iter(&self) -> impl Iterator<Item = (Transport, usize)> + '_ {
        TRANSPORTS.into_iter().zip(self.counts.iter().copied())
    }

    pub(super) fn add(&mut self, transport: Transport) {
        if let Some(count) = self.count(transport) {
            *count += 1;
        }
    }

    pub(super) fn remove(&mut self, transport: Transport) {
        if let Some(count) = self.count(transport) {
            *count = count.saturating_sub(1);
        }
    }

    fn count(&mut self, transport: Transport) -> Option<&mut usize> {
        let at = TRANSPORTS.iter().position(|t| *t == transport)?;
        self.counts.get_mut(at)
    }
}

impl Conn {
    pub(super) const fn transport(&self) -> Transport {
        match self {
            Self::Stream(stream) => stream.transport(),
            Self::Quic(_) => Transport::Quic,
        }
    }
}

impl Net {
    /// Connections by transport.
    #[must_use]
    pub const fn held(&self) -> Held {
        self.held
    }

    /// The client of a connection is known. Where identifiers decide which
    /// connections are logged, this one's log goes on or is given up.
    pub fn name_log(&mut self, conn: ConnId, client_id: &str) {
        if let Some(Conn::Quic(quic)) = Self::find_in(&mut self.slots, self.config.shard, conn) {
            quic.conn.log_mut().name(client_id);
        }
    }

    /// Begins to log a QUIC connection that is under way. Its packets are not
    /// in such a log; everything else is.
    pub fn log_conn(&mut self, conn: ConnId) {
        if let Some(Conn::Quic(quic)) = Self::find_in(&mut self.slots, self.config.shard, conn)
            && let Some(qlog) = &self.config.qlog
        {
            quic.conn.log_mut().begin_late(qlog, self.quic.limits());
        }
    }

    /// Handshakes going on, on all shards together.
    #[must_use]
    pub fn handshakes_pending(&self) -> usize {
        self.config.shared.admission.pending()
    }

    /// Shows some QUIC connections, at most `max`, and goes on after them at
    /// the next call, so that a loop with many connections is sampled in turns.
    /// Totals of packets in [`Net::counters`] are as new as the last visit to
    /// each connection.
    pub fn sample_quic(&mut self, max: usize, f: &mut dyn FnMut(&QuicStats)) {
        let counters = &mut self.counters;
        self.slots.visit(&mut self.sampled, max, |conn| {
            if let Conn::Quic(quic) = conn {
                let stats = quic.conn.quic_stats();
                quic.conn.path_mut().note_totals(&stats, counters);
                f(&stats);
            }
        });
    }
}
