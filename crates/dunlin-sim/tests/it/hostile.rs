//! Peers that send nonsense, too much, or nothing, and peers that do not read.
//! Each gets its answer, memory stays bounded and the others go on.

use core::time::Duration;
use std::panic::catch_unwind;

use dunlin_base::StreamId;
use dunlin_broker::Event;
use dunlin_mqtt_codec::Version;
use dunlin_sim::{Link, Random, Script, Setup, World, encode};

/// A conversation that uses most packets, as bytes of one client.
fn conversation(version: Version) -> Vec<u8> {
    let v4 = if version == Version::V311 { " v4" } else { "" };
    let lines = [
        &format!("CONNECT a{v4} clean keep=60 will=w:x wq=1 expiry=30 rm=5 aliases=3 u=k:v"),
        "SUBSCRIBE 1 t/+|q1 $share/g/t/#|q2 sub=7",
        "PUBLISH t/1 hello q1 #2 ct=text resp=r corr=c expiry=9 u=a:b alias=1",
        "PUBLISH t/1 hello q2 #3 retain",
        "PUBREL 3",
        "PUBACK 1",
        "PUBREC 2",
        "UNSUBSCRIBE 4 t/+ x",
        "PINGREQ",
        "DISCONNECT 0x04",
    ];
    let mut bytes = Vec::new();
    for line in lines {
        // 3.1.1 cannot say everything.
        let line = match version {
            Version::V311 => line
                .replace(" sub=7", "")
                .replace(" alias=1", "")
                .replace(" 0x04", ""),
            Version::V5 => line.to_owned(),
        };
        bytes.extend(encode(&line, version));
    }
    bytes
}

/// A world with a witness that must not notice anything.
fn witnessed(shards: u16, seed: u64) -> Script {
    let mut script = Script::new(Setup::new(shards, seed));
    for line in [
        "w > CONNECT w clean keep=30",
        "w < CONNACK",
        "w > SUBSCRIBE 1 witness|q1",
        "w < SUBACK 1 01",
    ] {
        script.say(line);
    }
    script
}

fn still_served(script: &mut Script, what: &str) {
    for line in [
        "v > CONNECT v clean",
        "v < CONNACK",
        "v > PUBLISH witness ok q1 #1",
        "v < PUBACK 1",
    ] {
        script
            .step(line)
            .unwrap_or_else(|error| panic!("{what}: {line}: {error}"));
    }
    let line = script
        .pop("w")
        .unwrap_or_else(|| panic!("{what}: w got nothing"));
    assert!(line.starts_with("PUBLISH witness ok q1"), "{what}: {line}");
}

#[test]
fn a_conversation_cut_anywhere() {
    for version in [Version::V5, Version::V311] {
        let bytes = conversation(version);
        let mut script = witnessed(2, 3);
        for cut in 0..bytes.len() {
            script.send_bytes("a", &bytes[..cut]);
            script.settle();
            script.ignore("a");
            script.say("a cut");
            script.ignore("a");
        }
        // Half a packet and silence: the deadline of CONNECT, or keep alive.
        script.send_bytes("b", &bytes[..5]);
        script.run_for(Duration::from_secs(11));
        assert_eq!(script.pop("b").as_deref(), Some("closed"));
        script.send_bytes("c", &bytes[..bytes.len() - 30]);
        for _ in 0..4 {
            script.say("w > PINGREQ");
            script.ignore("w");
            script.ignore("c");
            script.run_for(Duration::from_secs(25));
        }
        script.ignore("c");
        assert_eq!(script.conn("c"), None, "keep alive");
        still_served(&mut script, "cuts");
        let census = script.world.census();
        assert_eq!((census.conns, census.pending), (2, 0), "{census:?}");
    }
}

