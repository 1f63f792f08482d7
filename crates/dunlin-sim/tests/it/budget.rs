//! The memory budget: what happens when a part of it is used up, to who used it
//! up and to the others.

use core::time::Duration;

use dunlin_broker::{Event, Holder, Part, Stats};
use dunlin_sim::{Script, Setup, check};

/// A conversation under a budget of so many KiB, of which most parts get an
/// eighth.
fn small(shards: u16, kib: usize, change: impl Fn(&mut Setup)) -> Script {
    let mut setup = Setup::new(shards, 21);
    setup.config.memory.bytes = kib << 10;
    change(&mut setup);
    let mut script = Script::new(setup);
    for line in ["i > CONNECT i clean", "i < CONNACK"] {
        script.say(line);
    }
    for line in ["i > SUBSCRIBE 1 i|q1 j", "i < SUBACK 1 01 00"] {
        script.say(line);
    }
    script
}

/// The innocent client is served.
fn serve(script: &mut Script, name: &str) {
    script.say("i > PUBLISH i x q1 #1");
    let mut got: Vec<String> = core::iter::from_fn(|| script.pop("i")).collect();
    got.sort();
    assert_eq!(got.len(), 2, "{name}: {got:?}");
    assert_eq!(got[0], "PUBACK 1", "{name}");
    let id = got[1].split('#').nth(1).expect("an identifier").to_owned();
    let ack = format!("i > PUBACK {id}");
    script.say(&ack);
    script.say("i > PUBLISH j x");
    assert_eq!(script.pop("i").as_deref(), Some("PUBLISH j x"), "{name}");
}

fn refused(script: &Script, count: impl Fn(&Stats) -> u64) -> u64 {
    let shards = script.world.shards().iter();
    shards.map(|shard| count(shard.stats())).sum()
}

fn reported(script: &mut Script, part: Part) -> usize {
    let log = script.world.take_log();
    let full = |event: &&Event| matches!(event, Event::MemoryFull(full) if *full == part);
    log.iter().filter(full).count()
}

/// Bytes of a part on all shards, and their limit.
fn used(script: &Script, part: Part) -> (usize, usize) {
    let shards = script.world.shards().iter();
    let parts = shards.flat_map(|shard| shard.memory());
    let of_part = parts.filter(|(of, ..)| *of == part);
    of_part.fold((0, 0), |(sum, _), (_, used, limit)| (sum + used, limit))
}

#[test]
fn sessions_are_limited() {
    check(
        "
        # Each process has limits of its own.
        set edges=0
        set sessions_max=2
        a > CONNECT a expiry=100 => CONNACK
        b > CONNECT b clean => CONNACK
        c > CONNECT c clean => CONNACK 0x97
        c < closed
        d > CONNECT d v4 clean => CONNACK 0x88
        d < closed
        # A session that waits counts, and its client comes back to it.
        a > DISCONNECT
        a < closed
        c > CONNECT c clean => CONNACK 0x97
        c < closed
        crash
        a > CONNECT a expiry=100 => CONNACK present
        b > CONNECT b clean => CONNACK
        c > CONNECT c clean => CONNACK 0x97
        c < closed
        b > DISCONNECT
        b < closed
        c > CONNECT c clean => CONNACK
    ",
    );
}

#[test]
fn sessions_of_a_user_are_limited() {
    check(
        "
        set access=passwords
        set sessions_per_user_max=2
        a > CONNECT a expiry=100 user=alice pass=secret => CONNACK
        b > CONNECT b clean user=alice pass=secret => CONNACK
        c > CONNECT c clean user=alice pass=secret => CONNACK 0x97
        c < closed
        d > CONNECT d clean user=bob pass=hunter2 => CONNACK
        # Who comes back needs no room.
        a cut
        a > CONNECT a expiry=100 user=alice pass=secret => CONNACK present
        b > DISCONNECT
        b < closed
        c > CONNECT c clean user=alice pass=secret => CONNACK
        b > CONNECT b clean user=alice pass=secret => CONNACK 0x97
        b < closed
    ",
    );
}

