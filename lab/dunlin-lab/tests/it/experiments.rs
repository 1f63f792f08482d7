//! Experiments in seconds: each runs, and says what it measured or why it could not.
//! They need the program `dunlin` beside `dunlin-lab`, and those of CoAP what
//! `scripts/setup-test.sh --lab` installs; where something is missing, or there can be
//! no links, that is said.

use std::path::Path;
use std::process::Command;

use crate::{lab, said, skipped};

/// Whether there is what all experiments need.
fn can_run() -> bool {
    let dunlin = Path::new(env!("CARGO_BIN_EXE_dunlin-lab")).with_file_name("dunlin");
    if skipped() {
        return false;
    }
    if !dunlin.is_file() {
        eprintln!("skipped: there is no {}", dunlin.display());
        return false;
    }
    true
}

/// Runs experiments of these names; each must print the metric beside its name.
fn measures(experiments: &[(&str, &str)], more: &[&str]) {
    let folder = tempfile::tempdir().unwrap();
    let output = lab(&["run", "--smoke", "--fresh", "--out"])
        .arg(folder.path())
        .args(experiments.iter().map(|(name, _)| name))
        .args(more)
        .output()
        .unwrap();
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    for (name, metric) in experiments {
        let from = printed.find(&format!("== {name}:")).unwrap_or_default();
        let part = printed.get(from..).unwrap_or_default();
        let part = part.get(2..).and_then(|part| part.split("\n== ").next());
        let part = part.unwrap_or_default();
        let measured = part.contains(&format!("\n   {metric} ["));
        // A machine with other work to do.
        let busy = part.contains("saturated");
        assert!(measured || busy, "{name}: {printed}{}", said(&output));
        assert!(!part.contains("failed:"), "{name}: {printed}");
    }
}

#[test]
fn experiments_of_future_work_run() {
    if !can_run() {
        return;
    }
    let experiments = [
        ("reading", "acknowledged"),
        ("nikitin-mesh", "silence"),
        ("cipher", "cpu-per-message"),
        ("uplink", "silence"),
    ];
    measures(&experiments, &[]);
}

/// Why there is no CoAP, if so, as the program lists it.
fn no_coap() -> Option<String> {
    let output = lab(&["run", "--list"]).output().unwrap();
    let listed = String::from_utf8_lossy(&output.stdout).into_owned();
    let line = listed.lines().find(|line| line.starts_with("coap-dtls "));
    let line = line.expect("coap-dtls is no system");
    line.contains("not installed").then(|| line.to_owned())
}

#[test]
fn experiments_of_the_papers_run_with_coap() {
    if !can_run() {
        return;
    }
    if let Some(what) = no_coap() {
        eprintln!("skipped: {what}");
        return;
    }
    // Packets of one publisher and one observer; observers in another namespace; clients
    // one after another; pairs; a file many times.
    let experiments = [
        ("kumar-handshake", "packets"),
        ("kumar-hol", "latency"),
        ("milios-subscribe", "subscribed"),
        ("milios-publish", "delay"),
        ("nikitin-transmit", "transmit"),
    ];
    measures(&experiments, &["--only", "coap-con", "--only", "coap-dtls"]);
}

#[test]
fn coap_peer_refuses_what_it_cannot_do() {
    let program = Path::new(env!("CARGO_BIN_EXE_dunlin-lab"));
    let target = program.parent().and_then(Path::parent).unwrap();
    let peer = target.join("peers/coap/coap-peer");
    if !peer.is_file() {
        eprintln!("skipped: there is no {}", peer.display());
        return;
    }
    let long = "x".repeat(300);
    for (arguments, want) in [
        (&[][..], "say load, visits, pub or sub"),
        (&["dance"], "say load, visits, pub or sub"),
        (
            &["load", "--url", "mqtt://127.0.0.1:1"],
            "no address of CoAP",
        ),
        (&["load", "--url", "coap://localhost:1"], "no IPv4 address"),
        (
            &["load", "--url", "coap://127.0.0.1:99999"],
            "no IPv4 address",
        ),
        (
            &["load", "--url", "coap://127.0.0.1:1", "--pubs", "-1"],
            "--pubs: `-1` is no number",
        ),
        (
            &["load", "--url", "coap://127.0.0.1:1", "--rate", "nan"],
            "--rate: `nan` is no number",
        ),
        (
            &["load", "--url", "coap://127.0.0.1:1", "--pubs", "0"],
            "not enough for 0 publishers",
        ),
        (
            &["load", "--url", "coap://127.0.0.1:1", "--size", "9999"],
            "--size: `9999` is no number",
        ),
        (
            &[
                "load",
                "--url",
                "coap://127.0.0.1:1",
                "--sub-namespace",
                "there-is-none",
            ],
            "cannot enter",
        ),
        (
            &["pub", "--url", "coap://127.0.0.1:1", "-f", "/nowhere"],
            "cannot read /nowhere",
        ),
        (
            &[
                "pub",
                "--url",
                "coap://127.0.0.1:1",
                "-f",
                "/dev/null",
                "-t",
                &long,
            ],
            "does not fit",
        ),
        (
            &["pub", "--url", "coaps://127.0.0.1:1", "--ca", "/nowhere"],
            "cannot read /nowhere",
        ),
    ] {
        let output = Command::new(&peer).args(arguments).output().unwrap();
        let said = said(&output);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {said}");
        assert!(
            said.starts_with("coap-peer: ") && said.contains(want),
            "{said}"
        );
        assert_eq!(said.lines().count(), 1, "{said}");
    }
}
