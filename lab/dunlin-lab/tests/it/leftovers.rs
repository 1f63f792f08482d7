//! Nothing stays: not after the end, not after a kill, not of a dead run.

use std::io::{BufRead as _, BufReader};
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Command, Stdio};

use crate::{is_gone, lab, name, namespaces, running, said, skipped};

const KILL: i32 = 9;

#[test]
fn the_end_of_the_input_ends_a_network() {
    if skipped() {
        return;
    }
    let link = name("end");
    let mut child = running(&link, "star:2");
    let hosts = ["broker", "c1", "c2"].map(|host| format!("dunlin-{link}-{host}"));
    assert_eq!(namespaces(&link), hosts);
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
    assert!(is_gone(&link));
}

#[test]
fn a_killed_network_leaves_nothing_not_even_processes() {
    if skipped() {
        return;
    }
    let link = name("kill");
    let mut child = running(&link, "dumbbell");
    assert_eq!(namespaces(&link).len(), 11);
    let mut inside = Command::new("ip")
        .args(["netns", "exec", &format!("dunlin-{link}-c14")])
        .args(["sh", "-c", "echo inside; exec sleep 30"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let stdout = inside.stdout.as_mut().unwrap();
    BufReader::new(stdout).read_line(&mut line).unwrap();
    assert_eq!(line, "inside\n");
    child.kill().unwrap();
    child.wait().unwrap();
    // Waits for the other watcher, or does its work.
    assert!(lab(&["watch", &link]).status().unwrap().success());
    assert!(is_gone(&link));
    assert_eq!(inside.wait().unwrap().signal(), Some(KILL));
}

#[test]
fn what_a_dead_run_left_is_recognised() {
    if skipped() {
        return;
    }
    let link = name("dead");
    let ghosts = ["a", "lamp_1"].map(|host| format!("dunlin-{link}-{host}"));
    let make = || {
        for ghost in &ghosts {
            let made = Command::new("ip").args(["netns", "add", ghost]).status();
            assert!(made.unwrap().success());
        }
    };
    make();
    let cleaned = lab(&["clean", &link]).output().unwrap();
    assert!(cleaned.status.success(), "{}", said(&cleaned));
    let lines = ghosts.each_ref().map(|ghost| format!("removed {ghost}\n"));
    assert_eq!(String::from_utf8_lossy(&cleaned.stdout), lines.concat());
    assert!(is_gone(&link));
    let again = lab(&["clean", &link]).output().unwrap();
    assert_eq!(again.stdout, b"nothing to clean\n");
    // The next run of that name needs no cleaning.
    make();
    let arguments = ["link", "--no-realtime", "--name", &link, "--", "true"];
    assert!(lab(&arguments).status().unwrap().success());
    assert!(is_gone(&link));
}

#[test]
fn a_running_network_is_left_alone() {
    if skipped() {
        return;
    }
    let link = name("alone");
    let mut child = running(&link, "chain:2");
    let cleaned = lab(&["clean", &link]).output().unwrap();
    let want = format!("left alone: {link} is running\n");
    assert_eq!(String::from_utf8_lossy(&cleaned.stdout), want);
    let second = lab(&["link", "--name", &link, "--", "true"]).output();
    let second = second.unwrap();
    assert!(!second.status.success());
    let want = format!("cannot claim the name: a link named {link} is running");
    assert!(said(&second).ends_with(&want), "{}", said(&second));
    assert_eq!(namespaces(&link).len(), 2);
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
    assert!(is_gone(&link));
}

#[test]
fn a_network_that_does_not_start_leaves_nothing() {
    if skipped() {
        return;
    }
    let link = name("start");
    let cases: [(&[&str], &str); 5] = [
        (
            &["--pcap", "/nowhere/x.pcapng"],
            "cannot write the capture /nowhere/x.pcapng:",
        ),
        (
            &["--step", "1s rebind c"],
            "there is no host `c`; there are a, b",
        ),
        (
            &["--set", "wan.delay=1ms"],
            "there is no link `wan`; there are link",
        ),
        (
            &["--topology", "ring"],
            "there is no topology `ring`; there are pair,",
        ),
        (
            &["--profile", "lte"],
            "there is no profile `lte`; there are wired,",
        ),
    ];
    for (arguments, want) in cases {
        let all = ["link", "--no-realtime", "--name", &link];
        let output = lab(&all).args(arguments).args(["--", "true"]).output();
        let output = output.unwrap();
        assert_eq!(output.status.code(), Some(1));
        let said = said(&output);
        assert!(said.contains(want), "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
        assert!(is_gone(&link));
    }
}

#[test]
fn a_full_disk_fails_the_run_with_a_reason() {
    if skipped() {
        return;
    }
    let link = name("full");
    let arguments = ["link", "--name", &link, "--pcap", "/dev/full", "--", "true"];
    let output = lab(&arguments).output().unwrap();
    let said = said(&output);
    assert_eq!(output.status.code(), Some(3), "{said}");
    let want = "cannot write the capture /dev/full: No space left on device";
    assert!(said.contains(want), "{said}");
    assert!(is_gone(&link));
}

#[test]
fn a_device_that_goes_fails_the_run_but_ends_it_not() {
    if skipped() {
        return;
    }
    let link = name("gone");
    let script = "ip -n $DUNLIN_NS_B link delete link0; \
                  ip netns exec $DUNLIN_NS_A ip address show link0 >/dev/null";
    let arguments = ["link", "--no-realtime", "--name", &link, "--for", "20s"];
    let output = lab(&arguments).args(["--", "sh", "-c", script]).output();
    let output = output.unwrap();
    let said = said(&output);
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(said.contains("cannot read from host b"), "{said}");
    assert!(is_gone(&link));
}
