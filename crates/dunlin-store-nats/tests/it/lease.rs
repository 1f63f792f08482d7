//! Who should own the log: one of several that wait, when the owner gives the lease back or
//! renews it no more.

use core::time::Duration;
use std::sync::mpsc::RecvTimeoutError;
use std::time::Instant;

use dunlin_store::{StoreDone, StoreError};
use dunlin_store_nats::{GaveUp, NatsConfig, NatsStandby, NatsStore, OpenError};
use serde_json::{Value, json};

use crate::support::{Open, Server, Sync, WAIT, numbers};
use crate::valve::Valve;

/// Time in which what must not happen would have happened.
const A_WHILE: Duration = Duration::from_millis(1500);

/// For owners that must not lose it, however slow the machine is.
const LONG: Duration = Duration::from_secs(60);

const KEY: &str = "$KV.dl-lease.p-0";

/// With a lease that holds for long.
fn long(server: &Server, copy: &str) -> NatsConfig {
    NatsConfig {
        lease: LONG,
        ..server.config(copy)
    }
}

/// A standby, and its answer.
fn stand_by(config: NatsConfig) -> (NatsStandby, dunlin_store_nats::Outcome) {
    NatsStandby::start(config).expect("stands by")
}

fn open((store, recovered): (NatsStore, dunlin_store::Recovered)) -> (Open, Vec<u64>) {
    let (answer, answers) = std::sync::mpsc::channel();
    let submitter = store.submitter(Box::new(move |done| drop(answer.send(done))));
    let found = numbers(&recovered);
    let open = Open {
        store,
        submitter,
        answers,
    };
    (open, found)
}

/// The newest message of the lease.
fn lease(server: &Server) -> Value {
    let question = json!({ "last_by_subj": KEY });
    let got = server.ask("$JS.API.STREAM.MSG.GET.KV_dl-lease", &question);
    got["message"].clone()
}

fn nothing<T: core::fmt::Debug>(got: Result<T, RecvTimeoutError>) {
    assert!(matches!(got, Err(RecvTimeoutError::Timeout)), "{got:?}");
}

#[test]
fn of_two_that_wait_one_gets_what_is_given_back() {
    let Some(server) = Server::start(Sync::Always) else {
        return;
    };
    let (owner, _) = Open::new(long(&server, "owner"));
    owner.commit(1..=5);
    let (first, first_says) = stand_by(long(&server, "first"));
    let (second, second_says) = stand_by(long(&server, "second"));
    nothing(first_says.recv_timeout(A_WHILE).map(|it| it.is_ok()));
    nothing(
        second_says
            .try_recv()
            .map_err(|_| RecvTimeoutError::Timeout),
    );
    assert!(owner.store.role().role().holds_lease);
    owner.commit(6..=8);
    let begin = Instant::now();
    owner.store.close();
    let until = begin + WAIT;
    let is_first = loop {
        assert!(Instant::now() < until, "none gets it");
        if let Ok(outcome) = first_says.recv_timeout(Duration::from_millis(5)) {
            outcome.expect("the lease");
            break true;
        }
        if let Ok(outcome) = second_says.recv_timeout(Duration::from_millis(5)) {
            outcome.expect("the lease");
            break false;
        }
    };
    let (winner, loser, says) = match is_first {
        true => (first, second, second_says),
        false => (second, first, first_says),
    };
    let (winner, found) = open(winner.take_over().expect("taken over"));
    println!("{:?} from the end of one to the other", begin.elapsed());
    assert_eq!(found, (1..=8).collect::<Vec<_>>());
    winner.commit(9..=12);
    nothing(says.recv_timeout(A_WHILE).map(|it| it.is_ok()));
    winner.store.close();
    let outcome = says.recv_timeout(WAIT).expect("its turn");
    outcome.expect("the lease");
    let (_, found) = open(loser.take_over().expect("taken over"));
    assert_eq!(found, (1..=12).collect::<Vec<_>>());
}