#[test]
fn bytes_of_a_user_are_limited() {
    let will = format!("will=t:{}", "w".repeat(20_000));
    check(&format!(
        "
        set access=passwords
        set user_bytes_max=60000
        a > CONNECT a clean user=alice pass=secret {will} => CONNACK
        b > CONNECT b clean user=alice pass=secret {will} => CONNACK
        c > CONNECT c expiry=100 user=alice pass=secret {will} => CONNACK
        d > CONNECT d clean user=alice pass=secret => CONNACK 0x97
        d < closed
        a > SUBSCRIBE 1 t => SUBACK 1 97
        e > CONNECT e clean user=bob pass=hunter2 {will} => CONNACK
        e > SUBSCRIBE 1 u => SUBACK 1 00
        # Who comes back needs no room, but for a will.
        c > DISCONNECT
        c < closed
        d > CONNECT d clean user=alice pass=secret => CONNACK
        d > SUBSCRIBE 1 t => SUBACK 1 00
    "
    ));
}

#[test]
fn bytes_of_an_address_are_limited() {
    for shards in [1, 2] {
        // Far less than any part of the budget has.
        let limit = |setup: &mut Setup| {
            setup.config.durable = false;
            setup.config.memory.address_bytes_max = 300_000;
        };
        // Of copies for several sessions of a shard one counts.
        let mut script = small(shards, 64 << 10, limit);
        assert_eq!(leave_queues(&mut script, 5, 30, "t"), 0);
        let mut script = small(shards, 64 << 10, limit);
        let lost = leave_queues(&mut script, 5, 40, "t/N");
        assert!((120..140).contains(&lost), "{lost} of 200");
        let counted = refused(&script, |stats| stats.memory_refused_address);
        assert_eq!(counted, lost as u64);
        assert_eq!(script.world.census().miscounted_bytes, 0);
        let log = script.world.take_log();
        let full = |event: &&Event| matches!(event, Event::HolderFull(Holder::Address(_)));
        assert!((1..=2).contains(&log.iter().filter(full).count()));
        script.say("n > CONNECT n clean");
        assert_eq!(script.pop("n").as_deref(), Some("CONNACK 0x97"));
    }
}

#[test]
fn wills_are_limited_in_bytes() {
    let will = "w".repeat(600);
    check(&format!(
        "
        set will_bytes_max=1000
        a > CONNECT a expiry=100 will=t:{will} => CONNACK
        b > CONNECT b clean will=t:{will} => CONNACK 0x97
        b < closed
        b > CONNECT b clean will=t:short => CONNACK
        c > CONNECT c clean => CONNACK
        a > DISCONNECT
        a < closed
        d > CONNECT d clean will=t:{will} => CONNACK
    "
    ));
}

#[test]
fn retained_messages_are_limited_in_bytes() {
    let payload = "r".repeat(600);
    check(&format!(
        "
        set retained_bytes_max=1000
        a > CONNECT a expiry=100 => CONNACK
        a > PUBLISH r/1 {payload} q1 #1 retain => PUBACK 1 0x10
        a > PUBLISH r/2 {payload} q1 #2 retain => PUBACK 2 0x97
        a > PUBLISH r/3 {payload} retain
        a > PUBLISH r/4 short q1 #3 retain => PUBACK 3 0x10
        # Another message of the same topic takes the place of the first.
        a > PUBLISH r/1 {payload} q1 #4 retain => PUBACK 4 0x10
        crash
        a > CONNECT a expiry=100 => CONNACK present
        a > PUBLISH r/2 {payload} q1 #5 retain => PUBACK 5 0x97
        a > PUBLISH r/1 - q1 #6 retain => PUBACK 6 0x10
        a > PUBLISH r/2 {payload} q1 #7 retain => PUBACK 7 0x10
        a > SUBSCRIBE 1 r/# => SUBACK 1 00
        a < PUBLISH r/2 <600> retain
        a < PUBLISH r/4 short retain
    "
    ));
}

