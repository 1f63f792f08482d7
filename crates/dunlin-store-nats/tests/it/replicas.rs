//! Three servers and three replicas. Rounds of kills of leaders and followers take minutes:
//! only where `DUNLIN_NATS_ROUNDS` says how many. `scripts/cluster/log.sh` does.

use core::time::Duration;
use std::io::Write as _;
use std::time::Instant;

use dunlin_store::StoreDone;
use dunlin_store_nats::{GaveUp, NatsConfig};

use crate::support::{Open, Server, WAIT, enqueue, numbers};

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
        let leader = servers.iter().find_map(|server| server.leader("dl-p-0"));
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

/// With the owner's machine, a server may have died: that must not keep another owner from
/// going on. When it is back, it has to say that it syncs.
#[test]
fn one_of_three_servers_may_be_down() {
    let Some(mut servers) = Server::cluster() else {
        return;
    };
    let config = |servers: &[Server], copy: &str| NatsConfig {
        urls: servers.iter().map(|server| server.url("dl:d")).collect(),
        system_urls: servers.iter().map(|server| server.url("sys:s")).collect(),
        replicas: 3,
        ..servers[0].config(copy)
    };
    let (open, _) = Open::new(config(&servers, "copy"));
    open.commit(1..=3);
    drop(open);
    servers[2].kill();
    let (open, recovered) = Open::new(config(&servers, "another copy"));
    assert_eq!(numbers(&recovered), [1, 2, 3]);
    open.commit(4..=6);
    let (said, causes) = std::sync::mpsc::channel();
    let then = move |cause| said.send(cause).expect("waited for");
    open.store.when_given_up(Box::new(then));
    servers[2].forget_sync();
    servers[2].back();
    let server = "n2".to_owned();
    assert_eq!(causes.recv_timeout(WAIT), Ok(GaveUp::Unsynced { server }));
}