#[test]
fn a_conversation_with_any_byte_changed() {
    for version in [Version::V5, Version::V311] {
        let bytes = conversation(version);
        let mut script = witnessed(2, 4);
        for at in 0..bytes.len() {
            for value in [0x00, 0x01, 0x7f, 0x80, 0xff, bytes[at] ^ 0x10] {
                let mut changed = bytes.clone();
                changed[at] = value;
                let outcome = catch_unwind(core::panic::AssertUnwindSafe(|| {
                    script.send_bytes("a", &changed);
                    script.settle();
                }));
                assert!(outcome.is_ok(), "byte {at} as {value:#04x}");
                script.ignore("a");
                script.say("a cut");
                script.ignore("a");
            }
        }
        still_served(&mut script, "changes");
    }
}

#[test]
fn noise_of_any_kind() {
    for seed in 0..20 {
        let mut script = witnessed(1 + (seed % 2) as u16, seed);
        let mut chance = Random::new(seed);
        let bytes = conversation(Version::V5);
        for _ in 0..100 {
            let mut noise = match chance.below(3) {
                0 => Vec::new(),
                _ => encode("CONNECT noise clean", Version::V5),
            };
            for _ in 0..chance.below(6) {
                if chance.one_in(2) {
                    let from = chance.below(bytes.len() as u64) as usize;
                    noise.extend(&bytes[from..]);
                } else {
                    noise.extend((0..chance.below(60)).map(|_| chance.next() as u8));
                }
            }
            let stream = ["a", "a@4", "a@2", "a@8"][chance.below(4) as usize];
            script.send_bytes(stream, &noise);
            if chance.one_in(3) {
                script.settle();
            }
            script.ignore("a");
        }
        script.say("a cut");
        script.settle();
        still_served(&mut script, &format!("seed {seed}"));
        let census = script.world.census();
        assert_eq!((census.conns, census.pending, census.prepared), (2, 0, 0));
    }
}

#[test]
fn a_hundred_thousand_subscriptions() {
    for session in ["clean", "expiry=100"] {
        let mut script = witnessed(2, 5);
        script.say(format!("a > CONNECT a {session}"));
        script.ignore("a");
        // Two packets of fifty thousand filters: more than a batch takes.
        for packet in 0..2_u32 {
            let filters: Vec<String> = (0..50_000)
                .map(|n| format!("f/{}", packet * 50_000 + n))
                .collect();
            script.say(format!(
                "a > SUBSCRIBE {} {}",
                packet + 1,
                filters.join(" ")
            ));
            let line = script.pop("a").expect("SUBACK");
            assert_eq!(line.matches(" 00").count(), 50_000);
        }
        assert_eq!(script.world.census().subscriptions, 200_000 + 2);
        script.say("w > PUBLISH f/99999 x");
        assert_eq!(script.pop("a").as_deref(), Some("PUBLISH f/99999 x"));
        still_served(&mut script, "subscriptions");
        script.say("a > DISCONNECT");
        script.ignore("a");
        script.say("w > PINGREQ");
        script.ignore("w");
        if session == "expiry=100" {
            script.say("a > CONNECT a clean");
            script.ignore("a");
        }
        let left = script.world.census().subscriptions;
        assert!(left > 100_000, "not in one step: {left}");
        script.run_for(Duration::from_secs(1));
        script.ignore("w");
        assert_eq!(script.world.census().subscriptions, 2, "all are gone");
    }
}

#[test]
fn too_many_subscriptions_are_refused() {
    let mut setup = Setup::new(2, 6);
    setup.config.sessions.subscriptions_max = 10;
    let mut script = Script::new(setup);
    script.say("a > CONNECT a clean");
    script.ignore("a");
    let filters: Vec<String> = (0..1000).map(|n| format!("f/{n}")).collect();
    script.say(format!("a > SUBSCRIBE 1 {}", filters.join(" ")));
    let line = script.pop("a").expect("SUBACK");
    assert_eq!(line.matches(" 97").count(), 990);
}