#[test]
fn subscriptions_of_a_session_are_limited_in_bytes() {
    let long = "x".repeat(400);
    check(&format!(
        "
        set subscription_bytes_max=2000
        a > CONNECT a expiry=100 => CONNACK
        a > SUBSCRIBE 1 a/{long} b/{long} => SUBACK 1 00 97
        crash
        a > CONNECT a expiry=100 => CONNACK present
        a > SUBSCRIBE 2 b/{long} a/{long} => SUBACK 2 97 00
        a > UNSUBSCRIBE 3 a/{long} => UNSUBACK 3 00
        a > SUBSCRIBE 4 b/{long} => SUBACK 4 00
    "
    ));
}

#[test]
fn subscriptions_of_all_sessions_are_limited_in_bytes() {
    for shards in [1, 2] {
        let mut script = small(shards, 1024, |_| {});
        let mut granted = 0;
        for n in 0..20 {
            script.say(format!("a{n} > CONNECT a{n} clean"));
            let name = format!("a{n}");
            script.ignore(&name);
            let long: Vec<String> = (0..9).map(|f| format!("{f}{}", "y".repeat(900))).collect();
            script.say(format!("a{n} > SUBSCRIBE 1 {}", long.join(" ")));
            granted += script.pop(&name).expect("SUBACK").matches(" 00").count();
        }
        let (used, limit) = used(&script, Part::Subscriptions);
        assert!(used <= limit && used > limit / 2, "{used} of {limit}");
        assert!((20..60).contains(&granted), "{granted}");
        let all = refused(&script, |stats| stats.memory_refused_subscriptions);
        assert_eq!(all, 180 - granted as u64);
        assert!((1..=2).contains(&reported(&mut script, Part::Subscriptions)));
        serve(&mut script, "subscriptions");
    }
}

/// Clients that leave a queue behind, on topics of their own.
fn leave_queues(script: &mut Script, clients: usize, messages: usize, topic: &str) -> usize {
    for n in 0..clients {
        let name = format!("a{n}");
        let filter = topic.replace('N', &n.to_string());
        for line in ["CONNECT NAME expiry=100", "SUBSCRIBE 1 FILTER|q1"] {
            let line = line.replace("NAME", &name).replace("FILTER", &filter);
            script.say(format!("{name} > {line}"));
            script.ignore(&name);
        }
        script.say(format!("{name} cut"));
        script.ignore(&name);
    }
    let topics: Vec<String> = match topic.contains('N') {
        true => (0..clients)
            .map(|n| topic.replace('N', &n.to_string()))
            .collect(),
        false => vec![topic.to_owned()],
    };
    let mut refused = 0;
    for _ in 0..messages {
        for topic in &topics {
            script.say(format!("i > PUBLISH {topic} {} q1 #9", "q".repeat(4000)));
            let answer = script.pop("i").expect("PUBACK");
            assert!(["PUBACK 9", "PUBACK 9 0x97"].contains(&answer.as_str()));
            refused += usize::from(answer.ends_with("0x97"));
        }
    }
    refused
}

#[test]
fn queues_of_all_sessions_are_limited_in_bytes() {
    for shards in [1, 2] {
        // 192 KiB for queues, of which nothing can be put off to a store.
        let mut script = small(shards, 1024, |setup| setup.config.durable = false);
        let refused_to_i = leave_queues(&mut script, 10, 10, "t/N");
        assert!((50..70).contains(&refused_to_i), "{refused_to_i}");
        let (used, limit) = used(&script, Part::Queued);
        assert!(used <= limit && used > limit / 2, "{used} of {limit}");
        let counted = refused(&script, |stats| stats.memory_refused_queued);
        assert_eq!(counted, refused_to_i as u64);
        assert!((1..=2).contains(&reported(&mut script, Part::Queued)));
        serve(&mut script, "queues");
        assert_eq!(script.world.census().miscounted_bytes, 0);
    }
}

