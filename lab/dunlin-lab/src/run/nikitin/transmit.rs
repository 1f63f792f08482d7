//! `nikitin-transmit`: how long a client takes for the 100 messages of the
//! paper's Appendix A, of QoS 1.

use core::time::Duration;
use std::time::Instant;

use anyhow::Result;
use dunlin_link::parse_duration;
use serde::Deserialize;

use super::super::bench::{measure, outcome};
use super::super::coap;
use super::super::experiment::{Claim, Experiment, Figure, Kind, Target};
use super::super::plan;
use super::super::record::{Cell, Outcome, Record, Scale};
use super::{
    ALIKE, Bed, CAUSES_TRANSMIT, CLIENTS, LINKS, OTHERS, Running, SCENARIOS, SYSTEMS,
    WIDE_SCENARIOS, again, claims, round_trip, transmits_lossless, transmits_wide,
};
use crate::lab::Lab;

/// Clients with many messages.
pub(crate) struct Transmit;

/// What `dunlin pub --timing` prints, as far as it is read.
#[derive(Debug, Deserialize)]
struct Timed {
    connected_us: u64,
    all_acknowledged_us: u64,
}

/// Topic and payload of Listing A.1.
const PRINTER: (&str, &str) = (
    "GENERIC-CORPO/JSON/0/1/ADDITIVE-MANUFACTURING-13/PRINT/1",
    concat!(
        r#""print" = {
  "Timestamp"="20201001 171035",
  "BedTemp"="75",
  "ExtruderTemp"="205",
  "Adhesion"="Skirt",
  "File"=""#,
        "\x2fhome/prints/part.gcode",
        r#"",
  "Speed"="50 mm/s",
  "Layer Height"="0.12 mm",
  "Retraction"="6mm at 25mm/s",
  "Infill"="20%",
  "Initial layer speed"="20 mm/s",
  "Initial fan speed"="0%"
}
"#
    ),
);

/// Topic and payload of Listing A.2.
const HOME: (&str, &str) = (
    "HOME/JSON/0/1/SET-TEMP",
    r#""req" = {
  "Room"="Bedroom",
  "Device"="AC",
  "Temp"="17",
}
"#,
);

/// The paper leaves its synthetic message out, as too long: a field that is
/// there thousands of times.
const FIELD: &str = "\"Field\"=\"0\",\n";

/// Messages of the paper.
const MESSAGES: &str = "100";

/// How much of it is done.
struct Size {
    timeout: &'static str,
    /// Messages of the synthetic scenario and fields of each.
    synthetic: (&'static str, usize),
}

/// In the synthetic scenario two packets in five are lost on their way over
/// three links: what the paper sends takes TCP a quarter of an hour there.
const fn size(scale: Scale) -> Size {
    match scale {
        Scale::Smoke => Size {
            timeout: "10s",
            synthetic: ("5", 50),
        },
        Scale::Short => Size {
            timeout: "4s",
            synthetic: ("2", 50),
        },
        Scale::Paper => Size {
            timeout: "30m",
            synthetic: (MESSAGES, 1000),
        },
    }
}

/// Clients at the same time. The paper has one; in a short run there are as
/// many as the link carries without one being in the way of the other for long.
fn clients(scale: Scale, link: &str) -> usize {
    match (scale, link) {
        (Scale::Short, "ethernet" | "wifi") => 10,
        (Scale::Short, "4g") => 8,
        (Scale::Short, "3g") => 4,
        (Scale::Short, _) => 3,
        _ => 1,
    }
}

/// A factor of cells: bytes that QUIC may have in flight at first, or [`DEFAULT`].
pub(crate) const WINDOW: &str = "initial_window";
pub(crate) const DEFAULT: &str = "default";

/// Links of the synthetic scenario on which a connection can be had in seconds.
pub(crate) const SHORT_SYNTHETIC: [&str; 2] = ["wifi", "ethernet"];

/// Why it may look otherwise.
const FEW: &str = "A burst of a hundred small messages is a few packets, and one that is lost is \
    most of its time. In the synthetic scenario the short form has WiFi and Ethernet only: over \
    the three other kinds of links, two packets in five are lost on their way, and most clients do \
    not even connect in the time that a short form has.";

impl Experiment for Transmit {
    fn name(&self) -> &'static str {
        "nikitin-transmit"
    }