#[test]
fn overlapping_subscriptions_are_few() {
    let mut setup = Setup::new(2, 6);
    setup.config.sessions.overlaps_max = 100;
    let mut script = Script::new(setup);
    for line in ["a > CONNECT attacker clean", "w > CONNECT w clean"] {
        script.say(line);
        script.ignore("a");
        script.ignore("w");
    }
    script.world.take_log();
    let mut granted = 0;
    for n in 0..1024 {
        let level = |bit| if n >> bit & 1 == 1 { "+" } else { "t" };
        let filter: Vec<&str> = (0..10).map(level).collect();
        script.say(format!(
            "a > SUBSCRIBE 1 {} sub={}",
            filter.join("/"),
            n % 90 + 1
        ));
        let answer = script.pop("a").expect("SUBACK");
        assert!(["SUBACK 1 00", "SUBACK 1 97"].contains(&answer.as_str()));
        granted += usize::from(answer.ends_with("00"));
    }
    assert_eq!(granted, 100);
    let log = script.world.take_log();
    let named = |event: &&Event| matches!(event, Event::Overlapping { client_id, .. } if *client_id == "attacker");
    assert_eq!(log.iter().filter(named).count(), 1, "{log:?}");
    let shards = script.world.shards();
    let refused: u64 = shards
        .iter()
        .map(|shard| shard.stats().subscriptions_overlapping)
        .sum();
    assert_eq!(refused, 924);
    // Many that no message matches together are welcome.
    let apart: Vec<String> = (0..500).map(|n| format!("t/{n}/+")).collect();
    script.say(format!("w > SUBSCRIBE 1 {} sub=5", apart.join(" ")));
    assert!(!script.pop("w").expect("SUBACK").contains("97"));
    let topic = ["t"; 10].join("/");
    script.say(format!("w > PUBLISH {topic} y"));
    let copy = script.pop("a").expect("PUBLISH");
    let mut identifiers: Vec<&str> = copy.split(" sub=").skip(1).collect();
    identifiers.sort_unstable();
    let all = identifiers.len();
    identifiers.dedup();
    assert_eq!((all, identifiers.len()), (90, 90), "each once: {copy}");
    assert_eq!(script.pop("a"), None);
    // With some gone, there is room again.
    script.say("a > UNSUBSCRIBE 2 t/t/t/t/t/t/t/t/t/t");
    script.ignore("a");
    script.say("a > SUBSCRIBE 3 #");
    assert_eq!(script.pop("a").as_deref(), Some("SUBACK 3 00"));
}

#[test]
fn a_repeated_subscribe_starts_its_retained_messages_again() {
    for shards in [1, 2] {
        let mut script = Script::new(Setup::new(shards, 9));
        script.say("p > CONNECT p clean");
        for n in 0..300 {
            script.ignore("p");
            script.say(format!("p > PUBLISH r/{n} x retain q1 #1"));
        }
        script.ignore("p");
        script.say("a > CONNECT a expiry=100 rm=1");
        script.ignore("a");
        // The first message is never acknowledged, so no walk ends.
        for n in 0..2000 {
            script.say(format!("a > SUBSCRIBE 1 r/#|q1 r/+|q1 sub={}", n + 1));
            script.ignore("a");
        }
        let census = script.world.census();
        assert!(census.walks <= 2, "{census:?}");
        assert!(census.queued < 500, "{census:?}");
        // SUBSCRIBE as of now, with the identifier of the last.
        let mut got = 0;
        script.say("a >> PUBACK 1");
        script.settle();
        while let Some(line) = script.pop("a") {
            assert!(line.starts_with("PUBLISH r/"), "{line}");
            let id = line
                .split('#')
                .nth(1)
                .and_then(|rest| rest.split(' ').next());
            script.say(format!("a > PUBACK {}", id.expect("an identifier")));
            got += 1;
        }
        assert!((600..1500).contains(&got), "{got}");
        assert_eq!(script.world.census().walks, 0);
    }
}

