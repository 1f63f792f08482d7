//! `dunlin pub` and `dunlin sub` as programs: flags, output and exit codes,
//! which are those of mosquitto's clients.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Output, Stdio};
use std::time::SystemTime;

use dunlin_base::transport::Transport;

use crate::support::{ALL, Broker, connect, dunlin};

fn output(args: &str) -> Output {
    dunlin(args).output().expect("started")
}

fn code(args: &str) -> Option<i32> {
    output(args).status.code()
}

/// A subscriber that has subscribed.
struct Subscriber {
    child: Child,
    stdout: BufReader<std::process::ChildStdout>,
}

impl Subscriber {
    /// `-d` tells when the subscription is made.
    fn start(args: &str) -> Self {
        let mut child = dunlin(&format!("sub -d {args}"))
            .stdout(Stdio::piped())
            .spawn()
            .expect("started");
        let mut stdout = BufReader::new(child.stdout.take().expect("piped"));
        let mut line = String::new();
        while !line.starts_with("Subscribed") {
            line.clear();
            assert_ne!(stdout.read_line(&mut line).expect("a line"), 0, "{args}");
        }
        Self { child, stdout }
    }

    /// What it prints until it ends, without what `-d` adds, and its exit code.
    fn end(mut self) -> (Vec<String>, Option<i32>) {
        let lines = self.stdout.lines().map(|line| line.expect("a line"));
        let lines = lines.filter(|line| !line.starts_with("Client ")).collect();
        (lines, self.child.wait().expect("ended").code())
    }
}

#[test]
fn messages_pass_in_every_way_of_giving_them() {
    let broker = Broker::start(1);
    let at = format!("-h 127.0.0.1 -p {}", broker.addr(Transport::Tcp).port());
    let sub = Subscriber::start(&format!("{at} -t t/# -q 2 -v -C 9"));
    assert_eq!(code(&format!("pub {at} -t t/m -m hello -q 1")), Some(0));
    assert_eq!(code(&format!("pub {at} -t t/n -n -V 311")), Some(0));
    let file = std::env::temp_dir().join(format!("dunlin-cli-{}", std::process::id()));
    std::fs::write(&file, "a\nb").expect("written");
    let path = file.display();
    assert_eq!(code(&format!("pub {at} -t t/f -f {path} -q 2")), Some(0));
    std::fs::remove_file(&file).expect("removed");
    for (flag, qos) in [("-l", 2), ("-s", 0)] {
        let mut child = dunlin(&format!("pub {at} -t t/{flag} {flag} -q {qos}"))
            .stdin(Stdio::piped())
            .spawn()
            .expect("started");
        let mut stdin = child.stdin.take().expect("piped");
        stdin.write_all(b"one\n\ntwo").expect("written");
        drop(stdin);
        assert_eq!(child.wait().expect("ended").code(), Some(0), "{flag}");
    }
    let url = format!("mqtt://127.0.0.1:{}", broker.addr(Transport::Tcp).port());
    let repeat = format!("pub -L {url}/t/L -m again --repeat 2 --repeat-delay 0.01");
    assert_eq!(code(&repeat), Some(0));
    let (lines, exit) = sub.end();
    assert_eq!(
        lines,
        [
            "t/m hello",
            "t/n (null)",
            "t/f a",
            "b",
            "t/-l one",
            "t/-l (null)",
            "t/-l two",
            "t/-s one",
            "",
            "two",
            "t/L again",
            "t/L again",
        ]
    );
    assert_eq!(exit, Some(0));
}

