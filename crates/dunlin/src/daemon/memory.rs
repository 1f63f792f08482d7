//! Gives memory back to the system when many connections have ended: the C
//! library keeps what is freed for those that may come, and after a crowd has
//! left that can be most of a broker. All unsafe code of the crate is here.

use core::sync::atomic::{AtomicUsize, Ordering};
use core::time::Duration;
use std::thread;
use std::time::Instant as StdInstant;

use dunlin_base::Instant;

/// Fewer connections are not worth it.
const CONNECTIONS_MIN: usize = 16;

/// Connections that end until pages are given back again, while a crowd leaves.
/// While that goes on, threads that allocate wait: some megabytes take less than a
/// millisecond, what ten thousand connections leave behind takes tens.
const STEP: usize = 128;

/// How long it must have been worth it: clients that lost a network come back.
const CALM: Duration = Duration::from_secs(5);

/// What is to be given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Due {
    Nothing,
    /// The pages of connections that have just ended.
    Pages,
    /// Those, and what tables have too much room for.
    Tables,
}

/// How many connections a shard had.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    /// The most since tables were made smaller.
    most: usize,
    /// Since when half of them are gone.
    since: Option<Instant>,
    /// The most since pages were given back.
    mark: usize,
}

impl Memory {
    /// Looks at the number of connections: pages are given back after each [`STEP`]
    /// of them, the rest when half of them and more ended a while ago.
    pub(crate) fn look(&mut self, connections: usize, now: Instant) -> Due {
        self.most = self.most.max(connections);
        self.mark = self.mark.max(connections);
        if self.most < CONNECTIONS_MIN || connections > self.most / 2 {
            self.since = None;
        } else if now >= *self.since.get_or_insert(now) + CALM {
            *self = Self {
                most: connections,
                since: None,
                mark: connections,
            };
            return Due::Tables;
        }
        if connections + STEP > self.mark {
            return Due::Nothing;
        }
        self.mark = connections;
        Due::Pages
    }

    /// When to look again, if nothing happens before.
    pub(crate) fn look_at(&self) -> Option<Instant> {
        self.since.map(|since| since + CALM)
    }
}

/// Gives back on a thread of its own: that takes a while, and clients that
/// stayed shall not wait for it.
pub(crate) fn give_back_aside() {
    /// How often it was asked for since that thread began: it goes through the
    /// memory of all shards, so that one at a time is enough.
    static ASKED: AtomicUsize = AtomicUsize::new(0);
    if ASKED.fetch_add(1, Ordering::AcqRel) > 0 {
        return;
    }
    let run = || {
        let mut asked = ASKED.load(Ordering::Acquire);
        loop {
            let started = StdInstant::now();
            give_back();
            tracing::debug!(took = ?started.elapsed(), "memory was given back");
            // A request that came meanwhile may have been too late for it.
            match ASKED.compare_exchange(asked, 0, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => break,
                Err(more) => asked = more,
            }
        }
    };
    let spawned = thread::Builder::new().name("give-back".into()).spawn(run);
    if spawned.is_err() {
        // Then it stays for the connections that come.
        ASKED.store(0, Ordering::Release);
    }
}

#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[allow(unsafe_code, reason = "malloc_trim has no safe wrapper")]
fn give_back() {
    // SAFETY: malloc_trim may be called at any time by any thread; it gives
    // back pages that hold nothing allocated, and touches no others.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Other C libraries give back by themselves, or not at all.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
const fn give_back() {}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(seconds: u64) -> Instant {
        Instant::from_micros(seconds * 1_000_000)
    }

    #[test]
    fn tables_are_due_once_after_a_crowd_has_left_for_a_while() {
        let mut memory = Memory::default();
        for (second, connections, due) in [
            (0, 10, false),
            (1, 100, false),
            (2, 51, false),
            (3, 50, false),
            (7, 50, false),
            (8, 50, true),
            (9, 50, false),
            (20, 50, false),
            (30, 15, false),
            (36, 15, true),
            // Half of fifteen are too few.
            (37, 5, false),
            (39, 5, false),
            // Those who come back in between were not gone.
            (41, 200, false),
            (42, 0, false),
            (44, 200, false),
            (50, 0, false),
            (54, 0, false),
            (56, 3, true),
        ] {
            let tables = memory.look(connections, at(second)) == Due::Tables;
            assert_eq!(tables, due, "{second}");
            let waits = memory.look_at().is_some_and(|look| look > at(second));
            assert_eq!(waits, memory.since.is_some(), "{second}");
        }
    }

    #[test]
    fn pages_are_due_in_steps_while_a_crowd_leaves() {
        let mut memory = Memory::default();
        let mut due = Vec::new();
        for connections in (0..=1_000).chain((0..1_000).rev()) {
            if memory.look(connections, at(1)) == Due::Pages {
                due.push(connections);
            }
        }
        assert_eq!(due, [872, 744, 616, 488, 360, 232, 104]);
        assert_eq!(memory.look(0, at(7)), Due::Tables);
        // Those that come and go as others do are no crowd.
        for second in 10..100 {
            assert_eq!(memory.look(400, at(second)), Due::Nothing);
            assert_eq!(memory.look(300, at(second)), Due::Nothing);
        }
    }

    #[test]
    fn giving_back_is_harmless() {
        let kept = vec![7_u8; 1 << 20];
        give_back();
        (0..3).for_each(|_| give_back_aside());
        assert!(kept.iter().all(|byte| *byte == 7));
    }
}