#[test]
fn deep_wildcards_do_not_cost_others() {
    let mut script = witnessed(2, 7);
    script.say("a > CONNECT a clean");
    script.ignore("a");
    let deep: Vec<String> = (1..=127).map(|n| format!("{}#", "+/".repeat(n))).collect();
    script.say(format!("a > SUBSCRIBE 1 {}", deep.join(" ")));
    script.ignore("a");
    let topic = "x/".repeat(126) + "x";
    script.say(format!("w > PUBLISH {topic} y"));
    assert_eq!(script.pop("a").as_deref(), Some("PUBLISH <253> y"));
    assert_eq!(script.pop("a"), None, "one copy");
    still_served(&mut script, "wildcards");
}

#[test]
fn a_client_that_never_reads() {
    for shards in [1, 2] {
        for qos in [0, 1] {
            let mut setup = Setup::new(shards, 8);
            setup.config.sending.send_backlog_bytes = 64 * 1024;
            setup.config.sending.qos0_backlog_bytes = 128 * 1024;
            setup.config.sessions.queue_messages_max = 500;
            let mut script = Script::new(setup);
            for line in [
                "a > CONNECT a clean",
                "s > CONNECT s clean",
                "p > CONNECT p clean",
            ] {
                script.say(line);
                for name in ["a", "s", "p"] {
                    script.ignore(name);
                }
            }
            for name in ["a", "s"] {
                script.say(format!(
                    "{name} > SUBSCRIBE 1 t{}",
                    if qos == 0 { "" } else { "|q1" }
                ));
                script.ignore(name);
            }
            script.say("a stall");
            let conn = script.conn("a").expect("a connection");
            let payload = "x".repeat(1000);
            let (mut most, mut holds) = (0, 0);
            for n in 1..=2000 {
                let id = n % 60_000 + 1;
                let line = match qos {
                    0 => format!("p > PUBLISH t {payload}"),
                    _ => format!("p > PUBLISH t {payload} q1 #{id}"),
                };
                script.say(&line);
                let line = script.pop("s").or_else(|| {
                    // The publisher is held up for a moment, once.
                    holds += 1;
                    script.run_for(Duration::from_millis(200));
                    script.pop("s")
                });
                let line = line.expect("the others are served");
                assert!(line.starts_with("PUBLISH t <1000>"), "{line}");
                let answer = script.pop("p");
                assert!(qos == 0 || answer.is_some_and(|line| line.starts_with("PUBACK")));
                // Cut off, in the end.
                script.ignore("a");
                if let Some(id) = line.split('#').nth(1) {
                    script.say(format!("s > PUBACK {id}"));
                }
                let census = script.world.census();
                let sent = script.world.link(conn).map_or(0, Link::unread_bytes);
                most = most.max(sent + census.queued_bytes + census.backlog_bytes);
            }
            assert!(most < 2 * 1024 * 1024, "QoS {qos}: {most} bytes");
            assert!(holds <= 1, "held up {holds} times");
            if qos == 1 {
                assert_eq!(script.conn("a"), None, "it keeps nothing, so it goes");
            } else {
                // It reads again: what was kept arrives, then what is new.
                script.say("a read");
                script.ignore("a");
                script.say("p > PUBLISH t fresh");
                assert_eq!(script.pop("a").as_deref(), Some("PUBLISH t fresh"));
                script.ignore("s");
            }
        }
    }
}

