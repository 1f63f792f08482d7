//! What operators order of the shards, as clients see it.

use core::time::Duration;
use std::sync::Arc;

use dunlin_base::{Instant, Message, QoS, Text};
use dunlin_broker::bans::{Banned, Bans};
use dunlin_broker::control::values::{
    ClientFilter, Ending, EndingKind, QueueAnswer, QueueChanges, Reply, Request,
};
use dunlin_broker::home_shard;
use dunlin_sim::{Script, Setup, ask as ask_shard};

/// Does these lines.
fn play(run: &mut Script, lines: &str) {
    for line in lines.lines() {
        if let Err(error) = run.step(line.trim()) {
            panic!("{line}: {error}");
        }
    }
}

/// Asks all shards the same.
fn ask(run: &mut Script, request: &Request) -> Vec<Reply> {
    for shard in 0..run.world.shards().len() {
        ask_shard(&mut run.world, shard, request.clone());
    }
    run.settle();
    core::mem::take(&mut run.world.replies)
}

/// Ends the connections of clients on all shards; how many.
fn end(run: &mut Script, prefix: &str, kind: EndingKind) -> usize {
    let ending = Ending {
        kind,
        why: Text::from_static("maintenance"),
    };
    let request = Request::EndAll {
        filter: ClientFilter {
            client_id: Text::from(prefix),
            ..ClientFilter::default()
        },
        at: 0,
        limit: 100,
        ending,
    };
    let count = |reply| match reply {
        Reply::Ended { count, .. } => count,
        other => panic!("{other:?}"),
    };
    ask(run, &request).into_iter().map(count).sum()
}

#[test]
fn an_operator_ends_connections_and_says_why() {
    for (shards, seed) in [(1, 1), (2, 1), (2, 2), (2, 3)] {
        let mut run = Script::new(Setup::new(shards, seed));
        play(
            &mut run,
            "
            watch > CONNECT watch clean => CONNACK
            watch > SUBSCRIBE 1 will|q1 => SUBACK 1 01
            a1 > CONNECT a1 clean expiry=100 will=will:a1 => CONNACK
            a2 > CONNECT a2 clean => CONNACK
            a3 > CONNECT a3 v4 clean => CONNACK
            b > CONNECT b clean => CONNACK
            ",
        );
        assert_eq!(end(&mut run, "a", EndingKind::Ordered), 3);
        play(
            &mut run,
            "
            a1 < DISCONNECT 0x98 with words
            a1 < closed
            a2 < DISCONNECT 0x98 with words
            a2 < closed
            a3 < closed
            watch < PUBLISH will a1
            ",
        );
        assert_eq!(end(&mut run, "a", EndingKind::Ordered), 0);
        // The session has stayed.
        play(&mut run, "a1 > CONNECT a1 expiry=100 => CONNACK present");
        let other = Text::from_static("other.example");
        assert_eq!(end(&mut run, "b", EndingKind::UseAnother(other.clone())), 1);
        assert_eq!(end(&mut run, "a1", EndingKind::Moved(other)), 1);
        play(
            &mut run,
            "
            b < DISCONNECT 0x9c with words server=other.example
            b < closed
            a1 < DISCONNECT 0x9d with words server=other.example
            a1 < closed
            ",
        );
    }
}

#[test]
fn who_is_banned_is_refused_until_the_ban_ends() {
    for (shards, seed) in [(1, 1), (2, 1), (2, 2), (2, 3)] {
        let mut run = Script::new(Setup::new(shards, seed));
        let banned = Banned::Client(Text::from_static("a"));
        let until = run.world.now() + Duration::from_secs(60);
        let bans: Bans = [(banned, until)].into_iter().collect();
        ask(&mut run, &Request::Ban(Arc::new(bans)));
        play(
            &mut run,
            "
            a > CONNECT a clean => CONNACK 0x8a
            a < closed
            a > CONNECT a expiry=100 => CONNACK 0x8a
            a < closed
            b > CONNECT b clean => CONNACK
            wait 61s
            a > CONNECT a clean => CONNACK
            ",
        );
        let address = Banned::Address("127.0.0.0/8".parse().expect("a range"));
        let bans: Bans = [(address, Instant::FAR_FUTURE)].into_iter().collect();
        ask(&mut run, &Request::Ban(Arc::new(bans)));
        play(
            &mut run,
            "c > CONNECT c v4 clean => CONNACK 0x87\nc < closed",
        );
        let census = run.world.census();
        assert_eq!(census.sessions, 2, "who is here stays until it is ended");
    }
}

