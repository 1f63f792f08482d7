//! A broker with a bridge that is killed again and again while messages go both ways:
//! nothing that was acknowledged is lost.

use core::time::Duration;
use std::collections::BTreeSet;
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command};

use dunlin_base::transport::Transport;
use dunlin_client::{Builder, Client, Messages, Publish, QoS};

use crate::support::{Broker, PATIENCE, free_port, run};

/// How often the broker is killed.
const ROUNDS: u64 = 4;

/// A broker in a process of its own.
struct Process(Child);

impl Process {
    fn start(dir: &Path, port: u16) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_dunlin"));
        command.arg("broker");
        command.arg("--config").arg(dir.join("dunlin.toml"));
        let child = command.spawn().expect("the broker starts");
        let begin = std::time::Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(begin.elapsed() < PATIENCE, "the broker does not listen");
            std::thread::sleep(Duration::from_millis(20));
        }
        Self(child)
    }
}

impl Drop for Process {
    /// `SIGKILL`.
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn reader(builder: Builder) -> Builder {
    let builder = builder.client_id("reader").clean_start(false);
    builder.session_expiry(Duration::MAX)
}

fn near(port: u16) -> Builder {
    let builder = Client::builder(format!("mqtt://127.0.0.1:{port}"));
    builder.expect("a URL").no_reconnect()
}

/// Makes a session that keeps what comes.
async fn begin_reading(builder: Builder, filter: &str) {
    let (client, _messages) = reader(builder).connect().await.expect("connected");
    let how = QoS::AtLeastOnce;
    client.subscribe(filter, how).await.expect("subscribed");
    client.disconnect().await;
}

/// Publishes numbers until the connection breaks; gives those that were acknowledged.
async fn publish(client: Client, topic: &str, from: u64) -> Vec<u64> {
    let mut acknowledged = Vec::new();
    for number in from.. {
        let message = Publish::new(topic, number.to_string()).qos(QoS::AtLeastOnce);
        match client.publish(message).await {
            Ok(_) => acknowledged.push(number),
            Err(_) => break,
        }
    }
    acknowledged
}

/// Reads until all of these have come; their first copies come in order.
async fn read_all(messages: &mut Messages, mut wanted: BTreeSet<u64>) {
    let mut last = 0;
    while !wanted.is_empty() {
        let message = messages.next().await.expect("a message");
        let text = String::from_utf8_lossy(&message.payload).into_owned();
        let number: u64 = text.parse().expect("a number");
        if wanted.remove(&number) {
            assert!(number > last, "{number} after {last}");
            last = number;
        }
    }
}

#[test]
fn a_killed_bridge_loses_nothing_that_was_acknowledged() {
    let dir = tempfile::tempdir().expect("a directory");
    let port = free_port();
    let remote = Broker::start(1);
    let config = format!(
        "data_dir = '{}'\n[[listener]]\ntransport = 'tcp'\naddress = '127.0.0.1:{port}'\n\
         [[bridge]]\nname = 'up'\nurl = 'mqtt://{}'\n\
         connection = {{ reconnect_min = '20ms', reconnect_max = '100ms' }}\n\
         [[bridge.topic]]\npattern = 'o/#'\ndirection = 'out'\n\
         [[bridge.topic]]\npattern = 'i/#'\ndirection = 'in'\n",
        dir.path().join("data").display(),
        remote.addr(Transport::Tcp),
    );
    std::fs::write(dir.path().join("dunlin.toml"), config).expect("written");
    run(async {
        begin_reading(remote.client(Transport::Tcp), "o/#").await;
        let mut out = BTreeSet::new();
        let mut back = BTreeSet::new();
        for round in 0..ROUNDS {
            let process = Process::start(dir.path(), port);
            if round == 0 {
                begin_reading(near(port), "i/#").await;
                // The bridge has subscribed at both brokers: its file is the last that it
                // writes.
                while !std::fs::read_to_string(dir.path().join("data/bridges/up.json"))
                    .is_ok_and(|text| text.contains("i/#"))
                {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
            let (client, _messages) = near(port).connect().await.expect("connected");
            let remote_client = remote.client(Transport::Tcp).connect().await;
            let (far, _far_messages) = remote_client.expect("connected");
            let first = 1 + round * 1_000_000;
            let outgoing = tokio::spawn(publish(client, "o/x", first));
            let incoming = tokio::spawn(publish(far.clone(), "i/x", first));
            tokio::time::sleep(Duration::from_millis(300 + 130 * round)).await;
            drop(process);
            far.disconnect().await;
            out.extend(outgoing.await.expect("published"));
            back.extend(incoming.await.expect("published"));
        }
        assert!(!out.is_empty() && !back.is_empty(), "nothing was published");
        let _process = Process::start(dir.path(), port);
        let there = reader(remote.client(Transport::Tcp)).connect().await;
        read_all(&mut there.expect("connected").1, out).await;
        let here = reader(near(port)).connect().await;
        read_all(&mut here.expect("connected").1, back).await;
    });
}
