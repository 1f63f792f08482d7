//! `milios-bytes`: bytes and packets on the wire for a message of QoS 1, from
//! publisher to broker to subscriber, counted in a capture.

use anyhow::Result;

use super::super::bench::{Bench, measure, outcome};
use super::super::capture::Captured;
use super::super::coap;
use super::super::experiment::{Claim, Experiment, Figure, Target};
use super::super::plan;
use super::super::record::{Cell, Outcome, Record, Scale};
use super::{DELAY, Pairs, change, claim, lines, losses, worst};
use crate::lab::Lab;
use crate::run::stats::{Pick, Statistic};

/// Single messages, counted in bytes.
pub(crate) struct Bytes;

const SYSTEMS: [&str; 8] = [
    "dunlin-quic",
    "dunlin-quic-topics",
    "dunlin-tls",
    "mosquitto-tls",
    "mosquitto-tcp",
    "coap-con",
    "coap-non",
    "coap-dtls",
];

/// Parts into which the time of sending is divided, each a value.
const SLICES: u64 = 20;

const fn pairs(scale: Scale) -> Pairs {
    let (pairs, count, warm_up) = match scale {
        Scale::Smoke => ("10", "1", "12"),
        Scale::Short => ("100", "2", "12"),
        Scale::Paper => ("1", "1000", "20"),
    };
    Pairs {
        pairs,
        count,
        warm_up,
    }
}

impl Experiment for Bytes {
    fn name(&self) -> &'static str {
        "milios-bytes"
    }

    fn about(&self) -> &'static str {
        "bytes on the wire for a message of QoS 1 against loss"
    }

    fn source(&self) -> &'static str {
        "paper 001, section 6.3.4"
    }

    fn plan(&self, scale: Scale) -> Vec<Cell> {
        let factors = [("loss_percent", losses(scale))];
        plan::cells(self.name(), &SYSTEMS, &factors, 1)
    }

    fn seconds(&self, cell: &Cell, scale: Scale) -> f64 {
        pairs(scale).seconds(cell)
    }

    fn run(&self, cell: &Cell, scale: Scale, lab: &Lab) -> Result<Outcome> {
        let path = lab.temporary("bytes.pcapng");
        let settings = [DELAY.to_owned()];
        let bench = Bench::start(lab, cell, &settings, Some(path.clone()))?;
        let paired = pairs(scale).run(&bench, cell)?;
        let invalid = bench.finish(paired.late_us)?;
        let captured = Captured::read(&path)?;
        let mut bytes = vec![0.0; usize::try_from(SLICES)?];
        let mut packets = bytes.clone();
        // What hosts sent, whether or not it arrived.
        for packet in captured.at("from-a").chain(captured.at("from-b")) {
            let at_us = packet.at / 1000;
            if !(paired.window_us.0..paired.window_us.1).contains(&at_us) {
                continue;
            }
            let since = at_us - paired.window_us.0;
            // What comes after the last message belongs to it.
            let slice = (since * SLICES / paired.sending_us.max(1)).min(SLICES - 1);
            let slice = usize::try_from(slice)?;
            if let (Some(bytes), Some(packets)) = (bytes.get_mut(slice), packets.get_mut(slice)) {
                *bytes += f64::from(packet.len);
                *packets += 1.0;
            }
        }
        let each = |sums: Vec<f64>| -> Vec<f64> {
            let messages = u32::try_from(paired.messages).unwrap_or(u32::MAX);
            let slices = u32::try_from(SLICES).unwrap_or(u32::MAX);
            let share = f64::from(messages) / f64::from(slices);
            sums.into_iter().map(|sum| sum / share).collect()
        };
        let _ = std::fs::remove_file(&path);
        let measures = vec![
            measure("bytes", "bytes", each(bytes)),
            measure("packets", "packets", each(packets)),
        ];
        Ok(outcome(measures, invalid))
    }

    fn figures(&self) -> Vec<Figure> {
        vec![
            lines("bytes", "Bytes on the wire for a message of QoS 1", "bytes"),
            lines("packets", "Packets for a message of QoS 1", "packets"),
        ]
    }

    fn claims(&self, records: &[Record]) -> Vec<Claim> {
        let quic = "dunlin-quic";
        let mut rows = Vec::new();
        for other in ["dunlin-tls", "mosquitto-tls", "mosquitto-tcp"] {
            let loss = worst(records, [quic, other], "bytes");
            for loss in ["0", loss] {
                let paper = match loss {
                    "0" => "more (6.3.4)",
                    _ => "over +100 % (6.3.4)",
                };
                rows.push(claim(
                    format!("bytes of a message, {loss} % loss: {quic} against {other}"),
                    paper,
                    change(records, [quic, other], "bytes", loss),
                    "%",
                    (other != "mosquitto-tcp").then_some(Target::AtMost(100.0)),
                ));
            }
        }
        for loss in ["0", "20"] {
            let what = format!("bytes of a message, {loss} % loss");
            let pick = |system: &str| Pick::new(system, "bytes").at("loss_percent", loss);
            rows.extend(coap::beside(records, quic, &what, Statistic::Mean, pick));
        }
        rows
    }
}