#[test]
fn a_persistent_client_that_never_reads_gets_everything_when_it_does() {
    let mut setup = Setup::new(2, 9);
    setup.config.sending.send_backlog_bytes = 4 * 1024;
    setup.config.sessions.queue_held_max = 10;
    let mut script = Script::new(setup);
    for line in ["a > CONNECT a expiry=100", "p > CONNECT p clean"] {
        script.say(line);
        script.ignore("a");
        script.ignore("p");
    }
    script.say("a > SUBSCRIBE 1 t|q1");
    script.ignore("a");
    script.say("a stall");
    let conn = script.conn("a").expect("a connection");
    for n in 1..=300 {
        let payload = format!("{n:0100}");
        script.say(format!("p > PUBLISH t {payload} q1 #{n}"));
        assert_eq!(script.pop("p"), Some(format!("PUBACK {n}")));
    }
    let unread = script.world.link(conn).map(Link::unread_bytes);
    assert!(unread.is_some_and(|bytes| bytes < 8 * 1024));
    // The store has what is not kept in memory.
    let census = script.world.census();
    let each = census.queued_bytes / 80;
    assert!(census.queued > 200 && each < 300, "{census:?}");
    script.say("a read");
    let mut count = 0;
    loop {
        let mut acks = Vec::new();
        while let Some(line) = script.pop("a") {
            count += 1;
            let id = line.split('#').nth(1).expect("an identifier");
            acks.push(format!("a >> PUBACK {id}"));
        }
        if acks.is_empty() {
            break;
        }
        for ack in acks {
            script.say(&ack);
        }
        script.settle();
    }
    assert_eq!(count, 300);
    assert_eq!(script.world.disk.stored_messages(), 0);
}

#[test]
fn a_walk_over_many_retained_messages_is_paced() {
    for session in ["clean", "expiry=100"] {
        let mut script = witnessed(2, 10);
        for n in 0..3000 {
            script.say(format!("w >> PUBLISH r/{n:05} {} retain", "x".repeat(500)));
            if n % 100 == 0 {
                script.settle();
            }
        }
        script.settle();
        script.say(format!("a > CONNECT a {session}"));
        script.ignore("a");
        script.say("a stall");
        script.say("a > SUBSCRIBE 1 r/#|q1");
        let census = script.world.census();
        assert!(census.queued + census.pending < 400, "{census:?}");
        script.say("a read");
        let mut got = 0;
        while let Some(line) = script.pop("a") {
            got += usize::from(line.starts_with("PUBLISH r/"));
        }
        // Published with QoS 0, so delivered with it.
        assert_eq!(got, 3000, "{session}");
    }
}

#[test]
fn bytes_before_connack_are_bounded() {
    let mut setup = Setup::new(2, 11);
    setup.config.listeners = vec![dunlin_broker::auth::AuthPolicy {
        passwords: true,
        ..Default::default()
    }];
    setup.pace.auth = (5_000_000, 5_000_000);
    let mut world = World::new(setup);
    let conn = world.open();
    let connect = encode("CONNECT a clean user=u pass=p", Version::V5);
    world.send(conn, StreamId::CONTROL, &connect);
    for stream in [0, 4, 8] {
        for _ in 0..100 {
            world.send(conn, StreamId(stream), &[0x30; 10_000]);
        }
    }
    let until = world.now() + Duration::from_secs(4);
    let mut most = 0;
    while world.next(until).is_some() {
        most = most.max(world.census().parked_bytes);
    }
    most = most.max(world.census().parked_bytes);
    assert!(most <= 512 * 1024, "{most}");
}

#[test]
fn sessions_that_come_and_go_leave_nothing() {
    let mut script = witnessed(2, 12);
    for n in 0..300 {
        for line in [
            format!(
                "a > CONNECT a{} clean expiry=100000 keep=60 will=w:x wdelay=1000",
                n % 3
            ),
            "a > SUBSCRIBE 1 x/# $share/g/y".to_owned(),
            "a cut".to_owned(),
        ] {
            script.say(&line);
            script.ignore("a");
        }
    }
    let census = script.world.census();
    assert_eq!(census.sessions, 4);
    assert!(census.timers <= 5, "{census:?}");
    assert_eq!((census.pending, census.prepared, census.conns), (0, 0, 1));
}

