//! The client library of AMQP against the broker, over every transport, and
//! `dunlin send` and `dunlin receive` as programs.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdout, Output, Stdio};

use dunlin::auth::passwords::{Change, changed};
use dunlin_amqp_client::{
    Backoff, Builder, Client, ConnectError, ConnectionEvent, DisconnectCause, LinkError, Message,
    Outcome, StreamPolicy, TicketFile, TlsOptions,
};
use dunlin_base::transport::Transport;
use dunlin_client::{Publish, QoS};

use crate::support::{ALL, Broker, dunlin, run};

/// Listeners for both protocols.
const BOTH: &str = r#"listener=[
    {transport="quic",address="127.0.0.1:0"},
    {transport="tcp",address="127.0.0.1:0"},
    {transport="tls",address="127.0.0.1:0"},
    {transport="ws",address="127.0.0.1:0",path="/amqp"},
    {transport="wss",address="127.0.0.1:0",path="/amqp"}]"#;

fn url(broker: &Broker, transport: Transport) -> String {
    let port = broker.addr(transport).port();
    let scheme = dunlin_dial::Protocol::Amqp.scheme(transport);
    format!("{scheme}://localhost:{port}")
}

fn client(broker: &Broker, transport: Transport) -> Builder {
    let builder = Client::builder(url(broker, transport)).expect("a URL");
    builder.tls(TlsOptions::new().ca_file(broker.ca()))
}

/// A broker that knows the user `u` with the password `right`, and lets others in
/// without one.
fn with_users() -> (Broker, tempfile::TempDir) {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("passwords");
    let change = Change::Set {
        password: b"right",
        iterations: 4096,
    };
    let text = changed(&path, None, "u", change).expect("a line");
    std::fs::write(&path, text).expect("written");
    let file = format!("auth.password_file={:?}", path.display().to_string());
    let broker = Broker::start_with(1, &[BOTH, &file]);
    (broker, dir)
}

#[test]
fn messages_cross_over_every_transport() {
    let broker = Broker::start_with(2, &[BOTH]);
    for transport in ALL {
        run(async {
            let (client, connecting) = client(&broker, transport).start().expect("options");
            let (mut receiver, attaching) = client.receiver("a/#").start().expect("started");
            connecting.await.expect("connected");
            attaching.await.expect("attached");
            assert_eq!(client.transport(), Some(transport));
            let sender = client.sender("a/b").attach().await.expect("attached");
            let large = vec![7; 200_000];
            for body in [b"small".to_vec(), large] {
                let message = Message::new(body.clone()).subject("s").durable(true);
                let outcome = sender.send(message).await.expect("sent");
                assert_eq!(outcome, Outcome::Accepted, "{transport:?}");
                let delivery = receiver.recv().await.expect("a message");
                assert_eq!(delivery.payload(), body, "{transport:?}");
                assert_eq!(delivery.properties().subject, Some("s"));
                delivery.accept().await.expect("settled");
            }
            client.close().await;
        });
    }
}

