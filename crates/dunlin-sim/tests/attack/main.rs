//! Random programs of hostile clients beside an innocent one, which must be
//! served, under a budget of memory, processor time and latency.
//!
//! `ATTACK_SEEDS=0..100000 cargo test --release -p dunlin-sim --test attack`
//! runs that many programs, on `ATTACK_THREADS` threads; without, a few are run. A
//! program is a world of its own that its seed decides: what a long run finds,
//! `ATTACK_SEEDS=N` shows again, and prints its steps. Clients of AMQP are part of one
//! program of four, see [`amqp`].

#![allow(clippy::print_stdout, reason = "a long run says how far it came")]

mod amqp;
mod bus;
mod estimates;
mod memory;
mod pace;
mod packets;
mod program;
mod sizes;
mod trial;

use core::ops::Range;
use core::panic::AssertUnwindSafe;
use core::sync::atomic::{AtomicU64, Ordering};
use core::time::Duration;
use std::panic::catch_unwind;
use std::sync::{Mutex, PoisonError, RwLock};
use std::time::Instant;

use packets::Packets;
use trial::{Breach, Trial};

/// Programs without `ATTACK_SEEDS`.
const SEEDS: Range<u64> = 0..if cfg!(debug_assertions) { 300 } else { 5_000 };

/// Breaches after which no further program is begun.
const BREACHES_MAX: usize = 20;

/// Times that a program which took too long is run again, before that is a breach.
const REPEATS: usize = 3;

/// Programs between two lines about how far it came.
const PROGRESS_EVERY: u64 = 5_000;

#[test]
fn an_innocent_client_is_served_within_its_budgets() {
    let given = std::env::var("ATTACK_SEEDS").unwrap_or_default();
    let number = |text: &str| text.parse().expect("ATTACK_SEEDS is N or N..M");
    let seeds = match given.split_once("..") {
        Some((from, to)) => number(from)..number(to),
        None if given.is_empty() => SEEDS,
        None => number(&given)..number(&given) + 1,
    };
    let threads = std::env::var("ATTACK_THREADS").map_or_else(
        |_| std::thread::available_parallelism().map_or(1, usize::from),
        |text| text.parse().expect("ATTACK_THREADS is a number"),
    );
    let packets = sizes::ALL.map(|(name, sizes)| Packets::new(name, sizes));
    let next = AtomicU64::new(seeds.start);
    let alone = RwLock::new(());
    let sums = Mutex::new(packets.each_ref().map(|_| Sum::default()));
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| work(&packets, &seeds, &next, &alone, &sums));
        }
    });
    let sums = sums.into_inner().unwrap_or_else(PoisonError::into_inner);
    print(&packets, &sums);
    let breaches: Vec<&String> = sums.iter().flat_map(|sum| &sum.breaches).collect();
    assert!(breaches.is_empty(), "{breaches:#?}");
}

type Sums = [Sum; sizes::ALL.len()];

fn print(packets: &[Packets], sums: &Sums) {
    for (packets, sum) in packets.iter().zip(sums) {
        println!("{}: {sum:?}", packets.name);
    }
}

/// Runs programs as long as there are any.
fn work(
    packets: &[Packets],
    seeds: &Range<u64>,
    next: &AtomicU64,
    alone: &RwLock<()>,
    sums: &Mutex<Sums>,
) {
    let verbose = seeds.end - seeds.start == 1;
    let begun = Instant::now();
    loop {
        let seed = next.fetch_add(1, Ordering::Relaxed);
        if seed >= seeds.end {
            return;
        }
        let size = sizes::place(seed);
        let (mut done, breach) = judge(alone, || {
            let mut done = Sum::default();
            let run = AssertUnwindSafe(|| Trial::new(seed, &packets[size], verbose).run(&mut done));
            let breach = match catch_unwind(run) {
                Ok(outcome) => outcome.err(),
                Err(_) => Some(Breach::Other("a panic, whose text stands above".into())),
            };
            (done, breach)
        });
        done.programs = 1;
        if let Some(breach) = breach {
            let breach = format!("ATTACK_SEEDS={seed}: {breach}");
            println!("{breach}");
            done.breaches.push(breach);
        }
        let mut sums = sums.lock().unwrap_or_else(PoisonError::into_inner);
        sums[size].add(done);
        let programs: u64 = sums.iter().map(|sum| sum.programs).sum();
        if programs.is_multiple_of(PROGRESS_EVERY) {
            println!("{programs} programs in {:.0?}", begun.elapsed());
            print(packets, &sums);
        }
        if sums.iter().map(|sum| sum.breaches.len()).sum::<usize>() >= BREACHES_MAX {
            return;
        }
    }
}

/// Runs a program, and what is wrong with it. Its world is the same each time, and the
/// time of the processor is not, as what else the machine does has a part in it: one that
/// took too long is run again, by itself, and is wrong if it does so each time.
fn judge<T>(
    alone: &RwLock<()>,
    mut run: impl FnMut() -> (T, Option<Breach>),
) -> (T, Option<String>) {
    let first = {
        let _together = alone.read().unwrap_or_else(PoisonError::into_inner);
        run()
    };
    let (mut done, mut breach) = first;
    if matches!(breach, Some(Breach::Time(_))) {
        let _alone = alone.write().unwrap_or_else(PoisonError::into_inner);
        for _ in 0..REPEATS {
            (done, breach) = run();
            if !matches!(breach, Some(Breach::Time(_))) {
                break;
            }
        }
    }
    let text = breach.map(|breach| match breach {
        Breach::Time(text) | Breach::Other(text) => text,
    });
    (done, text)
}

#[test]
fn a_program_is_too_slow_if_it_always_is() {
    let alone = RwLock::new(());
    let slow = |times: usize, mut runs: usize| {
        judge(&alone, || {
            runs += 1;
            (runs, (runs <= times).then(|| Breach::Time("slow".into())))
        })
    };
    assert_eq!(slow(0, 0), (1, None));
    assert_eq!(slow(REPEATS, 0), (REPEATS + 1, None));
    assert_eq!(slow(REPEATS + 1, 0), (REPEATS + 1, Some("slow".into())));
    // Nothing else is tried again.
    let held = judge(&alone, || ((), Some(Breach::Other("held".into()))));
    assert_eq!(held, ((), Some("held".into())));
}

/// What programs did.
#[derive(Debug, Default)]
struct Sum {
    programs: u64,
    steps: u64,
    /// Packets and bytes of the hostile clients.
    packets: u64,
    bytes: u64,
    /// Packets that all clients received.
    received: u64,
    /// Things that happened to the shards.
    inputs: u64,
    virtual_time: Duration,
    worst: Worst,
    breaches: Vec<String>,
}

/// The most of all steps.
#[derive(Debug, Default)]
struct Worst {
    held: usize,
    step: Duration,
    latency: Duration,
}

impl Sum {
    fn add(&mut self, other: Self) {
        self.programs += other.programs;
        self.steps += other.steps;
        self.packets += other.packets;
        self.bytes += other.bytes;
        self.received += other.received;
        self.inputs += other.inputs;
        self.virtual_time += other.virtual_time;
        self.worst.raise(&other.worst);
        self.breaches.extend(other.breaches);
    }
}

impl Worst {
    fn raise(&mut self, other: &Self) {
        self.held = self.held.max(other.held);
        self.step = self.step.max(other.step);
        self.latency = self.latency.max(other.latency);
    }
}
