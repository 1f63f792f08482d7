//! Many runs of the small client against quinn-proto with faults from seeds:
//! `runs [COUNT [FIRST_SEED]]`. Any wrong byte, any error but a timeout and any
//! panic ends it with the seed.

#![allow(clippy::print_stdout)]

#[path = "../sim/mod.rs"]
mod sim;

use core::panic::AssertUnwindSafe;
use std::time::Instant;

use sim::run::faulty;
use sim::server::Identity;

fn main() {
    let mut arguments = std::env::args().skip(1).map(|text| text.parse::<u64>());
    let count = arguments.next().and_then(Result::ok).unwrap_or(10_000);
    let first = arguments.next().and_then(Result::ok).unwrap_or(0);
    let identity = Identity::own();
    let begin = Instant::now();
    let mut delivered = 0;
    for seed in first..first + count {
        let run = std::panic::catch_unwind(AssertUnwindSafe(|| faulty(&identity, seed)));
        match run {
            Ok(Ok(_)) => delivered += 1,
            Ok(Err(_)) => {}
            Err(_) => {
                println!("seed {seed} failed");
                std::process::exit(1);
            }
        }
    }
    println!(
        "{count} runs: {delivered} delivered, {} timed out, none wrong; {} s",
        count - delivered,
        begin.elapsed().as_secs()
    );
}
