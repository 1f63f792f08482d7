//! `milios-handshake` and `milios-subscribe`: how long 1000 clients take until
//! their transport is ready, and until they are connected and subscribed.

use core::time::Duration;

use anyhow::Result;

use super::super::bench::{measure, millis, outcome};
use super::super::coap;
use super::super::experiment::{Claim, Experiment, Figure, Target};
use super::super::plan;
use super::super::record::{Cell, Outcome, Record, Scale};
use super::super::visits::Visits;
use super::{SYSTEMS, again, bench, claim, lines, losses, sample, worst};
use crate::lab::Lab;
use crate::run::stats::{Pick, Statistic};

/// Clients that come one after another.
pub(crate) struct Connect {
    /// Whether they go on to CONNACK and SUBACK.
    subscribe: bool,
}

/// Until the transport takes bytes.
pub(crate) const HANDSHAKE: Connect = Connect { subscribe: false };

/// Until SUBACK.
pub(crate) const SUBSCRIBE: Connect = Connect { subscribe: true };

/// A factor of cells: milliseconds that QUIC assumes of a path, or anything else.
pub(crate) const INITIAL_RTT: &str = "initial_rtt_ms";

/// The experiment that isolates causes of the handshake's mean, and its claim.
pub(crate) const CAUSES: &str = "cause-handshake";

/// The percent that "almost half" is taken for.
pub(crate) const HALF: f64 = -40.0;

pub(crate) fn knows_path(other: &str) -> String {
    format!(
        "mean delay of handshake, 20 % loss, QUIC knows the round trip: \
         dunlin-quic against {other}"
    )
}

/// What claims with a target compare where most is lost.
const JUDGED: [&str; 4] = [
    "dunlin-quic",
    "dunlin-quic-0rtt",
    "dunlin-tls",
    "mosquitto-tls",
];

/// Clients before those that are counted.
const FIRST: usize = 5;

/// Clients, time between two and the longest that one may take.
const fn crowd(scale: Scale) -> (usize, Duration, Duration) {
    let (clients, millis, secs) = match scale {
        Scale::Smoke => (20, 10, 5),
        Scale::Short => (500, 5, 8),
        // As emqtt_bench does: a hundred a second.
        Scale::Paper => (1000, 10, 60),
    };
    (
        clients,
        Duration::from_millis(millis),
        Duration::from_secs(secs),
    )
}

impl Connect {
    /// The metric that the paper draws.
    const fn metric(&self) -> &'static str {
        match self.subscribe {
            false => "handshake",
            true => "subscribed",
        }
    }

    fn row(
        &self,
        records: &[Record],
        pair: [&str; 2],
        (loss, statistic): (&str, Statistic),
        paper: &str,
        target: Option<Target>,
    ) -> Claim {
        let [ours, theirs] = pair;
        let base = sample(records, theirs, self.metric(), loss);
        let measured = sample(records, ours, self.metric(), loss).change(&base, statistic);
        Claim {
            reason: Some(FIRST_PACKET),
            ..claim(
                self.what(pair, loss, statistic),
                paper,
                measured,
                "%",
                target,
            )
        }
    }

    fn what(&self, [ours, theirs]: [&str; 2], loss: &str, statistic: Statistic) -> String {
        let step = match self.subscribe {
            false => "handshake",
            true => "connect and subscribe",
        };
        let name = match statistic {
            Statistic::Median => "median",
            _ => "mean",
        };
        format!("{name} delay of {step}, {loss} % loss: {ours} against {theirs}")
    }
}

/// Why a mean is not halved.
const FIRST_PACKET: &str = "Who loses the first packet waits until it is repeated, \
    three quarters of a second over QUIC and a second over TCP (RFC 6298, 2.1), and that is \
    most of a mean at 20 % loss. The median shows what follows.";

