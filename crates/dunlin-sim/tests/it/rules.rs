//! What operators make of topics and of clients: mount points, rewriting, delays,
//! subscriptions by rule, Sparkplug, events, quotas.

use dunlin_sim::{Script, Setup, check, check_with};

#[test]
fn clients_below_a_mount_point_see_what_is_below_it() {
    check(
        "
        set mounts=|site7/|site8/
        a_1 > CONNECT a clean => CONNACK
        a_1 > SUBSCRIBE 1 #|q1 $share/g/x|q1 => SUBACK 1 01 01
        b_2 > CONNECT b clean => CONNACK
        b_2 > SUBSCRIBE 1 #|q1 ../#|q1 site7/# => SUBACK 1 01 01 00
        o > CONNECT o clean => CONNACK
        o > SUBSCRIBE 1 +/t|q1 => SUBACK 1 01
        p_1 > CONNECT p clean => CONNACK
        p_1 > PUBLISH t hello q1 #1 => PUBACK 1
        a_1 < PUBLISH t hello q1 #1
        o < PUBLISH site7/t hello q1 #1
        a_1 > PUBACK 1
        o > PUBACK 1
        # From outside, and not what begins with `$`, or is no topic there.
        q > CONNECT q clean => CONNACK
        q > PUBLISH site7/t in
        a_1 < PUBLISH t in
        o < PUBLISH site7/t in
        q > PUBLISH site7/$x in
        q > PUBLISH site7 in q1 #1 => PUBACK 1
        # One above leads to nowhere.
        p_1 > PUBLISH ../site8/t out
        a_1 < PUBLISH ../site8/t out
        p_1 > PUBLISH x shared
        a_1 < PUBLISH x shared
        a_1 < PUBLISH x shared
        # Aliases are of the client's own names.
        p_1 > PUBLISH t 1 alias=1
        a_1 < PUBLISH t 1
        o < PUBLISH site7/t 1
        p_1 > PUBLISH - 2 alias=1
        a_1 < PUBLISH t 2
        o < PUBLISH site7/t 2
        # And it can unsubscribe.
        a_1 > UNSUBSCRIBE 2 # => UNSUBACK 2 00
        a_1 > UNSUBSCRIBE 3 # $SYS/# => UNSUBACK 3 11 11
        p_1 > PUBLISH t 3
        o < PUBLISH site7/t 3
    ",
    );
}

#[test]
fn nothing_begins_with_a_dollar_below_a_mount_point() {
    check(
        "
        set mounts=|site7/
        set mosquitto=yes
        set sys_interval=10s
        a_1 > CONNECT a clean => CONNACK
        a_1 > SUBSCRIBE 1 $SYS/#|q1 $share/g/$SYS/# +/broker/# # => SUBACK 1 87 87 00 00
        a_1 > PUBLISH $SYS/x forged q1 #1 => PUBACK 1 0x87
        a_1 > PUBLISH $x forged q2 #2 => PUBREC 2 0x87
        a_1 > PUBLISH $share/x forged q1 #3 => PUBACK 3 0x87
        wait 30s
        c_1 > CONNECT c clean will=$x:forged => CONNACK 0x87
        c_1 < closed
    ",
    );
}

#[test]
fn wills_and_retained_messages_are_below_the_mount_point() {
    check(
        "
        set mounts=|site7/
        o > CONNECT o clean => CONNACK
        o > SUBSCRIBE 1 # => SUBACK 1 00
        a_1 > CONNECT a clean will=gone:a wretain => CONNACK
        a_1 > PUBLISH state up retain q1 #1 => PUBACK 1
        o < PUBLISH site7/state up
        a_1 cut
        o < PUBLISH site7/gone a
        crash
        b_1 > CONNECT b clean => CONNACK
        b_1 > SUBSCRIBE 1 state => SUBACK 1 00
        b_1 < PUBLISH state up retain
        b_1 > SUBSCRIBE 2 gone => SUBACK 2 00
        b_1 < PUBLISH gone a retain
        o > CONNECT o clean => CONNACK
        o > SUBSCRIBE 1 gone site7/gone => SUBACK 1 00 00
        o < PUBLISH site7/gone a retain
    ",
    );
}

