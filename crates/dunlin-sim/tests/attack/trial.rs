//! One program against two shards, and what it may cost after each of its steps.

use core::time::Duration;

use dunlin_broker::{Memory, Part, QueueFull};
use dunlin_sim::{Random, Script, Setup};

use crate::packets::Packets;
use crate::program::Program;
use crate::sizes::Sizes;
use crate::{Sum, Worst, memory, pace};

/// Steps of a program.
const STEPS: usize = 25;

/// Builds without optimization take about so many times as long.
const SLOW: u32 = if cfg!(debug_assertions) { 10 } else { 1 };

/// Processor time of a step for each byte that the broker took in it: of those that
/// the clients sent in it, and of those that had waited for the broker to read them.
const BYTE_TIME_MAX: Duration = Duration::from_nanos(2_000);

/// Virtual time that a message of the innocent client may take.
const LATENCY_MAX: Duration = Duration::from_millis(50);

/// Between two looks at what the innocent client has.
const LOOK: Duration = Duration::from_millis(5);

/// Latency at which a message counts as lost.
const LOST: Duration = Duration::from_secs(5);

/// Part of a limit of the memory budget by which it may be exceeded, because a shard
/// does not know what another has taken at the same time.
const EXCESS: usize = 4;

/// What a step did that it may not.
pub(crate) enum Breach {
    /// It took more time of the processor than it has.
    Time(String),
    Other(String),
}

impl From<String> for Breach {
    fn from(text: String) -> Self {
        Self::Other(text)
    }
}

/// A program under way.
pub(crate) struct Trial<'a> {
    program: Program<'a>,
    sizes: &'a Sizes,
    /// What the thread held before.
    held: isize,
    steps: Vec<String>,
    /// Messages of the innocent client.
    messages: u64,
    verbose: bool,
}

impl<'a> Trial<'a> {
    pub(crate) fn new(seed: u64, packets: &'a Packets, verbose: bool) -> Self {
        let mut random = Random::new(seed);
        let sizes = &packets.sizes;
        let held = memory::held();
        let mut script = Script::new(setup(seed, sizes, &mut random));
        script.watch_only("i");
        Self {
            program: Program::new(seed, script, random, packets),
            sizes,
            held,
            steps: Vec::new(),
            messages: 0,
            verbose,
        }
    }

    /// Runs it to its end, or to a breach.
    pub(crate) fn run(mut self, sum: &mut Sum) -> Result<(), Breach> {
        let begun = self.program.script.world.now();
        let mut outcome = Ok(());
        for _ in 0..STEPS {
            outcome = self.step(&mut sum.worst);
            if outcome.is_err() {
                break;
            }
        }
        let program = &self.program;
        let world = &program.script.world;
        sum.steps = self.steps.len() as u64;
        sum.packets = program.packets;
        sum.bytes = program.bytes;
        sum.received = program.script.received;
        sum.inputs = world.inputs;
        sum.virtual_time = world.now().saturating_duration_since(begun);
        if self.verbose {
            println!("trace {:016x}", world.trace());
        }
        let after = |breach| format!("{breach}, after {:#?}", self.steps);
        outcome.map_err(|breach| match breach {
            Breach::Time(text) => Breach::Time(after(text)),
            Breach::Other(text) => Breach::Other(after(text)),
        })
    }

