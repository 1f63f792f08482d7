//! Brokers on three servers of NATS, and kills of the broker, of the stream's leader and of
//! both; and of the broker with a standby beside it. Minutes, so only where
//! `DUNLIN_NATS_ROUNDS` or `DUNLIN_NATS_STANDBY_ROUNDS` says how many.
//! `scripts/cluster/broker.sh` does.

use core::time::Duration;
use std::io::Write as _;
use std::time::Instant;

use dunlin_client::{Client, Publish, QoS};

use crate::nats::{Broker, come_back};
use crate::nats_server::Server;
use crate::support::PATIENCE;

/// Messages that are acknowledged before something is killed.
const BEFORE: u64 = 100;

/// Messages that are on their way at a time.
const IN_FLIGHT: u64 = 20;

fn say(text: &str) {
    writeln!(std::io::stderr(), "{text}").expect("standard error");
}

fn store(servers: &[Server]) -> String {
    let urls = |who: &str| servers.iter().map(|it| it.url(who)).collect::<Vec<_>>();
    format!(
        "urls = {:?}\nsystem_urls = {:?}\nreplicas = 3\n",
        urls("dl:d"),
        urls("sys:s")
    )
}

/// Publishes numbers from `from` on, QoS 1 or 2, and has some on their way; gives those that
/// were acknowledged until `enough`, and the number after the last that was sent.
async fn publish(client: &Client, qos: QoS, from: u64, enough: u64) -> (Vec<u64>, u64) {
    let mut acknowledged = Vec::new();
    let mut sent = from;
    let mut waiting = std::collections::VecDeque::new();
    while (acknowledged.len() as u64) < enough {
        while sent < from + acknowledged.len() as u64 + IN_FLIGHT {
            let message = Publish::new("q/x", sent.to_string()).qos(qos);
            let delivery = client.start_publish(message).await.expect("room");
            waiting.push_back((sent, delivery));
            sent += 1;
        }
        let Some((number, delivery)) = waiting.pop_front() else {
            break;
        };
        delivery.await.expect("acknowledged");
        acknowledged.push(number);
    }
    (acknowledged, sent)
}

/// Waits for an answer from a broker that is starting.
async fn connected(broker: &Broker, id: &str) -> Client {
    let connected = broker.client(id).connect().await;
    connected.expect("connected").0
}

/// Which server leads the stream.
fn leader(servers: &[Server]) -> usize {
    let mut names = servers.iter().map(|server| server.leader("dunlin-p-0"));
    let leader = names.find_map(|name| name);
    let leader = leader.and_then(|name| name.strip_prefix('n')?.parse::<usize>().ok());
    leader.unwrap_or(0)
}

/// What is killed in a round.
#[derive(Clone, Copy, Debug)]
enum Kill {
    Broker,
    Leader,
    Both,
}

/// One round at one QoS: numbers that were acknowledged come, in order, at QoS 2 once each.
async fn round(
    servers: &mut [Server],
    broker: &mut Broker,
    kill: Kill,
    qos: QoS,
) -> (Duration, usize) {
    let first = connected(broker, "writer").await;
    let (mut acknowledged, next) = publish(&first, qos, 1, BEFORE).await;
    let victim = leader(servers);
    let begin = Instant::now();
    if matches!(kill, Kill::Leader | Kill::Both) {
        servers[victim].kill();
    }
    let second = if matches!(kill, Kill::Broker | Kill::Both) {
        broker.kill();
        let shards = 1 + (next % 3) as u16;
        *broker = Broker::start(shards, &store(servers));
        connected(broker, "another writer").await
    } else {
        first
    };
    let (more, _) = publish(&second, qos, next, 1).await;
    let gap = begin.elapsed();
    acknowledged.extend(more);
    if matches!(kill, Kill::Leader | Kill::Both) {
        servers[victim].back();
    }
    let (more, last) = publish(&second, qos, next + IN_FLIGHT, BEFORE).await;
    acknowledged.extend(more);
    second.disconnect().await;
    read(broker, qos, &acknowledged, last).await;
    (gap, acknowledged.len())
}

