//! Session tickets and the early data that rests on them, as far as the loop
//! has to do with it: what TLS asked is noted after each datagram, and a
//! connection goes on when the use of its ticket has been kept.

use dunlin_base::ConnId;
use dunlin_base::transport::{CloseCause, close_code};

use super::{Conn, Net};
use crate::stream::failure;
use crate::tickets::{Notes, StrikeId};

impl Net {
    /// The use of a ticket ([`crate::TicketChange::Strike`]) has been kept for
    /// good, or cannot be; then the connection ends. What follows is reported
    /// by the next [`Net::poll`].
    pub fn handle_struck(&mut self, strike: StrikeId, kept: bool) {
        let Some(serial) = self.strikes.remove(&strike) else {
            return;
        };
        let Some(Conn::Quic(quic)) = self.slots.get_mut(serial) else {
            return;
        };
        let was_held = quic.is_held();
        if kept || !was_held {
            quic.on_ticket_kept();
            if was_held {
                self.ready.push(serial);
            }
            return;
        }
        self.counters.early_data_unkept += 1;
        quic.set_close_code(close_code::OVERLOADED);
        let cause: CloseCause = failure("the use of a session ticket could not be stored");
        self.end(ConnId::new(self.config.shard, serial), cause);
    }

    /// What TLS asked, whatever became of the connection it was for.
    pub(super) fn take_notes(&mut self) -> Notes {
        let notes = self.quic.seen.take();
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
            quic.on_ticket(verdict, waits);
            if let (Ok(strike), true) = (verdict, waits) {
                self.strikes.insert(strike, serial);
            }
        }
        quic.count_early_data(early, self.quic.takes_early_data(), &mut self.counters);
        quic.hold(self.now);
    }
}
