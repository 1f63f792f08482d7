//! Bridges that operators add, change and remove while the broker runs.

use core::time::Duration;

use crate::bridge::{QUIET, client, next_within, publish, ready, subscriber, tcp};
use crate::control::{ctl, fail, rows};
use crate::support::{Broker, PATIENCE, run};

fn shown(broker: &Broker) -> serde_json::Value {
    rows(broker, &["bridge", "show", "up"]).remove(0)
}

/// Waits until so many messages wait for the other broker.
fn wait_for(broker: &Broker, waiting: u64) {
    let since = std::time::Instant::now();
    while shown(broker)["waiting_messages"] != waiting {
        assert!(since.elapsed() < PATIENCE, "{}", shown(broker));
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_bridge_is_added_changed_and_removed_while_the_broker_runs() {
    let remote = Broker::start(1);
    let url = tcp(&remote);
    let mut local = Broker::start(2);
    run(async {
        let (near, _messages) = client(&local).await;
        let (_far, mut at_far) = subscriber(&remote, "#").await;
        ctl(&local, &["bridge", "add", "up", &url, "--out", "a/#"]);
        ready(&near, "a/probe", &mut at_far).await;
        let (code, text) = fail(&local, &["bridge", "add", "up", &url, "--out", "a/#"]);
        assert!(
            code == 1 && text.contains("there is a bridge \"up\" already"),
            "{text}"
        );
        assert_eq!(shown(&local)["configured"], false);

        let change = [
            "bridge", "change", "up", &url, "--out", "b/#", "--in", "c/#",
        ];
        ctl(&local, &change);
        ready(&near, "b/probe", &mut at_far).await;
        publish(&near, "a/1", "of a topic that it had").await;
        assert_eq!(next_within(&mut at_far, QUIET).await, None);
    });
    local.start_again(2, &[]);
    run(async {
        let (near, _messages) = client(&local).await;
        let (_far, mut at_far) = subscriber(&remote, "#").await;
        ready(&near, "b/probe", &mut at_far).await;
        let topics = serde_json::json!(["out b/#", "in c/#"]);
        assert_eq!(shown(&local)["topics"], topics);
        wait_for(&local, 0);
    });
    assert_eq!(
        ctl(&local, &["bridge", "remove", "up"]),
        "0 messages dropped\n"
    );
    assert_eq!(fail(&local, &["bridge", "show", "up"]).0, 2);
    assert_eq!(fail(&local, &["session", "show", "$bridge:up"]).0, 2);
    assert_eq!(fail(&local, &["bridge", "remove", "up"]).0, 2);
    local.start_again(1, &[]);
    assert!(
        rows(&local, &["bridge", "list"]).is_empty(),
        "after a restart"
    );
}

#[test]
fn what_waits_for_a_bridge_that_is_removed_is_kept_or_dropped_by_order_only() {
    let remote = Broker::start(1);
    let url = tcp(&remote);
    let local = Broker::start(2);
    let add = ["bridge", "add", "up", &url, "--out", "a/#"];
    run(async {
        let (near, _messages) = client(&local).await;
        let (_far, mut at_far) = subscriber(&remote, "a/#").await;
        ctl(&local, &add);
        ready(&near, "a/probe", &mut at_far).await;
        wait_for(&local, 0);
        ctl(&local, &["bridge", "pause", "up"]);
        for number in 0..5 {
            publish(&near, "a/1", &number.to_string()).await;
        }
        wait_for(&local, 5);
        let (code, text) = fail(&local, &["bridge", "remove", "up"]);
        assert!(code == 1 && text.contains("5 messages wait"), "{text}");
        let (code, text) = fail(&local, &["bridge", "remove", "up", "--keep"]);
        assert!(code == 1 && text.contains("resume it first"), "{text}");
        assert_eq!(shown(&local)["state"], "paused");
        let said = ctl(&local, &["bridge", "remove", "up", "--discard"]);
        assert_eq!(said, "5 messages dropped\n");
        assert_eq!(fail(&local, &["session", "show", "$bridge:up"]).0, 2);

        // Nothing of it is left for the next one of the name.
        ctl(&local, &add);
        ready(&near, "a/probe", &mut at_far).await;
    });
    drop(remote);
    run(async {
        let (near, _messages) = client(&local).await;
        for number in 0..5 {
            publish(&near, "a/1", &number.to_string()).await;
        }
        wait_for(&local, 5);
        let (code, _) = fail(&local, &["bridge", "remove", "up"]);
        assert_eq!(code, 1);
        let said = ctl(&local, &["bridge", "remove", "up", "--keep"]);
        assert_eq!(said, "0 messages dropped\n");
        let remote = Broker::start(1);
        let (_far, mut at_far) = subscriber(&remote, "a/#").await;
        ctl(
            &local,
            &["bridge", "add", "up", &tcp(&remote), "--out", "a/#"],
        );
        for number in 0..5 {
            let message = next_within(&mut at_far, PATIENCE).await;
            assert_eq!(message, Some(number.to_string()));
        }
    });
}

#[test]
fn bridges_of_the_file_and_bad_ones_are_refused_and_passwords_not_shown() {
    let remote = Broker::start(1);
    let url = tcp(&remote);
    let configured = format!(
        "bridge=[{{ name = 'file', url = '{url}', topic = [{{ pattern = 'x', direction = 'out' }}] }}]"
    );
    let local = Broker::start_with(1, &[&configured]);
    let (_, text) = fail(&local, &["bridge", "add", "file", &url, "--out", "a"]);
    assert!(text.contains("in the configuration file already"), "{text}");
    for order in ["remove", "change"] {
        let more: &[&str] = if order == "change" {
            &[&url, "--out", "a"]
        } else {
            &[]
        };
        let (code, text) = fail(&local, &[&["bridge", order, "file"], more].concat());
        assert!(
            code == 1 && text.contains("is of the configuration file"),
            "{text}"
        );
    }
    let dir = tempfile::tempdir().expect("a directory");
    let file = |name: &str, text: &str| {
        let path = dir.path().join(name);
        std::fs::write(&path, text).expect("written");
        path.display().to_string()
    };
    let more = file("more.toml", "password_file = '/etc/passwd'\nuser = 'u'\n");
    for (args, why) in [
        (
            &["up", url.as_str()] as &[&str],
            "there must be 1 to 256 topics",
        ),
        (&["a/b", &url, "--out", "a"], "letters, digits"),
        (&["up", "amqp://h", "--out", "a"], "url"),
        (&["up", &url, "--out", "a/#/b"], "is not a topic filter"),
        (
            &["up", &url, "--out", "a", "--from", &more],
            "is not the name of a file in",
        ),
    ] {
        let (code, text) = fail(&local, &[&["bridge", "add"], args].concat());
        assert!(code == 1 && text.contains(why), "{args:?}: {text}");
    }
    let password = file("password", "very-secret\n");
    let with = ["--out", "a/#", "--user", "u", "--password-file", &password];
    let said = ctl(
        &local,
        &[&["--json", "bridge", "add", "up", &url], &with[..]].concat(),
    );
    let all = said
        + &ctl(&local, &["--json", "bridge", "list"])
        + &ctl(&local, &["--json", "configuration"])
        + &std::fs::read_to_string(local.data_dir().join("audit.log")).expect("a log");
    assert!(
        all.contains("add-bridge") && !all.contains("very-secret"),
        "{all}"
    );
    let kept = local.data_dir().join("bridges/up.password");
    assert_eq!(std::fs::read_to_string(&kept).expect("kept"), "very-secret");
    run(async {
        let (near, _messages) = client(&local).await;
        let (_far, mut at_far) = subscriber(&remote, "a/#").await;
        ready(&near, "a/probe", &mut at_far).await;
    });
    ctl(&local, &["bridge", "remove", "up", "--discard"]);
    assert!(!kept.exists(), "the password stays");
}