#[test]
fn a_session_stays_below_its_mount_point() {
    check(
        "
        set mounts=|site7/|site8/
        a_1 > CONNECT a expiry=1000 => CONNACK
        a_1 > SUBSCRIBE 1 t|q1 => SUBACK 1 01
        a_1 cut
        p_1 > CONNECT p clean => CONNACK
        p_1 > PUBLISH t 1 q1 #1 => PUBACK 1
        crash
        a_1 > CONNECT a expiry=1000 => CONNACK present
        a_1 < PUBLISH t 1 q1 #1
        a_1 > PUBACK 1
        a_1 cut
        # At another listener it is another client's.
        a_2 > CONNECT a expiry=1000 => CONNACK
        p_1 > CONNECT p clean => CONNACK
        p_1 > PUBLISH t 2 q1 #2 => PUBACK 2 0x10
    ",
    );
}

#[test]
fn answers_come_back_below_the_mount_point() {
    check(
        "
        set mounts=|site7/
        a_1 > CONNECT a clean => CONNACK
        a_1 > SUBSCRIBE 1 answers ask => SUBACK 1 00 00
        o > CONNECT o clean => CONNACK
        o > SUBSCRIBE 1 site7/ask => SUBACK 1 00
        p_1 > CONNECT p clean => CONNACK
        p_1 > PUBLISH ask ? resp=answers
        a_1 < PUBLISH ask ? resp=answers
        o < PUBLISH site7/ask ? resp=site7/answers
        o > PUBLISH site7/answers !
        a_1 < PUBLISH answers !
        # A place that is not below it cannot be named there.
        o > PUBLISH site7/ask ? resp=elsewhere
        o < PUBLISH site7/ask ? resp=elsewhere
        a_1 < PUBLISH ask ?
    ",
    );
}

#[test]
fn topics_are_rewritten_once() {
    check(
        "
        set rewrite=publish|old/+/t/#|new/$1/$2
        set rewrite=subscribe|mine/#|of/%u/%c/$1
        set rewrite=all|loop/a|loop/b
        set rewrite=all|loop/b|loop/a
        set access=both
        a > CONNECT a clean user=alice pass=secret => CONNACK
        a > SUBSCRIBE 1 new/# mine/# loop/a $share/g/mine/x => SUBACK 1 00 00 00 00
        p > CONNECT p clean => CONNACK
        p > PUBLISH old/7/t/x/y 1
        a < PUBLISH new/7/x/y 1
        p > PUBLISH old/7/t 2
        a < PUBLISH new/7 2
        p > PUBLISH of/alice/a/z 3
        a < PUBLISH of/alice/a/z 3
        p > PUBLISH of/alice/a/x 4
        a < PUBLISH of/alice/a/x 4
        a < PUBLISH of/alice/a/x 4
        # In a circle, each only once.
        p > PUBLISH loop/a 5
        a < PUBLISH loop/b 5
        p > PUBLISH loop/b 6
        a > UNSUBSCRIBE 2 mine/# loop/a loop/a => UNSUBACK 2 00 00 11
        p > PUBLISH loop/a 7
        # Rights are those to the result.
        acl pattern read new/#; pattern write new/7/#
        p > PUBLISH old/7/t/x 8 q1 #1 => PUBACK 1
        a < PUBLISH new/7/x 8
        p > PUBLISH old/8/t/x 9 q1 #2 => PUBACK 2 0x87
        p > PUBLISH new/8/x 9 q1 #3 => PUBACK 3 0x87
    ",
    );
}

#[test]
fn a_will_is_rewritten() {
    check(
        "
        set rewrite=publish|gone/+|left/%c/$1
        w > CONNECT w clean => CONNACK
        w > SUBSCRIBE 1 # => SUBACK 1 00
        a > CONNECT a clean will=gone/x:bye => CONNACK
        a cut
        w < PUBLISH left/a/x bye
    ",
    );
}

