//! `dunlin store to-log` and `from-log` as programs: a broker with a store on disk is stopped,
//! and goes on as one with a log in NATS, as the home of a cluster, and back. Without a server
//! of NATS, each test says so and passes.

use core::net::SocketAddr;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Output};

use dunlin_client::{Publish, QoS};
use dunlin_mqtt_codec::{Version, decode, peek};
use dunlin_sim::{encode, show};
use serde_json::Value;

use crate::cluster::{Cluster, come_back, connect, expect, publish};
use crate::early::Rig;
use crate::nats::{Broker, late_port, store};
use crate::nats_server::{Server, Sync};
use crate::support::{PATIENCE, run};

fn dunlin(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_dunlin"));
    command.args(args).output().expect("it runs")
}

fn text(output: &Output) -> String {
    let bytes = [output.stdout.as_slice(), output.stderr.as_slice()].concat();
    String::from_utf8(bytes).expect("text")
}

/// `dunlin store to-log` or `from-log`: whether it did so, and what it says.
fn moved(what: &str, broker: &Broker, config: &Path) -> (bool, String) {
    let file = broker.data_dir().join("store.redb");
    let [file, config] = [&file, config].map(|path| path.to_str().expect("text"));
    let output = dunlin(&["store", what, file, "--config", config]);
    (output.status.success(), text(&output))
}

/// What `dunlin queue` or `dunlin send` says of its success.
fn amqp(broker: &Broker, args: &str) -> String {
    let url = format!("amqp://127.0.0.1:{}", broker.port());
    let mut args: Vec<_> = args.split(' ').collect();
    args.extend(["--url", &url]);
    let output = dunlin(&args);
    assert!(output.status.success(), "{args:?}: {}", text(&output));
    text(&output)
}

fn in_queue(broker: &Broker) -> Value {
    let shown = amqp(broker, "queue show work --json");
    let shown: Value = serde_json::from_str(&shown).expect("JSON");
    shown["messages"].clone()
}

/// A client of MQTT 5.0 that acknowledges nothing by itself.
struct Raw {
    socket: TcpStream,
    bytes: Vec<u8>,
}

impl Raw {
    fn new(broker: &Broker) -> Self {
        let socket = TcpStream::connect(("127.0.0.1", broker.port())).expect("connected");
        socket.set_read_timeout(Some(PATIENCE)).expect("set");
        Self {
            socket,
            bytes: Vec::new(),
        }
    }

    fn say(&mut self, packet: &str) {
        let bytes = encode(packet, Version::V5);
        self.socket.write_all(&bytes).expect("written");
    }

    fn hear(&mut self) -> String {
        loop {
            if let Some(frame) = peek(&self.bytes, u32::MAX).expect("a packet") {
                let len = frame.total_len;
                if self.bytes.len() >= len {
                    let rest = self.bytes.split_off(len);
                    let packet = core::mem::replace(&mut self.bytes, rest);
                    let packet = decode(&packet, Version::V5).expect("a packet");
                    return show(&packet, Version::V5);
                }
            }
            let mut some = [0; 1024];
            let count = self.socket.read(&mut some).expect("more");
            assert!(count > 0, "the broker closed the connection");
            self.bytes.extend_from_slice(&some[..count]);
        }
    }

    fn ask(&mut self, packet: &str, answer: &str) {
        self.say(packet);
        assert_eq!(self.hear(), answer, "{packet}");
    }
}

/// Sessions of which each has something under way: QoS 1 and 2 in both directions, messages
/// that wait, a shared subscription; and a retained message.
async fn fill(broker: &Broker) {
    broker.leave_session("keeper", "out/#").await;
    broker.leave_session("member", "$share/g/s/#").await;
    let mut raw = Raw::new(broker);
    raw.say("CONNECT raw expiry=100000");
    let hello = raw.hear();
    assert!(
        hello.starts_with("CONNACK") && !hello.contains("present"),
        "{hello}"
    );
    raw.ask("SUBSCRIBE 1 in/#|q2", "SUBACK 1 02");
    let (writer, _messages) = connect(broker, "writer").await;
    publish(&writer, "in/a", "one", QoS::AtLeastOnce).await;
    assert_eq!(raw.hear(), "PUBLISH in/a one q1 #1");
    publish(&writer, "in/b", "two", QoS::ExactlyOnce).await;
    assert_eq!(raw.hear(), "PUBLISH in/b two q2 #2");
    raw.ask("PUBREC 2", "PUBREL 2");
    raw.ask("PUBLISH out/x three q2 #7", "PUBREC 7");
    publish(&writer, "s/x", "shared", QoS::AtLeastOnce).await;
    let kept = Publish::new("r/x", "kept").qos(QoS::AtLeastOnce);
    writer.publish(kept.retain(true)).await.expect("kept");
    writer.disconnect().await;
}

/// Everything that [`fill`] left goes on where it was.
async fn go_on(broker: &Broker) {
    let mut raw = Raw::new(broker);
    raw.say("CONNECT raw expiry=100000");
    let hello = raw.hear();
    assert!(hello.starts_with("CONNACK present"), "{hello}");
    let mut again = [raw.hear(), raw.hear()];
    again.sort_unstable();
    assert_eq!(again, ["PUBLISH in/a one q1 #1", "PUBREL 2"]);
    raw.say("PUBACK 1");
    raw.say("PUBCOMP 2");
    raw.ask("PUBLISH out/x three q2 #7 dup", "PUBREC 7");
    raw.ask("PUBREL 7", "PUBCOMP 7");
    assert_eq!(broker.take("keeper", 1).await, ["three"]);
    assert_eq!(broker.take("member", 1).await, ["shared"]);
    let (client, mut messages) = connect(broker, "new").await;
    let subscribed = client.subscribe("r/#", QoS::AtLeastOnce).await;
    subscribed.expect("subscribed");
    expect(&mut messages, &["kept"]).await;
}