#[test]
fn links_have_streams_of_their_own() {
    let (mut broker, users) = with_users();
    let port = broker.addr(Transport::Quic).port();
    let users = users.path().join("passwords").display().to_string();
    let at = format!(r#"listener=[{{transport="quic",address="127.0.0.1:{port}"}}]"#);
    let again = [at, format!("auth.password_file={users:?}")];
    run(async {
        let builder = client(&broker, Transport::Quic)
            .credentials("u", "right")
            .streams(StreamPolicy::PerLink)
            .reconnect(Backoff {
                min: core::time::Duration::from_millis(20),
                max: core::time::Duration::from_millis(20),
                jitter: 0.0,
            });
        let client = builder.connect().await.expect("connected");
        let mut links = Vec::new();
        // Twice as many links as streams: two share each.
        for number in 0..16 {
            let address = format!("streams/{number}");
            let receiver = client.receiver(&address).attach().await.expect("attached");
            let sender = client.sender(&address).attach().await.expect("attached");
            links.push((sender, receiver));
        }
        assert_eq!(client.streams(), 16);
        for round in 0..2 {
            if round > 0 {
                let mut events = client.events();
                broker.start_again(1, &again.each_ref().map(String::as_str));
                while !matches!(
                    events.next().await.expect("open"),
                    ConnectionEvent::Connected { .. }
                ) {}
            }
            for (number, (sender, receiver)) in links.iter_mut().enumerate() {
                let body = format!("{number} {round}");
                // Kept until its receiver is there again.
                let message = Message::new(body.clone()).durable(true);
                let outcome = sender.send(message).await;
                assert_eq!(outcome.expect("sent"), Outcome::Accepted);
                let delivery = receiver.recv().await.expect("a message");
                assert_eq!(delivery.payload(), body);
                delivery.accept().await.expect("settled");
            }
            assert_eq!(client.streams(), 16);
        }
        let refused = client.controller().await.map(|_| ());
        assert!(matches!(refused, Err(LinkError::Streams)), "{refused:?}");
        client.close().await;
        assert_eq!(client.streams(), 0);
    });
}

#[test]
fn without_streams_links_share_the_first() {
    let broker = Broker::start_with(1, &[BOTH, "quic.max_data_streams=0"]);
    run(async {
        for transport in [Transport::Quic, Transport::Tls] {
            let builder = client(&broker, transport).streams(StreamPolicy::PerLink);
            let client = builder.connect().await.expect("connected");
            let mut receiver = client.receiver("a").attach().await.expect("attached");
            let sender = client.sender("a").attach().await.expect("attached");
            let outcome = sender.send(Message::new("x")).await.expect("sent");
            assert_eq!(outcome, Outcome::Accepted, "{transport:?}");
            assert_eq!(receiver.recv().await.expect("a message").payload(), "x");
            assert_eq!(client.streams(), 1, "{transport:?}");
            client.close().await;
        }
    });
}

#[test]
fn amqp_and_mqtt_carry_messages_to_each_other() {
    for shards in [1, 2] {
        let broker = Broker::start_with(shards, &[BOTH]);
        run(async {
            let mqtt = broker.client(Transport::Tcp).connect().await;
            let (mqtt, mut messages) = mqtt.expect("connected");
            let subscribed = mqtt.subscribe("t/+", QoS::AtLeastOnce).await;
            subscribed.expect("subscribed");
            let client = client(&broker, Transport::Quic).connect().await;
            let client = client.expect("connected");
            let sender = client.anonymous_sender().attach().await.expect("attached");
            let message = Message::new("x").to("t/1").content_type("text/plain");
            sender.send(message).await.expect("sent");
            let message = messages.next().await.expect("a message");
            assert_eq!((&*message.topic, &message.payload[..]), ("t/1", &b"x"[..]));
            let properties = message.properties.as_ref().expect("some");
            assert_eq!(properties.content_type.as_deref(), Some("text/plain"));
            let mut receiver = client.receiver("back/#").attach().await.expect("attached");
            let publish = Publish::new("back/b", "y").qos(QoS::AtLeastOnce);
            mqtt.publish(publish).await.expect("acknowledged");
            let delivery = receiver.recv().await.expect("a message");
            assert_eq!(delivery.payload(), "y");
            delivery.accept().await.expect("settled");
            client.close().await;
            mqtt.disconnect().await;
        });
    }
}

#[test]
fn a_broker_that_starts_again_finds_its_links_again() {
    let mut broker = Broker::start_with(1, &[BOTH]);
    let port = broker.addr(Transport::Tcp).port();
    run(async {
        let client = client(&broker, Transport::Tcp)
            .reconnect(Backoff {
                min: core::time::Duration::from_millis(20),
                max: core::time::Duration::from_millis(20),
                jitter: 0.0,
            })
            .connect()
            .await
            .expect("connected");
        let mut events = client.events();
        let mut receiver = client.receiver("a").attach().await.expect("attached");
        let sender = client.sender("a").attach().await.expect("attached");
        let at = format!(r#"listener=[{{transport="tcp",address="127.0.0.1:{port}"}}]"#);
        broker.start_again(1, &[&at]);
        while !matches!(
            events.next().await.expect("open"),
            ConnectionEvent::Connected { .. }
        ) {}
        let outcome = sender
            .send(Message::new("x").durable(true))
            .await
            .expect("sent");
        assert_eq!(outcome, Outcome::Accepted);
        let delivery = receiver.recv().await.expect("a message");
        assert_eq!(&delivery.payload()[..], b"x");
        client.close().await;
    });
}

#[test]
fn the_broker_says_why_it_refuses() {
    let (broker, _dir) = with_users();
    run(async {
        let at = url(&broker, Transport::Tcp).replace("//", "//u:wrong@");
        let refused = Client::builder(at).expect("a URL").connect().await;
        assert!(
            matches!(
                refused,
                Err(ConnectError::Failed(DisconnectCause::Credentials))
            ),
            "{refused:?}"
        );
        let client = client(&broker, Transport::Tcp)
            .connect()
            .await
            .expect("connected");
        let refused = client.sender("a/#").attach().await.expect_err("a filter");
        let LinkError::Refused(Some(why)) = refused else {
            unreachable!("{refused:?}");
        };
        assert_eq!(why.name(), "amqp:invalid-field");
        client.close().await;
    });
}

#[test]
fn a_session_ticket_opens_with_the_first_datagram() {
    let broker = Broker::start_with(1, &[BOTH]);
    let dir = tempfile::tempdir().expect("a directory");
    let mut accepted = Vec::new();
    for _ in 0..2 {
        run(async {
            let tickets = TicketFile::open(dir.path().join("tickets")).expect("opened");
            let builder = client(&broker, Transport::Quic).tickets(tickets);
            let (client, connecting) = builder.start().expect("options");
            let mut events = client.events();
            let (sender, _) = client.sender("a").start().expect("started");
            let sent = sender.start_send(Message::new("x").durable(true)).await;
            connecting.await.expect("connected");
            let outcome = sent.expect("handed over").await.expect("sent");
            assert_eq!(outcome, Outcome::Accepted);
            client.close().await;
            while let Some(event) = events.next().await {
                if let ConnectionEvent::EarlyData { accepted: it } = event {
                    accepted.push(it);
                }
            }
        });
    }
    assert_eq!(accepted, [true], "the second time");
}

fn output(args: &str) -> Output {
    dunlin(args).output().expect("started")
}

/// A receiver whose link is attached.
struct Receiving {
    child: Child,
    stdout: BufReader<ChildStdout>,
}

impl Receiving {
    /// `-d` says on standard error when the link is there.
    fn start(args: &str) -> Self {
        let mut child = dunlin(&format!("receive -d {args}"))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("started");
        let mut line = String::new();
        let stderr = child.stderr.as_mut().expect("piped");
        BufReader::new(stderr).read_line(&mut line).expect("a line");
        assert!(line.starts_with("receiving from"), "{line}");
        let stdout = BufReader::new(child.stdout.take().expect("piped"));
        Self { child, stdout }
    }

    /// What it prints until it ends, and its exit code.
    fn end(mut self) -> (Vec<String>, Option<i32>) {
        let lines = self.stdout.lines().map(|line| line.expect("a line"));
        let lines = lines.collect();
        (lines, self.child.wait().expect("ended").code())
    }
}

#[test]
fn send_and_receive_pass_messages_in_every_way_of_giving_them() {
    let broker = Broker::start_with(1, &[BOTH]);
    let at = format!("--url {}", url(&broker, Transport::Tcp));
    let secure = format!(
        "--url {} --ca {}",
        url(&broker, Transport::Quic),
        broker.ca().display()
    );
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), "from a file").expect("written");
    let receiving = Receiving::start(&format!("{at} -t t/# -C 8 -v"));
    for args in [
        format!("{at} -t t/1 -m unsettled --durable"),
        format!("{secure} -t t/2 -m settled --settled"),
        format!("{at} -t t/3 -m once --exactly-once"),
        format!("{at} -t t/4 -f {}", file.path().display()),
        format!("{at} --to t/5 -m relayed -C 2"),
    ] {
        let sent = output(&format!("send {args}"));
        let why = String::from_utf8_lossy(&sent.stderr);
        assert_eq!(sent.status.code(), Some(0), "{args}: {why}");
    }
    let mut lines = dunlin(&format!("send {at} -t t/6 -l"))
        .stdin(Stdio::piped())
        .spawn()
        .expect("started");
    let mut stdin = lines.stdin.take().expect("piped");
    stdin.write_all(b"one\ntwo\n").expect("written");
    drop(stdin);
    assert_eq!(lines.wait().expect("ended").code(), Some(0));
    let (printed, code) = receiving.end();
    assert_eq!(code, Some(0));
    let want = [
        "t/1 unsettled",
        "t/2 settled",
        "t/3 once",
        "t/4 from a file",
        "t/5 relayed",
        "t/5 relayed",
        "t/6 one",
        "t/6 two",
    ];
    assert_eq!(printed, want);
}