#[test]
fn new_sessions_begin_with_subscriptions() {
    check(
        "
        set automatic=to/%c/#|1
        set automatic=of/%u|0|al*
        set automatic=$share/g/all|1
        set access=both
        set mounts=|m/
        r > CONNECT r clean user=bob pass=hunter2 => CONNACK
        r > UNSUBSCRIBE 1 $share/g/all => UNSUBACK 1 00
        r > PUBLISH to/a/hello kept retain q1 #1 => PUBACK 1 0x10
        a > CONNECT a expiry=1000 user=alice pass=secret => CONNACK
        a < PUBLISH to/a/hello kept q1 #1 retain
        a > PUBACK 1
        r > PUBLISH to/a/x 1 q1 #2 => PUBACK 2
        a < PUBLISH to/a/x 1 q1 #2
        a > PUBACK 2
        r > PUBLISH of/alice 2
        a < PUBLISH of/alice 2
        r > PUBLISH all 3 q1 #3 => PUBACK 3
        a < PUBLISH all 3 q1 #3
        a > PUBACK 3
        # It may give one up for good.
        a > UNSUBSCRIBE 1 to/a/# => UNSUBACK 1 00
        a cut
        crash
        a > CONNECT a expiry=1000 user=alice pass=secret => CONNACK present
        r > CONNECT r clean user=bob pass=hunter2 => CONNACK
        r > PUBLISH to/a/x 4 q1 #4 => PUBACK 4 0x10
        r > PUBLISH of/alice 5
        a < PUBLISH of/alice 5
        # Below a mount point.
        c_1 > CONNECT c clean => CONNACK
        r > PUBLISH m/to/c/x 6
        c_1 < PUBLISH to/c/x 6
        # Rights count, and names of clients are no wildcards.
        acl pattern write to/#; pattern write m/#; pattern read to/b/#
        b > CONNECT b clean user=bob pass=hunter2 => CONNACK
        d > CONNECT d clean user=bob pass=hunter2 => CONNACK
        e > CONNECT + clean user=bob pass=hunter2 => CONNACK
        r > PUBLISH to/b/x 7
        b < PUBLISH to/b/x 7
        r > PUBLISH to/d/x 8 q1 #5 => PUBACK 5 0x10
    ",
    );
}

#[test]
fn a_message_is_published_when_its_time_has_come() {
    check(
        "
        set delayed_max=100
        a > CONNECT a clean => CONNACK
        a > SUBSCRIBE 1 t/#|q2 => SUBACK 1 02
        p > CONNECT p clean => CONNACK
        p > PUBLISH $delayed/10/t/1 one q1 #1 => PUBACK 1
        p > PUBLISH $delayed/5/t/2 two q2 #2 expiry=3 => PUBREC 2
        p > PUBREL 2 => PUBCOMP 2
        p > PUBLISH $delayed/7/t/0 zero
        p > PUBLISH $delayed/0/t/3 now q1 #3 => PUBACK 3
        a < PUBLISH t/3 now q1 #1
        a > PUBACK 1
        p > PUBLISH $delayed/9/t/4 kept q1 #4 retain => PUBACK 4
        wait 4s
        wait 2s
        a < PUBLISH t/2 two q2 #2 expiry=3
        a > PUBREC 2 => PUBREL 2
        a > PUBCOMP 2
        wait 2s
        a < PUBLISH t/0 zero
        b > CONNECT b clean => CONNACK
        b > SUBSCRIBE 1 t/4 => SUBACK 1 00
        wait 1s
        a < PUBLISH t/4 kept q1 #3
        b < PUBLISH t/4 kept
        a > PUBACK 3
        wait 2s
        a < PUBLISH t/1 one q1 #4
        a > PUBACK 4
        c > CONNECT c clean => CONNACK
        c > SUBSCRIBE 1 t/4 => SUBACK 1 00
        c < PUBLISH t/4 kept retain
    ",
    );
}

#[test]
fn what_waits_for_its_time_survives_a_crash() {
    check(
        "
        set delayed_max=100
        a > CONNECT a expiry=1000 => CONNACK
        a > SUBSCRIBE 1 t/#|q1 => SUBACK 1 01
        p > CONNECT p clean => CONNACK
        p > PUBLISH $delayed/10/t/1 one q1 #1 => PUBACK 1
        p > PUBLISH $delayed/20/t/2 two q1 #2 => PUBACK 2
        p > PUBLISH $delayed/20/t/3 lost
        crash
        wait 12s
        a > CONNECT a expiry=1000 => CONNACK present
        a < PUBLISH t/1 one q1 #1
        a > PUBACK 1
        crash
        wait 30s
        a > CONNECT a expiry=1000 => CONNACK present
        a < PUBLISH t/2 two q1 #1
        a > PUBACK 1
        crash
        wait 30s
        a > CONNECT a expiry=1000 => CONNACK present
    ",
    );
}

