//! A device that wakes, under the counting plugin: instructions and cycles of
//! each phase, the depth of the stack, and what goes over the wire.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use super::image::Image;
use super::tools::Tools;

/// The marks of the firmware (`mini/firmware/image/src/board.rs`).
const WAKE: u64 = 1;
const CONNECTED: u64 = 3;
const PUBLISHED: u64 = 5;
const SLEEP: u64 = 6;
const END: u64 = 0;
/// Runs of which the one without repeated packets counts.
const RUNS: usize = 4;

/// A phase of a wake, from one mark to the next.
#[derive(Clone, Debug, Default)]
pub(crate) struct Phase {
    /// The marks at its ends.
    pub(crate) from: u64,
    pub(crate) to: u64,
    pub(crate) instructions: u64,
    pub(crate) cycles: u64,
    /// Bytes of stack at its deepest.
    pub(crate) stack: u64,
}

/// Datagrams and their bytes, with what QUIC has in them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Wire {
    pub(crate) up: u64,
    pub(crate) up_bytes: u64,
    pub(crate) down: u64,
    pub(crate) down_bytes: u64,
    /// Sizes in order, down negative.
    pub(crate) sizes: Vec<i64>,
}

/// One wake.
#[derive(Clone, Debug, Default)]
pub(crate) struct Wake {
    pub(crate) phases: Vec<Phase>,
    pub(crate) wire: Wire,
    pub(crate) is_resumed: bool,
    pub(crate) took_early: bool,
}

/// Instructions and cycles.
pub(crate) type Cost = (u64, u64);

impl Wake {
    /// From waking to the first of these marks.
    fn until(&self, mark: u64) -> Option<Cost> {
        let last = self.phases.iter().position(|phase| phase.to == mark)?;
        Some(sum(&self.phases[..=last]))
    }

    /// From waking to a server that is verified and a handshake that is over.
    pub(crate) fn handshake(&self) -> Option<Cost> {
        self.until(CONNECTED)
    }

    /// From waking to the acknowledgement of the first reading.
    pub(crate) fn first_reading(&self) -> Option<Cost> {
        self.until(PUBLISHED)
    }

    /// From the acknowledgement of a reading to that of the next.
    pub(crate) fn next_reading(&self) -> Option<Cost> {
        let mut ends = (0..self.phases.len()).filter(|i| self.phases[*i].to == PUBLISHED);
        let (first, second) = (ends.next()?, ends.next()?);
        Some(sum(&self.phases[first + 1..=second]))
    }

    /// All of it.
    pub(crate) fn whole(&self) -> Cost {
        sum(&self.phases)
    }

    /// What the cheapest wake has the least of.
    fn rank(&self) -> (Option<u64>, u64) {
        (self.first_reading().map(|cost| cost.1), self.whole().1)
    }

    /// The deepest stack.
    pub(crate) fn stack(&self) -> u64 {
        self.phases
            .iter()
            .map(|phase| phase.stack)
            .max()
            .unwrap_or(0)
    }
}

fn sum(phases: &[Phase]) -> Cost {
    let instructions = phases.iter().map(|phase| phase.instructions).sum();
    (instructions, phases.iter().map(|phase| phase.cycles).sum())
}

/// How a device is run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(crate) wakes: u32,
    /// Readings of each wake.
    pub(crate) readings: u32,
    /// Whether the broker takes early data.
    pub(crate) early: bool,
    /// Whether the stack is recorded over time.
    pub(crate) series: bool,
}

/// The lowest address of the stack over time: instructions, mark, address.
pub(crate) type Series = Vec<(u64, u64, u64)>;

/// Runs a device once for each of its wakes.
///
/// # Errors
/// It does not do what it should.
pub(crate) fn run(
    tools: &Tools,
    elf: &Path,
    image: &Image,
    plan: Plan,
) -> Result<(Vec<Wake>, Series)> {
    let series: PathBuf = tools.folder().join("series");
    let (mut command, out) = command(tools, elf, image, plan);
    if plan.series {
        command.arg("--series").arg(&series);
    }
    if !command.status().context("cannot start python3")?.success() {
        bail!("the device did not do its work");
    }
    let text = fs::read_to_string(&out).context("the measurement wrote nothing")?;
    let value: Value = serde_json::from_str(&text).context("the measurement is not JSON")?;
    let lines = match plan.series {
        true => fs::read_to_string(&series).context("no series")?,
        false => String::new(),
    };
    Ok((
        wakes(&value, image.stack.1),
        lines.lines().filter_map(point).collect(),
    ))
}

/// The program that runs a device, and where it writes what it saw.
pub(crate) fn command(tools: &Tools, elf: &Path, image: &Image, plan: Plan) -> (Command, PathBuf) {
    let out = tools.folder().join("wake.json");
    let mut command = Command::new("python3");
    command
        .arg("-B")
        .arg(tools.root().join("scripts/mcu/measure.py"))
        .arg("--image")
        .arg(elf)
        .arg("--plugin")
        .arg(tools.plugin())
        .arg("--out")
        .arg(&out)
        .arg(format!("--stack={:x}:{:x}", image.stack.0, image.stack.1))
        .arg(format!("--wakes={}", plan.wakes))
        .arg(format!("--readings={}", plan.readings));
    if !plan.early {
        command.arg("--no-early");
    }
    (command, out)
}

