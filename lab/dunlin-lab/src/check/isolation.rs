//! Eight topics, 500 messages a second, 25 ms and 5 % loss each way: whether a
//! lost packet holds up its own topic or all.
//!
//! A spike is a message that takes more than twice the median of the 50 before
//! it in its topic. It touches one topic only if no other topic has a spike
//! within a window around its arrival: both as in published work on MQTT over
//! QUIC, whose window is 10 ms either way.
//!
//! That work counts at 1 % loss. At 5 % each way there are fifty losses a
//! second, and two that have nothing to do with each other often fall within
//! 10 ms; so the share is shown beside the share that independent topics would
//! reach: the same spikes, shifted in time topic by topic. Where each packet is
//! sent once, the target is judged with a window of 1 ms, which messages
//! released together keep and chance hardly fills.
//!
//! A message that is lost once takes at least a round trip more: 100 ms and
//! more instead of 50. As that happens to one in ten, no transport that only
//! sends again what was lost has a 99th percentile below 100 ms. The policies
//! with more than one stream therefore send small packets twice for a while
//! after a loss; losses are then few enough for the published window. Both
//! targets are judged so, and what is sent once is shown beside it.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};
use dunlin_link::Side;
use dunlin_link::linux::Emulator;
use serde_json::json;

use super::lab::{Lab, QUIC_PORT, TCP_PORT, TLS_PORT, valid};
use super::process::output;
use super::table::{Table, Target, figure, quantile};
use crate::load::Done;

/// Messages of a topic whose median the next one is compared with.
const HISTORY: usize = 50;

/// Window of published work, in microseconds.
pub(crate) const WIDE_US: u64 = 10_000;

/// Window of messages that were released together.
pub(crate) const NARROW_US: u64 = 1_000;

/// Messages whose latency is not looked at, at the start.
const WARM_UP_US: u64 = 3_000_000;

const LINK: [&str; 2] = ["delay=25ms", "loss=5%"];

/// The conditions of published work, in both directions.
const PUBLISHED_LINK: [&str; 2] = ["delay=25ms", "loss=1%"];

/// Which target a system has.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Judge {
    Nothing,
    Narrow,
    Wide,
}

struct Case<'a> {
    name: &'a str,
    url: &'a str,
    policy: &'a str,
    more: &'a [&'a str],
    judge: Judge,
}

const fn case<'a>(name: &'a str, url: &'a str, policy: &'a str) -> Case<'a> {
    Case {
        name,
        url,
        policy,
        more: &[],
        judge: Judge::Nothing,
    }
}

pub(super) fn run(lab: &Lab) -> Result<Table> {
    let mut table = Table::default();
    let tails = at_five_percent(lab, &mut table)?;
    at_one_percent(lab, &mut table)?;
    let of = |name: &str| tails.get(name).copied().unwrap_or(f64::NAN);
    for other in ["TLS over TCP", "mosquitto, TLS"] {
        if tails.contains_key(other) {
            let ratio = of("QUIC, per-topic") / of(other);
            let what = format!("p99 of QUIC per-topic beside {other}");
            table.row(&what, ratio, "", Target::AtMost(0.5));
            let once = of("QUIC, per-topic, sent once") / of(other);
            let what = format!("p99 of QUIC per-topic, sent once, beside {other}");
            table.row(&what, once, "", Target::None);
        }
    }
    Ok(table)
}

fn at_five_percent(lab: &Lab, table: &mut Table) -> Result<BTreeMap<String, f64>> {
    let b = Emulator::address(Side::B);
    let quic = format!("quic://{b}:{QUIC_PORT}");
    let tls = format!("mqtts://{b}:{TLS_PORT}");
    let tcp = format!("mqtt://{b}:{TCP_PORT}");
    let cases = [
        case("TLS over TCP", &tls, "single"),
        case("QUIC, single", &quic, "single"),
        Case {
            judge: Judge::Wide,
            ..case("QUIC, per-topic", &quic, "per-topic")
        },
        Case {
            judge: Judge::Narrow,
            more: &["--repeat", "never"],
            ..case("QUIC, per-topic, sent once", &quic, "per-topic")
        },
        case("QUIC, per-publish", &quic, "per-publish"),
        case("QUIC, auto", &quic, "auto"),
        Case {
            more: &["--datagrams"],
            ..case("QUIC, datagrams", &quic, "per-topic")
        },
    ];
    let mut tails = BTreeMap::new();
    let emulator = lab.link(&LINK, "", None)?;
    let broker = lab.broker(&emulator, &[])?;
    for case in &cases {
        let done = load(lab, &emulator, case)?;
        tails.insert(
            case.name.to_owned(),
            judge(table, case.name, &done, case.judge),
        );
    }
    drop(broker);
    if let Some(server) = lab.mosquitto(&emulator)? {
        for (name, url) in [("mosquitto, TCP", &tcp), ("mosquitto, TLS", &tls)] {
            let done = load(lab, &emulator, &case(name, url, "single"))?;
            tails.insert(name.to_owned(), judge(table, name, &done, Judge::Nothing));
        }
        drop(server);
    } else {
        table.skipped("mosquitto", "it is not installed");
    }
    valid(&emulator.stop())?;
    Ok(tails)
}

