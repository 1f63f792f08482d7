//! A listener at a Unix socket: MQTT and AMQP, our clients and mosquitto's.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use dunlin_client::{Client, QoS};

use crate::control::rows;
use crate::support::{Broker, PATIENCE, run};

/// A broker whose only listener is a socket, and the socket's path.
fn broker(dir: &Path) -> (Broker, PathBuf) {
    let path = dir.join("mqtt.sock");
    let listener = format!("listener=[{{transport=\"unix\",path={path:?},mode=\"0600\"}}]");
    (Broker::start_with(2, &[&listener]), path)
}

/// The program with arguments.
fn program(program: &str, args: &[&str]) -> Output {
    let mut command = Command::new(program);
    command.args(args).stdin(Stdio::null());
    command.output().expect("started")
}

fn dunlin(args: &[&str]) -> String {
    let output = program(env!("CARGO_BIN_EXE_dunlin"), args);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{args:?}: {error}");
    String::from_utf8(output.stdout).expect("text")
}

#[test]
fn clients_of_both_protocols_meet_at_a_unix_socket() {
    let dir = tempfile::tempdir().expect("a directory");
    let (broker, path) = broker(dir.path());
    let mode = std::fs::metadata(&path).expect("there").permissions();
    assert_eq!(mode.mode() & 0o777, 0o600);
    let (at, amqp) = (path.display(), format!("amqp+unix:{}", path.display()));
    run(async {
        let builder = Client::builder(format!("unix:{at}")).expect("a URL");
        let builder = builder.no_reconnect().connect_timeout(PATIENCE);
        let builder = builder.client_id("reader");
        let (client, mut messages) = builder.connect().await.expect("connected");
        let subscribed = client.subscribe("t/#", QoS::AtLeastOnce).await;
        subscribed.expect("subscribed");
        dunlin(&[
            "pub",
            "--unix",
            &at.to_string(),
            "-t",
            "t/1",
            "-m",
            "one",
            "-q",
            "1",
        ]);
        dunlin(&[
            "pub",
            "-L",
            &format!("unix:{at}"),
            "-t",
            "t/2",
            "-m",
            "two",
            "-q",
            "2",
        ]);
        dunlin(&["send", "--url", &amqp, "-t", "t/3", "-m", "three"]);
        for (topic, payload) in [("t/1", "one"), ("t/2", "two"), ("t/3", "three")] {
            let message = messages.next().await.expect("a message");
            assert_eq!(message.topic, topic);
            assert_eq!(&message.payload[..], payload.as_bytes());
        }
        // Which user is at the other end.
        let shown = rows(&broker, &["clients"]);
        let reader = shown.iter().find(|row| row["client_id"] == "reader");
        let reader = reader.expect("listed");
        let user = std::os::unix::fs::MetadataExt::uid(&std::fs::metadata(&path).expect("there"));
        assert_eq!(reader["transport"], "unix");
        assert_eq!(reader["address"], format!("unix:{user}"));
        client.disconnect().await;
    });
    let listening = rows(&broker, &["listeners"]);
    assert_eq!(listening[0]["address"], path.display().to_string());
    drop(broker);
    assert!(!path.exists(), "the socket goes with the broker");
}

#[test]
fn mosquittos_clients_use_the_socket() {
    if Command::new("mosquitto_pub")
        .arg("--help")
        .output()
        .is_err()
    {
        eprintln!("skipped: mosquitto_pub is not installed (scripts/setup-test.sh)");
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let (_broker, path) = broker(dir.path());
    let at = path.display().to_string();
    for (version, qos) in [("311", "0"), ("5", "1"), ("5", "2")] {
        let topic = format!("m/{version}/{qos}");
        let publish = [
            "--unix", &at, "-t", &topic, "-m", "hello", "-q", qos, "-V", version, "-r",
        ];
        let output = program("mosquitto_pub", &publish);
        assert!(output.status.success(), "{output:?}");
        let subscribe = [
            "--unix", &at, "-t", &topic, "-C", "1", "-W", "60", "-V", version,
        ];
        let output = program("mosquitto_sub", &subscribe);
        assert_eq!(output.stdout, b"hello\n", "{output:?}");
    }
}

#[test]
fn a_file_that_is_no_socket_keeps_the_broker_from_starting() {
    use dunlin::config::Config;
    use dunlin::daemon::Daemon;

    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("precious");
    std::fs::write(&path, "kept").expect("written");
    let listener = format!("listener=[{{transport=\"unix\",path={path:?}}}]");
    let mut config = Config::load(None, &[listener]).expect("valid");
    config.data_dir = dir.path().join("data");
    let error = Daemon::start(config).expect_err("refused").to_string();
    assert!(
        error.contains("no socket") && error.contains("precious"),
        "{error}"
    );
    assert_eq!(std::fs::read_to_string(&path).expect("there"), "kept");
    // Anything but a Unix socket needs an address.
    for (wrong, what) in [
        (r#"{transport="unix"}"#, "needs the path"),
        (
            r#"{transport="unix",path="/s",address="*:1"}"#,
            "no address",
        ),
        (r#"{transport="tcp",mode="0600"}"#, "only unix has"),
        (r#"{transport="unix",path="/s",mode="rw"}"#, "no mode"),
        (
            r#"{transport="unix",path="/s",proxy_protocol="v2",trusted=["::1"]}"#,
            "behind no proxy",
        ),
        (
            r#"{transport="unix",path="/s"},{transport="unix",path="/s"}"#,
            "is taken",
        ),
    ] {
        let error = Config::load(None, &[format!("listener=[{wrong}]")]).expect_err(wrong);
        assert!(error.to_string().contains(what), "{wrong}: {error}");
    }
}