impl Experiment for Connect {
    fn name(&self) -> &'static str {
        match self.subscribe {
            false => "milios-handshake",
            true => "milios-subscribe",
        }
    }

    fn about(&self) -> &'static str {
        match self.subscribe {
            false => "delay of the handshake of many clients against loss",
            true => "delay of connect and subscribe of many clients against loss",
        }
    }

    fn source(&self) -> &'static str {
        "paper 001, section 6.3.1"
    }

    fn plan(&self, scale: Scale) -> Vec<Cell> {
        // Without encryption CoAP has no handshake.
        let more: &[&str] = match self.subscribe {
            false => &["coap-dtls", "coap-dtls-psk"],
            true => &["coap-con", "coap-non", "coap-dtls", "coap-dtls-psk"],
        };
        let systems = [SYSTEMS.as_slice(), more].concat();
        let mut cells = plan::cells(self.name(), &systems, &[("loss_percent", losses(scale))], 1);
        cells.extend(again(self.name(), scale, &JUDGED));
        cells
    }

    fn seconds(&self, cell: &Cell, scale: Scale) -> f64 {
        // All of them, and those who lost their first packets twice.
        let (span, loss) = match scale {
            Scale::Smoke => (0.5, cell.factor("loss_percent")),
            Scale::Short => (2.7, cell.factor("loss_percent")),
            Scale::Paper => (10.3, cell.factor("loss_percent")),
        };
        let late = match loss {
            "0" => 0.0,
            "2" | "5" | "10" => 1.8,
            _ => 4.0,
        };
        let rounds = if cell.system == "dunlin-quic-0rtt" {
            2.0
        } else {
            1.0
        };
        0.3 + rounds * (span + late)
    }

    fn run(&self, cell: &Cell, scale: Scale, lab: &Lab) -> Result<Outcome> {
        let bench = bench(lab, cell)?;
        let (clients, every, timeout) = crowd(scale);
        let crowded = bench.visits(&Visits {
            clients,
            first: FIRST,
            every,
            timeout,
            until: match self.subscribe {
                true => "suback",
                false => "handshake",
            },
            early: bench.system.early,
            initial_rtt: cell
                .factor(INITIAL_RTT)
                .parse()
                .ok()
                .map(Duration::from_millis),
        })?;
        let mut measures = Vec::new();
        if self.subscribe {
            for (metric, times) in [
                ("connected", &crowded.connack_us),
                ("subscribed", &crowded.suback_us),
            ] {
                // CoAP has no CONNACK.
                if metric == "connected" && coap::is_of(cell) {
                    continue;
                }
                measures.push(measure(metric, "ms", crowded.or_given_up(times)));
            }
        } else {
            let times = crowded.or_given_up(&crowded.ready_us);
            measures.push(measure("handshake", "ms", times));
            if bench.system.early {
                measures.push(measure("answered", "ms", millis(&crowded.answered_us)));
            }
        }
        let failed = crowded.clients - crowded.done;
        let mut outcome = outcome(measures, bench.finish(crowded.late_us)?);
        if failed > 0 {
            let why = crowded.why.unwrap_or_default();
            let count = format!("{failed} of {clients} were given up after {timeout:?} ({why})");
            outcome.notes.push(count);
        }
        if cell.system == "dunlin-quic-0rtt" && crowded.early < crowded.done {
            let refused = crowded.done - crowded.early;
            outcome.notes.push(format!("early data refused: {refused}"));
        }
        Ok(outcome)
    }

    fn figures(&self) -> Vec<Figure> {
        match self.subscribe {
            false => vec![logarithmic(lines(
                "handshake",
                "Delay of the handshake",
                "handshake",
            ))],
            true => vec![
                logarithmic(lines("connected", "Delay until CONNACK", "connected")),
                logarithmic(lines("subscribed", "Delay until SUBACK", "subscribed")),
            ],
        }
    }

    fn claims(&self, records: &[Record]) -> Vec<Claim> {
        let tls = ["dunlin-quic", "dunlin-tls"];
        let other = ["dunlin-quic", "mosquitto-tls"];
        let tcp = ["dunlin-quic", "mosquitto-tcp"];
        let early = ["dunlin-quic-0rtt", "dunlin-quic"];
        let metric = self.metric();
        let mut rows = Vec::new();
        let mean = Statistic::Mean;
        for pair in [tls, other] {
            let loss = worst(records, pair, metric);
            let most = Some(Target::AtMost(HALF));
            let paper = "almost half (6.3.1)";
            let row = self.row(records, pair, (loss, mean), paper, most);
            rows.push(match self.subscribe {
                false => row.because(CAUSES, knows_path(pair[1])),
                true => row,
            });
            rows.push(self.row(records, pair, (loss, Statistic::Median), paper, None));
            let paper = "no major difference (6.3.1)";
            rows.push(self.row(records, pair, ("0", mean), paper, None));
        }
        if self.subscribe {
            let loss = worst(records, early, metric);
            let most = Some(Target::AtMost(0.0));
            let paper = "identical, its broker took no early data (6.3.1)";
            rows.push(self.row(records, early, ("0", mean), paper, most));
            // The same without loss.
            let cause = self.what(early, "0", mean);
            let row = self.row(records, early, (loss, mean), paper, most);
            rows.push(row.because(self.name(), cause));
        } else {
            let loss = worst(records, tcp, metric);
            let paper = "comparable (6.3.1)";
            rows.push(self.row(records, tcp, (loss, mean), paper, None));
            let loss = worst(records, early, metric);
            let values = sample(records, "dunlin-quic-0rtt", metric, loss);
            rows.push(claim(
                format!("mean delay of the handshake, {loss} % loss: dunlin-quic-0rtt"),
                "negligible (6.3.1)",
                values.estimate(mean),
                "ms",
                Some(Target::AtMost(1.0)),
            ));
        }
        let step = match self.subscribe {
            false => "handshake",
            true => "connect and subscribe, or of the first answer to an observer",
        };
        for loss in ["0", "20"] {
            for (name, statistic) in [("mean", mean), ("median", Statistic::Median)] {
                let what = format!("{name} delay of {step}, {loss} % loss");
                let pick = |system: &str| Pick::new(system, metric).at("loss_percent", loss);
                let ours = "dunlin-quic";
                rows.extend(coap::beside(records, ours, &what, statistic, pick));
            }
        }
        rows
    }
}

fn logarithmic(figure: Figure) -> Figure {
    Figure {
        log_y: true,
        ..figure
    }
}
