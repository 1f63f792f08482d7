//! `[early_data]`: what clients may send before their handshake is complete.

use core::time::Duration;

use dunlin_net::TicketLimits;
use serde::{Deserialize, Serialize};

use super::error::Wrong;
use super::units::{Size, Span};

/// As the TLS library announces it to clients.
const LIFETIME_MAX: Duration = Duration::from_secs(24 * 3600);

/// Most tickets for a client: each is sent to it after its handshake.
const PER_CONNECTION_MAX: usize = 8;

/// Whether early data is taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Never.
    Off,
    /// On tickets that are good once.
    #[default]
    Safe,
}

/// `[early_data]`: 0-RTT of QUIC connections.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct EarlyData {
    /// Whether it is taken.
    pub mode: Mode,
    /// Tickets held at most.
    pub max_tickets: usize,
    /// Bytes of tickets held at most.
    pub max_ticket_bytes: Size,
    /// How long a ticket is good.
    pub ticket_lifetime: Span,
    /// Tickets given to a client on each connection.
    pub tickets_per_connection: usize,
}

impl Default for EarlyData {
    fn default() -> Self {
        let limits = TicketLimits::default();
        Self {
            mode: Mode::Safe,
            max_tickets: limits.tickets_max,
            max_ticket_bytes: Size(limits.bytes_max as u64),
            ticket_lifetime: Span(limits.lifetime),
            tickets_per_connection: limits.per_connection,
        }
    }
}

impl EarlyData {
    /// Bounds of the register; `None`: there is none.
    #[must_use]
    pub fn limits(&self) -> Option<TicketLimits> {
        let mut limits = TicketLimits::default();
        limits.tickets_max = self.max_tickets;
        limits.bytes_max = self.max_ticket_bytes.as_usize();
        limits.lifetime = self.ticket_lifetime.0;
        limits.per_connection = self.tickets_per_connection;
        (self.mode == Mode::Safe).then_some(limits)
    }

    /// What is wrong with it, as key and sentence.
    pub(super) fn check(&self) -> Result<(), Wrong> {
        if self.ticket_lifetime.0 > LIFETIME_MAX {
            let why = format!("{} is longer than 24h", self.ticket_lifetime);
            return Err(("ticket_lifetime", why));
        }
        if !(1..=PER_CONNECTION_MAX).contains(&self.tickets_per_connection) {
            let given = self.tickets_per_connection;
            let why = format!("{given} is not between 1 and {PER_CONNECTION_MAX}");
            return Err(("tickets_per_connection", why));
        }
        Ok(())
    }
}