#[test]
fn a_session_is_deleted_when_the_store_has_forgotten_it() {
    for (shards, seed) in [(1, 1), (2, 1), (2, 2), (2, 3)] {
        let mut run = Script::new(Setup::new(shards, seed));
        play(
            &mut run,
            "
            a > CONNECT a expiry=100 => CONNACK
            a > SUBSCRIBE 1 t|q1 => SUBACK 1 01
            b > CONNECT b clean => CONNACK
            ",
        );
        let mut delete = |client_id: &'static str| {
            let request = Request::EndSession {
                client_id: Text::from_static(client_id),
                ending: Ending {
                    kind: EndingKind::Ordered,
                    why: Text::new(),
                },
            };
            let replies = ask(&mut run, &request);
            let done = replies
                .iter()
                .filter(|it| matches!(it, Reply::Stored(true)));
            done.count()
        };
        assert_eq!((delete("a"), delete("a"), delete("other")), (1, 0, 0));
        play(&mut run, "a < DISCONNECT 0x98\na < closed");
        assert_eq!(
            (
                run.world.census().sessions,
                run.world.census().subscriptions
            ),
            (1, 0)
        );
        play(&mut run, "crash\na > CONNECT a expiry=100 => CONNACK");
    }
}

#[test]
fn an_operator_sees_subscriptions_and_publishes() {
    for (shards, seed) in [(1, 1), (2, 1), (2, 2), (2, 3)] {
        let mut run = Script::new(Setup::new(shards, seed));
        play(
            &mut run,
            "
            a > CONNECT a expiry=100 => CONNACK
            a > SUBSCRIBE 1 t/+|q1 u|q0 => SUBACK 1 01 00
            b > CONNECT b clean => CONNACK
            b > SUBSCRIBE 1 $share/g/t/#|q1 => SUBACK 1 01
            c > CONNECT c clean => CONNACK
            c > SUBSCRIBE 1 $share/g/t/#|q1 => SUBACK 1 01
            ",
        );
        let request = Request::Receivers {
            topic: Text::from_static("t/1"),
            limit: 10,
        };
        let mut found = Vec::new();
        for reply in ask(&mut run, &request) {
            let Reply::Receivers { rows, .. } = reply else {
                panic!("{reply:?}");
            };
            found.extend(rows.into_iter().map(|row| (row.client_id, row.share)));
        }
        found.sort();
        let share = || Some(Text::from_static("$share/g/t/#"));
        let text = Text::from_static;
        assert_eq!(
            found,
            [
                (text("a"), None),
                (text("b"), share()),
                (text("c"), share())
            ]
        );
        let page = |run: &mut Script, after: &'static str| {
            let request = Request::Subscriptions {
                client_id: Text::from_static("a"),
                after: Some(Text::from_static(after)),
                limit: 1,
            };
            let found = ask(run, &request)
                .into_iter()
                .find_map(|reply| match reply {
                    Reply::Subscriptions(found) => found,
                    other => panic!("{other:?}"),
                });
            let (rows, _) = found.expect("a session");
            rows.first().map(|row| row.filter.clone())
        };
        assert_eq!(page(&mut run, ""), Some(text("t/+")));
        assert_eq!(page(&mut run, "t/+"), Some(text("u")));
        assert_eq!(page(&mut run, "u"), None);
        let message = Message {
            topic: text("u"),
            payload: "hello".into(),
            qos: QoS::AtLeastOnce,
            retain: true,
            ..Message::default()
        };
        ask_shard(&mut run.world, 0, Request::Publish(Arc::new(message)));
        run.settle();
        let reply = core::mem::take(&mut run.world.replies).pop();
        let published = matches!(
            reply,
            Some(Reply::Published {
                stored: true,
                matched: true
            })
        );
        assert!(published, "{reply:?}");
        play(&mut run, "a < PUBLISH u hello");
        // Retained messages are seen on every shard, and removed where they are owned.
        let request = Request::Retained {
            filter: text("#"),
            after: None,
            limit: 10,
        };
        let shown = ask(&mut run, &request);
        let is_one =
            |reply: &Reply| matches!(reply, Reply::Retained(rows, None) if rows.len() == 1);
        assert!(shown.iter().all(is_one), "{shown:?}");
        let owner = usize::from(home_shard("u", shards));
        ask_shard(&mut run.world, owner, Request::Forget(vec![text("u")]));
        run.settle();
        let reply = core::mem::take(&mut run.world.replies).pop();
        assert!(matches!(reply, Some(Reply::Stored(true))), "{reply:?}");
        assert_eq!(run.world.census().retained, 0);
        play(&mut run, "a cut\ncrash");
        assert_eq!(run.world.census().retained, 0);
    }
}

const JOBS: &str = "/queues/jobs";
const OTHER: &str = "/queues/other";

/// Asks the shard of a queue.
fn ask_queue(run: &mut Script, address: &str, request: Request) -> Reply {
    let shards = run.world.shards().len();
    let home = home_shard(address, u16::try_from(shards).expect("few"));
    ask_shard(&mut run.world, usize::from(home), request);
    run.settle();
    let mut replies = core::mem::take(&mut run.world.replies);
    assert_eq!(replies.len(), 1, "{replies:?}");
    replies.remove(0)
}