/// Retained messages faster than the store takes them: their publisher is not read
/// until they are stored, whichever shard owns the topics, so that what the innocent client
/// has stored does not wait behind all of them.
#[test]
fn a_flood_of_retained_messages_waits_for_the_store() {
    const MESSAGES: usize = 100;
    const BYTES: usize = 40_000;
    /// What may be on its way, and what had come when it was too much.
    const TAKEN_MAX: usize = 400 << 10;
    for (shards, qos) in [(1, ""), (2, ""), (1, " q1"), (2, " q1")] {
        let name = format!("{shards} shards{qos}");
        let mut setup = Setup::new(shards, 3);
        setup.pace.store = (100_000, 100_000);
        let mut script = Script::new(setup);
        for line in ["p > CONNECT p clean", "p < CONNACK"] {
            script.say(line);
        }
        let mut sent = 0;
        for n in 0..MESSAGES {
            let id = match qos {
                "" => String::new(),
                _ => format!("{qos} #{}", n + 1),
            };
            // Each topic twice: the second is the one that stays.
            // Their lengths tell them apart.
            let (topic, payload) = (n % (MESSAGES / 2), "y".repeat(BYTES + n));
            let line = format!("PUBLISH r/{topic} {payload} retain{id}");
            script.send_line("p", &line);
            sent += BYTES;
        }
        // Shorter than the store takes for one batch.
        script.run_for(Duration::from_millis(50));
        let conn = script.conn("p").expect("connected");
        let link = script.world.link(conn).expect("connected");
        let taken = sent.saturating_sub(link.waiting_bytes());
        assert!(taken < TAKEN_MAX, "{name}: {taken} bytes were taken");
        // Everything arrives in the end, in order, and is there after a crash.
        script.settle();
        assert!(
            script.world.is_open(conn),
            "{name}: the publisher was ended"
        );
        script.ignore("p");
        script.say("crash");
        for line in ["s > CONNECT s clean", "s < CONNACK"] {
            script.say(line);
        }
        script.say("s > SUBSCRIBE 1 r/#");
        assert_eq!(script.pop("s").as_deref(), Some("SUBACK 1 00"), "{name}");
        let mut kept = 0;
        while let Some(line) = script.pop("s") {
            let mut words = line.split(' ').skip(1);
            let topic = words.next().and_then(|topic| topic.strip_prefix("r/"));
            let topic: usize = topic.expect("a topic").parse().expect("a number");
            let payload = words.next().expect("a payload");
            let last = BYTES + topic + MESSAGES / 2;
            assert_eq!(payload, format!("<{last}>"), "{name}");
            kept += 1;
        }
        assert_eq!(kept, MESSAGES / 2, "{name}");
    }
}

/// A publisher that is held for the store and leaves is forgotten, and those behind
/// it go on.
#[test]
fn publishers_of_retained_messages_take_turns() {
    for shards in [1, 2] {
        let mut setup = Setup::new(shards, 5);
        setup.pace.store = (50_000, 50_000);
        let mut script = Script::new(setup);
        let names: Vec<String> = (0..12).map(|n| format!("p{n}")).collect();
        for name in &names {
            script.say(format!("{name} > CONNECT {name} clean"));
            assert_eq!(script.pop(name).as_deref(), Some("CONNACK"));
        }
        for n in 0..8 {
            for name in &names {
                let line = format!("PUBLISH r/{name}/{n} {} retain", "x".repeat(100_000));
                script.send_line(name, &line);
            }
        }
        script.run_for(Duration::from_millis(20));
        // Some of them leave while they are held.
        for name in &names[..4] {
            script.act(name, "cut");
        }
        script.settle();
        // None that stays goes without: what is sent now is taken at once.
        for name in &names[4..] {
            script.say(format!("{name} > PUBLISH last/{name} x q1 #1 retain"));
            assert_eq!(script.pop(name).as_deref(), Some("PUBACK 1 0x10"));
        }
        let census = script.world.census();
        assert_eq!((census.pending, census.prepared, census.timers), (0, 0, 0));
        assert!(census.retained >= usize::from(shards) * 8 * 8, "{census:?}");
    }
}
