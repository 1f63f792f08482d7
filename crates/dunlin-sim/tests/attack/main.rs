//! Random programs of hostile clients beside an innocent one, which must be
//! served, under a budget of memory, processor time and latency.
//!
//! `ATTACK_SEEDS=0..100000 cargo test --release -p dunlin-sim --test attack`
//! runs that many programs; without, a few are run. A breach names the seed;
//! `ATTACK_SEEDS=N` runs that program alone and prints its steps.

#![allow(clippy::print_stdout, reason = "a long run says how far it came")]

mod estimates;
mod memory;
mod program;

use core::ops::Range;
use core::time::Duration;

use dunlin_broker::{Config, Memory, QueueFull};
use dunlin_sim::{Random, Script, Setup};

use program::{CLIENTS, CROWD, Program, STRANGERS};

/// Programs without `ATTACK_SEEDS`.
const SEEDS: Range<u64> = 0..if cfg!(debug_assertions) { 40 } else { 1000 };

/// Steps of a program.
const STEPS: usize = 25;

/// Of so many programs one has many subscriptions.
const WIDE_EVERY: u64 = 5;

/// Bytes that the broker may hold for all clients together, with what is on
/// its way to them and its store.
const HELD_BYTES_MAX: usize = 8 << 20;

/// The same where there are many subscriptions.
const HELD_BYTES_MAX_WIDE: usize = 48 << 20;

/// The memory budget of the broker, which the store is not in, nor what is on its
/// way.
const BUDGET_BYTES: usize = 6 << 20;
const BUDGET_BYTES_WIDE: usize = 36 << 20;

/// Processor time of one step, and of each byte that the clients sent in it or that
/// waited for the broker to read it;
/// builds without optimization take about ten times as long.
const SLOW: u32 = if cfg!(debug_assertions) { 10 } else { 1 };
const STEP_TIME_MAX: Duration = Duration::from_millis(60);
const BYTE_TIME_MAX: Duration = Duration::from_nanos(2_000);

/// Virtual time that a message of the innocent client may take.
const LATENCY_MAX: Duration = Duration::from_millis(50);

/// Between two looks at what the innocent client has.
const LOOK: Duration = Duration::from_millis(5);

/// Latency at which a message counts as lost.
const LOST: Duration = Duration::from_secs(5);

#[test]
fn an_innocent_client_is_served_within_its_budgets() {
    let _alone = memory::alone();
    let given = std::env::var("ATTACK_SEEDS").unwrap_or_default();
    let number = |text: &str| text.parse().expect("ATTACK_SEEDS is N or N..M");
    let seeds = match given.split_once("..") {
        Some((from, to)) => number(from)..number(to),
        None if given.is_empty() => SEEDS,
        None => number(&given)..number(&given) + 1,
    };
    let alone = seeds.end - seeds.start == 1;
    // Of narrow and of wide programs.
    let mut worst = [Worst::default(), Worst::default()];
    for seed in seeds.clone() {
        let worst = &mut worst[usize::from(seed.is_multiple_of(WIDE_EVERY))];
        if let Err(breach) = run(seed, alone, worst) {
            panic!("ATTACK_SEEDS={seed}: {breach}");
        }
    }
    println!("seeds {seeds:?}, at most: {worst:#?}");
}

/// The most of all programs.
#[derive(Debug, Default)]
struct Worst {
    held: usize,
    step: Duration,
    latency: Duration,
}