    fn step(&mut self, worst: &mut Worst) -> Result<(), Breach> {
        let program = &mut self.program;
        let waiting = program.waiting_bytes();
        let begun = memory::used();
        let step = program.step();
        if self.verbose {
            println!("{step}");
        }
        self.steps.push(step);
        if let Some(step) = program.step_of_amqp() {
            if self.verbose {
                println!("{step}");
            }
            self.steps.push(step);
        }
        let latency = serve(&mut program.script, &mut self.messages);
        program.script.settle();
        program.script.ignore("i");
        program.script.world.take_log();
        let used = memory::used().saturating_sub(begun);
        let held = memory::held_since(self.held).saturating_sub(program.waiting_bytes());
        let came = (program.sent + waiting).saturating_sub(program.waiting_bytes());
        let sent = u32::try_from(came).unwrap_or(u32::MAX);
        let time_max = (self.sizes.step_time_max + BYTE_TIME_MAX * sent) * SLOW;
        if self.verbose {
            println!("    {held} bytes, {used:?} of {time_max:?}, latency {latency:?}");
        }
        if held > self.sizes.held_bytes_max + program.amqp_bytes_max() {
            return Err(format!("{held} bytes are held").into());
        }
        if used > time_max && used > time_max.mul_f64(pace::slowness()) {
            return Err(Breach::Time(format!("{used:?} for {sent} bytes")));
        }
        if latency > LATENCY_MAX {
            return Err(format!("a latency of {latency:?}").into());
        }
        worst.raise(&Worst {
            held,
            step: used,
            latency,
        });
        Ok(self.check_limits()?)
    }

    /// What the broker keeps is within the limits that it has a name for.
    fn check_limits(&mut self) -> Result<(), String> {
        let packet = self.sizes.packet_bytes_max as usize;
        let unfinished_max = self.program.unfinished_bytes_max();
        let script = &self.program.script;
        let census = script.world.census();
        let counts = [
            (
                "bytes that the budget miscounts",
                census.miscounted_bytes,
                0,
            ),
            ("retained walks", census.walks, census.subscriptions),
            (
                "bytes that have not come whole",
                census.unfinished_bytes,
                unfinished_max,
            ),
            (
                "identifiers of one message",
                script.identifiers,
                self.sizes.overlaps_max,
            ),
        ];
        for (what, count, limit) in counts {
            if count > limit {
                return Err(format!("{count} {what}, of {limit}"));
            }
        }
        for part in Part::ALL {
            let shards = script.world.shards().iter();
            let of = shards.filter_map(|shard| shard.memory().find(|(of, ..)| *of == part));
            let (kept, limit) = of.fold((0, 0), |(sum, _), (_, bytes, limit)| (sum + bytes, limit));
            let limit = limit.saturating_add(limit / EXCESS + packet);
            if kept > limit {
                return Err(format!("{kept} bytes of {}, of {limit}", part.name()));
            }
        }
        Ok(())
    }
}

fn setup(seed: u64, sizes: &Sizes, random: &mut Random) -> Setup {
    let mut setup = Setup::new(2, seed);
    setup.pace.store = (50, 200);
    // Bytes arrive as they were sent: pieces cost the simulator.
    setup.pace.split = false;
    let config = &mut setup.config;
    config.clients.packet_bytes_max = sizes.packet_bytes_max;
    config.clients.connect_bytes_max = sizes.connect_bytes_max;
    config.clients.receive_maximum = 50;
    config.sending.inflight_max = 50;
    config.sessions.queue_messages_max = 200;
    config.sessions.queue_bytes_max = sizes.queue_bytes_max;
    config.sessions.queue_full = match random.one_in(2) {
        true => QueueFull::DropNewest,
        false => QueueFull::Reject,
    };
    config.sending.send_backlog_bytes = sizes.send_backlog_bytes;
    config.sending.qos0_backlog_bytes = sizes.qos0_backlog_bytes;
    config.retained_max = sizes.retained_max;
    config.sessions.subscriptions_max = sizes.subscriptions_max;
    config.sessions.overlaps_max = sizes.overlaps_max;
    config.memory = Memory {
        bytes: sizes.budget_bytes,
        ..Memory::default()
    };
    setup
}

/// The innocent client sends itself a message, by way of both QoS; how long it
/// takes until it has them and their acknowledgement.
fn serve(script: &mut Script, number: &mut u64) -> Duration {
    if script.conn("i").is_none() {
        script.ignore("i");
        script.send_line("i", "CONNECT i clean");
        script.send_line("i", "SUBSCRIBE 1 $good/#|q1");
        script.run_for(Duration::from_millis(200));
        script.ignore("i");
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
