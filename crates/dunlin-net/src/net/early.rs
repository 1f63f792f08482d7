//! Session tickets and the early data that rests on them, as far as the loop
//! has to do with it: what TLS asked is noted after each datagram, and a
//! connection goes on when the use of its ticket has been kept.

use dunlin_base::ConnId;
use dunlin_base::transport::{CloseCause, close_code};
use dunlin_quic::Notes;

use super::{Conn, Net};
use crate::StrikeId;

impl Net {
    /// The use of a ticket ([`TicketChange::Strike`](crate::TicketChange::Strike)) has been kept for
    /// good, or cannot be; then the connection ends. What follows is reported
    /// by the next [`Net::poll`].
    pub fn handle_struck(&mut self, strike: StrikeId, kept: bool) {
        let Some(serial) = self.strikes.remove(&strike) else {
            return;
        };
        let Some(Conn::Quic(quic)) = self.slots.get_mut(serial) else {
            return;
        };
        let was_held = quic.conn.early_data().is_held();
        if kept || !was_held {
            quic.conn.early_data().on_ticket_kept();
            if was_held {
                self.ready.push(serial);
            }
            return;
        }
        self.counters.early_data_unkept += 1;
        let now = self.config.clock.now();
        quic.conn
            .abort(Some(close_code::OVERLOADED), &self.config.clock, now);
        let cause = CloseCause::failed("the use of a session ticket could not be stored");
        self.end(ConnId::new(self.config.shard, serial), cause);
    }

    /// What TLS asked, for connections that are gone as well.
    pub(super) fn take_notes(&mut self) -> Notes {
        let notes = self.quic.take_notes();
        self.counters.tickets_issued += notes.issued;
        self.counters.tickets_evicted += notes.evicted;
        notes
    }

    /// TLS may have asked about tickets while it handled a datagram of this
    /// connection, which brought early data or not.
    pub(super) fn note_tickets(&mut self, serial: u64, early: bool) {
        let notes = self.take_notes();
        let Some(Conn::Quic(quic)) = self.slots.get_mut(serial) else {
            return;
        };
        if let Some(verdict) = notes.verdict {
            let waits = self.quic.strikes_wait();
            quic.conn.early_data().on_ticket(verdict, waits);
            if let (Ok(strike), true) = (verdict, waits) {
                self.strikes.insert(strike, serial);
            }
        }
        let on = self.quic.takes_early_data();
        let (now, counters) = (self.now, &mut self.counters);
        quic.conn.early_data().on_datagram(early, on, now, counters);
    }
}