    fn about(&self) -> &'static str {
        "time for 100 messages of QoS 1, five links in three scenarios"
    }

    fn source(&self) -> &'static str {
        "paper 002, Figure 5.3"
    }

    fn plan(&self, scale: Scale) -> Vec<Cell> {
        let (links, scenarios): (&[&str], &[&str]) = match scale {
            Scale::Smoke => (&["wifi", "ethernet"], &["home"]),
            _ => (&LINKS, &SCENARIOS),
        };
        let factors = [("scenario", scenarios), ("link", links)];
        let repetitions = if scale == Scale::Paper { 10 } else { 1 };
        // What is not confirmable has no answer to wait for when it is lost.
        let systems = [SYSTEMS.as_slice(), &["coap-con", "coap-dtls"]].concat();
        let mut cells = plan::cells(self.name(), &systems, &factors, repetitions);
        // A message for each round trip: on other links that takes longer than a client
        // of a short run is waited for.
        let of_coap: &[&str] = match scale {
            Scale::Smoke => &["ethernet"],
            Scale::Short => &["ethernet", "zigbee"],
            Scale::Paper => &LINKS,
        };
        let all = |cell: &Cell| match coap::is_of(cell) {
            true => of_coap.contains(&cell.factor("link")),
            false => scale != Scale::Smoke || cell.factor("link") == "wifi",
        };
        cells.retain(all);
        if scale == Scale::Short {
            cells.retain(|cell| {
                let (scenario, link) = (cell.factor("scenario"), cell.factor("link"));
                scenario != "synthetic" || SHORT_SYNTHETIC.contains(&link)
            });
        }
        let more = again(self.name(), &cells, scale, &SCENARIOS);
        cells.extend(more);
        cells
    }

    fn seconds(&self, cell: &Cell, scale: Scale) -> f64 {
        let each = match (cell.factor("scenario"), cell.factor("link")) {
            // A guess: what is sent again and again takes minutes.
            ("synthetic", link) if scale == Scale::Paper => match link {
                "ethernet" => 30.0,
                _ => 900.0,
            },
            ("synthetic", "ethernet") => 2.0,
            ("synthetic", _) => 5.0,
            (_, "ethernet") => 0.2,
            ("home", "zigbee") => 1.3,
            ("home", "wifi") => 0.8,
            ("printer", "zigbee") => 4.2,
            ("printer", "4g") => 1.8,
            _ => 2.6,
        };
        // A round trip for each message.
        let each = match coap::is_of(cell) {
            true if scale == Scale::Short => 4.0,
            true => f64::max(each, 100.0 * round_trip(cell.factor("link")).as_secs_f64()),
            false => each,
        };
        each + 0.6
    }

    fn run(&self, cell: &Cell, scale: Scale, lab: &Lab) -> Result<Outcome> {
        let size = size(scale);
        let (fields_count, fields) = size.synthetic;
        let (topic, payload, count) = match cell.factor("scenario") {
            "home" => (HOME.0, HOME.1.to_owned(), MESSAGES),
            "printer" => (PRINTER.0, PRINTER.1.to_owned(), MESSAGES),
            _ => ("SYNTHETIC/0/1", FIELD.repeat(fields), fields_count),
        };
        let file = lab.temporary("payload");
        std::fs::write(&file, payload)?;
        let bed = Bed::start(lab, cell)?;
        let mut running = Vec::new();
        for client in CLIENTS.iter().take(clients(scale, cell.factor("link"))) {
            let mut command = bed.publisher(client)?;
            command.args(["-q", "1", "-t", topic, "--repeat", count, "-M", count, "-f"]);
            command.arg(&file);
            let window = cell.factor(WINDOW);
            if !matches!(window, "" | DEFAULT) {
                command.args(["--initial-window", window]);
            }
            running.push(Running::start(command)?);
        }
        let patience = parse_duration(size.timeout)?;
        // For the connection, too.
        let until = Instant::now() + 2 * patience;
        let rtt = round_trip(cell.factor("link"));
        let mut times = Vec::new();
        let mut notes = Vec::new();
        for client in running {
            // One that cannot even connect has not transmitted either.
            let took = match client.reply_until::<Timed>(until) {
                Ok(done) => done.map(|done| {
                    Duration::from_micros(done.all_acknowledged_us - done.connected_us)
                }),
                Err(error) => {
                    notes.push(format!("{error:#}"));
                    None
                }
            };
            let took = took.filter(|took| *took <= patience);
            if took.is_none() {
                notes.push(format!("given up after {patience:?}"));
            }
            times.push(took.unwrap_or(patience).as_secs_f64());
        }
        let rtts = times.iter().map(|s| s / rtt.as_secs_f64()).collect();
        let times = times.iter().map(|s| s * 1e3).collect();
        let measures = vec![
            measure("transmit", "ms", times),
            measure("transmit-rtts", "RTT", rtts),
        ];
        let mut outcome = outcome(measures, bed.finish()?);
        outcome.notes = notes;
        Ok(outcome)
    }

    fn figures(&self) -> Vec<Figure> {
        let bars = |id, title, metric| Figure {
            facet: Some("scenario"),
            log_y: true,
            ..Figure::new(id, title, metric, Kind::Bars { x: "link" })
        };
        vec![
            bars("transmit", "Time for all messages", "transmit"),
            bars(
                "transmit-rtts",
                "The same in round trips of the link",
                "transmit-rtts",
            ),
        ]
    }

    fn claims(&self, records: &[Record]) -> Vec<Claim> {
        // No worse, with the spread that a few clients have.
        let par = Some(Target::AtMost(ALIKE));
        let paper = [
            ("on a par (Fig. 5.3a)", par),
            ("on a par (Fig. 5.3b)", par),
            ("on a par, better on Ethernet (Fig. 5.3c)", par),
        ];
        let mut rows = claims(
            records,
            "transmission time",
            "transmit-rtts",
            paper,
            Some(FEW),
        );
        // The rows of the paper come first, in this order.
        let pairs = SCENARIOS
            .into_iter()
            .flat_map(|scenario| OTHERS.map(|other| (scenario, other)));
        for (row, (scenario, other)) in rows.iter_mut().zip(pairs) {
            let lossless = transmits_lossless(scenario, other);
            *row = row.clone().because(CAUSES_TRANSMIT, lossless);
            if WIDE_SCENARIOS.contains(&scenario) {
                let wide = transmits_wide(scenario, other);
                *row = row.clone().because(CAUSES_TRANSMIT, wide);
            }
        }
        rows
    }
}
