//! Draining a broker: it accepts no clients any more, sends those that it has elsewhere,
//! in bounded steps, and stops.

use core::time::Duration;
use std::sync::Arc;

use dunlin_base::Text;
use dunlin_broker::control::values as shard;

use super::clients::ending;
use super::plane::{Outcome, Plane};
use super::topics::{bad, has_control};
use super::values::{Code, Failure, Reply};
use crate::daemon::query::Query;
use crate::metrics::Shards;

/// Steps in a second.
const STEPS: u32 = 10;

/// Most connections that are ended in a second.
const RATE_MAX: u32 = 100_000;

/// Longest name of a server.
const SERVER_BYTES_MAX: usize = 1024;

/// Rounds over all shards without a client after which there are none.
const EMPTY_ROUNDS: u32 = 3;

/// Steps in a row in which a shard does not answer, after which it is not waited for.
const SILENT_STEPS: u32 = 15;

/// Begins to drain. `server`: where clients are to go, `moved`: from now on.
pub(super) fn begin(plane: &Plane, rate: u32, server: Option<&str>, moved: bool) -> Outcome {
    if !(1..=RATE_MAX).contains(&rate) {
        return Err(bad(format!("`rate` is a number from 1 to {RATE_MAX}")));
    }
    let wrong = |name: &str| name.is_empty() || name.len() > SERVER_BYTES_MAX || has_control(name);
    if server.is_some_and(wrong) {
        let max = SERVER_BYTES_MAX;
        let text = format!("the name of a server has 1 to {max} bytes, no control characters");
        return Err(bad(text));
    }
    let kind = match (server.map(Text::from), moved) {
        (Some(server), true) => shard::EndingKind::Moved(server),
        (Some(server), false) => shard::EndingKind::UseAnother(server),
        (None, _) => shard::EndingKind::ShuttingDown,
    };
    let ending = ending(kind, "the server is drained")?;
    if plane.drain.begin() {
        return Err(Failure::new(Code::Conflict, "the broker is being drained"));
    }
    let (shards, drain) = (plane.shards.clone(), Arc::clone(&plane.drain));
    for shard in shards.ids() {
        shards.mail(shard, Query::StopListening);
    }
    // A shard that does not answer in time does it later.
    let _ = shards.control_all(&shard::Request::Leave);
    let reports = shards.reports();
    let count = reports.iter().map(|it| it.census.conns as u64).sum();
    tracing::warn!(
        count,
        rate,
        "drained by an operator: no clients are accepted"
    );
    let thread = std::thread::Builder::new().name("drain".into());
    let spawned = thread.spawn(move || {
        match run(&shards, rate, &ending) {
            true => tracing::info!("no clients are left"),
            false => tracing::error!("a shard does not answer, and may have clients left"),
        }
        drain.end();
    });
    if let Err(error) = spawned {
        plane.drain.give_up();
        let text = format!("no thread to be had; order it again: {error}");
        return Err(Failure::new(Code::Unavailable, text));
    }
    Ok(Reply::Done { count, next: None })
}

/// Ends connections, so many in a second, until there are none; `false`: until a shard
/// did not answer for long, or is gone.
fn run(shards: &Shards, rate: u32, ending: &shard::Ending) -> bool {
    let (mut places, mut credit) = (vec![0; shards.count()], 0);
    let (mut empty, mut silent) = (0, 0);
    while empty < EMPTY_ROUNDS {
        // What a step leaves of a connection counts for the next one.
        credit += rate;
        let budget = (credit / STEPS) as usize;
        credit %= STEPS;
        let step = step(shards, &mut places, budget, ending);
        silent = if step.is_silent { silent + 1 } else { 0 };
        if silent >= SILENT_STEPS {
            return false;
        }
        let is_round = budget > 0 && places.iter().all(|place| *place == 0);
        empty = match (step.ended == 0 && !step.is_silent, is_round) {
            (true, true) => empty + 1,
            (true, false) => empty,
            (false, _) => 0,
        };
        std::thread::sleep(Duration::from_secs(1) / STEPS);
    }
    true
}

/// What a step did.
struct Step {
    ended: usize,
    /// A shard has not answered.
    is_silent: bool,
}

/// Ends so many connections, from the places on where the last step ended. A shard ends
/// few for one request, between which it serves its other clients.
fn step(shards: &Shards, places: &mut [usize], budget: usize, ending: &shard::Ending) -> Step {
    let (mut ended, mut is_silent) = (0, false);
    for (shard, place) in shards.ids().zip(places) {
        while ended < budget {
            let request = shard::Request::EndAll {
                filter: shard::ClientFilter::default(),
                at: *place,
                limit: budget - ended,
                ending: ending.clone(),
            };
            let Some(shard::Reply::Ended { count, next }) = shards.control(shard, request) else {
                is_silent = true;
                break;
            };
            ended += count;
            *place = next.unwrap_or(0);
            if next.is_none() {
                break;
            }
        }
    }
    Step { ended, is_silent }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::daemon::mailbox::tests::event_loop;
    use crate::daemon::mailbox::{Addresses, Inbox, Mail};
    use dunlin_base::ShardId;

    #[test]
    fn a_shard_that_is_late_is_waited_for_and_one_that_is_gone_is_not() {
        let net = event_loop();
        let (mut inbox, address) = Inbox::new(net.waker());
        let shards = Shards::new(Addresses::new(ShardId(0), vec![address]));
        let ending = ending(shard::EndingKind::ShuttingDown, "").expect("a reason");
        let late = shards.clone();
        let order = ending.clone();
        let drain = std::thread::spawn(move || run(&late, RATE_MAX, &order));
        let mut asked = 0;
        while !drain.is_finished() {
            let Some(mail) = inbox.take() else {
                std::thread::yield_now();
                continue;
            };
            let Mail::Query(Query::Control { reply, .. }) = mail else {
                panic!("{mail:?}");
            };
            asked += 1;
            // The first questions have no answer, then there is one client.
            if asked > 2 {
                let count = usize::from(asked == 3);
                let _ = reply.send(shard::Reply::Ended { count, next: None });
            }
        }
        assert!(drain.join().expect("it ended"));
        assert_eq!(asked, 3 + EMPTY_ROUNDS);
        drop(inbox);
        assert!(!run(&shards, RATE_MAX, &ending));
    }
}
