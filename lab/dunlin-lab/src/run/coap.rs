//! CoAP beside MQTT: server and client of libcoap, clients by its library
//! (`lab/coap`), and what the client's log says of its requests.

use core::time::Duration;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};
use dunlin_link::linux::Namespace;

use super::experiment::{Claim, Estimate};
use super::record::{Cell, Record};
use super::stats::{Pick, Sample, Statistic};
use crate::lab::{Lab, find, targets};
use crate::process::Server;

/// All systems of CoAP.
const ALL: [&str; 4] = ["coap-con", "coap-non", "coap-dtls", "coap-dtls-psk"];

/// The option of libcoap's programs by which messages are not confirmable.
pub(super) const NON_CONFIRMABLE: &str = "-N";

/// Those of RFC 7252.
pub(super) const PORT: u16 = 5683;
pub(super) const SECURE_PORT: u16 = 5684;

/// A key that the devices of an experiment share with the server.
const KEY: &str = "0123456789abcdef";

/// How a client knows its server.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Known {
    Not,
    Certificate,
    SharedKey,
}

/// Resources that may be made by PUT.
const RESOURCES: &str = "1000";

/// Log level at which each message is written with its time.
const VERBOSE: &str = "7";

/// The server with OpenSSL, or the one that there is.
pub(super) fn server() -> Option<PathBuf> {
    // Both come in one package.
    client().ok()?;
    find("coap-server-openssl").or_else(|| find("coap-server"))
}

/// The clients of `lab/coap`, where `scripts/setup-test.sh` puts them.
pub(super) fn peer() -> Option<PathBuf> {
    let places = targets().into_iter();
    let mut places = places.map(|it| it.join("peers/coap/coap-peer"));
    places.find(|path| path.is_file())
}

/// The client likewise.
pub(super) fn client() -> Result<PathBuf> {
    let found = find("coap-client-openssl").or_else(|| find("coap-client"));
    found.context("coap-client is not installed: apt install libcoap3-bin")
}

/// What its client says of its version.
pub(super) fn version() -> Option<String> {
    let mut command = Command::new(client().ok()?);
    // It calls help a failure.
    let said = command.arg("-h").output().ok()?;
    let said = [said.stdout, said.stderr].concat();
    let said = String::from_utf8_lossy(&said).into_owned();
    let line = said.lines().find(|line| !line.trim().is_empty())?;
    let (name, rest) = line.split_once(" v")?;
    let version = rest.split_whitespace().next()?;
    let name = name.rsplit('/').next()?;
    Some(format!("libcoap {version} ({name})"))
}

/// Starts it. It listens at TCP as well, which shows that it is there.
pub(super) fn serve(
    lab: &Lab,
    namespace: &Namespace,
    program: PathBuf,
    (options, known): (&[&str], Known),
) -> Result<Server> {
    let mut command = namespace.command(program);
    command.args(["-A", "0.0.0.0", "-p", &PORT.to_string(), "-d", RESOURCES]);
    // Notifications are as requests are.
    command.args(options);
    match known {
        Known::SharedKey => {
            command.args(["-k", KEY]);
        }
        Known::Certificate => {
            command.arg("-c").arg(lab.certificate("server.pem"));
            command.arg("-j").arg(lab.certificate("server.key"));
            // Clients show none.
            command.arg("-n");
        }
        Known::Not => {}
    }
    Server::start(namespace, command, PORT, &lab.temporary("coap.log"))
}

/// Adds to a client how it sends, and that it writes its log.
pub(super) fn request(command: &mut Command, lab: &Lab, options: &[&str], known: Known) {
    command.args(["-v", VERBOSE]).args(options);
    match known {
        Known::SharedKey => {
            command.args(["-u", "device", "-k", KEY]);
        }
        Known::Certificate => {
            command.arg("-R").arg(lab.certificate("ca.pem"));
        }
        Known::Not => {}
    }
}

/// Adds to `coap-peer` what it does, with which server and how.
pub(super) fn connect(
    command: &mut Command,
    (what, url): (&str, &str),
    ca: &Path,
    (options, known): (&[&str], Known),
) {
    command.args([what, "--url", url]).args(options);
    match known {
        Known::SharedKey => {
            command.args(["--key", KEY]);
        }
        Known::Certificate => {
            command.arg("--ca").arg(ca);
        }
        Known::Not => {}
    }
}

/// Whether CoAP is measured.
pub(super) fn is_of(cell: &Cell) -> bool {
    ALL.contains(&cell.system.as_str())
}

/// How a system does beside those of CoAP that were measured.
pub(super) fn beside(
    records: &[Record],
    ours: &str,
    what: &str,
    statistic: Statistic,
    pick: impl Fn(&str) -> Pick,
) -> Vec<Claim> {
    let sample = |system: &str| Sample::of(records, &pick(system));
    let change = |other: &str| sample(ours).change(&sample(other), statistic);
    additions(ours, what, "%", change)
}

