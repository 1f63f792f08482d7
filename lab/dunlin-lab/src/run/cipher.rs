//! `cipher`: what ChaCha20-Poly1305 and AES cost the broker for the same messages.

use core::time::Duration;

use anyhow::Result;

use super::bench::{Bench, measure, outcome};
use super::experiment::{Claim, Experiment, Figure, Kind};
use super::generator::Generator;
use super::load::Load;
use super::plan;
use super::record::{Cell, Outcome, Record, Scale};
use super::stats::{Pick, Sample, Statistic, float};
use super::systems::Serving;
use super::validity;
use crate::lab::Lab;

/// Ciphers of TLS 1.3.
pub(crate) struct Cipher;

const SYSTEMS: [&str; 2] = ["dunlin-quic", "dunlin-tls"];

/// The hardware has instructions for the first on most hosts, for the second on none.
const AES: &str = "aes-128-gcm";
const CHACHA: &str = "chacha20-poly1305";

/// Bytes of a message: a small one, and most of a datagram.
const SIZES: [&str; 2] = ["64", "1024"];

const fn seconds(scale: Scale) -> u64 {
    match scale {
        Scale::Smoke => 1,
        Scale::Short => 2,
        Scale::Paper => 20,
    }
}

impl Experiment for Cipher {
    fn name(&self) -> &'static str {
        "cipher"
    }

    fn about(&self) -> &'static str {
        "processor time of the broker for a message, AES beside ChaCha20"
    }

    fn source(&self) -> &'static str {
        "future work of paper 000, section VI"
    }

    fn plan(&self, scale: Scale) -> Vec<Cell> {
        let (sizes, times): (&[&str], u32) = match scale {
            Scale::Smoke => (&SIZES[1..], 1),
            Scale::Short => (&SIZES[1..], 5),
            Scale::Paper => (&SIZES, 10),
        };
        let ciphers: &[&str] = match scale {
            Scale::Smoke => &[CHACHA],
            _ => &[AES, CHACHA],
        };
        let factors: [(&str, &[&str]); 2] = [("size_bytes", sizes), ("cipher", ciphers)];
        let systems = match scale {
            Scale::Smoke => &SYSTEMS[..1],
            _ => &SYSTEMS,
        };
        plan::cells(self.name(), systems, &factors, times)
    }

    fn seconds(&self, _cell: &Cell, scale: Scale) -> f64 {
        1.5 + float(seconds(scale))
    }

    fn run(&self, cell: &Cell, scale: Scale, lab: &Lab) -> Result<Outcome> {
        // A broker with one cipher: what clients would rather have does not count.
        let cipher = format!("tls.cipher_suites=[{:?}]", cell.factor("cipher"));
        let serving = Serving {
            settings: vec![cipher, "shards=1".to_owned()],
            ..Serving::default()
        };
        let bench = Bench::serving(lab, cell, &["delay=1ms".to_owned()], None, &serving)?;
        let load = Load {
            publishers: 4,
            topics: 1,
            rate: Some(250.0),
            payload: cell.factor("size_bytes").parse()?,
            expiry: Duration::ZERO,
            ..Load::of(Duration::from_secs(seconds(scale)))
        };
        let mut command = bench.load(bench.system.streams);
        load.add_to(&mut command);
        command.args(["--announce", "--qos", "0"]);
        let mut load = Generator::of(command)?;
        load.await_connected()?;
        let before = bench.server.processor()?;
        let done = load.end()?;
        let used = bench.server.processor()?.saturating_sub(before);
        let each = used.as_secs_f64() * 1e6 / float(done.received.max(1));
        let measures = vec![measure("cpu-per-message", "us", vec![each])];
        let mut outcome = outcome(measures, bench.finish_untimed()?);
        outcome.invalid = outcome.invalid.or_else(|| validity::load(&done));
        if done.received == 0 {
            outcome.invalid = Some("no message arrived".to_owned());
        }
        Ok(outcome)
    }

    fn figures(&self) -> Vec<Figure> {
        vec![Figure {
            facet: Some("size_bytes"),
            ..Figure::new(
                "cpu",
                "Processor time of the broker for a message",
                "cpu-per-message",
                Kind::Bars { x: "cipher" },
            )
        }]
    }

    fn claims(&self, records: &[Record]) -> Vec<Claim> {
        let mut rows = Vec::new();
        for system in SYSTEMS {
            for size in SIZES {
                let of = |cipher: &str| {
                    let pick = Pick::new(system, "cpu-per-message").at("size_bytes", size);
                    Sample::of(records, &pick.at("cipher", cipher))
                };
                let measured = of(CHACHA).change(&of(AES), Statistic::Mean);
                // A short run has one size.
                if size == SIZES[0] && measured.is_none() {
                    continue;
                }
                rows.push(Claim {
                    what: format!(
                        "processor time for a message of {size} bytes, {system}: \
                         {CHACHA} against {AES}"
                    ),
                    paper: "could reduce the overhead of encryption (future work, VI)".to_owned(),
                    measured,
                    unit: "%",
                    target: None,
                    reason: None,
                    causes: Vec::new(),
                });
            }
        }
        rows
    }
}