/// As an owner that was killed leaves it.
#[test]
fn a_lease_that_is_not_renewed_is_taken() {
    let Some(server) = Server::start(Sync::Always) else {
        return;
    };
    let (owner, _) = Open::new(server.config("owner"));
    owner.commit(1..=5);
    owner.store.close();
    let stored = server.publish(KEY, br#"{"owner":"00000000000000aa"}"#);
    assert!(stored["seq"].is_u64(), "{stored}");
    let begin = Instant::now();
    let (standby, says) = stand_by(server.config("standby"));
    says.recv_timeout(WAIT)
        .expect("its turn")
        .expect("the lease");
    println!("{:?} after the last renewal", begin.elapsed());
    let (_, found) = open(standby.take_over().expect("taken over"));
    assert_eq!(found, (1..=5).collect::<Vec<_>>());
}

/// Nothing passes between an owner and the servers, as where its machine stands still. When
/// it does again, the owner finds that another has the log, acknowledges nothing and takes
/// nothing back.
#[test]
fn an_owner_that_was_silent_acknowledges_nothing() {
    let Some(server) = Server::start(Sync::Always) else {
        return;
    };
    let valve = Valve::new(server.port());
    let url = |who: &str| format!("nats://{who}@127.0.0.1:{}", valve.port());
    let config = NatsConfig {
        urls: vec![url("dl:d")],
        system_urls: vec![url("sys:s")],
        patience: 2 * WAIT,
        ..server.config("owner")
    };
    let (owner, _) = Open::new(config);
    owner.commit(1..=5);
    let (standby, says) = stand_by(server.config("standby"));
    valve.shut(true);
    let waits = crate::support::enqueue(6, 300);
    owner.submitter.submit(waits).expect("room");
    says.recv_timeout(WAIT)
        .expect("its turn")
        .expect("the lease");
    let (new, found) = open(standby.take_over().expect("taken over"));
    assert_eq!(found, (1..=5).collect::<Vec<_>>());
    new.commit(7..=9);
    assert!(owner.answers.try_recv().is_err(), "answered while silent");
    valve.shut(false);
    let done = owner.wait();
    let given_up = matches!(
        &done,
        StoreDone::Failed {
            token: 6,
            error: StoreError::GivenUp(_)
        }
    );
    assert!(given_up, "{done:?}");
    assert_eq!(owner.store.gave_up(), Some(GaveUp::TakenOver));
    let begin = Instant::now();
    while owner.store.role().role().holds_lease {
        assert!(begin.elapsed() < WAIT, "it believes that it has the lease");
        std::thread::sleep(Duration::from_millis(10));
    }
    // The new one goes on, with log and lease.
    std::thread::sleep(A_WHILE);
    new.commit(10..=12);
    assert!(new.store.role().role().is_owner);
    new.store.close();
    let (_, recovered) = Open::new(server.config("third"));
    let want: Vec<u64> = (1..=5).chain(7..=12).collect();
    assert_eq!(numbers(&recovered), want);
}

/// A revision that the owner does not know of carries its own name, as where a server refuses
/// to replace its newest value, or its answer is lost: the owner reads it and goes on.
#[test]
fn a_refused_renewal_loses_nothing() {
    let Some(server) = Server::start(Sync::Always) else {
        return;
    };
    // Renewed every 4 s.
    let short = |server: &Server, copy: &str| NatsConfig {
        lease: Duration::from_secs(12),
        ..server.config(copy)
    };
    let (owner, _) = Open::new(short(&server, "owner"));
    owner.commit(1..=3);
    let (_standby, says) = stand_by(short(&server, "standby"));
    let info = server.info();
    let subject = info["config"]["subjects"][0].as_str().expect("one");
    let (_, name) = subject.rsplit_once('-').expect("an owner");
    let value = format!("{{\"owner\":\"{name}\"}}");
    let mut last = 0;
    for _ in 0..5 {
        let stored = server.publish(KEY, value.as_bytes());
        last = stored["seq"].as_u64().expect("stored");
        std::thread::sleep(A_WHILE / 3);
    }
    // It renews what it did not write.
    let until = Instant::now() + WAIT;
    while lease(&server)["seq"].as_u64() <= Some(last) {
        assert!(Instant::now() < until, "not renewed: {}", lease(&server));
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(owner.store.role().role().holds_lease);
    nothing(
        says.try_recv()
            .map(|it| it.is_ok())
            .map_err(|_| RecvTimeoutError::Timeout),
    );
    owner.commit(4..=6);
}

/// A bucket that was made otherwise is no lease: the owner serves without one.
#[test]
fn an_owner_serves_without_a_lease() {
    let Some(server) = Server::start(Sync::Always) else {
        return;
    };
    let bucket = json!({
        "name": "KV_dl-lease", "subjects": ["$KV.dl-lease.>"], "storage": "file",
        "retention": "limits", "max_msgs_per_subject": 1,
    });
    let made = server.ask("$JS.API.STREAM.CREATE.KV_dl-lease", &bucket);
    assert!(made["error"].is_null(), "{made}");
    let (owner, _) = Open::new(server.config("owner"));
    owner.commit(1..=3);
    let role = owner.store.role().role();
    assert!(role.is_owner && !role.holds_lease, "{role:?}");
}

/// What a standby cannot follow ends it, with why.
#[test]
fn a_standby_of_an_unusable_stream_ends() {
    let Some(server) = Server::start(Sync::Always) else {
        return;
    };
    let made = server.ask(
        "$JS.API.STREAM.CREATE.dl-p-0",
        &json!({
            "name": "dl-p-0", "subjects": ["dl.p.0.1-0"], "storage": "file",
            "retention": "limits", "max_age": 60_000_000_000_u64, "allow_direct": true,
        }),
    );
    assert!(made["error"].is_null(), "{made}");
    let (_standby, says) = stand_by(server.config("copy"));
    let outcome = says.recv_timeout(WAIT).expect("an outcome");
    assert!(
        matches!(outcome, Err(OpenError::Stream { .. })),
        "{outcome:?}"
    );
}

/// One that is to take the log from its owner cannot write beside its copy: the owner goes on,
/// and the standby waits.
#[test]
fn a_take_over_that_fails_ends_no_owner() {
    let Some(server) = Server::start(Sync::Always) else {
        return;
    };
    let (owner, _) = Open::new(long(&server, "owner"));
    owner.commit(1..=3);
    let (_standby, says) = stand_by(long(&server, "standby"));
    let before = lease(&server);
    // In the place of the file that remembers take-overs.
    std::fs::create_dir(server.copy("failing.owner-new")).expect("a folder");
    let failed = NatsStore::open(long(&server, "failing")).map(|_| ());
    assert!(matches!(failed, Err(OpenError::Owner(_))), "{failed:?}");
    let after = lease(&server);
    assert_ne!(before["seq"], after["seq"], "it was taken");
    assert_eq!(before["data"], after["data"], "and given back");
    nothing(says.recv_timeout(A_WHILE).map(|it| it.is_ok()));
    owner.commit(4..=6);
    assert!(owner.store.role().role().is_owner);
}
