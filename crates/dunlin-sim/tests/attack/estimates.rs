//! What the memory budget counts, beside what is really taken.

use dunlin_amqp::codec::{
    AnyTarget, Attach, Begin, Described, Descriptor, Map, Open, Performative, Role, Source, Symbol,
    Target, Value,
};
use dunlin_base::transport::Transport;
use dunlin_broker::Part;
use dunlin_sim::frames::{HEADER, frame};
use dunlin_sim::{Script, Setup};

use crate::memory;

/// What is taken may be this many times what is counted, or the other way round.
const APART_MAX: usize = 2;

fn send(script: &mut Script, name: &str, line: &str) {
    script.say(format!("{name} > {line}"));
    script.ignore(name);
}

/// What all parts count on all shards.
fn counted(script: &Script) -> usize {
    let shards = script.world.shards().iter();
    let parts = shards.flat_map(|shard| shard.memory());
    let kept = parts.filter(|(part, ..)| !matches!(part, Part::Unsent | Part::Unfinished));
    kept.map(|(_, bytes, _)| bytes).sum()
}

fn compare(wrong: &mut Vec<String>, shards: u16, what: &str, fill: impl Fn(&mut Script)) {
    let mut setup = Setup::new(shards, 5);
    setup.transport = Transport::Tcp;
    setup.config.durable = false;
    // Shards of a process share retained messages.
    setup.bus_of_bytes = false;
    let mut script = Script::new(setup);
    send(&mut script, "a", "CONNECT a clean");
    let before = (memory::held(), counted(&script));
    fill(&mut script);
    script.world.take_log();
    let taken = memory::held_since(before.0);
    let counted = counted(&script).saturating_sub(before.1);
    let apart = taken.max(counted) / taken.min(counted).max(1);
    if apart >= APART_MAX {
        let text = format!("{what}, {shards} shards: {taken} bytes taken, {counted} counted");
        wrong.push(text);
    }
}

/// Links of AMQP to this address, 64 on each session and 16 sessions on each
/// connection: their number, the bytes of their names, and a selector.
fn attach(script: &mut Script, address: &str, count: u16, name_bytes: usize, selector: &str) {
    let filter = Symbol::from_static("apache.org:selector-filter:string");
    let value = Value::String(selector);
    let described = Described::new(Descriptor::Symbol(filter), &value);
    let described = Value::Described(described).to_vec().expect("small");
    let entries = [(
        Value::Symbol(filter),
        Value::decode(&described).expect("just written"),
    )];
    for number in 0..count {
        let (conn, at) = (number / 1024, number % 1024);
        let client = format!("q{conn}");
        let mut bytes = Vec::new();
        if at == 0 {
            bytes.extend_from_slice(HEADER);
            bytes.extend(frame(0, &Performative::Open(Open::default()), b""));
        }
        let (channel, handle) = (at / 64, u32::from(at % 64));
        if handle == 0 {
            bytes.extend(frame(channel, &Performative::Begin(Begin::default()), b""));
        }
        let name = format!("{number:name_bytes$}");
        let source = Source {
            address: Some(address),
            filter: (!selector.is_empty()).then(|| Map::new(&entries)),
            ..Source::default()
        };
        let attach = Attach {
            name: &name,
            handle,
            role: Role::Receiver,
            source: Some(source),
            target: Some(AnyTarget::Target(Target::default())),
            ..Attach::default()
        };
        bytes.extend(frame(channel, &Performative::Attach(attach), b""));
        script.send_bytes(&client, &bytes);
        script.settle();
    }
}

#[test]
fn the_budget_counts_about_what_is_taken() {
    let mut wrong = Vec::new();
    for shards in [1, 2] {
        compare(&mut wrong, shards, "sessions", |script| {
            for n in 0..2000 {
                let name = format!("s{n}");
                send(script, &name, &format!("CONNECT {name} expiry=1000"));
                send(script, &name, "DISCONNECT");
            }
        });
        compare(&mut wrong, shards, "short filters", |script| {
            let filters: Vec<String> = (0..5000).map(|n| format!("f/{n}")).collect();
            send(script, "a", &format!("SUBSCRIBE 1 {}", filters.join(" ")));
        });
        compare(&mut wrong, shards, "long filters", |script| {
            let long = "x".repeat(2000);
            for n in 0..20 {
                let filters: Vec<String> = (0..20).map(|f| format!("{n}/{f}{long}")).collect();
                send(script, "a", &format!("SUBSCRIBE 1 {}", filters.join(" ")));
            }
        });
        compare(&mut wrong, shards, "deep filters", |script| {
            for n in 0..200 {
                let deep: Vec<String> = (0..60).map(|l| format!("{n}{l}")).collect();
                send(script, "a", &format!("SUBSCRIBE 1 {}", deep.join("/")));
            }
        });
        compare(&mut wrong, shards, "wildcards", |script| {
            for n in 0..2000 {
                let bits = (0..12).map(|bit| if n >> bit & 1 == 1 { "+" } else { "x" });
                let filter: Vec<&str> = bits.collect();
                let line = format!("SUBSCRIBE 1 w{}/{}", n / 200, filter.join("/"));
                send(script, "a", &line);
            }
        });
        compare(&mut wrong, shards, "retained messages", |script| {
            for n in 0..3000 {
                let line = format!("PUBLISH r/{n} {} retain", "r".repeat(200));
                send(script, "a", &line);
            }
        });
        compare(&mut wrong, shards, "wills", |script| {
            for n in 0..200 {
                let line = format!("CONNECT w{n} clean will=t:{}", "w".repeat(20_000));
                send(script, &format!("w{n}"), &line);
            }
        });
        compare(&mut wrong, shards, "links", |script| {
            attach(script, "t/1", 2000, 8, "")
        });
        compare(&mut wrong, shards, "links with long names", |script| {
            attach(script, "t/1", 1000, 1000, "");
        });
        compare(&mut wrong, shards, "links to long filters", |script| {
            attach(script, &"x".repeat(3000), 500, 8, "");
        });
        compare(&mut wrong, shards, "links with selectors", |script| {
            attach(script, "t/1", 300, 8, &("a=1 OR ".repeat(200) + "TRUE"));
        });
        compare(&mut wrong, shards, "links to a queue", |script| {
            attach(script, &format!("/queues/{}", "q".repeat(200)), 1000, 8, "");
        });
        compare(&mut wrong, shards, "queues", |script| {
            send(script, "q", "CONNECT q expiry=1000");
            send(script, "q", "SUBSCRIBE 1 t|q1");
            send(script, "q", "DISCONNECT");
            for _ in 0..3000 {
                send(script, "a", &format!("PUBLISH t {} q1 #1", "q".repeat(200)));
            }
        });
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
