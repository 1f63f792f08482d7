//! Three servers and three replicas, with kills of leaders and followers: minutes, so
//! only where `DUNLIN_NATS_ROUNDS` says how many. `scripts/cluster/log.sh` does.

use core::time::Duration;
use std::io::Write as _;
use std::time::Instant;

use dunlin_store::StoreDone;
use dunlin_store_nats::NatsConfig;

use crate::support::{Open, Server, enqueue, numbers};

/// Writes in a round, of which a third are answered before the kill.
const WRITES: u64 = 3000;

/// Writes that are on their way at a time.
const IN_FLIGHT: u64 = 100;

#[test]
fn servers_that_are_killed_lose_nothing_that_was_answered() {
    let rounds = std::env::var("DUNLIN_NATS_ROUNDS").ok();
    let Some(rounds) = rounds.and_then(|rounds| rounds.parse::<usize>().ok()) else {
        let skipped = "skipped: replicas: DUNLIN_NATS_ROUNDS is not set, scripts/cluster/log.sh";
        writeln!(std::io::stderr(), "{skipped}").expect("standard error");
        return;
    };
    let Some(mut servers) = Server::cluster() else {
        return;
    };
    let config = |copy: &str| NatsConfig {
        urls: servers.iter().map(|server| server.url("dl:d")).collect(),
        replicas: 3,
        ..servers[0].config(copy)
    };
    let configs: Vec<_> = (0..=rounds).map(|n| config(&format!("copy-{n}"))).collect();
    let (mut open, _) = Open::new(configs[0].clone());
    let mut counter = 0;
    for (round, next) in configs.iter().enumerate().skip(1) {
        // The leader, then another one.
        let leader = servers.iter().find_map(Server::leader);
        let leader = leader.and_then(|name| name.strip_prefix('n')?.parse::<usize>().ok());
        let victim = (leader.unwrap_or(0) + (round + 1) % 2) % servers.len();
        let (first, mut answered) = (counter, counter);
        let mut last = Instant::now();
        let mut gap = Duration::ZERO;
        while answered < first + WRITES {
            while counter < (answered + IN_FLIGHT).min(first + WRITES) {
                counter += 1;
                open.submitter.submit(enqueue(counter, 300)).expect("room");
            }
            answered += 1;
            assert_eq!(open.wait(), StoreDone::Committed { token: answered });
            gap = gap.max(last.elapsed());
            last = Instant::now();
            // While others are on their way.
            if answered == first + WRITES / 3 {
                servers[victim].kill();
            }
        }
        writeln!(
            std::io::stderr(),
            "round {round}: n{victim} killed, leader {leader:?}: longest without an answer {gap:?}"
        )
        .expect("standard error");
        servers[victim].back();
        open.store.close();
        let recovered;
        (open, recovered) = Open::new(next.clone());
        assert_eq!(numbers(&recovered), (1..=counter).collect::<Vec<_>>());
    }
}