#[test]
fn queues_of_durable_sessions_go_to_the_store_when_memory_is_short() {
    for shards in [1, 2] {
        let mut script = small(shards, 8192, |_| {});
        // 1.5 MiB for queues; six times as much waits.
        assert_eq!(leave_queues(&mut script, 3, 800, "t/N"), 0);
        let (used, limit) = used(&script, Part::Queued);
        assert!(used <= limit, "{used} of {limit}");
        let census = script.world.census();
        assert_eq!((census.queued, census.miscounted_bytes), (2400, 0));
        serve(&mut script, "queues in the store");
        script.say("a1 > CONNECT a1 expiry=100");
        let mut got = 0;
        while let Some(line) = script.pop("a1") {
            if let Some(id) = line.split('#').nth(1) {
                got += 1;
                script.send_line("a1", &format!("PUBACK {id}"));
                script.settle();
            }
        }
        assert_eq!(got, 800);
    }
}

/// Retained messages of each of so many clients, with budgets for 768 KiB of queues.
fn retain(shards: u16, clients: usize, messages: usize) -> Script {
    let mut script = small(shards, 4 << 10, |setup| {
        setup.config.durable = false;
        setup.config.memory.retained_bytes_max = Some(16 << 20);
    });
    for client in 0..clients {
        for number in 0..messages {
            let payload = "r".repeat(4000);
            let line = format!("i > PUBLISH r{client}/{number} {payload} q1 #9 retain");
            script.step(&line).expect("PUBLISH");
            let answer = script.pop("i").expect("PUBACK");
            assert_eq!(answer, "PUBACK 9 0x10");
        }
    }
    script
}

/// What waits in queues is within its limit.
fn check_queued(script: &Script, what: &str) {
    let (used, limit) = used(script, Part::Queued);
    assert!(used <= limit, "{what}: {used} of {limit}");
    assert_eq!(script.world.census().miscounted_bytes, 0, "{what}");
}

/// Clients acknowledge what comes, by turns, so that what goes out has its own part of the
/// memory, until nothing comes; how much each got.
fn take_all(script: &mut Script, clients: usize) -> Vec<usize> {
    let mut got = vec![0; clients];
    let mut idle = 0;
    while idle < 20 {
        idle += 1;
        for (client, got) in got.iter_mut().enumerate() {
            let name = format!("a{client}");
            while let Some(line) = script.pop(&name) {
                let id = line.split(' ').find_map(|word| word.strip_prefix('#'));
                if let Some(id) = id {
                    script.send_line(&name, &format!("PUBACK {id}"));
                    (*got, idle) = (*got + 1, 0);
                }
            }
            script.run_for(Duration::from_millis(20));
            check_queued(script, "acknowledging");
        }
    }
    got
}

#[test]
fn walks_over_retained_messages_share_what_there_is_for_queues() {
    const CLIENTS: usize = 6;
    for shards in [1, 2] {
        let mut script = retain(shards, CLIENTS, 150);
        for client in 0..CLIENTS {
            let name = format!("a{client}");
            let filter = format!("r{client}/#");
            script.send_line(&name, &format!("CONNECT {name} clean"));
            script.send_line(&name, &format!("SUBSCRIBE 1 {filter}|q1"));
            script.settle();
            check_queued(&script, &name);
        }
        let (queued, limit) = used(&script, Part::Queued);
        assert!(queued > limit / 2, "{queued} of {limit}");
        assert_eq!(take_all(&mut script, CLIENTS), [150; CLIENTS]);
        serve(&mut script, "walks");
    }
}