fn at_one_percent(lab: &Lab, table: &mut Table) -> Result<()> {
    let b = Emulator::address(Side::B);
    let quic = format!("quic://{b}:{QUIC_PORT}");
    let tls = format!("mqtts://{b}:{TLS_PORT}");
    let emulator = lab.link(&PUBLISHED_LINK, "", None)?;
    let broker = lab.broker(&emulator, &[])?;
    let cases = [
        case("1 % loss, TLS over TCP", &tls, "single"),
        Case {
            judge: Judge::Wide,
            ..case("1 % loss, QUIC, per-topic", &quic, "per-topic")
        },
        Case {
            judge: Judge::Narrow,
            more: &["--repeat", "never"],
            ..case("1 % loss, QUIC, per-topic, sent once", &quic, "per-topic")
        },
    ];
    for case in &cases {
        let done = load(lab, &emulator, case)?;
        judge(table, case.name, &done, case.judge);
    }
    drop(broker);
    valid(&emulator.stop())
}

fn load(lab: &Lab, emulator: &Emulator, case: &Case<'_>) -> Result<Done> {
    let mut command = lab.me(emulator.namespace(Side::A));
    command.args(["load", "--url", case.url, "--policy", case.policy]);
    command.args(case.more).arg("--samples");
    command.arg("--ca").arg(lab.certificate("ca.pem"));
    command.args(["--topics", "8", "--rate", "500", "--payload", "64"]);
    command.args(["--time", if lab.short { "20s" } else { "60s" }]);
    let said = output(command)?;
    serde_json::from_str(said.trim()).context("the load printed something else")
}

/// The rows of one system; gives its 99th percentile.
fn judge(table: &mut Table, name: &str, done: &Done, judge: Judge) -> f64 {
    let first = done
        .samples
        .iter()
        .map(|(_, sent, _)| *sent)
        .min()
        .unwrap_or(0);
    let samples: Vec<(u16, u64, u64)> = done
        .samples
        .iter()
        .filter(|(_, sent, _)| *sent >= first + WARM_UP_US)
        .copied()
        .collect();
    let latencies: Vec<f64> = samples
        .iter()
        .map(|(_, sent, received)| figure(received.saturating_sub(*sent)) / 1e3)
        .collect();
    let spikes = spikes(&samples);
    let span = samples.iter().map(|s| s.2).max().unwrap_or(0);
    let count: usize = spikes.values().map(Vec::len).sum();
    let alone = |window| match count {
        // None that touches several topics.
        0 => 100.0,
        _ => alone(&spikes, window) * 100.0,
    };
    let chance = |window| match count {
        0 => 100.0,
        _ => alone_by_chance(&spikes, window, span) * 100.0,
    };
    let tail = quantile(&latencies, 0.99);
    table.row(
        &format!("{name}: p50"),
        quantile(&latencies, 0.5),
        "ms",
        Target::None,
    );
    table.row(&format!("{name}: p99"), tail, "ms", Target::None);
    let target = |of| match judge == of {
        true => Target::AtLeast(80.0),
        false => Target::None,
    };
    let what = format!("{name}: spikes, of {} messages", samples.len());
    table.row(&what, figure(count as u64), "", Target::None);
    let what = format!("{name}: spikes of one topic only, 1 ms");
    table.row(&what, alone(NARROW_US), "%", target(Judge::Narrow));
    let what = format!("{name}: ... within 10 ms");
    table.row(&what, alone(WIDE_US), "%", target(Judge::Wide));
    let what = format!("{name}: ... within 10 ms, were topics independent");
    table.row(&what, chance(WIDE_US), "%", Target::None);
    let lost = figure(done.lost);
    table.row(
        &format!("{name}: messages of QoS 0 that did not arrive"),
        lost,
        "",
        Target::None,
    );
    table.note(json!({
        "what": format!("{name}: more"),
        "spikes": count,
        "messages": samples.len(),
        "independent_1ms": chance(NARROW_US),
        "p999_ms": quantile(&latencies, 0.999),
        "disconnections": done.disconnections,
    }));
    tail
}