fn create(run: &mut Script, address: &str, changes: QueueChanges) {
    let request = Request::CreateQueue(Text::from(address), Box::new(changes));
    match ask_queue(run, address, request) {
        Reply::Queue(answer) => assert!(matches!(*answer, QueueAnswer::Created(_)), "{answer:?}"),
        other => panic!("{other:?}"),
    }
}

/// Payloads of a queue, in the order in which they leave.
fn peek(run: &mut Script, address: &str) -> String {
    for _ in 0..10 {
        let request = Request::Peek {
            address: Text::from(address),
            limit: 100,
        };
        match ask_queue(run, address, request) {
            Reply::Peeked { loading: true, .. } => {}
            Reply::Peeked { rows, .. } => {
                let payloads = rows.iter().map(|(message, _)| &message.payload);
                let payloads = payloads.map(|it| String::from_utf8_lossy(it).into_owned());
                return payloads.collect::<Vec<_>>().join(" ");
            }
            other => panic!("{other:?}"),
        }
    }
    panic!("they do not come from the store");
}

fn move_order(to: &'static str, limit: usize) -> Request {
    Request::Move {
        address: Text::from_static(JOBS),
        to: Text::from_static(to),
        limit,
    }
}

/// Moves messages; how many.
fn moved(run: &mut Script, to: &'static str, limit: usize) -> usize {
    for _ in 0..10 {
        match ask_queue(run, JOBS, move_order(to, limit)) {
            Reply::Moved { loading: true, .. } => {}
            Reply::Moved { count, .. } => return count,
            other => panic!("{other:?}"),
        }
    }
    panic!("they do not come from the store");
}

/// Two queues, with five messages in the first.
fn with_queues(shards: u16, seed: u64) -> Script {
    let mut run = Script::new(Setup::new(shards, seed));
    let changes = QueueChanges {
        topics: Some(vec![Text::from_static("t/#")]),
        ..QueueChanges::default()
    };
    create(&mut run, JOBS, changes);
    create(&mut run, OTHER, QueueChanges::default());
    play(&mut run, "p > CONNECT p clean => CONNACK");
    for number in 1..=5 {
        let line = format!("p > PUBLISH t/{number} m{number} q1 #{number} => PUBACK {number}");
        play(&mut run, &line);
    }
    run
}

#[test]
fn messages_of_a_queue_are_seen_moved_and_removed() {
    for (shards, seed) in [(1, 1), (2, 1), (2, 2), (2, 3)] {
        let mut run = with_queues(shards, seed);
        assert_eq!(peek(&mut run, JOBS), "m1 m2 m3 m4 m5");
        assert_eq!(moved(&mut run, OTHER, 2), 2);
        // A queue that is not there, or has no room, gets none; their order stays.
        assert_eq!(moved(&mut run, "/queues/none", 2), 0);
        let small = QueueChanges {
            messages_max: Some(1),
            ..QueueChanges::default()
        };
        create(&mut run, "/queues/small", small);
        assert_eq!(moved(&mut run, "/queues/small", 2), 0);
        for _ in 0..2 {
            assert_eq!(peek(&mut run, JOBS), "m3 m4 m5");
            assert_eq!(peek(&mut run, OTHER), "m1 m2");
            play(&mut run, "crash");
        }
        let purge = Request::Purge(Text::from_static(JOBS), 2);
        match ask_queue(&mut run, JOBS, purge) {
            Reply::Queue(answer) => assert!(matches!(*answer, QueueAnswer::Purged(2))),
            other => panic!("{other:?}"),
        }
        assert_eq!(moved(&mut run, OTHER, 100), 1);
        play(&mut run, "crash");
        assert_eq!(peek(&mut run, JOBS), "");
        assert_eq!(peek(&mut run, OTHER), "m1 m2 m5");
    }
}

#[test]
fn a_crash_while_messages_are_moved_neither_loses_nor_doubles_one() {
    for (shards, seed) in (1..=20).flat_map(|seed| [(1, seed), (2, seed)]) {
        let mut run = with_queues(shards, seed);
        let home = home_shard(JOBS, shards);
        for limit in [2, 3] {
            ask_shard(&mut run.world, usize::from(home), move_order(OTHER, limit));
            run.run_for(Duration::from_micros(seed * 200));
            play(&mut run, "crash");
            run.world.replies.clear();
        }
        let all = format!("{} {}", peek(&mut run, OTHER), peek(&mut run, JOBS));
        let mut all: Vec<&str> = all.split_whitespace().collect();
        all.sort_unstable();
        assert_eq!(all, ["m1", "m2", "m3", "m4", "m5"], "{shards} {seed}");
    }
}