#[test]
fn delays_have_bounds_and_rights() {
    check(
        "
        set delayed_max=4
        a > CONNECT a clean => CONNACK
        a > SUBSCRIBE 1 t/#|q1 => SUBACK 1 01
        p > CONNECT p clean => CONNACK
        p > PUBLISH $delayed/99999999999/t/1 x q1 #1 => PUBACK 1 0x97
        p > PUBLISH $delayed/99999999999999999999999/t/1 x q1 #1 => PUBACK 1 0x97
        p > PUBLISH $delayed/5 x q1 #1 => PUBACK 1 0x90
        p > PUBLISH $delayed/soon/t/1 x q1 #1 => PUBACK 1 0x90
        p > PUBLISH $delayed/5/$delayed/5/t x q2 #1 => PUBREC 1 0x90
        p > PUBLISH $delayed/5/$SYS/t x q1 #1 => PUBACK 1 0x87
        acl pattern readwrite t/#
        p > PUBLISH $delayed/5/u/1 x q1 #1 => PUBACK 1 0x87
        p > PUBLISH $delayed/5/t/1 1 q1 #1 => PUBACK 1
        wait 6s
        a < PUBLISH t/1 1 q1 #1
        a > PUBACK 1
        # 3.1.1 has no reason codes.
        o > CONNECT o v4 clean => CONNACK
        o > PUBLISH $delayed/99999999999/t/1 x q1 #1 => PUBACK 1
        o > PUBLISH $delayed/5/t/1 2 q1 #2 => PUBACK 2
        wait 6s
        a < PUBLISH t/1 2 q1 #2
        a > PUBACK 2
    ",
    );
}

/// What clients of this script send, so many times; then how much was refused.
fn flood(config: impl Fn(&mut Setup), publishes: usize) -> (Script, usize) {
    let mut setup = Setup::new(1, 1);
    config(&mut setup);
    let mut script = Script::new(setup);
    for line in [
        "p > CONNECT p clean rm=65535 => CONNACK",
        "a > CONNECT a expiry=1000 => CONNACK",
        "a > SUBSCRIBE 1 t|q1 => SUBACK 1 01",
    ] {
        script.say(line);
    }
    let mut refused = 0;
    for number in 0..publishes {
        let id = number % 60_000 + 1;
        script.send_line("p", &format!("PUBLISH $delayed/100/t x q1 #{id}"));
        if number % 500 == 499 {
            script.settle();
            while let Some(line) = script.pop("p") {
                refused += usize::from(line.contains("0x97"));
            }
        }
    }
    (script, refused)
}

#[test]
fn more_delayed_messages_than_may_wait_are_refused() {
    let (mut script, refused) = flood(|it| it.config.topics.delays.messages_max = 2000, 3000);
    assert_eq!(refused, 1000);
    script.run_for(core::time::Duration::from_secs(101));
    let mut got = 0;
    while script.pop("a").is_some() {
        got += 1;
        script.send_line("a", &format!("PUBACK {got}"));
        script.settle();
    }
    assert_eq!(got, 2000);
    let census = script.world.census();
    assert_eq!((census.queued, census.pending), (0, 0));
    assert_eq!(census.miscounted_bytes, 0);
    let (_, refused) = flood(
        |it| {
            it.config.topics.delays.messages_max = 100_000;
            it.config.topics.delays.bytes_max = 50_000;
        },
        1500,
    );
    assert!((900..1300).contains(&refused), "{refused}");
}

#[test]
fn one_client_does_not_fill_the_room_for_delayed_messages() {
    let (mut script, refused) = flood(
        |it| {
            it.config.topics.delays.messages_max = 2000;
            it.config.topics.delays.client_messages_max = 500;
        },
        3000,
    );
    assert_eq!(refused, 2500);
    play_more(
        &mut script,
        "
        o > CONNECT o clean => CONNACK
        o > PUBLISH $delayed/100/t x q1 #1 => PUBACK 1
        p > PUBLISH $delayed/100/t x q1 #60001 => PUBACK 60001 0x97
        ",
    );
    script.run_for(core::time::Duration::from_secs(101));
    script.ignore("a");
    // Its share is free again.
    play_more(
        &mut script,
        "p > PUBLISH $delayed/100/t x q1 #60001 => PUBACK 60001",
    );
    let (_, refused) = flood(
        |it| {
            it.config.topics.delays.messages_max = 100_000;
            it.config.topics.delays.client_bytes_max = 50_000;
        },
        1500,
    );
    assert!((900..1300).contains(&refused), "{refused}");
}

