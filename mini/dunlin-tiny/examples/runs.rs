//! Many runs of the small client against quinn-proto with faults from seeds:
//! `runs [COUNT [FIRST_SEED]]`. Any wrong byte, any error but a timeout and any
//! panic ends it with the seed.

#![allow(clippy::print_stdout)]

#[path = "../sim/mod.rs"]
mod sim;

use core::panic::AssertUnwindSafe;
use std::collections::BTreeMap;
use std::time::Instant;

use sim::run::faulty;
use sim::server::Identity;

fn main() {
    let mut arguments = std::env::args().skip(1).map(|text| text.parse::<u64>());
    let count = arguments.next().and_then(Result::ok).unwrap_or(10_000);
    let first = arguments.next().and_then(Result::ok).unwrap_or(0);
    let identity = Identity::own();
    let begin = Instant::now();
    let mut ends = BTreeMap::new();
    for seed in first..first + count {
        let run = std::panic::catch_unwind(AssertUnwindSafe(|| faulty(&identity, seed)));
        match run {
            Ok(Ok(_)) => *ends.entry("delivered".to_owned()).or_insert(0) += 1,
            Ok(Err(error)) => *ends.entry(format!("{error:?}")).or_insert(0) += 1,
            Err(_) => {
                println!("seed {seed} failed");
                std::process::exit(1);
            }
        }
    }
    let ends: Vec<String> = ends
        .iter()
        .map(|(end, runs)| format!("{runs} {end}"))
        .collect();
    println!(
        "{count} runs: {}; none wrong; {} s",
        ends.join(", "),
        begin.elapsed().as_secs()
    );
}