#[test]
fn properties_are_printed_as_json() {
    let broker = Broker::start_with(1, &[BOTH]);
    let at = format!("--url {}", url(&broker, Transport::Tcp));
    let receiving = Receiving::start(&format!("{at} -t t -C 1 --json"));
    let sent = output(&format!(
        "send {at} -t t -m x --subject s --content-type text/plain --priority 7 --ttl 60 \
         --message-id 5 --property a=b"
    ));
    assert_eq!(sent.status.code(), Some(0));
    let (printed, _) = receiving.end();
    let json: serde_json::Value = serde_json::from_str(&printed[0]).expect("JSON");
    assert_eq!(json["payload"], "x");
    assert_eq!(json["subject"], "s");
    assert_eq!(json["content_type"], "text/plain");
    assert_eq!(json["priority"], 7);
    assert_eq!(json["message_id"], "5");
    assert_eq!(json["properties"]["a"], "b");
    assert!(json["ttl_ms"].as_u64().is_some_and(|ttl| ttl <= 60_000));
}

#[test]
fn exit_codes_say_what_happened() {
    let (broker, _dir) = with_users();
    let at = format!("--url {}", url(&broker, Transport::Tcp));
    for (args, code, words) in [
        (format!("receive {at} -t t -W 1"), 27, "Timed out"),
        (format!("receive {at} -t t --drain"), 0, ""),
        (format!("send {at} -t t/# -m x"), 1, "amqp:invalid-field"),
        (format!("send {at} -t t"), 1, "a message (-m, -f, -l or -s)"),
        (
            "send --url mqtt://localhost -t t -m x".into(),
            1,
            "those of AMQP are",
        ),
        (
            "send --url amqp://127.0.0.1:1 -t t -m x".into(),
            1,
            "refused",
        ),
        (
            format!("send {at} -t t -m x -u u -P p"),
            1,
            "refused the credentials",
        ),
        (
            format!("send {at} -t t -m x --tickets f"),
            1,
            "it needs QUIC",
        ),
    ] {
        let output = output(&args);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{args}: {stderr}");
        assert!(stderr.contains(words), "{args}: {stderr}");
    }
}