fn play_more(script: &mut Script, lines: &str) {
    for line in lines.lines().map(str::trim).filter(|it| !it.is_empty()) {
        if let Err(error) = script.step(line) {
            panic!("{line}: {error}");
        }
    }
}

#[test]
fn births_of_sparkplug_are_certificates() {
    check(
        "
        set sparkplug=yes
        n > CONNECT n clean => CONNACK
        h > CONNECT h clean => CONNACK
        h > SUBSCRIBE 1 spBv1.0/# => SUBACK 1 00
        n > PUBLISH spBv1.0/g/NBIRTH/n born
        h < PUBLISH spBv1.0/g/NBIRTH/n born
        n > PUBLISH spBv1.0/g/DBIRTH/n/d device
        h < PUBLISH spBv1.0/g/DBIRTH/n/d device
        n > PUBLISH spBv1.0/g/NDATA/n data
        h < PUBLISH spBv1.0/g/NDATA/n data
        n > PUBLISH $sparkplug/certificates/spBv1.0/g/NBIRTH/x forged q1 #1 => PUBACK 1 0x87
        n > PUBLISH spBv1.0/g/NBIRTH/n again q1 #2 => PUBACK 2
        h < PUBLISH spBv1.0/g/NBIRTH/n again
        late > CONNECT late clean => CONNACK
        late > SUBSCRIBE 1 $sparkplug/certificates/spBv1.0/g/NBIRTH/#|q1 => SUBACK 1 01
        late < PUBLISH <42> again q1 #1 retain
        late > PUBACK 1
        late > SUBSCRIBE 2 $sparkplug/certificates/spBv1.0/g/DBIRTH/# => SUBACK 2 00
        late < PUBLISH <44> device retain
    ",
    );
}

/// The payloads that a client has received of one topic.
fn payloads(script: &mut Script, name: &str, topic: &str) -> Vec<String> {
    let start = format!("PUBLISH {topic} ");
    let all = core::iter::from_fn(|| script.pop(name));
    let of = all.filter_map(|line| Some(line.strip_prefix(&start)?.to_owned()));
    of.collect()
}

#[test]
fn what_happens_to_clients_is_published() {
    for (shards, seed) in [(1, 1), (2, 1), (2, 2)] {
        let mut setup = Setup::new(shards, seed);
        setup.users = &[("alice", "secret")];
        setup.config.sys.events = dunlin_broker::SysEvent::ALL.to_vec();
        setup.config.listeners = vec![dunlin_broker::auth::AuthPolicy {
            passwords: true,
            ..Default::default()
        }];
        let mut script = Script::new(setup);
        script.say("w > CONNECT w clean => CONNACK");
        script.say("w > SUBSCRIBE 1 $SYS/events/#|q1");
        let all: Vec<String> = core::iter::from_fn(|| script.pop("w")).collect();
        let own = "PUBLISH $SYS/events/subscribed ";
        assert!(
            all.len() == 2 && all.iter().any(|it| it.starts_with(own)),
            "{all:?}"
        );
        let mut seen = Vec::new();
        for line in [
            "a > CONNECT a clean user=alice pass=secret",
            "a > SUBSCRIBE 1 t/#",
            "a > UNSUBSCRIBE 1 t/#",
            "a > DISCONNECT",
            "b > CONNECT b clean user=alice pass=wrong",
            "c > CONNECT c clean",
            "c cut",
            "c > CONNECT c clean",
            "c > hex 00",
        ] {
            script.step(line).ok();
            for name in ["a", "b", "c"] {
                script.ignore(name);
            }
            while let Some(line) = script.pop("w") {
                let topic = line.split(' ').nth(1).unwrap_or_default();
                seen.push(topic.rsplit('/').next().unwrap_or_default().to_owned());
            }
        }
        let want = "connected subscribed unsubscribed disconnected refused \
                    connected disconnected connected disconnected";
        assert_eq!(seen.join(" "), want, "shards {shards}, seed {seed}");
    }
}

#[test]
fn events_are_for_those_who_may_read_them() {
    check(
        "
        set events=connected
        set acl=topic readwrite t/#
        w > CONNECT w clean => CONNACK
        w > SUBSCRIBE 1 $SYS/events/# # t/# => SUBACK 1 87 87 00
        a > CONNECT a clean => CONNACK
    ",
    );
}

