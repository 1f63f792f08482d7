//! `dunlin import` as a program, and a broker that runs on what it wrote.

use std::process::{Command, Output};

use dunlin::config::Config;
use dunlin::daemon::Daemon;
use dunlin_client::{Client, Publish, PublishError, QoS};

use crate::support::run;

/// Written by mosquitto_passwd 2.0: the password is `secret`.
const ALICE: &str = "alice:$7$101$YvImOIVlEq0mBahf$5hVtYkm2eWBl728ytVpbj1jztTwW9svZjY0pfAp0xziTZRrfDf6sRrl26F8PX2vKO/nztmCU4BGNUii4WrEPQw==";

fn import(args: &[&str], dir: &std::path::Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_dunlin"));
    let command = command.arg("import").args(args).current_dir(dir);
    command.output().expect("started")
}

#[test]
fn users_and_rights_of_mosquitto_hold() {
    let dir = tempfile::tempdir().expect("a directory");
    let write = |name: &str, text: &str| {
        std::fs::write(dir.path().join(name), text).expect("written");
    };
    let root = dir.path().display();
    write(
        "mosquitto.conf",
        &format!(
            "listener 1883 127.0.0.1\nsys_interval 0\npassword_file {root}/passwd\n\
             acl_file {root}/acl\nmount_point x\n"
        ),
    );
    write("passwd", &format!("{ALICE}\nbob:$6$AAAA$BBBB\n"));
    write("acl", "user alice\ntopic readwrite home/#\n");
    let output = import(&["mosquitto.conf", "--strict"], dir.path());
    let list = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{list}");
    assert!(list.contains("mosquitto.conf:5: mount_point x: "), "{list}");
    assert!(list.contains("passwd:2: user bob: "), "{list}");
    // What is there is not replaced unasked.
    let output = import(&["mosquitto.conf"], dir.path());
    assert_eq!(output.status.code(), Some(1));
    let output = import(&["mosquitto.conf", "--force"], dir.path());
    assert_eq!(output.status.code(), Some(0));
    let file = dir.path().join("dunlin.toml");
    let overrides = [
        "listener.0.address=127.0.0.1:0".to_owned(),
        format!("auth.password_file={root}/passwords"),
    ];
    let mut config = Config::load(Some(&file), &overrides).expect("valid");
    config.data_dir = dir.path().join("data");
    let daemon = Daemon::start(config).expect("started");
    let port = daemon.bound().first().expect("a listener").addr.port();
    let connect = |user: &'static str, password: &'static str| {
        let url = format!("mqtt://127.0.0.1:{port}");
        let builder = Client::builder(url).expect("a URL").no_reconnect();
        builder.credentials(user, password).connect()
    };
    run(async {
        let (client, _messages) = connect("alice", "secret").await.expect("connected");
        let message = |topic: &str| Publish::new(topic.to_owned(), "x").qos(QoS::AtLeastOnce);
        client.publish(message("home/a")).await.expect("allowed");
        let refused = client.publish(message("b")).await;
        assert!(
            matches!(refused, Err(PublishError::Refused { .. })),
            "{refused:?}"
        );
        client.disconnect().await;
        for (user, password) in [("alice", "wrong"), ("bob", "x")] {
            assert!(connect(user, password).await.is_err(), "{user}");
        }
    });
    daemon.shut_down();
}
