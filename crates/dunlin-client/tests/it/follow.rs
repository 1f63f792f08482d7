//! A client over TCP whose address disappears, in a network namespace of its
//! own: needs root and the programs `unshare` and `ip`, and says so otherwise.

use core::time::Duration;
use std::process::{Command, Stdio};

use dunlin_client::{Backoff, ConnectionEvent, NetworkOptions};

use super::run;
use super::server::Server;

/// Runs a test of this file that is marked as ignored, in a new namespace.
#[expect(clippy::print_stderr, reason = "a test that is skipped says so")]
fn in_namespace(test: &str) {
    let run = |args: &[&str]| {
        let mut command = Command::new("unshare");
        command.arg("--net").args(args);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command.output()
    };
    match run(&["ip", "link"]) {
        Ok(output) if output.status.success() => {}
        other => {
            let why = other.map(|o| String::from_utf8_lossy(&o.stderr).into_owned());
            eprintln!("skipped {test}: no network namespace of its own: {why:?}");
            return;
        }
    }
    let program = std::env::current_exe().expect("this program");
    let program = program.to_str().expect("UTF-8");
    let name = format!("follow::{test}");
    let output = run(&[program, "--exact", &name, "--ignored", "--nocapture"]).expect("run");
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    let passed = output.status.success() && text.contains("1 passed");
    assert!(passed, "{text}\n{errors}");
}

fn ip(args: &str) {
    let status = Command::new("ip").args(args.split(' ')).status();
    assert!(status.expect("ip").success(), "ip {args}");
}

/// Where the system sends from towards the server.
fn prefer(from: &str) {
    ip(&format!(
        "route replace local 127.0.0.1 dev lo table local src {from}"
    ));
}

#[test]
fn a_client_whose_address_is_gone_connects_again_at_once() {
    in_namespace("address_removed");
}

/// Nothing is sent, and both the ping and the back-off would take an hour.
#[test]
#[ignore = "changes addresses: run by the test above"]
fn address_removed() {
    const NEVER: Duration = Duration::from_secs(3600);
    for args in [
        "link set lo up",
        "addr add 10.77.0.1/32 dev lo",
        "addr add 10.77.0.2/32 dev lo",
    ] {
        ip(args);
    }
    prefer("10.77.0.1");
    let server = Server::run(|listener| {
        let first = listener.accept_session(false);
        assert_eq!(first.address(), "10.77.0.1");
        let mut second = listener.accept_session(true);
        assert_eq!(second.address(), "10.77.0.2");
        second.expect("DISCONNECT expiry=0");
    });
    run(async {
        let builder = server
            .client()
            .keep_alive(NEVER)
            .network(NetworkOptions::new())
            .reconnect(Backoff {
                min: NEVER,
                max: NEVER,
                jitter: 0.0,
            });
        let (client, _messages) = builder.connect().await.expect("connected");
        let mut events = client.events();
        ip("addr del 10.77.0.1/32 dev lo");
        prefer("10.77.0.2");
        let mut seen = Vec::new();
        while !matches!(seen.last(), Some(ConnectionEvent::Connected { .. })) {
            seen.push(events.next().await.expect("an event"));
        }
        let [ConnectionEvent::Disconnected { cause }, ..] = seen.as_slice() else {
            unreachable!("{seen:?}");
        };
        assert!(cause.to_string().contains("local address is gone"));
        client.disconnect().await;
    });
    server.end();
}