#[test]
fn many_connections_give_a_bounded_rate_of_events() {
    let mut setup = Setup::new(1, 1);
    setup.config.sys.events = vec![dunlin_broker::SysEvent::Connected];
    let mut script = Script::new(setup);
    script.say("w > CONNECT w clean => CONNACK");
    script.say("w > SUBSCRIBE 1 $SYS/events/# => SUBACK 1 00");
    for number in 0..400 {
        script.send_line(&format!("c{number}"), &format!("CONNECT c{number} clean"));
    }
    script.settle();
    let got = payloads(&mut script, "w", "$SYS/events/connected").len();
    assert!((50..=200).contains(&got), "{got}");
}

#[test]
fn figures_have_the_names_of_mosquitto() {
    for (shards, seed) in [(1, 1), (2, 1), (3, 2)] {
        let mut setup = Setup::new(shards, seed);
        setup.config.sys.mosquitto = true;
        setup.config.sys.interval = core::time::Duration::from_secs(10);
        let mut script = Script::new(setup);
        for line in [
            "w > CONNECT w clean => CONNACK",
            "a > CONNECT a expiry=1000 => CONNACK",
            "a > SUBSCRIBE 1 t/#|q1 u|q1 => SUBACK 1 01 01",
            "b > CONNECT b clean => CONNACK",
            "b > PUBLISH x kept retain q1 #1 => PUBACK 1 0x10",
            "a cut",
            "w > SUBSCRIBE 1 $SYS/broker/# => SUBACK 1 00",
        ] {
            script.say(line);
        }
        for number in 0..12 {
            script.send_line("b", &format!("PUBLISH t/x {number}"));
        }
        script.run_for(core::time::Duration::from_secs(35));
        let lines: Vec<String> = core::iter::from_fn(|| script.pop("w")).collect();
        let last = |name: &str| {
            let start = format!("PUBLISH $SYS/broker/{name} ");
            let mut all = lines.iter().rev();
            all.find_map(|line| line.strip_prefix(&start))
                .map(str::to_owned)
        };
        for (name, want) in [
            ("clients/connected", "2"),
            ("clients/total", "3"),
            ("clients/disconnected", "1"),
            ("clients/maximum", "2"),
            ("messages/received", "13"),
            ("publish/messages/received", "13"),
            ("subscriptions/count", "3"),
            ("retained messages/count", "1"),
        ] {
            assert_eq!(last(name).as_deref(), Some(want), "{name}, shards {shards}");
        }
        let uptime = last("uptime").expect("an uptime");
        assert!(uptime.ends_with(" seconds"), "{uptime}");
        let version = last("version").expect("a version");
        assert!(version.starts_with("dunlin version "), "{version}");
        for minutes in [1, 5, 15] {
            let name = format!("load/messages/received/{minutes}min");
            let load: f64 = last(&name).expect("a load").parse().expect("a number");
            assert!(load > 0.2 && load < 40.0, "{load}");
        }
    }
}

#[test]
fn who_sends_faster_than_its_quota_waits() {
    // 10 messages a second: twelve take more than a second.
    let fast = |script: &mut Script| {
        for number in 0..30 {
            script.send_line("p", &format!("PUBLISH t {number} q1 #{}", number + 1));
            script.run_for(core::time::Duration::from_millis(5));
        }
    };
    let mut setup = Setup::new(1, 1);
    let quota = dunlin_broker::Quota {
        messages: 10,
        debt: core::time::Duration::from_secs(5),
        ..Default::default()
    };
    setup.config.quotas.0.push(quota);
    let mut script = Script::new(setup);
    script.say("p > CONNECT p clean => CONNACK");
    fast(&mut script);
    let count = |script: &mut Script| {
        let acks = core::iter::from_fn(|| script.pop("p"));
        acks.filter(|line| line.starts_with("PUBACK")).count()
    };
    let first = count(&mut script);
    assert!(first < 8, "{first}");
    script.run_for(core::time::Duration::from_secs(4));
    assert_eq!(first + count(&mut script), 30);
}

