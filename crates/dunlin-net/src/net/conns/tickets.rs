//! Session tickets and the early data that rests on them, as far as the loop
//! has to do with it: what TLS asked is noted after each datagram, and a
//! connection goes on when the use of its ticket has been kept.

use dunlin_base::transport::CloseCause;
use dunlin_quic::StrikeId;

use super::super::env::Env;
use super::{Conn, Conns};

/// Application error code of a connection whose ticket cannot be kept.
const OVERLOADED: u64 = 2;

impl Conns {
    /// The use of a ticket has been kept, or cannot be; then the connection
    /// ends.
    pub(crate) fn on_struck(&mut self, strike: StrikeId, kept: bool, env: &mut Env) {
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
        env.counters.early_data_unkept += 1;
        let clock = &env.config.clock;
        quic.conn.abort(Some(OVERLOADED), clock, clock.now());
        let cause = CloseCause::failed("the use of a session ticket could not be stored");
        self.end(self.id(serial), cause, env);
    }

    /// TLS may have asked about tickets while it handled a datagram of this
    /// connection, which brought early data or not.
    pub(crate) fn note_tickets(&mut self, serial: u64, early: bool, env: &mut Env) {
        let notes = env.take_notes();
        let Some(Conn::Quic(quic)) = self.slots.get_mut(serial) else {
            return;
        };
        if let Some(verdict) = notes.verdict {
            let waits = env.quic.strikes_wait();
            quic.conn.early_data().on_ticket(verdict, waits);
            if let (Ok(strike), true) = (verdict, waits) {
                self.strikes.insert(strike, serial);
            }
        }
        let on = env.quic.takes_early_data();
        let (now, counters) = (env.now, &mut env.counters);
        quic.conn.early_data().on_datagram(early, on, now, counters);
    }
}