/// Arrival times of spikes by topic.
pub(crate) fn spikes(samples: &[(u16, u64, u64)]) -> BTreeMap<u16, Vec<u64>> {
    let mut topics: BTreeMap<u16, Vec<(u64, u64)>> = BTreeMap::new();
    for (topic, sent, received) in samples {
        let entry = (*received, received.saturating_sub(*sent));
        topics.entry(*topic).or_default().push(entry);
    }
    let mut spikes = BTreeMap::new();
    for (topic, mut messages) in topics {
        messages.sort_unstable();
        let mut found = Vec::new();
        for window in messages.windows(HISTORY + 1) {
            let Some(((received, latency), history)) = window.split_last() else {
                continue;
            };
            let mut before: Vec<u64> = history.iter().map(|(_, latency)| *latency).collect();
            before.sort_unstable();
            if before
                .get(HISTORY / 2)
                .is_some_and(|median| *latency > 2 * median)
            {
                found.push(*received);
            }
        }
        spikes.insert(topic, found);
    }
    spikes
}

/// The share of spikes without a spike of another topic within the window.
pub(crate) fn alone(spikes: &BTreeMap<u16, Vec<u64>>, window: u64) -> f64 {
    let mut all: Vec<(u64, u16)> = spikes
        .iter()
        .flat_map(|(topic, times)| times.iter().map(|time| (*time, *topic)))
        .collect();
    all.sort_unstable();
    let near = |index: usize| {
        let (time, topic) = all.get(index).copied().unwrap_or_default();
        let other = |(t, k): &&(u64, u16)| *k != topic && t.abs_diff(time) <= window;
        let close = |(t, _): &&(u64, u16)| t.abs_diff(time) <= window;
        let before = all
            .get(..index)
            .unwrap_or_default()
            .iter()
            .rev()
            .take_while(close);
        let after = all
            .get(index + 1..)
            .unwrap_or_default()
            .iter()
            .take_while(close);
        before.chain(after).any(|spike| other(&spike))
    };
    let alone = (0..all.len()).filter(|index| !near(*index)).count();
    figure(alone as u64) / figure(all.len() as u64)
}

/// The same, after shifting each topic's spikes by a time of its own.
pub(crate) fn alone_by_chance(spikes: &BTreeMap<u16, Vec<u64>>, window: u64, span: u64) -> f64 {
    let count = spikes.len() as u64;
    let shifted = spikes
        .iter()
        .zip(0..)
        .map(|((topic, times), index): (_, u64)| {
            let shift = span / count.max(1) * index;
            let times = times
                .iter()
                .map(|time| (time + shift) % span.max(1))
                .collect();
            (*topic, times)
        })
        .collect();
    alone(&shifted, window)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Eight topics, a message each 16 ms, 50 ms each but for some.
    fn samples(slow: impl Fn(u16, u64) -> bool) -> Vec<(u16, u64, u64)> {
        let mut samples = Vec::new();
        for round in 0..1000u64 {
            for topic in 0..8u16 {
                let sent = round * 16_000 + u64::from(topic) * 2_000;
                let latency = if slow(topic, round) { 110_000 } else { 50_000 };
                samples.push((topic, sent, sent + latency));
            }
        }
        samples
    }

    #[test]
    fn spikes_together_and_alone_are_told_apart() {
        let apart = spikes(&samples(|topic, round| round % 80 == u64::from(topic) * 10));
        assert!(alone(&apart, WIDE_US) > 0.99);
        let together = spikes(&samples(|_, round| round % 80 == 0));
        assert!(alone(&together, WIDE_US) < 0.01);
        assert!(alone_by_chance(&together, WIDE_US, 16_000_000) > 0.5);
        assert!(alone(&spikes(&samples(|_, _| false)), WIDE_US).is_nan());
    }
}