#[test]
fn who_sends_far_too_much_is_disconnected() {
    for (quota, reason) in [("10|0|2s|0|0|0", "0x96"), ("0|100|2s|0|0|0", "0x97")] {
        let packet = "30040001".to_owned() + "74" + "00";
        let burst = packet.repeat(200);
        check_with(
            &format!(
                "
                set quota={quota}
                p > CONNECT p clean => CONNACK
                wait 3s
                p > hex {burst}
                p < DISCONNECT {reason}
                p < closed
                o > CONNECT o v4 clean => CONNACK
                wait 3s
                o > hex {}
                o < closed
            ",
                "3003000174".repeat(300)
            ),
            |setup| setup.pace.split = false,
        );
    }
}

/// As a quota, by what a token says; also while the client is away, and after a restart.
#[test]
fn a_token_brings_limits() {
    let limits = "limit~packet_size~300;limit~queue_messages~2;limit~sessions~1";
    for rest in ["", "crash"] {
        check(&format!(
            "
            set access=tokens
            a > CONNECT a expiry=100 user=alice pass=alice.90.open;{limits} => CONNACK max=300
            a > SUBSCRIBE 1 t|q1 => SUBACK 1 01
            a cut
            b > CONNECT b expiry=100 user=alice pass=alice.90.open;{limits} => CONNACK 0x97
            b < closed
            {rest}
            o > CONNECT o expiry=100 user=bob pass=hunter2 => CONNACK
            o > PUBLISH t 1 q1 #1 => PUBACK 1
            o > PUBLISH t 2 q1 #2 => PUBACK 2
            o > PUBLISH t 3 q1 #3 => PUBACK 3 0x97
            # Another token has other limits.
            a > CONNECT a expiry=100 user=alice pass=alice.90.open => CONNACK present
            a < PUBLISH t 1 q1 #1
            a < PUBLISH t 2 q1 #2
        "
        ));
    }
    let burst = "3004000174 00".replace(' ', "").repeat(200);
    check_with(
        &format!(
            "
            set access=tokens
            p > CONNECT p clean user=alice pass=alice.90.open;limit~messages~10;limit~debt~2000 => CONNACK
            p > hex {burst}
            p < DISCONNECT 0x96
            p < closed
        "
        ),
        |setup| setup.pace.split = false,
    );
}

/// Users of the access list, and clients whose token names it, are in a group.
#[test]
fn a_group_has_lines_and_a_quota() {
    check_with(
        "
        set access=both
        acl group ops = bob; group ops; topic readwrite ops/#; user bob; topic read own
        a > CONNECT a clean user=alice pass=alice.90.open;group~ops => CONNACK max=300
        a > SUBSCRIBE 1 ops/# own => SUBACK 1 00 87
        b > CONNECT b clean user=bob pass=hunter2 => CONNACK max=300
        b > SUBSCRIBE 1 ops/# own => SUBACK 1 00 00
        c > CONNECT c clean user=alice pass=secret => CONNACK
        c > SUBSCRIBE 1 ops/# own => SUBACK 1 87 87
    ",
        |setup| {
            setup.config.quotas.0.push(dunlin_broker::Quota {
                group: Some("ops".into()),
                packet_bytes_max: 300,
                ..Default::default()
            });
        },
    );
}

#[test]
fn quotas_bound_packets_queues_and_sessions() {
    check(
        "
        set quota=0|0|1s|300|2|1|alice
        set access=both
        a > CONNECT a expiry=100 user=alice pass=secret => CONNACK max=300
        a > SUBSCRIBE 1 t|q1 => SUBACK 1 01
        a cut
        b > CONNECT b expiry=100 user=alice pass=secret => CONNACK 0x97
        b < closed
        o > CONNECT o expiry=100 user=bob pass=hunter2 => CONNACK
        o2 > CONNECT o2 expiry=100 user=bob pass=hunter2 => CONNACK
        o > SUBSCRIBE 1 u|q1 => SUBACK 1 01
        o2 > PUBLISH t 1 q1 #1 => PUBACK 1
        o2 > PUBLISH t 2 q1 #2 => PUBACK 2
        o2 > PUBLISH t 3 q1 #3 => PUBACK 3 0x97
        a > CONNECT a expiry=100 user=alice pass=secret => CONNACK present max=300
        a < PUBLISH t 1 q1 #1
        a < PUBLISH t 2 q1 #2
        a > hex 30b80201 780000000000
        a < DISCONNECT 0x95
        a < closed
    ",
    );
}