fn run(seed: u64, verbose: bool, worst: &mut Worst) -> Result<(), String> {
    let mut random = Random::new(seed);
    let wide = seed.is_multiple_of(WIDE_EVERY);
    let held_max = if wide {
        HELD_BYTES_MAX_WIDE
    } else {
        HELD_BYTES_MAX
    };
    let levels = if wide { 14 } else { 8 };
    let before = memory::held();
    let script = Script::new(setup(seed, wide, &mut random));
    let mut program = Program::new(script, random, levels);
    let mut steps = Vec::new();
    let mut number = 0;
    for _ in 0..STEPS {
        let waiting = program.waiting_bytes();
        let begun = memory::used();
        let step = program.step();
        if verbose {
            println!("{step}");
        }
        steps.push(step);
        let script = &mut program.script;
        let latency = serve(script, &mut number);
        script.settle();
        let strangers = (0..STRANGERS).map(|n| format!("x{n}"));
        let crowd = (0..CROWD).map(|n| format!("y{n}"));
        let all = CLIENTS.map(String::from).into_iter();
        for name in all.chain(strangers).chain(crowd) {
            while script.pop(&name).is_some() {}
        }
        script.world.take_log();
        let miscounted = script.world.census().miscounted_bytes;
        let used = memory::used().saturating_sub(begun);
        let held = memory::held().saturating_sub(before + program.waiting_bytes());
        let sent = u32::try_from(program.sent + waiting).unwrap_or(u32::MAX);
        let time_max = (STEP_TIME_MAX + BYTE_TIME_MAX * sent) * SLOW;
        if verbose {
            println!("    {held} bytes, {used:?} of {time_max:?}, latency {latency:?}");
        }
        let breach = if held > held_max {
            format!("{held} bytes are held")
        } else if miscounted > 0 {
            format!("the budget is wrong by {miscounted} bytes")
        } else if used > time_max {
            format!("{used:?} for {sent} bytes")
        } else if latency > LATENCY_MAX {
            format!("a latency of {latency:?}")
        } else {
            worst.held = worst.held.max(held);
            worst.step = worst.step.max(used);
            worst.latency = worst.latency.max(latency);
            continue;
        };
        return Err(format!("{breach}, after {steps:#?}"));
    }
    Ok(())
}

fn setup(seed: u64, wide: bool, random: &mut Random) -> Setup {
    let mut setup = Setup::new(2, seed);
    setup.pace.store = (50, 200);
    // Bytes arrive as they were sent: pieces cost the simulator.
    setup.pace.split = false;
    setup.config = Config {
        packet_bytes_max: 256 << 10,
        receive_maximum: 50,
        inflight_max: 50,
        queue_messages_max: 200,
        queue_bytes_max: 256 << 10,
        queue_full: match random.one_in(2) {
            true => QueueFull::DropNewest,
            false => QueueFull::Reject,
        },
        send_backlog_bytes: 32 << 10,
        qos0_backlog_bytes: 64 << 10,
        retained_max: 200,
        subscriptions_max: if wide { 20_000 } else { 2_000 },
        memory: Memory {
            bytes: if wide {
                BUDGET_BYTES_WIDE
            } else {
                BUDGET_BYTES
            },
            ..Memory::default()
        },
        ..setup.config
    };
    setup
}

/// The innocent client sends itself a message, by way of both QoS; how long it
/// takes until it has them and their acknowledgement.
fn serve(script: &mut Script, number: &mut u64) -> Duration {
    if script.conn("i").is_none() {
        while script.pop("i").is_some() {}
        script.send_line("i", "CONNECT i clean");
        script.send_line("i", "SUBSCRIBE 1 $good/#|q1");
        script.run_for(Duration::from_millis(200));
        while script.pop("i").is_some() {}
    }
    *number += 1;
    let id = *number % 40 + 1;
    script.send_line("i", &format!("PUBLISH $good/1 {number} q1 #{id}"));
    script.send_line("i", &format!("PUBLISH $good/0 {number}"));
    let begun = script.world.now();
    let mut missing = 3;
    while missing > 0 && script.world.now() < begun + LOST {
        script.run_for(LOOK);
        while let Some(line) = script.pop("i") {
            let words: Vec<&str> = line.split(' ').collect();
            missing -= usize::from(line == format!("PUBACK {id}"));
            if words.first() == Some(&"PUBLISH") {
                missing -= usize::from(words.get(2) == Some(&number.to_string().as_str()));
                if let Some(id) = line.split('#').nth(1) {
                    script.send_line("i", &format!("PUBACK {id}"));
                }
            }
        }
    }
    script.world.now().saturating_duration_since(begun)
}
