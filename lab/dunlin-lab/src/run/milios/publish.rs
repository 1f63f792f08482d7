//! `milios-publish`: how long a message of QoS 1 takes from the publisher to
//! the subscriber, when messages are a second apart.

use anyhow::Result;

use super::super::bench::{Bench, measure, millis, outcome};
use super::super::coap;
use super::super::experiment::{Claim, Experiment, Figure, PaperPoint, Target};
use super::super::plan;
use super::super::record::{Cell, Outcome, Record, Scale};
use super::{DELAY, Pairs, SHORT_TIMES, again, change, claim, drawn, losses, once, sample, worst};
use crate::lab::Lab;
use crate::run::stats::{Pick, Statistic};

/// Single messages, one at a time.
pub(crate) struct Publish;

/// What the paper compares, and CoAP. Early data changes nothing once connected.
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

/// What claims with a target compare where most is lost.
const JUDGED: [&str; 4] = [
    "dunlin-quic",
    "dunlin-tls",
    "mosquitto-tls",
    "mosquitto-tcp",
];

/// The paper has one pair and 1000 messages; in a short run there are as many
/// pairs as it takes to have messages enough that are a second apart.
const fn pairs(scale: Scale) -> Pairs {
    let (pairs, count, warm_up) = match scale {
        Scale::Smoke => ("10", "2", "12"),
        Scale::Short => ("200", "3", "12"),
        Scale::Paper => ("1", "1000", "20"),
    };
    Pairs {
        pairs,
        count,
        warm_up,
    }
}

/// Why a mean is not flat.
const ALONE: &str = "A lost message that nothing follows is sent again after a probe timeout: \
    a round trip, four times its variation and the 5 ms in which its receiver was asked to \
    acknowledge (RFC 9002, 6.2.1). Where packets are lost, those that are alone are sent twice for a number of packets after each loss; streams per topic \
    send all small ones twice for ten seconds.";

impl Experiment for Publish {
    fn name(&self) -> &'static str {
        "milios-publish"
    }

    fn about(&self) -> &'static str {
        "delay of a message of QoS 1 from publisher to subscriber against loss"
    }

    fn source(&self) -> &'static str {
        "paper 001, section 6.3.2"
    }

    fn plan(&self, scale: Scale) -> Vec<Cell> {
        let factors = [("loss_percent", losses(scale))];
        let mut cells = plan::cells(self.name(), &SYSTEMS, &factors, 1);
        if scale == Scale::Short {
            // Claims are about these.
            let middle = [("loss_percent", ["10"].as_slice())];
            cells.extend(plan::cells(
                self.name(),
                &SYSTEMS[..2],
                &middle,
                SHORT_TIMES,
            ));
        }
        cells.extend(again(self.name(), scale, &JUDGED));
        cells
    }

    fn seconds(&self, cell: &Cell, scale: Scale) -> f64 {
        pairs(scale).seconds(cell)
    }

    fn run(&self, cell: &Cell, scale: Scale, lab: &Lab) -> Result<Outcome> {
        let settings = [DELAY.to_owned()];
        let bench = Bench::start(lab, cell, &settings, None)?;
        let paired = pairs(scale).run(&bench, cell)?;
        let measures = vec![
            measure("delay", "ms", millis(&paired.delivered_us)),
            measure("acknowledged", "ms", millis(&paired.acknowledged_us)),
        ];
        let mut outcome = outcome(measures, bench.finish(paired.late_us)?);
        let lost = paired.published.saturating_sub(paired.delivered);
        if lost > 0 {
            outcome.notes.push(format!("{lost} messages not delivered"));
        }
        Ok(outcome)
    }

    fn figures(&self) -> Vec<Figure> {
        let point = |series, value| PaperPoint {
            series,
            facet: None,
            x: "20",
            value,
        };
        vec![
            drawn(
                "delay",
                "Delay from publisher to subscriber, QoS 1",
                "delay",
                vec![
                    point("paper: MQTT over QUIC", 18.0),
                    point("paper: MQTT over TCP", 92.0),
                    point("paper: MQTT over TLS", 118.0),
                ],
            ),
            drawn(
                "acknowledged",
                "Delay until PUBACK",
                "acknowledged",
                Vec::new(),
            ),
        ]
    }

    fn claims(&self, records: &[Record]) -> Vec<Claim> {
        let mut rows = Vec::new();
        for system in ["dunlin-quic", "dunlin-quic-topics"] {
            for (name, statistic) in [("median", Statistic::Median), ("mean", Statistic::Mean)] {
                let at = |loss| sample(records, system, "delay", loss);
                let row = claim(
                    format!("publish delay of {system}, {name}: 10 % loss against none"),
                    "stable for all values of loss (6.3.2)",
                    at("10").change(&at("0"), statistic),
                    "%",
                    Some(Target::AtMost(once::STABLE)),
                );
                let row = Claim {
                    reason: Some(ALONE),
                    ..row
                };
                // With a stream per topic small packets go twice.
                rows.push(match (system, statistic) {
                    ("dunlin-quic", Statistic::Mean) => row.because(once::CAUSES, once::floor()),
                    _ => row,
                });
            }
        }
        let quic = "dunlin-quic";
        for (other, paper) in [
            ("dunlin-tls", "-84.7 % (18 against 118 ms, 6.3.3)"),
            ("mosquitto-tls", "-84.7 % (18 against 118 ms, 6.3.3)"),
            ("mosquitto-tcp", "-80.4 % (18 against 92 ms, 6.3.3)"),
        ] {
            let loss = worst(records, [quic, other], "delay");
            let row = claim(
                format!("publish delay, {loss} % loss: {quic} against {other}"),
                paper,
                change(records, [quic, other], "delay", loss),
                "%",
                Some(Target::AtMost(-50.0)),
            );
            rows.push(Claim {
                reason: Some(ALONE),
                ..row
            });
        }
        for loss in ["0", "20"] {
            let what = format!("mean publish delay, {loss} % loss");
            let pick = |system: &str| Pick::new(system, "delay").at("loss_percent", loss);
            rows.extend(coap::beside(records, quic, &what, Statistic::Mean, pick));
        }
        rows
    }
}