/// Lower limits end nothing that is there; what comes is measured with them.
#[test]
fn limits_change_while_shards_run() {
    check(
        "
        # Each process has limits of its own.
        set edges=0
        set queue_messages_max=1
        set retained_max=1
        set sessions_max=3
        a > CONNECT a expiry=1000 => CONNACK
        a > SUBSCRIBE 1 t|q1 => SUBACK 1 01
        a cut
        p > CONNECT p clean => CONNACK
        p > PUBLISH t 1 q1 #1 => PUBACK 1
        p > PUBLISH t 2 q1 #2 => PUBACK 2 0x97
        limits queue_messages_max=3
        p > PUBLISH t 2 q1 #2 => PUBACK 2
        p > PUBLISH t 3 q1 #3 => PUBACK 3
        limits queue_messages_max=1
        p > PUBLISH t 4 q1 #4 => PUBACK 4 0x97
        # Three wait where one may.
        a > CONNECT a expiry=1000 => CONNACK present
        a < PUBLISH t 1 q1 #1
        a < PUBLISH t 2 q1 #2
        a < PUBLISH t 3 q1 #3
        a > PUBACK 1
        a > PUBACK 2
        a > PUBACK 3
        # Subscriptions.
        limits subscriptions_max=2
        a > SUBSCRIBE 2 u|q1 v|q1 => SUBACK 2 01 97
        limits subscriptions_max=1
        a > SUBSCRIBE 3 u v => SUBACK 3 00 97
        p > PUBLISH u 5 q1 #5 => PUBACK 5
        a < PUBLISH u 5
        # Messages in flight.
        limits queue_messages_max=10
        limits inflight_max=1
        p > PUBLISH t 6 q1 #6 => PUBACK 6
        a < PUBLISH t 6 q1 #4
        p > PUBLISH t 7 q1 #7 => PUBACK 7
        a > PUBACK 4
        a < PUBLISH t 7 q1 #5
        a > PUBACK 5
        limits inflight_max=2
        p > PUBLISH t 8 q1 #11 => PUBACK 11
        a < PUBLISH t 8 q1 #6
        p > PUBLISH t 9 q1 #12 => PUBACK 12
        a < PUBLISH t 9 q1 #7
        limits inflight_max=1
        p > PUBLISH t 10 q1 #13 => PUBACK 13
        a > PUBACK 6
        a > PUBACK 7
        a < PUBLISH t 10 q1 #8
        a > PUBACK 8
        # Retained messages.
        p > PUBLISH r/1 1 retain q1 #8 => PUBACK 8 0x10
        p > PUBLISH r/2 2 retain q1 #9 => PUBACK 9 0x97
        limits retained_max=2
        p > PUBLISH r/2 2 retain q1 #9 => PUBACK 9 0x10
        limits retained_max=0
        p > PUBLISH r/1 3 retain q1 #10 => PUBACK 10 0x10
        # Sessions, and how long they stay.
        b > CONNECT b clean => CONNACK
        c > CONNECT c clean => CONNACK 0x97
        c < closed
        limits sessions_max=4
        limits session_expiry_secs_max=60
        c > CONNECT c expiry=1000 => CONNACK expiry=60
        limits sessions_max=1
        d > CONNECT d clean => CONNACK 0x97
        d < closed
        a > PINGREQ => PINGRESP
        # Quotas: of clients that connect from now on.
        limits sessions_max=10
        limits quota=0|0|1s|300|0|0
        d > CONNECT d clean => CONNACK max=300
        c > PINGREQ => PINGRESP
    ",
    );
}

#[test]
fn less_memory_refuses_what_comes_and_keeps_what_is_there() {
    let text = "x".repeat(4000);
    check(&format!(
        "
        p > CONNECT p clean => CONNACK
        p > PUBLISH r/1 {text} retain q1 #1 => PUBACK 1 0x10
        limits retained_bytes_max=5000
        p > PUBLISH r/2 {text} retain q1 #2 => PUBACK 2 0x97
        a > CONNECT a clean => CONNACK
        a > SUBSCRIBE 1 r/# => SUBACK 1 00
        a < PUBLISH r/1 <4000> retain
        limits retained_bytes_max=50000
        p > PUBLISH r/2 {text} retain q1 #2
        p < PUBACK 2
        a < PUBLISH r/2 <4000>
    "
    ));
}