/// A link's credit is no bound.
#[cfg(feature = "amqp")]
#[test]
fn walks_for_links_share_what_there_is_for_queues() {
    use dunlin_amqp::codec::{
        AnyTarget, Attach, Begin, DeliveryState, Disposition, Flow, Open, Performative, Role,
        SerialNumber, Source, Target,
    };
    use dunlin_sim::frames::{HEADER, frame};

    const CLIENTS: usize = 6;
    for shards in [1, 2] {
        let mut script = retain(shards, CLIENTS, 150);
        let sent = |script: &Script| refused(script, |stats| stats.messages_sent_qos1);
        let before = sent(&script);
        for client in 0..CLIENTS {
            let (name, address) = (format!("a{client}"), format!("r{client}/#"));
            let begin = Begin {
                incoming_window: 1 << 20,
                outgoing_window: 1 << 20,
                ..Begin::default()
            };
            let attach = Attach {
                name: &name,
                role: Role::Receiver,
                source: Some(Source {
                    address: Some(&address),
                    ..Source::default()
                }),
                target: Some(AnyTarget::Target(Target::default())),
                ..Attach::default()
            };
            let credit = Flow {
                incoming_window: 1 << 20,
                outgoing_window: 1 << 20,
                handle: Some(0),
                delivery_count: Some(SerialNumber(0)),
                link_credit: Some(u32::MAX),
                ..Flow::default()
            };
            let mut bytes = HEADER.to_vec();
            for performative in [
                Performative::Open(Open::default()),
                Performative::Begin(begin),
                Performative::Attach(attach),
                Performative::Flow(credit),
            ] {
                bytes.extend(frame(0, &performative, b""));
            }
            script.send_bytes(&name, &bytes);
            script.settle();
            check_queued(&script, &name);
        }
        let (queued, limit) = used(&script, Part::Queued);
        assert!(queued > limit / 2, "{queued} of {limit}");
        assert!(sent(&script) - before < 300);
        let accepted = Performative::Disposition(Disposition {
            role: Role::Receiver,
            first: SerialNumber(0),
            last: Some(SerialNumber(10_000)),
            settled: true,
            state: Some(DeliveryState::ACCEPTED),
            ..Disposition::default()
        });
        for _ in 0..200 {
            for client in 0..CLIENTS {
                script.send_bytes(&format!("a{client}"), &frame(0, &accepted, b""));
                script.run_for(Duration::from_millis(20));
                check_queued(&script, "accepting");
            }
        }
        assert_eq!(sent(&script) - before, 6 * 150);
        serve(&mut script, "walks for links");
    }
}

#[test]
fn what_is_loaded_from_the_store_shares_what_there_is_for_queues() {
    const CLIENTS: usize = 4;
    for shards in [1, 2] {
        let mut script = small(shards, 8192, |_| {});
        // 1.5 MiB for queues; three times as much waits.
        assert_eq!(leave_queues(&mut script, CLIENTS, 300, "t/N"), 0);
        for client in 0..CLIENTS {
            let name = format!("a{client}");
            script.send_line(&name, &format!("CONNECT {name} expiry=100"));
            script.settle();
            check_queued(&script, &name);
        }
        assert_eq!(take_all(&mut script, CLIENTS), [300; CLIENTS]);
        serve(&mut script, "loads");
    }
}

#[test]
fn a_message_for_many_sessions_counts_once() {
    for shards in [1, 2] {
        // 384 KiB for queues; 30 times 40 messages of 4,000 bytes in 160 KiB.
        let mut script = small(shards, 2048, |setup| setup.config.durable = false);
        assert_eq!(leave_queues(&mut script, 30, 40, "t"), 0);
        let census = script.world.census();
        assert_eq!((census.queued, census.miscounted_bytes), (1200, 0));
        assert_eq!(reported(&mut script, Part::Queued), 0);
    }
}

#[test]
fn unsent_bytes_of_all_clients_are_limited() {
    for shards in [1, 2] {
        // 1 MiB for unsent bytes, where each client may have as much.
        let mut script = small(shards, 8192, |_| {});
        for n in 0..12 {
            let name = format!("a{n}");
            for line in ["CONNECT NAME clean", "SUBSCRIBE 1 t"] {
                let line = line.replace("NAME", &name);
                script.say(format!("{name} > {line}"));
                script.ignore(&name);
            }
            script.say(format!("{name} stall"));
        }
        let mut most = 0;
        for _ in 0..300 {
            script.say(format!("i >> PUBLISH t {}", "u".repeat(4000)));
            script.run_for(Duration::from_millis(20));
            most = most.max(script.world.census().backlog_bytes);
        }
        let (_, limit) = used(&script, Part::Unsent);
        assert!(most <= limit && most > limit / 2, "{most} of {limit}");
        serve(&mut script, "unsent");
        // Who reads again gets messages again.
        script.say("a3 read");
        script.ignore("a3");
        script.say("i > PUBLISH t fresh");
        assert_eq!(script.pop("a3").as_deref(), Some("PUBLISH t fresh"));
        script.ignore("i");
    }
}