#[test]
fn every_transport_by_url() {
    let broker = Broker::start(2);
    let ca = broker.ca();
    for transport in ALL {
        let port = broker.addr(transport).port();
        let mut at = format!(
            "--url {}://localhost:{port}",
            dunlin_client::scheme(transport)
        );
        if transport.is_encrypted() {
            at += &format!(" --ca {}", ca.display());
        }
        let sub = Subscriber::start(&format!("{at} -t a -q 1 -C 1"));
        assert_eq!(code(&format!("pub {at} -t a -m hi -q 1")), Some(0));
        assert_eq!(sub.end(), (vec!["hi".into()], Some(0)), "{transport:?}");
    }
    let port = broker.addr(Transport::Tls).port();
    let tls = format!("pub -h localhost -p {port} -t a -m hi");
    assert_eq!(code(&format!("{tls} --cafile {}", ca.display())), Some(0));
    assert_eq!(code(&format!("{tls} --insecure")), Some(0));
    // Not what the system trusts, and not TLS at all.
    assert_eq!(code(&format!("{tls} --tls-use-os-certs")), Some(1));
    assert_eq!(code(&format!("{tls} -V 311")), Some(1));
}

#[test]
fn formats_and_filters() {
    let broker = Broker::start(1);
    let at = format!("-h 127.0.0.1 -p {}", broker.addr(Transport::Tcp).port());
    let properties = "-D publish content-type c/t -D publish user-property k v \
                      -D publish response-topic r -D publish correlation-data d";
    let retained = format!("pub {at} -t f/a -m {{\"n\":1}} -r -q 1 {properties}");
    assert_eq!(code(&retained), Some(0));
    let cases = [
        ("%t|%p|%q|%r|%l|%x", "f/a|{\"n\":1}|1|1|7|7b226e223a317d"),
        ("%C|%P|%R|%D|%%", "c/t|k:v|r|d|%"),
        ("%10t|%-5q|%.3p", "       f/a|1    |{\"n"),
    ];
    for (format, want) in cases {
        let got = output(&format!("sub {at} -t f/a -q 1 -C 1 -F {format}"));
        assert_eq!(String::from_utf8_lossy(&got.stdout), format!("{want}\n"));
    }
    let got = output(&format!("sub {at} -t f/a -q 1 -C 1 -N -F %J"));
    let json: serde_json::Value = serde_json::from_slice(&got.stdout).expect("JSON");
    assert_eq!(json["payload"]["n"], 1);
    assert_eq!(json["properties"]["user-properties"]["k"], "v");
    // Nothing is left: not retained, not of this topic, removed.
    for silent in ["-R", "-T f/+", "--retain-handling never"] {
        let got = output(&format!("sub {at} -t f/a -W 1 {silent}"));
        assert_eq!(
            (got.stdout.len(), got.status.code()),
            (0, Some(27)),
            "{silent}"
        );
    }
    let got = output(&format!("sub {at} -t f/a -C 1 --remove-retained"));
    assert_eq!(got.status.code(), Some(0));
    assert_eq!(code(&format!("sub {at} -t f/a -W 1")), Some(27));
    assert_eq!(code(&format!("sub {at} -t f/a -E")), Some(0));
}

#[test]
fn errors_have_mosquittos_exit_codes() {
    let broker = Broker::start_with(1, &["auth.anonymous=\"never\""]);
    let at = format!("-h 127.0.0.1 -p {}", broker.addr(Transport::Tcp).port());
    let cases = [
        (format!("pub {at} -t a -m b"), 135, "not authorized"),
        (format!("pub {at} -V 311 -t a -m b"), 5, "not authorized"),
        (format!("sub {at} -t a"), 135, "not authorized"),
        (format!("pub {at} -t a/# -m b"), 135, ""),
        (format!("pub {at} -t a"), 1, "must be supplied"),
        (format!("pub {at} -m b"), 1, "must be supplied"),
        (format!("sub {at}"), 1, "must specify a topic"),
        (format!("pub {at} -t a -m b -q 3"), 1, "QoS"),
        (format!("pub {at} -t a -m b -f c"), 1, "cannot be used with"),
        (format!("pub {at} -t a -f /nonexistent"), 1, "/nonexistent"),
        (format!("sub {at} -t a -F %z"), 1, "'z'"),
        (format!("sub {at} -t a -D nonsense a b"), 1, "nonsense"),
        (format!("pub {at} -t a -m b -q 1 -q 2"), 1, "multiple times"),
        (format!("sub {at} -t a -d -d"), 1, "multiple times"),
        (format!("sub {at} -t a -c"), 1, "-i"),
        ("sub --url http://h -t a".into(), 1, "http"),
        ("sub -h nothing.invalid -t a".into(), 1, "nothing.invalid"),
    ];
    for (args, want, words) in cases {
        let got = output(&args);
        let stderr = String::from_utf8_lossy(&got.stderr);
        assert_eq!(got.status.code(), Some(want), "{args}: {stderr}");
        assert!(stderr.contains(words), "{args}: {stderr}");
    }
    let got = output(&format!("pub {at} -t a -m b --quiet"));
    assert!(got.stderr.is_empty());
}

