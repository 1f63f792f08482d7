//! How a thread's connections are made: in which order, at which rate, from
//! which addresses.

use core::net::SocketAddr;
use core::time::Duration;
use std::sync::Arc;

use dunlin_net::{Clock, DialConfig, SessionTickets};

use super::plan::{Plan, Target};
use super::schedule::Schedule;

/// How connections are made.
pub(super) struct Dialler {
    config: DialConfig,
    subscribers: Option<DialConfig>,
    sources: Vec<SocketAddr>,
    /// The next client to dial.
    pub(super) next: usize,
    schedule: Option<Schedule>,
    allowance: usize,
    pub(super) connecting_max: usize,
}

impl Dialler {
    pub(super) fn new(plan: &Plan, clock: Clock) -> Self {
        let now = clock.now().as_micros();
        Self {
            config: plan.target.dial(),
            subscribers: plan.subscribers_at.as_ref().map(Target::dial),
            sources: plan
                .connecting
                .sources
                .iter()
                .map(|ip| (*ip, 0).into())
                .collect(),
            next: 0,
            schedule: plan
                .connecting
                .rate
                .map(|rate| Schedule::new(now, rate / plan.threads as f64, 1)),
            allowance: 0,
            connecting_max: (plan.connecting.pending_max / plan.threads).max(1),
        }
    }

    /// How a client of this kind connects from there; with tickets of its own it
    /// sends early data.
    pub(super) fn config(
        &mut self,
        kind: char,
        from: Option<SocketAddr>,
        tickets: Option<Arc<dyn SessionTickets>>,
    ) -> &DialConfig {
        let config = match &mut self.subscribers {
            Some(config) if kind == 's' => config,
            _ => &mut self.config,
        };
        config.local_addr = from;
        config.early_data = tickets.is_some();
        config.tickets = tickets;
        config
    }

    /// Takes an allowance to dial, if the rate gives one.
    pub(super) fn may(&mut self, now_us: u64) -> bool {
        let Some(schedule) = &mut self.schedule else {
            return true;
        };
        if self.allowance == 0 {
            schedule.announce(now_us, |_, _| self.allowance += 1);
        }
        self.allowance = match self.allowance.checked_sub(1) {
            Some(left) => left,
            None => return false,
        };
        true
    }

    pub(super) fn wait(&self, now_us: u64) -> Duration {
        match &self.schedule {
            Some(_) if self.allowance > 0 => Duration::ZERO,
            Some(schedule) => Duration::from_micros(schedule.next_us().saturating_sub(now_us)),
            None => Duration::ZERO,
        }
    }

    pub(super) fn source(&self, index: usize) -> Option<SocketAddr> {
        let index = index.checked_rem(self.sources.len())?;
        self.sources.get(index).copied()
    }
}
