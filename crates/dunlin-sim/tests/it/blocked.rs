//! Clients that read some of their streams and not others: what they do not
//! read holds up nothing else, and memory stays bounded.

use dunlin_sim::{Link, Script, Setup};

/// The two ways to get deliveries on streams of their own: the streams of the
/// topics `slow` and `quick`.
const WAYS: [(&str, u64, u64); 2] = [("", 4, 8), (" u=dunlin-streams:8", 1, 5)];

/// A subscriber `a` with a stream for each topic, and a publisher `p`.
fn subscribed(shards: u16, way: (&str, u64, u64), qos: u8) -> Script {
    let mut setup = Setup::new(shards, 1);
    setup.server_streams = 100;
    let mut script = Script::new(setup);
    let (options, slow, quick) = way;
    let on = |stream: u64| match options {
        "" => format!("a@{stream}"),
        _ => "a".to_owned(),
    };
    let level = ["", "|q1"][usize::from(qos)];
    let lines = [
        format!("a > CONNECT a expiry=100{options}"),
        format!("{} > SUBSCRIBE 1 slow{level}", on(slow)),
        format!("{} > SUBSCRIBE 2 quick{level}", on(quick)),
        "p > CONNECT p clean".to_owned(),
        "p > PUBLISH slow first".to_owned(),
        "p > PUBLISH quick first".to_owned(),
    ];
    for line in lines {
        script.say(&line);
        for name in ["a", "p"] {
            script.ignore(name);
        }
    }
    script.say(format!("a@{slow} stall"));
    script
}

fn publish(script: &mut Script, topic: &str, payload: &str, qos: u8, id: usize) {
    let line = match qos {
        0 => format!("p > PUBLISH {topic} {payload}"),
        _ => format!("p > PUBLISH {topic} {payload} q1 #{id}"),
    };
    script.say(&line);
    if qos == 1 {
        assert_eq!(script.pop("p"), Some(format!("PUBACK {id}")));
    }
}

/// Reads what came for the subscriber and acknowledges it: the topics, and the
/// ends of the payloads.
fn receive(script: &mut Script, topic: &str) -> Vec<String> {
    let mut got = Vec::new();
    while let Some(line) = script.pop("a") {
        if line.starts_with("flow") {
            continue;
        }
        let mut words = line.split(' ').skip(1);
        assert_eq!(words.next(), Some(topic), "{line}");
        got.push(words.next().unwrap_or_default().to_owned());
        if let Some((_, id)) = line.split_once('#') {
            let line = format!("a > PUBACK {id}");
            script.send_line("a", line.trim_start_matches("a > "));
        }
    }
    script.settle();
    got
}

#[test]
fn a_stream_that_is_not_read_holds_up_no_other() {
    for (shards, way) in [(1, WAYS[0]), (1, WAYS[1]), (2, WAYS[0]), (2, WAYS[1])] {
        for qos in [0, 1] {
            let mut script = subscribed(shards, way, qos);
            let large = "x".repeat(5000);
            let conn = script.conn("a").expect("connected");
            // Far more than may wait for a connection.
            for n in 1..=600 {
                publish(&mut script, "slow", &large, qos, n);
                publish(&mut script, "quick", &format!("{n}"), qos, 1000 + n);
                let got = receive(&mut script, "quick");
                assert_eq!(got, [n.to_string()], "{way:?}, QoS {qos}");
            }
            let census = script.world.census();
            let waiting =
                census.backlog_bytes + script.world.link(conn).map_or(0, Link::stalled_bytes);
            assert!(waiting < 512 << 10, "{waiting}: {census:?}");
            assert!(census.queued_bytes < 600 * 6000);
            // Read at last, it gets what waited, and what is new.
            script.say(format!("a@{} read", way.1));
            let mut slow = receive(&mut script, "slow").len();
            while let more @ 1.. = receive(&mut script, "slow").len() {
                slow += more;
            }
            if qos == 1 {
                assert_eq!(slow, 600, "nothing is lost");
            } else {
                assert!((3..600).contains(&slow), "{slow}");
            }
            publish(&mut script, "slow", "last", qos, 1);
            assert_eq!(receive(&mut script, "slow"), ["last"]);
        }
    }
}

#[test]
fn order_survives_the_end_of_a_stream_that_was_not_read() {
    for way in WAYS {
        let mut script = subscribed(1, way, 1);
        let large = "x".repeat(5000);
        for n in 1..=20 {
            publish(&mut script, "slow", &large, 1, n);
        }
        for n in 21..=60 {
            publish(&mut script, "slow", &n.to_string(), 1, n);
        }
        assert!(receive(&mut script, "slow").is_empty());
        let line = format!("a@{} reset 0xc0", way.1);
        script.send_bytes("a", &[]);
        script.say(&line);
        // What was under way is repeated when the session is resumed; the
        // rest comes on control, in order.
        let mut got = Vec::new();
        while let Some(line) = script.pop("a") {
            if let Some(rest) = line.strip_prefix("PUBLISH slow ") {
                got.extend(rest.split(' ').next().and_then(|n| n.parse::<u32>().ok()));
            }
        }
        assert!(got.len() >= 40, "{way:?}: {got:?}");
        assert!(got.is_sorted(), "{got:?}");
    }
}