/// Reads what was published, numbers up to `last`, and sees that all that was acknowledged is
/// there.
async fn read(broker: &Broker, qos: QoS, acknowledged: &[u64], last: u64) {
    let (reader, mut messages) = broker.client("reader").connect().await.expect("connected");
    let mut came = Vec::new();
    while !acknowledged.iter().all(|number| came.contains(number)) {
        let message = tokio::time::timeout(PATIENCE, messages.next()).await;
        let message = message.unwrap_or_else(|_| panic!("{came:?} of {acknowledged:?}"));
        let text = String::from_utf8(message.expect("a message").payload.to_vec());
        came.push(text.expect("text").parse::<u64>().expect("a number"));
    }
    // The rest of what was on its way may come, too.
    while let Ok(Some(message)) =
        tokio::time::timeout(Duration::from_millis(500), messages.next()).await
    {
        let text = String::from_utf8(message.payload.to_vec()).expect("text");
        came.push(text.parse::<u64>().expect("a number"));
    }
    reader.disconnect().await;
    assert!(came.iter().all(|number| *number < last), "{came:?}");
    let mut once = came.clone();
    once.dedup();
    assert!(once.is_sorted(), "{came:?}");
    if qos == QoS::ExactlyOnce {
        assert_eq!(once.len(), came.len(), "{came:?}");
    }
}

/// What happens to an owner that has a standby.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Killed,
    /// By SIGTERM.
    Stopped,
    /// With the server that leads the stream.
    KilledWithLeader,
}

/// One round with a standby, which serves when the owner ends.
async fn round_with_standby(
    servers: &mut [Server],
    broker: &mut Broker,
    how: End,
    qos: QoS,
) -> (Duration, usize) {
    let mut standby = Broker::stand_by(1 + how as u16, &store(servers));
    let first = connected(broker, "writer").await;
    let (mut acknowledged, next) = publish(&first, qos, 1, BEFORE).await;
    let victim = leader(servers);
    let begin = Instant::now();
    match how {
        End::Stopped => broker.signal("-TERM"),
        End::Killed => broker.kill(),
        End::KilledWithLeader => {
            broker.kill();
            servers[victim].kill();
        }
    }
    let second = come_back(&standby, "another writer").await;
    let (more, _) = publish(&second, qos, next, 1).await;
    let gap = begin.elapsed();
    acknowledged.extend(more);
    match how {
        End::Stopped => assert_eq!(broker.end().code(), Some(0)),
        End::Killed => {}
        End::KilledWithLeader => servers[victim].back(),
    }
    core::mem::swap(broker, &mut standby);
    let (more, last) = publish(&second, qos, next + IN_FLIGHT, BEFORE).await;
    acknowledged.extend(more);
    second.disconnect().await;
    read(broker, qos, &acknowledged, last).await;
    (gap, acknowledged.len())
}

fn rounds(variable: &str) -> Option<usize> {
    let rounds = std::env::var(variable).ok();
    let rounds = rounds.and_then(|rounds| rounds.parse().ok());
    if rounds.is_none() {
        say(&format!(
            "skipped: rounds: {variable} is not set, scripts/cluster/broker.sh"
        ));
    }
    rounds
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .expect("a runtime")
}

#[test]
fn brokers_and_leaders_that_are_killed_lose_nothing() {
    let Some(rounds) = rounds("DUNLIN_NATS_ROUNDS") else {
        return;
    };
    let Some(mut servers) = Server::cluster() else {
        return;
    };
    let mut broker = Broker::start(2, &store(&servers));
    runtime().block_on(async {
        broker.leave_session("reader", "q/#").await;
        for number in 0..rounds {
            let kill = [Kill::Broker, Kill::Leader, Kill::Both][number % 3];
            let qos = [QoS::AtLeastOnce, QoS::ExactlyOnce][number / 3 % 2];
            let (gap, acknowledged) = round(&mut servers, &mut broker, kill, qos).await;
            say(&format!(
                "round {number}: {kill:?} killed, {qos:?}: {acknowledged} acknowledged and \
                 there, {gap:?} from the kill to the next acknowledgement"
            ));
        }
    });
}

#[test]
fn standbys_go_on_and_lose_nothing() {
    let Some(rounds) = rounds("DUNLIN_NATS_STANDBY_ROUNDS") else {
        return;
    };
    let Some(mut servers) = Server::cluster() else {
        return;
    };
    let mut broker = Broker::start(2, &store(&servers));
    runtime().block_on(async {
        broker.leave_session("reader", "q/#").await;
        for number in 0..rounds {
            let how = [End::Killed, End::Stopped, End::KilledWithLeader][number % 3];
            let qos = [QoS::AtLeastOnce, QoS::ExactlyOnce][number / 3 % 2];
            let done = round_with_standby(&mut servers, &mut broker, how, qos);
            let (gap, acknowledged) = done.await;
            say(&format!(
                "round {number}: owner {how:?}, {qos:?}: {acknowledged} acknowledged and there, \
                 {gap:?} until the standby acknowledged"
            ));
        }
    });
}
