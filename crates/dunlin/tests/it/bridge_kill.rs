//! A broker with a bridge, and the other broker, are killed in turn while messages go both
//! ways: nothing that was acknowledged is lost.

use core::time::Duration;
use std::collections::BTreeSet;
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command};

use dunlin_client::{Builder, Client, Messages, Publish, QoS};

use crate::support::{PATIENCE, free_port, run};

/// How often a broker is killed: first the one with the bridge, then the other, and so on.
const ROUNDS: u64 = 6;

/// A broker in a process of its own.
pub(crate) struct Process(Child);

impl Process {
    pub(crate) fn start(dir: &Path, name: &str, port: u16) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_dunlin"));
        command.arg("broker");
        command.arg("--config").arg(dir.join(name));
        let child = command.spawn().expect("the broker starts");
        let begin = std::time::Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(begin.elapsed() < PATIENCE, "the broker does not listen");
            std::thread::sleep(Duration::from_millis(20));
        }
        Self(child)
    }
}

impl Process {
    /// `SIGKILL`.
    fn kill(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
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

/// The configuration of a broker that listens at one port.
fn configure(dir: &Path, name: &str, port: u16, more: &str) {
    let data = dir.join(format!("{name}.data"));
    let text = format!(
        "data_dir = '{}'\n[[listener]]\ntransport = 'tcp'\naddress = '127.0.0.1:{port}'\n{more}",
        data.display(),
    );
    std::fs::write(dir.join(name), text).expect("written");
}

/// Waits until the bridge has subscribed at both brokers.
async fn subscribed(dir: &Path, near_port: u16, far_port: u16) {
    let file = dir.join("near.data/bridges/up.json");
    while !std::fs::read_to_string(&file).is_ok_and(|text| text.contains("i/#")) {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    // A message of each way that comes says it.
    for (from, to, topic) in [
        (near_port, far_port, "o/probe"),
        (far_port, near_port, "i/probe"),
    ] {
        let (reader, mut messages) = near(to).connect().await.expect("connected");
        let how = QoS::AtLeastOnce;
        reader.subscribe(topic, how).await.expect("subscribed");
        let (writer, _messages) = near(from).connect().await.expect("connected");
        loop {
            let probe = Publish::new(topic, "0").qos(QoS::AtLeastOnce);
            writer.publish(probe).await.expect("published");
            let soon = Duration::from_millis(200);
            if tokio::time::timeout(soon, messages.next()).await.is_ok() {
                break;
            }
        }
        reader.disconnect().await;
        writer.disconnect().await;
    }
}

#[test]
fn whichever_broker_of_a_bridge_is_killed_nothing_that_was_acknowledged_is_lost() {
    let dir = tempfile::tempdir().expect("a directory");
    let dir = dir.path();
    let ports = [free_port(), free_port()];
    let bridge = format!(
        "[[bridge]]\nname = 'up'\nurl = 'mqtt://127.0.0.1:{}'\n\
         connection = {{ reconnect_min = '20ms', reconnect_max = '100ms' }}\n\
         [[bridge.topic]]\npattern = 'o/#'\ndirection = 'out'\n\
         [[bridge.topic]]\npattern = 'i/#'\ndirection = 'in'\n",
        ports[1],
    );
    configure(dir, "near", ports[0], &bridge);
    configure(dir, "far", ports[1], "");
    run(async {
        let start = |which: usize| Process::start(dir, ["near", "far"][which], ports[which]);
        let mut processes = [start(0), start(1)];
        begin_reading(near(ports[1]), "o/x").await;
        begin_reading(near(ports[0]), "i/x").await;
        subscribed(dir, ports[0], ports[1]).await;
        let (mut out, mut back) = (BTreeSet::new(), BTreeSet::new());
        for round in 0..ROUNDS {
            let (here, _here) = near(ports[0]).connect().await.expect("connected");
            let (there, _there) = near(ports[1]).connect().await.expect("connected");
            let first = 1 + round * 1_000_000;
            let outgoing = tokio::spawn(publish(here.clone(), "o/x", first));
            let incoming = tokio::spawn(publish(there.clone(), "i/x", first));
            tokio::time::sleep(Duration::from_millis(300 + 130 * round)).await;
            let killed = usize::from(round % 2 == 1);
            processes[killed].kill();
            // The other one goes on for a while, and its bridge.
            tokio::time::sleep(Duration::from_millis(100)).await;
            here.disconnect().await;
            there.disconnect().await;
            processes[killed] = start(killed);
            out.extend(outgoing.await.expect("published"));
            back.extend(incoming.await.expect("published"));
        }
        assert!(!out.is_empty() && !back.is_empty(), "nothing was published");
        let there = reader(near(ports[1])).connect().await;
        read_all(&mut there.expect("connected").1, out).await;
        let here = reader(near(ports[0])).connect().await;
        read_all(&mut here.expect("connected").1, back).await;
    });
}
