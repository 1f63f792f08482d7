//! Draining a broker: it accepts no clients any more, sends those that it has elsewhere,
//! in bounded steps, and stops.

use core::time::Duration;
use std::sync::Arc;

use dunlin_base::Text;
use dunlin_broker::control::values as shard;

use super::clients::ending;
use super::plane::{Outcome, Plane, silent};
use super::topics::bad;
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

/// Begins to drain. `server`: where clients are to go, `moved`: from now on.
pub(super) fn begin(plane: &Plane, rate: u32, server: Option<&str>, moved: bool) -> Outcome {
    if !(1..=RATE_MAX).contains(&rate) {
        return Err(bad(format!("`rate` is a number from 1 to {RATE_MAX}")));
    }
    let wrong = |name: &str| name.is_empty() || name.len() > SERVER_BYTES_MAX;
    if server.is_some_and(wrong) {
        let text = format!("the name of a server has 1 to {SERVER_BYTES_MAX} bytes");
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
    let left = shards.control_all(&shard::Request::Leave);
    if left.iter().any(|(_, reply)| reply.is_none()) {
        return Err(silent());
    }
    let reports = shards.reports();
    let count = reports.iter().map(|it| it.census.conns as u64).sum();
    tracing::warn!(
        count,
        rate,
        "drained by an operator: no clients are accepted"
    );
    let thread = std::thread::Builder::new().name("drain".into());
    let spawned = thread.spawn(move || {
        run(&shards, rate, &ending);
        tracing::info!("no clients are left");
        drain.end();
    });
    spawned.map_err(|error| Failure::new(Code::Unavailable, error.to_string()))?;
    Ok(Reply::Done { count, next: None })
}

/// Ends connections, so many in a second, until there are none or the shards are gone.
fn run(shards: &Shards, rate: u32, ending: &shard::Ending) {
    let (mut places, mut credit, mut empty) = (vec![0; shards.count()], 0, 0);
    while empty < EMPTY_ROUNDS {
        // What a step leaves of a connection counts for the next one.
        credit += rate;
        let mut left = (credit / STEPS) as usize;
        credit %= STEPS;
        let budget = left;
        for (shard, place) in shards.ids().zip(&mut places) {
            let request = shard::Request::EndAll {
                filter: shard::ClientFilter::default(),
                at: *place,
                limit: left,
                ending: ending.clone(),
            };
            let Some(shard::Reply::Ended { count, next }) = shards.control(shard, request) else {
                return;
            };
            left = left.saturating_sub(count);
            *place = next.unwrap_or(0);
        }
        let is_round = budget > 0 && places.iter().all(|place| *place == 0);
        empty = match (left == budget, is_round) {
            (true, true) => empty + 1,
            (true, false) => empty,
            (false, _) => 0,
        };
        std::thread::sleep(Duration::from_secs(1) / STEPS);
    }
}