/// Rows that are none of the paper's: what is measured of a system against each of
/// CoAP, where anything is.
pub(super) fn additions(
    ours: &str,
    what: &str,
    unit: &'static str,
    measured: impl Fn(&str) -> Option<Estimate>,
) -> Vec<Claim> {
    let row = |other: &&str| {
        Some(Claim {
            what: format!("{what}: {ours} against {other}"),
            paper: ADDITION.to_owned(),
            measured: Some(measured(other)?),
            unit,
            target: None,
            reason: None,
            causes: Vec::new(),
        })
    };
    ALL.iter().filter_map(row).collect()
}

/// A note of how much of what was sent did not arrive, if so: what an observer gets
/// is the newest state, and values in between may be left out (RFC 7641, 1.3).
pub(super) fn missing(lost: u64, all: u64) -> Option<String> {
    let why = "lost, overwritten before they were sent on, or still waiting at the end";
    (lost > 0).then(|| format!("{lost} of {all} messages did not arrive: {why}"))
}

/// What stands where other rows have what a paper said.
const ADDITION: &str = "an addition: no paper measured CoAP (future work of 002, 6.1.3)";

/// A request, in time since midnight.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Reading {
    /// When it was sent first.
    pub(super) sent: Duration,
    /// When its answer came.
    pub(super) answered: Option<Duration>,
}

/// What the log of a client says.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(super) struct Log {
    /// When its session began.
    pub(super) begun: Option<Duration>,
    pub(super) readings: Vec<Reading>,
}

impl Log {
    /// Reads lines of `coap-client -v 7`: a line with the time and what is done,
    /// then the message without a time.
    pub(super) fn read<'a>(lines: impl IntoIterator<Item = &'a str>) -> Self {
        let mut log = Self::default();
        let mut now = None;
        let mut messages: Vec<(&str, usize)> = Vec::new();
        for line in lines {
            if let Some(time) = time(line) {
                // Midnight does not end a run.
                let earlier = log.begun.is_some_and(|begun| time < begun);
                let day = Duration::from_secs(if earlier { 86_400 } else { 0 });
                now = Some(time + day);
                log.begun = log.begun.or(now);
                continue;
            }
            let (Some(now), Some(id)) = (now, message_id(line)) else {
                continue;
            };
            let known = messages.iter().find(|(known, _)| *known == id);
            match known {
                None if line.contains(" c:PUT ") => {
                    messages.push((id, log.readings.len()));
                    let answered = None;
                    log.readings.push(Reading {
                        sent: now,
                        answered,
                    });
                }
                Some((_, index)) if line.contains(" c:2.") => {
                    if let Some(reading) = log.readings.get_mut(*index) {
                        reading.answered = reading.answered.or(Some(now));
                    }
                }
                _ => {}
            }
        }
        log
    }
}

/// The time since midnight of `Nov 23 20:16:58.081 DEBG …`.
fn time(line: &str) -> Option<Duration> {
    let mut words = line.split_whitespace().skip(2);
    let clock = words.next()?;
    let mut parts = clock.splitn(3, ':');
    let mut number = || parts.next()?.parse::<u64>().ok();
    let (hours, minutes) = (number()?, number()?);
    let seconds: f64 = parts.next()?.parse().ok()?;
    // What is no number of seconds is no time.
    let seconds = Duration::try_from_secs_f64(seconds).ok()?;
    // Only lines of the log have a level behind the time.
    words.next()?;
    Some(Duration::from_secs(hours * 3600 + minutes * 60) + seconds)
}

