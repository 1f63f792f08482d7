//! `nikitin-connect`: how long the transport takes until it is secure.

use core::time::Duration;
use std::thread;
use std::time::Instant;

use anyhow::Result;

use super::super::bench::{behind, measure, outcome};
use super::super::experiment::{Claim, Experiment, Figure, Kind, Target};
use super::super::plan;
use super::super::record::{Cell, Outcome, Record, Scale};
use super::super::visits::{Visited, Visits};
use super::{
    Bed, CLIENTS, FAST, LINKS, OTHERS, Running, SCENARIOS, SOONER, SYSTEMS, again, claims,
    difference, round_trip,
};
use crate::lab::Lab;

/// Clients that connect one after another.
pub(crate) struct Connect;

/// Time between two clients: enough that a link carries one after the other,
/// with packets of 1200 bytes that a handshake over QUIC has three of.
fn every(link: &str) -> Duration {
    Duration::from_millis(match link {
        "zigbee" => 200,
        "3g" => 100,
        "4g" => 50,
        "wifi" => 40,
        _ => 25,
    })
}

/// Time in which a short run has its clients begin, two seconds over the slowest
/// link: ten there, sixty over the fastest.
const SPAN: Duration = Duration::from_millis(1500);

/// Why QUIC is not always sooner.
const SLOW: &str = "On ZigBee a datagram of 1200 bytes, which RFC 9000, 14.1, wants of the sender \
    of an Initial, takes 38 ms on each of three links. Who loses the first packet waits \
    three quarters of a second over QUIC and a second over TCP, and over three links that is up \
    to two clients in five.";

/// The scenario whose claims few clients leave open.
const PRINTER: &str = "printer";

/// Hosts, clients of each, and the longest that one may take.
fn size(scale: Scale, link: &str) -> (usize, usize, Duration) {
    let all = CLIENTS.len();
    match scale {
        Scale::Smoke => (2, 1, Duration::from_secs(5)),
        Scale::Short => {
            let turns = SPAN.as_millis() / every(link).as_millis();
            let each = usize::try_from(turns).unwrap_or(all) / all;
            (all, each.max(1), Duration::from_secs(3))
        }
        Scale::Paper => (all, 1, Duration::from_secs(120)),
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
        let repetitions = if scale == Scale::Paper { 10 } else { 1 };
        let (links, scenarios): (&[&str], &[&str]) = match scale {
            Scale::Smoke => (&["wifi"], &["home"]),
            _ => (&LINKS, &SCENARIOS),
        };
        let factors = [("scenario", scenarios), ("link", links)];
        // Without encryption CoAP has nothing to wait for.
        let systems = [SYSTEMS.as_slice(), &["coap-dtls", "coap-dtls-psk"]].concat();
        let mut cells = plan::cells(self.name(), &systems, &factors, repetitions);
        let more = again(self.name(), &cells, scale, &[PRINTER]);
        cells.extend(more);
        cells
    }

    fn seconds(&self, cell: &Cell, scale: Scale) -> f64 {
        let late = match (cell.factor("scenario"), cell.factor("link")) {
            // Who is patient sees the sixth repetition of a first packet.
            ("synthetic", link) if link != "ethernet" && scale == Scale::Paper => 20.0,
            ("synthetic", link) if link != "ethernet" => 2.0,
            ("home", _) | (_, "ethernet") => 0.3,
            _ => 1.5,
        };
        let span = match (scale, cell.factor("link")) {
            (Scale::Smoke, _) => 0.4,
            (_, "zigbee") => 2.0,
            _ => SPAN.as_secs_f64(),
        };
        0.6 + late + span
    }

    fn run(&self, cell: &Cell, scale: Scale, lab: &Lab) -> Result<Outcome> {
        let (hosts, clients, timeout) = size(scale, cell.factor("link"));
        let every = every(cell.factor("link"));
        let bed = Bed::start(lab, cell)?;
        let mut running = Vec::new();
        let begun = Instant::now();
        for (host, client) in (0..).zip(CLIENTS.iter().take(hosts)) {
            thread::sleep((every * host).saturating_sub(begun.elapsed()));
            let visits = Visits {
                clients,
                first: 0,
                every: every * u32::try_from(hosts)?,
                timeout,
                until: "handshake",
                early: false,
                initial_rtt: None,
            };
            running.push(Running::start(bed.visits(&visits, client)?)?);
        }
        let mut times = Vec::new();
        let (mut given_up, mut all, mut late_us) = (0, 0, 0);
        for client in running {
            let visited = client.reply::<Visited>()?.times;
            all += visited.clients;
            given_up += visited.clients - visited.done;
            late_us = late_us.max(visited.late_us);
            times.extend(visited.or_given_up(&visited.ready_us));
        }
        let rtt = round_trip(cell.factor("link")).as_secs_f64() * 1e3;
        let rtts = times.iter().map(|ms| ms / rtt).collect();
        let measures = vec![
            measure("connect", "ms", times),
            measure("connect-rtts", "RTT", rtts),
        ];
        let invalid = bed.finish()?.or_else(|| behind(late_us));
        let mut outcome = outcome(measures, invalid);
        if given_up > 0 {
            let note = format!("{given_up} of {all} clients were given up after {timeout:?}");
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
        let sooner = Some(Target::AtMost(SOONER));
        let paper = [
            (
                "as long, or fractionally longer (Fig. 5.2a)",
                Some(Target::AtMost(0.0)),
            ),
            ("about one round trip sooner (Fig. 5.2b)", sooner),
            ("sooner on average (Fig. 5.2c)", sooner),
        ];
        let mut rows = claims(
            records,
            "connection time",
            "connect-rtts",
            paper,
            Some(SLOW),
        );
        for other in OTHERS {
            let fast =
                format!("connection time, {PRINTER} without ZigBee: dunlin-quic against {other}");
            let printer = format!("connection time, {PRINTER}: dunlin-quic against {other}");
            if let Some(row) = rows.iter_mut().find(|row| row.what == printer) {
                *row = row.clone().because(self.name(), fast.clone());
            }
            let pair = ["dunlin-quic", other];
            rows.push(Claim {
                what: fast,
                paper: "not said".to_owned(),
                measured: difference(records, pair, "connect-rtts", PRINTER, &FAST),
                unit: "RTT",
                target: sooner,
                reason: None,
                causes: Vec::new(),
            });
        }
        rows
    }
}
