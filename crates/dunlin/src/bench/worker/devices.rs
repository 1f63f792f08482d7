//! Devices of a fleet in a thread: those that go to sleep when all is published and
//! wake when something is due, and those that move from time to time.

use std::collections::VecDeque;

use dunlin_base::Instant;
use dunlin_base::transport::Transport;
use dunlin_net::Move;

use super::Worker;
use crate::bench::common::{Common, Role, Stage};

/// After this time without anything to do a device may go to sleep, and is looked
/// at again if it may not.
const DROWSY_US: u64 = 2_000;
/// Longest that it stays awake for a session ticket (QUIC).
const TICKET_WAIT_US: u64 = 200_000;

/// What devices are going to do. Each is in a queue at most once.
#[derive(Debug, Default)]
pub(super) struct Devices {
    /// Wait until few enough handshakes are pending.
    waking: VecDeque<usize>,
    /// Looked at then, whether they may sleep.
    drowsy: VecDeque<(u64, usize)>,
    /// Move then.
    moving: VecDeque<(u64, usize)>,
}

impl Devices {
    /// A device has something to publish.
    pub(super) fn wake(&mut self, index: usize) {
        self.waking.push_back(index);
    }

    /// If a device has nothing to do, it is looked at again soon.
    pub(super) fn look(&mut self, index: usize, common: &mut Common, now_us: u64) {
        let has_nothing = is_done(common);
        if let Some(sleeper) = &mut common.sleeper
            && has_nothing
            && sleeper.drowsy_since.is_none()
        {
            sleeper.drowsy_since = Some(now_us);
            self.drowsy.push_back((now_us + DROWSY_US, index));
        }
    }

    /// When the next one has something to do.
    pub(super) fn next_us(&self) -> Option<u64> {
        let first = |queue: &VecDeque<(u64, usize)>| queue.front().map(|(at, _)| *at);
        let both = [first(&self.drowsy), first(&self.moving)];
        both.into_iter().flatten().min()
    }
}

/// Whether a publisher has nothing more to do.
fn is_done(common: &Common) -> bool {
    let is_published = matches!(&common.role, Role::Publisher(it) if it.waiting() == 0);
    let is_sent = common.backlog == 0 && common.out.is_empty();
    common.stage == Stage::Ready && is_published && is_sent
}

impl Worker<'_> {
    /// Those of this thread that move get their turns in one interval.
    pub(super) fn find_moving(&mut self) {
        let fleet = &self.plan.fleet;
        let moves = |index: &usize| {
            let client = self.state.clients.get(*index);
            client.is_some_and(|client| {
                let (kind, number) = client.common.name();
                fleet.moves(kind, number)
            })
        };
        let moving: Vec<usize> = (0..self.state.clients.len()).filter(moves).collect();
        let start = self.state.window.start_us;
        let interval = fleet.move_every.as_micros() as u64;
        let count = moving.len().max(1) as u64;
        let turns = moving.into_iter().zip(1..);
        self.devices.moving = turns
            .map(|(index, turn)| (start + interval * turn / count, index))
            .collect();
    }

    /// Lets devices wake, sleep and move whose time it is.
    pub(super) fn tend_devices(&mut self) {
        while self.state.connecting < self.dial.connecting_max
            && let Some(index) = self.devices.waking.pop_front()
        {
            self.dial(index, Stage::Waking);
        }
        let now = self.state.now_us;
        let is_due = |first: Option<&(u64, usize)>| first.is_some_and(|(at, _)| *at <= now);
        while is_due(self.devices.drowsy.front())
            && let Some((_, index)) = self.devices.drowsy.pop_front()
        {
            self.sleep(index);
        }
        while is_due(self.devices.moving.front())
            && let Some((at, index)) = self.devices.moving.pop_front()
        {
            self.move_on(index);
            let next = at + (self.plan.fleet.move_every.as_micros() as u64).max(1);
            self.devices.moving.push_back((next, index));
        }
    }

    /// Sends a device to sleep, unless there is something to do again; one over
    /// QUIC that has no ticket to wake with waits a little.
    fn sleep(&mut self, index: usize) {
        let state = &mut self.state;
        let Some(client) = state.clients.get_mut(index) else {
            return;
        };
        let has_nothing = is_done(&client.common);
        let Some(sleeper) = &mut client.common.sleeper else {
            return;
        };
        let since = sleeper.drowsy_since.take();
        if !has_nothing {
            return;
        }
        let since = since.unwrap_or(state.now_us);
        let lacks_ticket =
            self.plan.target.transport == Transport::Quic && sleeper.tickets.is_empty();
        if lacks_ticket && state.now_us < since + TICKET_WAIT_US {
            sleeper.drowsy_since = Some(since);
            let again = state.now_us + DROWSY_US;
            return self.devices.drowsy.push_back((again, index));
        }
        client.put_disconnect(self.plan, Instant::from_micros(state.now_us));
        client.common.stage = Stage::Leaving;
        state.closing.extend(client.common.conn);
        state.touch(index);
    }

    fn move_on(&mut self, index: usize) {
        let client = self.state.clients.get(index);
        let conn = client.and_then(|client| client.common.conn);
        let Some(conn) = conn else {
            return;
        };
        if self.net.migrate(conn, None, Move::AtOnce).is_err() {
            let is_measured = self.state.window.contains(self.state.now_us);
            self.state.tally.devices.moves_failed += u64::from(is_measured);
        }
    }
}