/// The identifier of `v:1 t:CON c:PUT i:ab93 {01} …`.
fn message_id(line: &str) -> Option<&str> {
    let rest = line.strip_prefix("v:1 t:")?;
    rest.split_whitespace()
        .find_map(|word| word.strip_prefix("i:"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of libcoap 4.3.1, shortened: the second request is lost once.
    const SAID: &str = "\
Nov 23 20:18:17.060 DEBG ***10.203.0.1:57252 <-> 10.203.0.2:5683 UDP : session 0x5: created outgoing session
Nov 23 20:18:17.062 DEBG sending CoAP request:
Nov 23 20:18:17.062 DEBG *  10.203.0.1:57252 <-> 10.203.0.2:5683 UDP : sent 16 bytes
v:1 t:CON c:PUT i:6a41 {01} [ Uri-Path:p1 ] :: '21.5'
Nov 23 20:18:17.082 DEBG *  10.203.0.1:57252 <-> 10.203.0.2:5683 UDP : received 5 bytes
v:1 t:ACK c:2.01 i:6a41 {01} [ ]
Nov 23 20:18:18.085 DEBG *  10.203.0.1:57252 <-> 10.203.0.2:5683 UDP : sent 16 bytes
v:1 t:CON c:PUT i:6a42 {02} [ Uri-Path:p1 ] :: '21.5'
Nov 23 20:18:20.679 DEBG ** 10.203.0.1:57252 <-> 10.203.0.2:5683 UDP : mid=0x6a42: retransmission #1
Nov 23 20:18:20.679 DEBG *  10.203.0.1:57252 <-> 10.203.0.2:5683 UDP : sent 16 bytes
v:1 t:CON c:PUT i:6a42 {02} [ Uri-Path:p1 ] :: '21.5'
Nov 23 20:18:20.689 DEBG *  10.203.0.1:57252 <-> 10.203.0.2:5683 UDP : received 5 bytes
v:1 t:ACK c:2.04 i:6a42 {02} [ ]
Nov 23 20:18:21.100 DEBG *  10.203.0.1:57252 <-> 10.203.0.2:5683 UDP : sent 16 bytes
v:1 t:CON c:PUT i:6a43 {03} [ Uri-Path:p1 ] :: '21.5'
";

    #[test]
    fn a_log_tells_when_requests_were_sent_and_answered() {
        let log = Log::read(SAID.lines());
        let took = |reading: &Reading| {
            let took = reading.answered? - reading.sent;
            Some(took.as_millis())
        };
        let took: Vec<Option<u128>> = log.readings.iter().map(took).collect();
        assert_eq!(took, [Some(20), Some(2604), None]);
        let begun = log.begun.unwrap();
        assert_eq!(begun.as_millis(), 73_097_060);
    }

    fn arguments(what: (&str, &str), how: (&[&str], Known)) -> Vec<String> {
        let mut command = Command::new("coap-peer");
        connect(&mut command, what, Path::new("/certs/ca.pem"), how);
        let arguments = command.get_args().map(|it| it.to_string_lossy());
        arguments.map(|it| it.into_owned()).collect()
    }

    #[test]
    fn clients_know_their_server_as_the_system_says() {
        let url = "coap://10.203.0.2:5683";
        let plain = arguments(("load", url), (&[NON_CONFIRMABLE], Known::Not));
        assert_eq!(plain, ["load", "--url", url, "-N"]);
        let url = "coaps://10.203.0.2:5684";
        let verified = arguments(("visits", url), (&[], Known::Certificate));
        assert_eq!(verified, ["visits", "--url", url, "--ca", "/certs/ca.pem"]);
        let shared = arguments(("pub", url), (&[], Known::SharedKey));
        assert_eq!(shared, ["pub", "--url", url, "--key", KEY]);
    }

    #[test]
    fn rows_beside_a_paper_are_no_claims_and_only_of_what_was_measured() {
        let one = |other: &str| (other == "coap-non").then_some(estimate(-3.0));
        let rows = additions("dunlin-quic", "mean delay", "%", one);
        assert_eq!(rows.len(), 1);
        assert_eq!(rows[0].what, "mean delay: dunlin-quic against coap-non");
        assert!(rows[0].paper.contains("addition"));
        assert_eq!((rows[0].target, rows[0].measured), (None, one("coap-non")));
        assert!(additions("dunlin-quic", "mean delay", "%", |_| None).is_empty());
        let none = beside(&[], "dunlin-quic", "x", Statistic::Mean, |system| {
            Pick::new(system, "delay")
        });
        assert!(none.is_empty());
    }

    fn estimate(value: f64) -> Estimate {
        Estimate {
            value,
            low: value,
            high: value,
        }
    }

    #[test]
    fn what_did_not_arrive_is_said() {
        assert_eq!(missing(0, 750), None);
        let said = missing(12, 750).unwrap();
        assert!(
            said.starts_with("12 of 750 messages did not arrive"),
            "{said}"
        );
    }

    #[test]
    fn a_log_over_midnight_has_no_time_that_goes_back() {
        let said = SAID
            .replace("20:18:17", "23:59:59")
            .replace("20:18:1", "00:00:0");
        let said = said.replace("20:18:2", "00:00:1");
        let log = Log::read(said.lines());
        let times: Vec<Duration> = log.readings.iter().map(|it| it.sent).collect();
        assert!(times.is_sorted(), "{times:?}");
        assert_eq!(times[1] - times[0], Duration::from_millis(9_023));
    }

    #[test]
    fn what_is_no_log_has_no_requests() {
        for said in [
            "",
            "21.5",
            "v:1 t:CON c:PUT i:6a41 {01}",
            "a b 1:2:3",
            "a b 1:2:-3 c",
        ] {
            assert!(Log::read(said.lines()).readings.is_empty(), "{said}");
            assert_eq!(Log::read(said.lines()).begun, None, "{said}");
        }
    }
}