/// The cheapest of some runs, wake by wake: a packet that is repeated because
/// the machine was busy costs extra.
///
/// # Errors
/// As [`run`].
pub(crate) fn best(tools: &Tools, elf: &Path, image: &Image, plan: Plan) -> Result<Vec<Wake>> {
    let mut best: Vec<Wake> = Vec::new();
    for _ in 0..RUNS {
        cheapest(&mut best, run(tools, elf, image, plan)?.0);
    }
    Ok(best)
}

/// Keeps the cheaper of two runs, wake by wake.
pub(crate) fn cheapest(best: &mut Vec<Wake>, wakes: Vec<Wake>) {
    if best.is_empty() {
        *best = wakes;
        return;
    }
    for (best, other) in best.iter_mut().zip(wakes) {
        if other.rank() < best.rank() {
            *best = other;
        }
    }
}

fn point(line: &str) -> Option<(u64, u64, u64)> {
    let mut words = line.split_whitespace();
    Some((
        words.next()?.parse().ok()?,
        words.next()?.parse().ok()?,
        u64::from_str_radix(words.next()?, 16).ok()?,
    ))
}

fn number(value: &Value, name: &str) -> u64 {
    value.get(name).and_then(Value::as_u64).unwrap_or(0)
}

fn list<'a>(value: &'a Value, name: &str) -> &'a [Value] {
    value
        .get(name)
        .and_then(Value::as_array)
        .map_or(&[], Vec::as_slice)
}

/// The wakes in what the measurement wrote.
fn wakes(value: &Value, stack_top: u64) -> Vec<Wake> {
    let mut wakes: Vec<Wake> = Vec::new();
    let mut last: Option<&Value> = None;
    for mark in list(value, "marks") {
        let to = number(mark, "mark");
        if let (Some(last), Some(wake)) = (last, wakes.last_mut()) {
            let from = number(last, "mark");
            // Sleep is no part of a wake.
            if from != SLEEP {
                wake.phases.push(Phase {
                    from,
                    to,
                    instructions: number(mark, "instructions") - number(last, "instructions"),
                    cycles: number(mark, "cycles") - number(last, "cycles"),
                    stack: stack_top.saturating_sub(number(mark, "lowest")),
                });
            }
        }
        if to == WAKE {
            wakes.push(Wake::default());
        }
        last = (to != END).then_some(mark);
    }
    for (wake, wire) in wakes.iter_mut().zip(list(value, "wakes")) {
        wake.wire = Wire {
            up: number(wire, "up"),
            up_bytes: number(wire, "up_bytes"),
            down: number(wire, "down"),
            down_bytes: number(wire, "down_bytes"),
            sizes: list(wire, "sizes")
                .iter()
                .filter_map(Value::as_i64)
                .collect(),
        };
    }
    let connected = list(value, "notes").iter().filter_map(|note| {
        let is = note.get(0).and_then(Value::as_str) == Some("connected");
        is.then(|| note.get(1).and_then(Value::as_u64)).flatten()
    });
    for (wake, bits) in wakes.iter_mut().zip(connected) {
        wake.is_resumed = bits >> 31 & 1 == 1;
        wake.took_early = bits >> 30 & 1 == 1;
    }
    wakes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wakes_are_cut_at_their_marks() {
        let mark = |mark, n| serde_json::json!({"mark": mark, "instructions": n, "cycles": 2 * n, "lowest": 0x2000_3f00});
        let marks: Vec<_> = [
            (1, 10),
            (2, 20),
            (3, 50),
            (4, 51),
            (5, 60),
            (4, 61),
            (5, 65),
            (6, 70),
            (1, 100),
            (2, 110),
            (0, 111),
        ]
        .map(|(m, n)| mark(m, n))
        .into();
        let value = serde_json::json!({
            "marks": marks,
            "wakes": [{"up": 2, "up_bytes": 1300, "down": 1, "down_bytes": 1200, "sizes": [1200, -1200, 100]}],
            "notes": [["wake", 1], ["connected", 5], ["connected", 0xc000_0001_u32]],
        });
        let wakes = wakes(&value, 0x2000_4000);
        assert_eq!(wakes.len(), 2);
        let [first, second] = &wakes[..] else {
            panic!("two")
        };
        assert_eq!(first.handshake(), Some((40, 80)));
        assert_eq!(first.first_reading(), Some((50, 100)));
        assert_eq!(first.next_reading(), Some((5, 10)));
        assert_eq!(first.whole(), (60, 120));
        assert_eq!((first.stack(), first.wire.up_bytes), (256, 1300));
        assert!(!first.is_resumed && second.is_resumed && second.took_early);
        assert_eq!(second.whole(), (11, 22));
    }
}