#[test]
fn a_broker_goes_on_with_a_log_where_it_was_with_a_file_and_back() {
    let Some(server) = Server::start(Sync::Always) else {
        return;
    };
    let rig = Rig::new();
    let quic = SocketAddr::from(([127, 0, 0, 1], late_port()));
    let (cert, key) = (rig.certificate("server.pem"), rig.certificate("server.key"));
    let listener = format!(
        "[quic]\nretry = 'never'\n[[listener]]\ntransport = 'quic'\naddress = '{quic}'\n\
         tls = {{ cert = {cert:?}, key = {key:?} }}\n"
    );
    rig.relay.lead_to(quic);
    let mut broker = Broker::start(2, &listener);
    run(fill(&broker));
    amqp(&broker, "queue create work --topic work/#");
    for body in ["1", "2"] {
        amqp(&broker, &format!("send -t work/1 -m {body} --durable"));
    }
    run(async { assert_eq!(rig.wake("a stranger").await, None) });

    // Not while it runs, and not without a log.
    let on_disk = broker.configure(2, &listener);
    let (done, said) = moved("to-log", &broker, &on_disk);
    assert!(!done && said.contains("names no log"), "{said}");
    let in_log = broker.configure(2, &(store(&server) + &listener));
    let (done, said) = moved("to-log", &broker, &in_log);
    assert!(!done && said.contains("in use"), "{said}");
    broker.stop();
    let (done, said) = moved("to-log", &broker, &in_log);
    assert!(done, "{said}");
    let counted = |name: &str| {
        let line = said.lines().find_map(|line| line.strip_prefix(name));
        let count = line.and_then(|count| count.trim().parse::<u64>().ok());
        count.unwrap_or_else(|| panic!("{name}: {said}"))
    };
    // What is not released has its identifier again by itself.
    assert_eq!(counted("outgoing ids"), 1, "{said}");
    assert_eq!(counted("incoming ids"), 1, "{said}");
    assert_eq!(counted("retained"), 1, "{said}");
    // One, three, shared, and two in the queue; two was acknowledged.
    assert_eq!(counted("messages"), 5, "{said}");
    // Tickets are in the log alone.
    let file = broker.data_dir().join("store.redb");
    let left = dunlin(&["store", "export", file.to_str().expect("text")]);
    let left = text(&left);
    assert!(
        left.contains("keeper") && !left.contains("ticket/"),
        "{left}"
    );
    let (done, said) = moved("to-log", &broker, &in_log);
    assert!(!done && said.contains("not empty"), "{said}");

    broker.again(1, &(store(&server) + &listener));
    run(async {
        assert_eq!(rig.wake("known").await, Some(true));
        go_on(&broker).await;
        broker.leave_session("late", "late/#").await;
        let (writer, _messages) = connect(&broker, "writer").await;
        publish(&writer, "late/x", "four", QoS::ExactlyOnce).await;
    });
    assert_eq!(in_queue(&broker), 2);

    // And back.
    let (done, said) = moved("from-log", &broker, &in_log);
    assert!(!done && said.contains("already"), "{said}");
    std::fs::remove_file(&file).expect("removed");
    let (done, said) = moved("from-log", &broker, &in_log);
    assert!(!done && said.contains("has the lease"), "{said}");
    broker.stop();
    let (done, said) = moved("from-log", &broker, &in_log);
    assert!(done, "{said}");
    broker.again(2, &listener);
    run(async {
        assert_eq!(broker.take("late", 1).await, ["four"]);
        assert!(broker.take("keeper", 0).await.is_empty());
        assert_eq!(rig.wake("its ticket is in the log").await, Some(false));
    });
    assert_eq!(in_queue(&broker), 2);
}

#[test]
fn a_cluster_goes_on_where_one_machine_was() {
    let Some(cluster) = Cluster::start() else {
        return;
    };
    let mut alone = Broker::start(1, "");
    run(fill(&alone));
    alone.stop();
    let config = alone.configure(1, &cluster.config("one"));
    let (done, said) = moved("to-log", &alone, &config);
    assert!(done, "{said}");
    // Other machines, which have nothing but the log.
    let nodes = ["a", "b"].map(|name| Broker::start(2, &cluster.config(name)));
    run(async {
        let (_keeper, mut messages) = come_back(&nodes[1], "keeper").await;
        expect(&mut messages, &["three"]).await;
        let (client, mut messages) = connect(&nodes[1], "new").await;
        let subscribed = client.subscribe("r/#", QoS::AtLeastOnce).await;
        subscribed.expect("subscribed");
        expect(&mut messages, &["kept"]).await;
        let mut raw = Raw::new(&nodes[1]);
        raw.say("CONNECT raw expiry=100000");
        let hello = raw.hear();
        assert!(hello.starts_with("CONNACK present"), "{hello}");
        let mut again = [raw.hear(), raw.hear()];
        again.sort_unstable();
        assert_eq!(again, ["PUBLISH in/a one q1 #1", "PUBREL 2"]);
        raw.ask("PUBLISH out/x three q2 #7 dup", "PUBREC 7");
        raw.ask("PUBREL 7", "PUBCOMP 7");
    });
}
