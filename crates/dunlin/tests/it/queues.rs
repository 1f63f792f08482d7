//! `dunlin queue` as a program, against a broker on disk.

use std::process::{Command, Output};

use dunlin_base::transport::Transport;
use serde_json::Value;

use crate::support::Broker;

const LISTENER: &str = r#"listener=[{transport="tcp",address="127.0.0.1:0"}]"#;

const CONFIGURED: &str = r#"queue=[{name="fixed",max_messages=7}]"#;

fn dunlin(broker: &Broker, args: &str) -> Output {
    let port = broker.addr(Transport::Tcp).port();
    let mut command = Command::new(env!("CARGO_BIN_EXE_dunlin"));
    command.args(args.split_whitespace());
    command.args(["--url", &format!("amqp://127.0.0.1:{port}")]);
    command.output().expect("started")
}

/// What `dunlin queue` prints.
pub(crate) fn queue(broker: &Broker, args: &str) -> String {
    let output = dunlin(broker, &format!("queue {args}"));
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{args}: {stderr}");
    String::from_utf8(output.stdout).expect("text")
}

/// What it complains of.
fn refused(broker: &Broker, args: &str) -> String {
    let output = dunlin(broker, &format!("queue {args}"));
    assert_eq!(output.status.code(), Some(1), "{args}");
    String::from_utf8(output.stderr).expect("text")
}

fn json(broker: &Broker, args: &str) -> Value {
    let text = queue(broker, args);
    serde_json::from_str(&text).unwrap_or_else(|_| panic!("{args}: {text}"))
}

#[test]
fn queues_are_managed_by_the_program_and_outlive_the_broker() {
    let mut broker = Broker::start_with(2, &[LISTENER, CONFIGURED]);
    let made = json(
        &broker,
        "create jobs --topic jobs/# --max-messages 3 --max-bytes 1MiB --full drop-oldest \
         --ttl 7d --max-deliveries 5 --dead-letter dead --json",
    );
    assert_eq!(
        (&made["name"], &made["max_messages"]),
        (&"jobs".into(), &3.into())
    );
    queue(&broker, "create brief --transient");
    for _ in 0..4 {
        let sent = dunlin(&broker, "send -t jobs/1 -m x --durable");
        assert!(sent.status.success());
    }
    broker.start_again(2, &[LISTENER, CONFIGURED]);
    let shown = json(&broker, "show jobs --json");
    for (name, value) in [
        ("topics", Value::from(vec!["jobs/#"])),
        ("full", "drop-oldest".into()),
        ("ttl", 604_800_000.into()),
        ("max_bytes", 1_048_576.into()),
        ("max_deliveries", 5.into()),
        ("dead_letter", "dead".into()),
        ("messages", 3.into()),
        ("consumers", 0.into()),
    ] {
        assert_eq!(shown[name], value, "{name}");
    }
    let text = queue(&broker, "show fixed");
    assert!(text.contains("max_messages    7\n"), "{text}");
    let text = queue(&broker, "update jobs --ttl 0s --no-topics");
    assert!(text.contains("ttl             0s\n"), "{text}");
    assert!(text.contains("topics          -\n"), "{text}");
    let list = queue(&broker, "list");
    let names: Vec<_> = list
        .lines()
        .filter_map(|line| line.split(' ').next())
        .collect();
    assert_eq!(names, ["NAME", "fixed", "jobs"], "{list}");
    assert_eq!(queue(&broker, "purge jobs"), "3 messages removed\n");
    assert_eq!(queue(&broker, "delete jobs"), "");
    for (args, text) in [
        ("show jobs", "queue jobs: there is no such queue (404)"),
        ("create fixed", "there is such a queue already (409)"),
        ("delete fixed", "is of the configuration"),
        ("update fixed --levels 2", "is of the configuration"),
        ("create x --levels 11", "levels is between 1 and 10 (400)"),
        ("create a/#", "is no name of a queue"),
        ("update jobs", "there is nothing to change"),
        ("create x --ttl soon", "is not a duration"),
    ] {
        let stderr = refused(&broker, args);
        assert!(stderr.contains(text), "{args}: {stderr}");
    }
    assert_eq!(json(&broker, "list --json")["name"], "fixed");
}
