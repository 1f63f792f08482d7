//! Connections that are open, so that there is room for another one: among those that
//! are silent, the oldest of the address that has the most makes it.

use core::net::IpAddr;
use core::sync::atomic::{AtomicBool, Ordering};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::task::AbortHandle;

/// Connections at a time.
pub(super) const CONNECTIONS_MAX: usize = 256;

/// A connection.
#[derive(Debug)]
struct Open {
    number: u64,
    peer: IpAddr,
    task: AbortHandle,
    /// It waits for an answer.
    busy: Arc<AtomicBool>,
}

/// All of them, the oldest first.
#[derive(Clone, Debug, Default)]
pub(super) struct Table(Arc<Mutex<Vec<Open>>>);

/// The place of a connection; it is free again when this is dropped.
#[derive(Debug)]
pub(super) struct Place {
    table: Table,
    number: u64,
    busy: Arc<AtomicBool>,
}

impl Table {
    fn lock(&self) -> MutexGuard<'_, Vec<Open>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether there is room for another connection, which a silent one may make.
    pub(super) fn has_room(&self) -> bool {
        let mut open = self.lock();
        if open.len() < CONNECTIONS_MAX {
            return true;
        }
        let silent = open.iter().filter(|it| !it.busy.load(Ordering::Relaxed));
        let silent: Vec<(u64, IpAddr)> = silent.map(|it| (it.number, it.peer)).collect();
        let Some(number) = crowded(&silent) else {
            return false;
        };
        if let Some(at) = open.iter().position(|it| it.number == number) {
            open.remove(at).task.abort();
        }
        true
    }

    /// Lists a connection, which `start` begins to serve.
    pub(super) fn enter(
        &self,
        number: u64,
        peer: IpAddr,
        start: impl FnOnce(Place) -> AbortHandle,
    ) {
        let busy = Arc::default();
        let place = Place {
            table: self.clone(),
            number,
            busy: Arc::clone(&busy),
        };
        // The task begins to run after this.
        let task = start(place);
        self.lock().push(Open {
            number,
            peer,
            task,
            busy,
        });
    }

    /// Ends all of them.
    pub(super) fn end(&self) {
        for open in self.lock().drain(..) {
            open.task.abort();
        }
    }
}

impl Place {
    /// It waits for an answer from now on, or no longer.
    pub(super) fn set_busy(&self, busy: bool) {
        self.busy.store(busy, Ordering::Relaxed);
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.table.lock().retain(|open| open.number != self.number);
    }
}

/// The oldest connection of the address that has the most of them.
fn crowded(open: &[(u64, IpAddr)]) -> Option<u64> {
    let mut of: HashMap<IpAddr, (usize, u64)> = HashMap::new();
    for (number, peer) in open {
        of.entry(*peer).or_insert((0, *number)).0 += 1;
    }
    let most = of
        .into_values()
        .max_by_key(|(count, oldest)| (*count, core::cmp::Reverse(*oldest)));
    most.map(|(_, oldest)| oldest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_silent_one_of_the_crowd_makes_room() {
        let [one, many] = [1, 2].map(|last| IpAddr::from([192, 0, 2, last]));
        assert_eq!(crowded(&[]), None);
        assert_eq!(crowded(&[(1, one), (2, many), (3, many)]), Some(2));
        assert_eq!(crowded(&[(1, one), (2, many)]), Some(1));
    }

    #[test]
    fn those_that_wait_for_an_answer_stay() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .expect("a runtime");
        runtime.block_on(async {
            let (table, peer) = (Table::default(), IpAddr::from([127, 0, 0, 1]));
            let mut tasks = Vec::new();
            for number in 0..CONNECTIONS_MAX as u64 {
                assert!(table.has_room());
                table.enter(number, peer, |place| {
                    place.set_busy(number != 7);
                    let waiting = async move {
                        let _place = place;
                        core::future::pending::<()>().await;
                    };
                    let task = tokio::spawn(waiting);
                    let handle = task.abort_handle();
                    tasks.push(task);
                    handle
                });
            }
            assert!(table.has_room(), "the silent one makes it");
            assert!(
                tasks
                    .swap_remove(7)
                    .await
                    .expect_err("ended")
                    .is_cancelled()
            );
            assert_eq!(table.lock().len(), CONNECTIONS_MAX - 1);
            table.enter(1000, peer, |place| {
                place.set_busy(true);
                let task = tokio::spawn(async move {
                    let _place = place;
                    core::future::pending::<()>().await;
                });
                task.abort_handle()
            });
            assert!(!table.has_room(), "all wait for answers");
            table.end();
            for task in tasks {
                assert!(task.await.expect_err("ended").is_cancelled());
            }
            assert_eq!(table.lock().len(), 0);
        });
    }
}
