//! `nikitin-connect`: how long the transport takes until it is secure.

use core::time::Duration;
use std::thread;

use anyhow::Result;

use super::super::bench::{measure, outcome};
use super::super::experiment::{Claim, Experiment, Figure, Kind, Target};
use super::super::plan;
use super::super::record::{Cell, Outcome, Record, Scale};
use super::{Bed, CLIENTS, LINKS, Running, SCENARIOS, SYSTEMS, claims, round_trip};
use crate::check::lab::Lab;
use crate::tool::crowd::Crowded;

/// Clients that connect one after another.
pub(crate) struct Connect;

/// Time between two clients: enough that the slowest links carry one after the
/// other.
const EVERY: Duration = Duration::from_millis(200);

/// Why QUIC is not always sooner.
const SLOW: &str = "On ZigBee a datagram of 1200 bytes, which RFC 9000, 14.1, wants of whoever \
    sends an Initial, takes 38 ms on each of three links. Who loses the first packet waits a \
    second over either transport, and over three links that is up to two clients in five.";

/// Clients, repetitions, and the longest that one may take.
const fn size(scale: Scale) -> (usize, u32, &'static str) {
    match scale {
        Scale::Smoke => (2, 1, "5s"),
        Scale::Short => (8, 1, "5s"),
        Scale::Paper => (10, 10, "120s"),
    }
}

impl Experiment for Connect {
    fn name(&self) -> &'static str {
        "nikitin-connect"
    }

    fn about(&self) -> &'static str {
        "time until the transport is secure, five links in three scenarios"
    }

    fn source(&self) -> &'static str {
        "paper 002, Figure 5.2"
    }

    fn plan(&self, scale: Scale) -> Vec<Cell> {
        let (_, repetitions, _) = size(scale);
        let (links, scenarios): (&[&str], &[&str]) = match scale {
            Scale::Smoke => (&["wifi"], &["home"]),
            _ => (&LINKS, &SCENARIOS),
        };
        let factors = [("scenario", scenarios), ("link", links)];
        plan::cells(self.name(), &SYSTEMS, &factors, repetitions)
    }

    fn run(&self, cell: &Cell, scale: Scale, lab: &Lab) -> Result<Outcome> {
        let (clients, _, timeout) = size(scale);
        let bed = Bed::start(lab, cell)?;
        let mut running = Vec::new();
        for client in CLIENTS.iter().take(clients) {
            let mut command = bed.tool("crowd", client)?;
            command.args(["--clients", "1", "--warm-up", "0"]);
            command.args(["--until", "handshake", "--timeout", timeout]);
            running.push(Running::start(command)?);
            thread::sleep(EVERY);
        }
        let mut times = Vec::new();
        let mut given_up = 0;
        for client in running {
            let crowded: Crowded = client.told()?;
            given_up += crowded.clients - crowded.done;
            times.extend(crowded.or_given_up(&crowded.ready_us));
        }
        let rtt = round_trip(cell.factor("link")).as_secs_f64() * 1e3;
        let rtts = times.iter().map(|ms| ms / rtt).collect();
        let measures = vec![
            measure("connect", "ms", times),
            measure("connect-rtts", "RTT", rtts),
        ];
        let mut outcome = outcome(measures, bed.finish()?);
        if given_up > 0 {
            let note = format!("{given_up} of {clients} clients were given up after {timeout}");
            outcome.notes.push(note);
        }
        Ok(outcome)
    }

    fn figures(&self) -> Vec<Figure> {
        let bars = |id, title, metric| Figure {
            facet: Some("scenario"),
            ..Figure::new(id, title, metric, Kind::Bars { x: "link" })
        };
        vec![
            Figure {
                log_y: true,
                ..bars("connect", "Time until the transport is secure", "connect")
            },
            bars(
                "connect-rtts",
                "The same in round trips of the link",
                "connect-rtts",
            ),
        ]
    }

    fn claims(&self, records: &[Record]) -> Vec<Claim> {
        let sooner = Some(Target::AtMost(-0.5));
        let paper = [
            (
                "as long, or fractionally longer (Fig. 5.2a)",
                Some(Target::AtMost(0.0)),
            ),
            ("about one round trip sooner (Fig. 5.2b)", sooner),
            ("sooner on average (Fig. 5.2c)", sooner),
        ];
        claims(
            records,
            "connection time",
            "connect-rtts",
            paper,
            Some(SLOW),
        )
    }
}
