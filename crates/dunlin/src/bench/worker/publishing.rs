//! Messages of a thread: which publishers are asked for some in a turn, and how
//! long the loop may sleep before the next is due.

use core::mem;
use core::sync::atomic::Ordering;
use core::time::Duration;

use dunlin_base::Instant;

use super::{POLL_MAX, Worker};
use crate::bench::common::{Role, Stage};
use crate::bench::pacer::Pacer;
use crate::bench::publisher::{Cx, Produced};
use crate::bench::schedule::Schedule;
use crate::bench::shared::Phase;

/// The same while other threads may make room.
const POLL_SHARED: Duration = Duration::from_millis(1);
/// A message due within this time is waited for without sleeping.
const SPIN_US: u64 = 100;

impl Worker<'_> {
    /// Lets publishers write; returns whether some could go on at once.
    pub(super) fn publish(&mut self, phase: Phase) -> anyhow::Result<bool> {
        if self.schedule.is_none() && phase == Phase::Run {
            self.begin()?;
        }
        let state = &mut self.state;
        let (now, window) = (state.now_us, state.window);
        if now < window.start_us {
            return Ok(false);
        }
        if let Some(schedule) = &mut self.schedule {
            let (from, tally, ready) = (state.publishers_from, &mut state.tally, &mut state.ready);
            let clients = &mut state.clients;
            schedule.announce(now.min(window.end_us.saturating_sub(1)), |local, at_us| {
                tally.offered += u64::from(window.contains(at_us));
                if let Some(Role::Publisher(publisher)) = clients
                    .get_mut(from + local)
                    .map(|client| &mut client.common.role)
                {
                    publisher.add_due();
                    ready.add(local);
                }
            });
        } else if now >= window.end_us {
            return Ok(false);
        }
        Ok(self.produce())
    }

    /// Publishing starts.
    fn begin(&mut self) -> anyhow::Result<()> {
        let state = &mut self.state;
        state.window = self.shared.window();
        if let Some(rate) = self.rate {
            let publishers = state.clients.len() - state.publishers_from;
            let (arrival, start_us) = (self.plan.pace.arrival, state.window.start_us);
            let seed = self.thread as u64;
            self.schedule = Some(Schedule::arriving(
                arrival, start_us, rate, publishers, seed,
            ));
            self.pacer = Some(Pacer::new(self.clock, self.net.waker())?);
            self.find_moving();
        }
        Ok(())
    }

    /// Asks those publishers for messages to which something happened.
    fn produce(&mut self) -> bool {
        let (mut sent, mut expected, mut more) = (0, 0, false);
        let list = self.state.ready.take();
        for publisher in &list {
            let index = self.state.publishers_from + publisher;
            let produced = self.ask(index);
            sent += produced.messages;
            expected += produced.deliveries;
            more |= produced.more;
            // Deliveries that other threads count list no publisher here.
            let is_polled = self.plan.threads > 1 && self.plan.waits_for_deliveries();
            if produced.more || is_polled {
                self.state.ready.add(*publisher);
            }
        }
        self.state.tally.asked += list.len() as u64;
        self.state.ready.put_back(list);
        if sent > 0 {
            self.shared.sent.fetch_add(sent, Ordering::Relaxed);
            self.shared.expected.fetch_add(expected, Ordering::Relaxed);
        }
        more
    }

    /// Asks one publisher.
    fn ask(&mut self, index: usize) -> Produced {
        let state = &mut self.state;
        let Some(client) = state.clients.get_mut(index) else {
            return Produced::default();
        };
        let Role::Publisher(publisher) = &client.common.role else {
            return Produced::default();
        };
        let Some(delivered) = self.shared.delivered.get(publisher.index) else {
            return Produced::default();
        };
        if !client.common.stage.may_publish() {
            if client.common.stage == Stage::Asleep && publisher.waiting() > 0 {
                client.common.stage = Stage::Rising;
                self.devices.wake(index);
            }
            return Produced::default();
        }
        let mut cx = Cx {
            plan: self.plan,
            window: state.window,
            now_us: state.now_us,
            tally: &mut state.tally,
            delivered,
            schedule: self.schedule.as_mut(),
            backlog: client.common.backlog,
        };
        let produced = client.produce(&mut cx, Instant::from_micros(state.now_us));
        if produced.messages > 0 && !mem::replace(&mut client.common.touched, true) {
            state.touched.push(index);
        }
        self.devices.look(index, &mut client.common, state.now_us);
        produced
    }

    pub(super) fn timeout(&self, phase: Phase, more: bool) -> Duration {
        if more {
            return Duration::ZERO;
        }
        let now = self.clock.now().as_micros();
        let longest = if self.plan.threads > 1 && phase == Phase::Run {
            POLL_SHARED
        } else {
            POLL_MAX
        };
        if let (Phase::Run, Some(schedule), Some(pacer)) = (phase, &self.schedule, &self.pacer) {
            let next = Some(schedule.next_us()).filter(|due| *due < self.state.window.end_us);
            let due = next.into_iter().chain(self.devices.next_us()).min();
            return match due {
                None => longest,
                Some(due) if due <= now + SPIN_US => Duration::ZERO,
                Some(due) => {
                    pacer.wake_at(due - SPIN_US);
                    longest
                }
            };
        }
        let until_start = self.shared.window().start_us.saturating_sub(now);
        if phase == Phase::Run && until_start > 0 {
            return longest.min(Duration::from_micros(until_start));
        }
        let may_dial = match phase {
            Phase::Subscribers => self.dial.next < self.state.publishers_from,
            _ => self.dial.next < self.state.clients.len(),
        };
        if may_dial && self.state.connecting < self.dial.connecting_max {
            return self.dial.wait(now).min(longest);
        }
        longest
    }
}