#[test]
fn a_subscriber_prints_when_it_was_subscribed() {
    let broker = Broker::start(1);
    let port = broker.addr(Transport::Quic).port();
    let micros = || {
        let since = SystemTime::UNIX_EPOCH.elapsed();
        u64::try_from(since.expect("later").as_micros()).expect("soon")
    };
    let before = micros();
    let got = output(&format!(
        "sub --url quic://127.0.0.1:{port} --insecure -t t -E --timing"
    ));
    assert_eq!(got.status.code(), Some(0));
    let json: serde_json::Value = serde_json::from_slice(&got.stdout).expect("JSON");
    let field = |name: &str| json[name].as_u64().expect(name);
    assert!(before <= field("start_unix_us"), "{json}");
    assert!(
        field("start_unix_us") + field("closed_us") <= micros(),
        "{json}"
    );
    assert!(0 < field("connected_us"), "{json}");
    assert!(field("connected_us") <= field("subscribed_us"), "{json}");
    assert!(field("subscribed_us") <= field("closed_us"), "{json}");
}

#[test]
fn help_is_long_only() {
    for command in ["pub", "sub"] {
        let got = output(&format!("{command} --help"));
        assert_eq!(got.status.code(), Some(0));
        let text = String::from_utf8_lossy(&got.stdout);
        assert!(text.contains("-h, --host"), "{text}");
    }
}

#[test]
fn a_client_logs_its_connection_and_its_secrets_when_asked_to() {
    let broker = Broker::start(1);
    let dir = tempfile::tempdir().expect("a directory");
    let secrets = dir.path().join("secrets");
    let port = broker.addr(Transport::Quic).port();
    let args = format!(
        "pub --url quic://127.0.0.1:{port} --insecure -t t -m x -q 1 --qlog {}",
        dir.path().display()
    );
    let mut command = dunlin(&args);
    let status = command.env("SSLKEYLOGFILE", &secrets).status();
    assert!(status.expect("started").success());
    let secrets = std::fs::read_to_string(secrets).expect("written");
    assert!(secrets.contains("CLIENT_TRAFFIC_SECRET_0 "), "{secrets}");
    let entries = std::fs::read_dir(dir.path()).expect("a directory");
    let paths = entries.map(|entry| entry.expect("an entry").path());
    let logs: Vec<_> = paths
        .filter(|path| path.extension().is_some_and(|e| e == "sqlog"))
        .collect();
    let [log] = &logs[..] else {
        panic!("one log, not {logs:?}");
    };
    let log = std::fs::read_to_string(log).expect("written");
    for name in [
        "connection_started",
        "packet_sent",
        "alpn_information",
        "stream_data_moved",
        "connection_closed",
    ] {
        assert!(log.contains(&format!("\"quic:{name}\"")), "{name}");
    }
}

