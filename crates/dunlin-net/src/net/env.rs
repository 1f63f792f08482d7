//! What all parts of a loop use: its settings, totals, shared buffers, and the
//! time of this turn.

use dunlin_base::Instant;
use dunlin_quic::{Counters, EndpointKeys, Notes, QuicSettings};

use crate::admission::Admission;
use crate::stream::Scratch;
use crate::{NetConfig, NetError, NetLimits};

/// See the head of the file.
#[derive(Debug)]
pub(crate) struct Env {
    pub(crate) config: NetConfig,
    pub(crate) quic: QuicSettings,
    pub(crate) counters: Counters,
    pub(crate) scratch: Scratch,
    pub(crate) now: Instant,
}

impl Env {
    pub(super) fn new(config: NetConfig) -> Result<Self, NetError> {
        Ok(Self {
            now: config.clock.now(),
            quic: quic_settings(&config)?,
            config,
            counters: Counters::default(),
            scratch: Scratch::new(),
        })
    }

    pub(crate) const fn limits(&self) -> &NetLimits {
        &self.config.limits
    }

    pub(crate) fn admission(&self) -> &Admission {
        &self.config.shared.admission
    }

    /// Reads the clock; the same instant holds until the next call.
    pub(crate) fn tick(&mut self) {
        self.now = self.config.clock.now();
    }

    /// What TLS asked, for connections that are gone as well.
    pub(crate) fn take_notes(&mut self) -> Notes {
        let notes = self.quic.take_notes();
        self.counters.tickets_issued += notes.issued;
        self.counters.tickets_evicted += notes.evicted;
        notes
    }
}

fn quic_settings(config: &NetConfig) -> Result<QuicSettings, NetError> {
    let keys = EndpointKeys {
        shard: config.shard,
        shards: config.shards,
        first: config.first,
        known: config.known.clone(),
        cid: config.keys.cid,
        reset: &config.keys.reset,
        token: &config.keys.token,
        lb: config.lb.clone(),
    };
    let (used, tickets) = (&config.shared.used_tokens, config.tickets.clone());
    Ok(QuicSettings::new(
        &keys,
        config.limits.of_quic(),
        used,
        tickets,
    )?)
}