#[test]
fn who_takes_no_answers_is_ended_when_there_is_no_memory() {
    for shards in [1, 2] {
        // 1 MiB for unsent bytes, which clients that read nothing use up.
        let mut script = small(shards, 8192, |_| {});
        let open = |script: &mut Script, name: &str| {
            for line in [format!("CONNECT {name} clean"), "SUBSCRIBE 1 t".into()] {
                script.say(format!("{name} > {line}"));
                script.ignore(name);
            }
            script.say(format!("{name} stall"));
        };
        let pings = |count: usize| [0xc0, 0].repeat(count);
        open(&mut script, "a");
        script.send_bytes("a", &pings(50_000));
        script.settle();
        script.say("a read");
        let all: Vec<_> = core::iter::from_fn(|| script.pop("a")).collect();
        let got = all.iter().filter(|line| *line == "PINGRESP").count();
        assert_eq!((got, all.len()), (50_000, 50_000), "there is memory");
        let mut ended = 0;
        for n in 0..20 {
            let name = format!("b{n}");
            open(&mut script, &name);
            script.send_bytes(&name, &pings(60_000));
            script.settle();
            // What was on its way is heard at the end only.
            let all: Vec<_> = core::iter::from_fn(|| script.pop(&name)).collect();
            if let [.., reason, last] = &all[..] {
                assert_eq!([reason, last], ["DISCONNECT 0x97", "closed"], "{name}");
                ended += 1;
            }
        }
        let (used, limit) = used(&script, Part::Unsent);
        assert!(used <= limit && used > limit / 2, "{used} of {limit}");
        let counted = refused(&script, |stats| stats.memory_refused_unsent);
        println!("{ended} ended, {counted} counted");
        assert!(ended >= 8 && counted == ended, "{ended}, {counted}");
        serve(&mut script, "unsent");
    }
}

#[test]
fn unfinished_packets_of_all_clients_are_limited() {
    for shards in [1, 2] {
        // 1 MiB for packets that have not come whole.
        let mut script = small(shards, 16 << 10, |_| {});
        let line = format!("PUBLISH t {}", "u".repeat(300 << 10));
        let whole = dunlin_sim::encode(&line, dunlin_mqtt_codec::Version::V5);
        let mut ended = 0;
        for n in 0..20 {
            let name = format!("a{n}");
            script.say(format!("{name} > CONNECT {name} clean"));
            script.ignore(&name);
            script.send_bytes(&name, &whole[..whole.len() - 1]);
            script.settle();
            if let Some(line) = script.pop(&name) {
                assert_eq!(line, "DISCONNECT 0x97");
                assert_eq!(script.pop(&name).as_deref(), Some("closed"));
                ended += 1;
            }
        }
        let (used, limit) = used(&script, Part::Unfinished);
        assert!(used <= limit && used > limit / 2, "{used} of {limit}");
        let counted = refused(&script, |stats| stats.memory_refused_unfinished);
        assert_eq!((ended, counted), (18, 18));
        assert!((1..=2).contains(&reported(&mut script, Part::Unfinished)));
        serve(&mut script, "unfinished");
    }
}

/// Who has no session has its share of what is left, too: not all that is left.
#[test]
fn unfinished_packets_of_strangers_are_limited() {
    for shards in [1, 2] {
        // 256 KiB for packets that have not come whole.
        let mut script = small(shards, 4 << 10, |_| {});
        let line = format!("CONNECT {} clean", "s".repeat(15 << 10));
        let whole = dunlin_sim::encode(&line, dunlin_mqtt_codec::Version::V5);
        for n in 0..100 {
            let name = format!("s{n}");
            script.send_bytes(&name, &whole[..whole.len() - 1]);
            script.settle();
            script.ignore(&name);
        }
        let (used, limit) = used(&script, Part::Unfinished);
        assert!(used <= limit && used > limit / 2, "{used} of {limit}");
        assert!(refused(&script, |stats| stats.memory_refused_unfinished) > 80);
        assert_eq!(reported(&mut script, Part::Unfinished), usize::from(shards));
        script.say("n > CONNECT n clean");
        script.say("n < CONNACK");
        serve(&mut script, "strangers");
    }
}