#[test]
fn options_without_effect_are_refused() {
    let cases = [
        "pub -t a -m b --tickets f",
        "pub --url mqtt://h -t a -m b --cafile f",
        "pub --url mqtts://h -t a -m b --datagrams",
        "pub --url quic://h -t a -m b --topic-streams 3",
        "pub --url quic://h -t a -m b --race-memory f",
        "pub --url quic://h -t a -m b --race-probe-after 1000",
        "pub --url quic://h -t a -m b -h h",
        "pub -t a -m b --tls-version tlsv1.2",
        "pub -t a -m b --will-qos 1",
        "pub -t a -m b -D will content-type c",
        "pub -t a -m b -D subscribe subscription-identifier 1",
        "pub -t a -m b -D publish topic-alias 1",
        "pub -t a -m b --repeat-delay 1",
        "pub -t a -l --repeat 2",
        "pub -t a -m b -V 311 -x 60",
        "pub -L mqtt://h/t -t a -m b",
        "sub -t a -V 311 --no-local",
        "sub -t a -D publish content-type c",
        "sub -t a -E -C 1",
        "sub -t a --pretty",
        "sub -t a -v -F %p",
        "sub -t a -M 3",
    ];
    for args in cases {
        let got = output(args);
        let stderr = String::from_utf8_lossy(&got.stderr);
        let words = [
            "has no effect here",
            "chooses",
            "twice",
            "unexpected argument",
        ];
        let is_clear = words.iter().any(|words| stderr.contains(words));
        assert!(is_clear && got.status.code() == Some(1), "{args}: {stderr}");
    }
}

#[test]
fn more_than_the_broker_takes_is_refused_at_once() {
    let broker = Broker::start(1);
    let at = format!("-h 127.0.0.1 -p {}", broker.addr(Transport::Tcp).port());
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("large");
    std::fs::write(&file, vec![b'x'; 3 << 20]).expect("written");
    for (more, words) in [
        ("-q 0", "larger than the 1048576 bytes"),
        ("-q 1", "larger than the 1048576 bytes"),
        // It does not say what it takes, and closes the connection each time.
        ("-q 1 -V 311", "connection failed"),
    ] {
        let args = format!("pub {at} -t a -f {} {more}", file.display());
        let got = output(&args);
        let stderr = String::from_utf8_lossy(&got.stderr);
        assert_eq!(got.status.code(), Some(1), "{more}: {stderr}");
        assert!(stderr.contains(words), "{more}: {stderr}");
    }
}

#[test]
fn the_time_of_a_subscriber_includes_connecting() {
    // It accepts and says nothing; CONNACK is awaited for 20 s.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = silent.local_addr().expect("an address").port();
    let begun = std::time::Instant::now();
    let exit = code(&format!("sub -h 127.0.0.1 -p {port} -t a -W 1"));
    assert_eq!(exit, Some(27));
    assert!(begun.elapsed().as_secs() < 15, "{:?}", begun.elapsed());
}

#[test]
fn a_killed_subscriber_leaves_no_session_unless_asked_to() {
    let broker = Broker::start(1);
    let at = format!("-h 127.0.0.1 -p {}", broker.addr(Transport::Tcp).port());
    for (flags, kept) in [("", false), ("-c", true), ("-x 60", true)] {
        let mut sub = Subscriber::start(format!("{at} -t a -i killed {flags}").trim());
        sub.child.kill().expect("killed");
        sub.child.wait().expect("ended");
        let present = crate::support::run(async {
            let client = broker.client(Transport::Tcp).client_id("killed");
            let (client, _messages) = connect(client.clean_start(false)).await;
            let negotiated = client.negotiated().expect("connected");
            client.disconnect().await;
            negotiated.session_present
        });
        assert_eq!(present, kept, "{flags}");
    }
}

#[test]
fn passwd_takes_the_order_of_mosquitto_passwd() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("passwords").display().to_string();
    assert_eq!(code(&format!("passwd -b {file} alice secret")), Some(0));
    assert_eq!(code(&format!("passwd {file} bob -b secret")), Some(0));
    let text = std::fs::read_to_string(&file).expect("written");
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let users: Vec<_> = lines.filter_map(|line| line.split(':').next()).collect();
    assert_eq!(users, ["alice", "bob"]);
    for wrong in [
        format!("passwd -b secret {file} alice"),
        format!("passwd -b {file} alice"),
        format!("passwd {file} alice secret"),
    ] {
        let got = output(&wrong);
        assert_eq!(got.status.code(), Some(1), "{wrong}");
        assert!(!got.stderr.is_empty());
    }
    assert_eq!(std::fs::read_to_string(&file).expect("there"), text);
}
