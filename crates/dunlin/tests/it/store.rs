//! `dunlin store` as a program: a backup of a running broker restored, damage
//! found, repaired and survived.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use dunlin_base::transport::Transport;
use dunlin_client::{Publish, QoS};

use crate::support::{Broker, run, subscribe};

fn store(args: &[&str], path: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_dunlin"))
        .arg("store")
        .args(args)
        .arg(path)
        .stdin(Stdio::null())
        .output()
        .expect("started")
}

fn text(output: &Output) -> String {
    let bytes = [output.stdout.as_slice(), output.stderr.as_slice()].concat();
    String::from_utf8(bytes).expect("text")
}

fn succeed(args: &[&str], path: &Path) -> String {
    let output = store(args, path);
    assert!(output.status.success(), "{args:?}: {}", text(&output));
    text(&output)
}

fn path_of(broker: &Broker) -> PathBuf {
    broker.data_dir().join("store.redb")
}

/// A session with a subscription and queued messages, and a retained message.
async fn fill(broker: &Broker) {
    let name = |builder: dunlin_client::Builder| {
        builder
            .client_id("keeper")
            .clean_start(false)
            .session_expiry(core::time::Duration::from_secs(3600))
    };
    let keeper = name(broker.client(Transport::Tcp)).connect().await;
    let (keeper, _messages) = keeper.expect("connected");
    subscribe(&keeper, "kept/#", QoS::AtLeastOnce).await;
    keeper.disconnect().await;
    let sender = broker.client(Transport::Tcp).connect().await;
    let (sender, _messages) = sender.expect("connected");
    for number in 0..20 {
        let payload = format!("message {number}");
        let publish = Publish::new("kept/a", payload).qos(QoS::AtLeastOnce);
        sender.publish(publish).await.expect("stored");
    }
    let retained = Publish::new("state", "on")
        .qos(QoS::AtLeastOnce)
        .retain(true);
    sender.publish(retained).await.expect("stored");
}

#[test]
fn a_backup_of_a_running_broker_is_restored() {
    let mut broker = Broker::start(1);
    run(fill(&broker));
    let path = path_of(&broker);
    let copy = broker.data_dir().join("copy.jsonl");
    let output = format!("--output={}", copy.display());
    succeed(&["backup", &output], &path);
    let refused = store(&["backup", &output], &path);
    assert!(!refused.status.success(), "a copy is not written over");
    let refused = text(&store(&["check"], &path));
    assert!(refused.contains("in use by another process"), "{refused}");
    broker.stop();
    let refused = text(&store(&["backup"], &path));
    assert!(refused.contains("no broker is running"), "{refused}");

    // What a stopped store exports is the same.
    let exported = broker.data_dir().join("exported.jsonl");
    let output = format!("--output={}", exported.display());
    succeed(&["export", &output], &path);
    let lines = std::fs::read_to_string(&copy).expect("read");
    assert_eq!(lines, std::fs::read_to_string(&exported).expect("read"));
    assert_eq!(lines.matches(r#""kind":"queued""#).count(), 20);

    let input = format!("--input={}", copy.display());
    let refused = text(&store(&["import", &input], &path));
    assert!(refused.contains("exists"), "{refused}");
    std::fs::remove_file(&path).expect("removed");
    succeed(&["import", &input], &path);
    assert!(succeed(&["check"], &path).contains("nothing is damaged"));
    broker.start_again(1, &[]);
    broker.stop();
    succeed(&["export"], &path);
    let again = text(&store(&["export"], &path));
    assert_eq!(again.matches(r#""kind":"queued""#).count(), 20);
    assert!(again.contains(r#""client_id":"keeper""#) && again.contains(r#""topic":"state""#));
}

#[test]
fn damage_is_shown_and_repaired() {
    let mut broker = Broker::start(1);
    run(fill(&broker));
    let path = path_of(&broker);
    broker.stop();
    assert!(succeed(&["check"], &path).contains("nothing is damaged"));
    let mut bytes = std::fs::read(&path).expect("read");
    let found = |bytes: &[u8]| bytes.windows(9).rposition(|w| w == b"message 7");
    let at = found(&bytes).expect("stored");
    bytes[at + 8] ^= 1;
    std::fs::write(&path, &bytes).expect("written");
    let output = store(&["check"], &path);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output).contains("1 damaged pages, of which 1 are corrected; 0 rows lost"));
    let exported = succeed(&["export"], &path);
    assert_eq!(exported.matches(r#""payload":"message "#).count(), 20);
    assert!(exported.contains("message 7") && exported.contains(r#""lost":0"#));
    assert!(succeed(&["repair"], &path).contains("repaired; the old file is"));
    assert!(succeed(&["check"], &path).contains("nothing is damaged"));
    let empty = path.with_file_name("empty");
    std::fs::write(&empty, b"").expect("written");
    let refused = text(&store(&["check"], &empty));
    assert!(refused.contains("is empty, which it never is"), "{refused}");
}
