//! `dunlin ctl` and the control socket of a running broker, as a program and as lines.

use core::time::Duration;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::process::{Command, Output, Stdio};
use std::time::Instant;

use dunlin_base::transport::Transport;
use dunlin_client::{Client, ConnectionEvent, Events, Messages, Publish, QoS};
use serde_json::Value;

use crate::metrics::get;
use crate::support::{Broker, PATIENCE, run};

/// Runs `dunlin ctl` on a broker.
fn output(broker: &Broker, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_dunlin"))
        .arg("ctl")
        .arg("--socket")
        .arg(broker.data_dir().join("control.sock"))
        .args(args)
        .stdin(Stdio::null())
        .output()
        .expect("started")
}

/// What it prints, which must succeed.
pub(crate) fn ctl(broker: &Broker, args: &[&str]) -> String {
    let output = output(broker, args);
    let text = String::from_utf8(output.stdout).expect("text");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{args:?}: {text}{error}");
    text
}

/// The exit code, and what it says on standard error.
pub(crate) fn fail(broker: &Broker, args: &[&str]) -> (i32, String) {
    let output = output(broker, args);
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.code().expect("it ended"), error)
}

/// Rows of JSON.
pub(crate) fn rows(broker: &Broker, args: &[&str]) -> Vec<Value> {
    let args = [&["--json"], args].concat();
    let text = ctl(broker, &args);
    let row = |line| serde_json::from_str(line).expect("JSON");
    text.lines().map(row).collect()
}

/// A connection to the socket, as any program makes one.
struct Caller {
    stream: UnixStream,
    lines: BufReader<UnixStream>,
}

impl Caller {
    fn new(broker: &Broker) -> Self {
        let path = broker.data_dir().join("control.sock");
        let stream = UnixStream::connect(path).expect("connected");
        stream.set_read_timeout(Some(PATIENCE)).expect("set");
        let lines = BufReader::new(stream.try_clone().expect("cloned"));
        Self { stream, lines }
    }

    fn send(&mut self, bytes: &[u8]) {
        // A broker that refuses early may close before everything is sent.
        let _ = self.stream.write_all(bytes);
    }

    /// The next reply; `None`: the connection has ended.
    fn reply(&mut self) -> Option<Value> {
        let mut line = String::new();
        match self.lines.read_line(&mut line) {
            Ok(0) | Err(_) => None,
            Ok(_) => Some(serde_json::from_str(&line).expect("JSON")),
        }
    }

    fn ask(&mut self, request: &str) -> Value {
        self.send(format!("{request}\n").as_bytes());
        self.reply().expect("a reply")
    }
}

/// A connected client, and what happens to it.
pub(crate) struct Device {
    client: Client,
    _messages: Messages,
    events: Events,
}

impl Device {
    pub(crate) async fn connect(broker: &Broker, transport: Transport, id: &str) -> Self {
        let builder = broker.client(transport).client_id(id);
        let (client, messages) = builder.connect().await.expect("connected");
        Self {
            events: client.events(),
            client,
            _messages: messages,
        }
    }

    pub(crate) const fn client(&self) -> &Client {
        &self.client
    }

    /// Why the connection ends.
    pub(crate) async fn ended(&mut self) -> String {
        loop {
            match self.events.next().await {
                Some(ConnectionEvent::Disconnected { cause }) => return cause.to_string(),
                Some(_) => {}
                None => panic!("the client is closed"),
            }
        }
    }
}

#[test]
fn clients_are_listed_shown_and_disconnected() {
    let broker = Broker::start(2);
    run(async {
        let mut clients = Vec::new();
        for (transport, id) in [
            (Transport::Tcp, "a/1"),
            (Transport::Quic, "a/2"),
            (Transport::Tls, "b"),
        ] {
            clients.push(Device::connect(&broker, transport, id).await);
        }
        let table = ctl(&broker, &["clients"]);
        assert!(table.starts_with("CLIENT"), "{table}");
        assert_eq!(table.lines().count(), 4, "{table}");
        let found = |args: &[&str]| {
            let rows = rows(&broker, args);
            let ids = rows
                .iter()
                .map(|row| row["client_id"].as_str().expect("an id"));
            let mut ids: Vec<_> = ids.map(str::to_owned).collect();
            ids.sort();
            ids
        };
        assert_eq!(found(&["clients", "--prefix", "a/"]), ["a/1", "a/2"]);
        assert_eq!(found(&["clients", "--address", "127.0.0.0/8"]).len(), 3);
        assert_eq!(found(&["clients", "--protocol", "amqp"]).len(), 0);
        assert_eq!(found(&["clients", "--limit", "2"]).len(), 2);
        let shown = ctl(&broker, &["client", "show", "a/2"]);
        assert!(shown.contains("quic.rtt_us"), "{shown}");
        let shown = &rows(&broker, &["client", "show", "b"])[0];
        assert_eq!(shown["transport"], "tls");

        let (code, error) = fail(&broker, &["client", "show", "nobody"]);
        assert_eq!(code, 2, "{error}");
        let (code, error) = fail(&broker, &["disconnect", "nobody"]);
        assert_eq!((code, error.contains("is connected")), (2, true), "{error}");
        let said = ctl(&broker, &["disconnect", "a/2", "--why", "maintenance"]);
        assert_eq!(said, "1 connection ended\n");
        let ended = clients[1].ended().await;
        assert!(ended.contains("maintenance"), "{ended}");
        assert_eq!(found(&["clients"]), ["a/1", "b"]);
    });
    let status = &rows(&broker, &["status"])[0];
    assert_eq!(status["shards_answering"], 2);
    let log = std::fs::read_to_string(broker.data_dir().join("audit.log")).expect("written");
    assert_eq!(log.lines().count(), 2, "orders, and no questions: {log}");
    let last: Value = serde_json::from_str(log.lines().last().expect("one")).expect("JSON");
    assert_eq!(
        (&last["order"]["why"], &last["outcome"]),
        (&"maintenance".into(), &"done".into())
    );
    let uid = last["who"].as_str().expect("text");
    assert!(uid.starts_with("uid "), "{uid}");
}

#[test]
fn bad_input_is_refused_and_leaves_the_broker_alone() {
    let broker = Broker::start(1);
    let path = broker.data_dir().join("control.sock");
    let mode = std::fs::metadata(&path)
        .expect("there")
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);
    for (request, says) in [
        ("", "no request"),
        ("{", "no request"),
        ("\u{0}\u{1}\u{ff}", "no request"),
        (r#"{"request":"other"}"#, "unknown variant"),
        (r#"{"request":"status","x":1}"#, "unknown field"),
        (r#"{"request":"clients","filter":{"x":1}}"#, "unknown field"),
        (
            r#"{"request":"clients","filter":{"address":"x"}}"#,
            "a range",
        ),
        (r#"{"request":"disconnect"}"#, "missing field"),
    ] {
        let mut caller = Caller::new(&broker);
        let reply = caller.ask(request);
        let text = reply["text"].as_str().expect("why");
        assert_eq!(reply["code"], "bad-request", "{reply}");
        assert!(text.contains(says), "{request}: {text}");
        assert_eq!(caller.reply(), None, "the connection ends");
    }
    let mut caller = Caller::new(&broker);
    for (request, code) in [
        (r#"{"request":"clients","page":{"after":"7:7"}}"#, None),
        (
            r#"{"request":"clients","page":{"after":"x"}}"#,
            Some("bad-request"),
        ),
        (
            r#"{"request":"clients","page":{"limit":0}}"#,
            Some("bad-request"),
        ),
        (
            r#"{"request":"clients","page":{"limit":1001}}"#,
            Some("bad-request"),
        ),
        (
            r#"{"request":"client","client_id":"gone"}"#,
            Some("not-found"),
        ),
        (
            r#"{"request":"disconnect","client_id":"gone"}"#,
            Some("not-found"),
        ),
        (
            r#"{"request":"disconnect","client_id":"a","why":"\n"}"#,
            Some("bad-request"),
        ),
    ] {
        let reply = caller.ask(request);
        assert_eq!(
            reply.get("code").and_then(Value::as_str),
            code,
            "{request}: {reply}"
        );
    }
    // 10 MB in one line, then bytes that are no text.
    let mut caller = Caller::new(&broker);
    caller.send(&vec![b'x'; 10 << 20]);
    let reply = caller.reply();
    let text = reply
        .as_ref()
        .map(|reply| reply["text"].as_str().expect("why"));
    assert!(text.is_none_or(|text| text.contains("at most")), "{text:?}");
    let mut caller = Caller::new(&broker);
    caller.send(b"\xff\xfe\n");
    assert_eq!(caller.reply().expect("a reply")["code"], "bad-request");
    assert_eq!(rows(&broker, &["status"]).len(), 1);
}

#[test]
fn silent_and_slow_callers_hold_up_no_other() {
    let broker = Broker::start(1);
    let mut begun = Caller::new(&broker);
    begun.send(br#"{"request":"#);
    // They ask for much and read nothing.
    let mut greedy = Caller::new(&broker);
    greedy.stream.set_nonblocking(true).expect("set");
    let asked = b"{\"request\":\"status\"}\n".repeat(10_000);
    let _ = greedy.stream.write(&asked);
    let since = Instant::now();
    assert_eq!(rows(&broker, &["status"]).len(), 1);
    assert!(since.elapsed() < PATIENCE / 2);
    let mut many: Vec<_> = (0..40).map(|_| Caller::new(&broker)).collect();
    let refused = many.iter_mut().filter_map(|caller| {
        let time = Duration::from_millis(200);
        caller.stream.set_read_timeout(Some(time)).expect("set");
        caller.reply()
    });
    let refused: Vec<_> = refused.collect();
    assert!(refused.len() >= 8, "{}", refused.len());
    assert!(refused.iter().all(|reply| reply["code"] == "busy"));
    drop(many);
    // Half a line has five seconds.
    let reply = begun.reply().expect("a reply");
    assert_eq!(reply["code"], "bad-request", "{reply}");
    let orders = b"{\"request\":\"disconnect\",\"client_id\":\"gone\"}\n".repeat(10_000);
    let mut caller = Caller::new(&broker);
    let mut writer = caller.stream.try_clone().expect("cloned");
    let writing = std::thread::spawn(move || writer.write_all(&orders).expect("taken"));
    for _ in 0..10_000 {
        assert_eq!(caller.reply().expect("a reply")["code"], "not-found");
    }
    writing.join().expect("written");
}

#[test]
fn without_a_broker_it_says_so() {
    let mut broker = Broker::start(1);
    let path = broker.data_dir().join("control.sock");
    broker.stop();
    assert!(!path.exists(), "it is removed");
    let (code, error) = fail(&broker, &["status"]);
    assert_eq!(code, 1);
    assert!(error.contains("no broker is running"), "{error}");
    // A socket that a killed broker left is in no one's way.
    drop(std::os::unix::net::UnixListener::bind(&path).expect("bound"));
    assert!(path.exists());
    broker.start_again(1, &[]);
    assert_eq!(rows(&broker, &["status"]).len(), 1);
    broker.start_again(1, &["control.enabled=false"]);
    assert!(!path.exists());
}

#[test]
fn a_kick_takes_effect_at_once() {
    let broker = Broker::start(2);
    let mut caller = Caller::new(&broker);
    let mut times = Vec::new();
    run(async {
        for number in 0..10 {
            let id = format!("client-{number}");
            let mut device = Device::connect(&broker, Transport::Tcp, &id).await;
            let since = Instant::now();
            let reply = caller.ask(&format!(r#"{{"request":"disconnect","client_id":"{id}"}}"#));
            assert_eq!(reply["count"], 1, "{reply}");
            device.ended().await;
            times.push(since.elapsed());
        }
    });
    times.sort();
    // 10 ms is the goal on a machine that has nothing else to do.
    assert!(times[5] < Duration::from_millis(100), "{times:?}");
}

#[test]
fn a_backup_comes_over_the_same_socket() {
    let broker = Broker::start(1);
    let copy = broker.data_dir().join("copy.jsonl");
    let path = copy.to_str().expect("text");
    ctl(&broker, &["backup", "--output", path]);
    let text = std::fs::read_to_string(&copy).expect("written");
    assert!(text.lines().count() >= 2, "{text}");
    let mut caller = Caller::new(&broker);
    caller.send(b"{\"request\":\"backup\"}\n");
    let mut again = String::new();
    caller.lines.read_to_string(&mut again).expect("read");
    assert_eq!(text, again);
}

#[test]
fn sessions_subscriptions_and_messages_are_seen_and_changed() {
    let broker = Broker::start(2);
    run(async {
        let keeper = broker.client(Transport::Tcp).client_id("keeper");
        let keeper = keeper
            .clean_start(false)
            .session_expiry(Duration::from_secs(3600));
        let (client, _messages) = keeper.connect().await.expect("connected");
        for filter in ["kept/#", "$share/g/jobs/+"] {
            let subscribed = client.subscribe(filter, QoS::AtLeastOnce).await;
            subscribed.expect("subscribed");
        }
        client.disconnect().await;
    });
    let sessions = rows(&broker, &["sessions", "--connected", "false"]);
    assert_eq!(sessions.len(), 1);
    assert_eq!(
        (&sessions[0]["client_id"], &sessions[0]["connection"]),
        (&"keeper".into(), &Value::Null)
    );
    let by_filter = ["sessions", "--subscribed", "kept/#"];
    assert_eq!(rows(&broker, &by_filter).len(), 1);
    assert_eq!(
        rows(&broker, &["sessions", "--subscribed", "kept/+"]).len(),
        0
    );
    let filters = rows(&broker, &["subscriptions", "keeper"]);
    let filters: Vec<_> = filters.iter().map(|row| row["filter"].as_str()).collect();
    assert_eq!(filters, [Some("$share/g/jobs/+"), Some("kept/#")]);
    assert_eq!(fail(&broker, &["subscriptions", "gone"]).0, 2);
    let who = rows(&broker, &["topic", "who", "jobs/1"]);
    assert_eq!(
        (who.len(), &who[0]["share"]),
        (1, &"$share/g/jobs/+".into())
    );
    assert_eq!(fail(&broker, &["topic", "who", "jobs/+"]).0, 1);

    let said = ctl(&broker, &["publish", "kept/a", "hello", "--retain"]);
    assert_eq!(said, "published\n");
    let said = ctl(&broker, &["publish", "alone", "x", "--retain", "-q", "0"]);
    assert!(said.contains("no receiver"), "{said}");
    for args in [["publish", "a/#", "x"], ["publish", "$SYS/x", "x"]] {
        assert_eq!(fail(&broker, &args).0, 1, "{args:?}");
    }
    let session = &rows(&broker, &["session", "show", "keeper"])[0];
    assert_eq!(session["queued_messages"], 1);
    assert_eq!(rows(&broker, &["retained", "list"]).len(), 2);
    let message = &rows(&broker, &["retained", "get", "kept/a"])[0];
    assert_eq!(message["payload"], "hello");
    assert_eq!(fail(&broker, &["retained", "get", "other"]).0, 2);
    let said = ctl(&broker, &["retained", "clear", "kept/#"]);
    assert_eq!(said, "1 retained message removed\n");
    assert_eq!(rows(&broker, &["retained", "list", "#"]).len(), 1);

    assert_eq!(
        ctl(&broker, &["session", "delete", "keeper"]),
        "1 session deleted\n"
    );
    assert_eq!(fail(&broker, &["session", "delete", "keeper"]).0, 2);
    assert_eq!(rows(&broker, &["sessions"]).len(), 0);
    let log = std::fs::read_to_string(broker.data_dir().join("audit.log")).expect("written");
    assert!(
        log.contains(r#""payload":"5 bytes""#) && !log.contains("hello"),
        "{log}"
    );
}

#[test]
fn bans_hold_over_restarts_and_disconnect() {
    let mut broker = Broker::start(2);
    run(async {
        let mut first = Device::connect(&broker, Transport::Quic, "a").await;
        let _second = Device::connect(&broker, Transport::Tcp, "b").await;
        let said = ctl(
            &broker,
            &["ban", "--client", "a", "--for", "1h", "--why", "tests"],
        );
        assert_eq!(said, "1 connection ended\n");
        assert!(first.ended().await.contains("banned"));
        let refused = broker
            .client(Transport::Quic)
            .client_id("a")
            .connect()
            .await;
        let refused = refused.expect_err("banned").to_string();
        assert!(refused.contains("0x8a"), "{refused}");
        assert_eq!(rows(&broker, &["clients"]).len(), 1);
    });
    broker.start_again(2, &[]);
    let refused = run(broker.client(Transport::Tcp).client_id("a").connect());
    assert!(refused.is_err(), "after a restart");
    let bans = rows(&broker, &["bans"]);
    assert_eq!(
        (bans.len(), &bans[0]["whom"]["client_id"]),
        (1, &"a".into())
    );
    assert!(ctl(&broker, &["bans"]).contains("client_id a"));
    assert_eq!(ctl(&broker, &["unban", "--client", "a"]), "1 ban ended\n");
    assert_eq!(fail(&broker, &["unban", "--client", "a"]).0, 2);
    run(async {
        let mut device = Device::connect(&broker, Transport::Tcp, "a").await;
        let said = ctl(&broker, &["ban", "--address", "127.0.0.0/8"]);
        assert_eq!(said, "1 connection ended\n");
        device.ended().await;
        let refused = broker.client(Transport::Tcp).client_id("c").connect().await;
        refused.expect_err("banned");
    });
    assert_eq!(fail(&broker, &["ban"]).0, 1);
    assert_eq!(fail(&broker, &["ban", "--address", "x"]).0, 1);
}

#[test]
fn a_reload_says_what_it_changed_and_what_needs_a_restart() {
    let broker = Broker::start(1);
    let file = broker.data_dir().with_file_name("dunlin.toml");
    let before = std::fs::read_to_string(&file).expect("read");
    let said = ctl(&broker, &["reload"]);
    assert_eq!(said, "in force: users, rules, certificates and tokens\n");
    let more = "[limits]\nmax_sessions = 1\nmax_packet_size = \"2MiB\"\n";
    std::fs::write(&file, format!("{before}{more}")).expect("written");
    let said = ctl(&broker, &["reload"]);
    assert_eq!(
        said,
        "in force: users, rules, certificates and tokens, limits.max_sessions\n\
         needs a restart: limits.max_packet_size\n"
    );
    std::fs::write(&file, format!("{before}[limits\nmax_inflight = 7\n")).expect("written");
    let (code, error) = fail(&broker, &["reload"]);
    assert_eq!(code, 1);
    assert!(error.contains("dunlin.toml:19: "), "{error}");
    assert!(error.contains("dunlin broker --check --config"), "{error}");
    let limits = rows(&broker, &["limits"]);
    let shown = |key: &str| {
        let row = limits.iter().find(|row| row["key"] == key);
        let row = row.expect("a row");
        (row["value"].clone(), row["default"].clone())
    };
    // As they are: one was changed, the other waits for a restart.
    assert_eq!(shown("limits.max_sessions"), ("1".into(), false.into()));
    assert_eq!(
        shown("limits.max_packet_size"),
        ("1MiB".into(), true.into())
    );
    // Shards learn of it in their own time.
    run(async {
        let connect = || broker.client(Transport::Tcp).connect();
        let _first = connect().await.expect("the first session");
        let end = Instant::now() + PATIENCE;
        while connect().await.is_ok() {
            assert!(Instant::now() < end, "more than one session");
        }
        std::fs::write(&file, &before).expect("written");
        let said = ctl(&broker, &["reload"]);
        assert!(said.contains("limits.max_sessions\n"), "{said}");
        while connect().await.is_err() {
            assert!(Instant::now() < end, "only one session");
        }
    });
    assert_eq!(ctl(&broker, &["log-level"]), "level  info\n");
    // The log of this process is that of the tests.
    assert_eq!(fail(&broker, &["log-level", "debug"]).0, 1);
    assert_eq!(fail(&broker, &["users"]).0, 2);
}

/// As [`ctl`] or [`fail`], with a line on standard input.
fn ctl_with(broker: &Broker, args: &[&str], input: &str) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_dunlin"))
        .arg("ctl")
        .arg("--socket")
        .arg(broker.data_dir().join("control.sock"))
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("started");
    let mut stdin = child.stdin.take().expect("piped");
    writeln!(stdin, "{input}").expect("written");
    drop(stdin);
    child.wait_with_output().expect("it ended")
}

#[test]
fn users_are_added_changed_and_removed_by_order() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("passwords");
    std::fs::write(&path, "").expect("written");
    let file = format!("auth.password_file={}", path.display());
    let broker = Broker::start_with(2, &[&file, "auth.anonymous=never"]);
    let order = |args: &[&str], input: &str| {
        let output = ctl_with(&broker, args, input);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        (output.status.code().expect("it ended"), text)
    };
    // Shards learn of it in their own time.
    let login = async |password: &str| {
        let end = Instant::now() + PATIENCE;
        loop {
            let builder = broker.client(Transport::Tcp).client_id("device");
            match builder
                .credentials("bob", password.to_owned())
                .connect()
                .await
            {
                Ok(open) => return open,
                Err(error) => assert!(Instant::now() < end, "{error}"),
            }
        }
    };
    let ended = async |events: &mut Events| loop {
        match events.next().await {
            Some(ConnectionEvent::Disconnected { cause }) => return cause.to_string(),
            Some(_) => {}
            None => panic!("the client is closed"),
        }
    };
    run(async {
        let added = (0, "1 user added\n".to_owned());
        assert_eq!(order(&["user", "add", "bob"], "first-secret"), added);
        assert_eq!(order(&["user", "add", "ann"], "her-secret"), added);
        assert_eq!(order(&["user", "add", "bob"], "first-secret").0, 1);
        assert_eq!(ctl(&broker, &["user", "list"]), "USER\nann\nbob\n");
        let (client, _messages) = login("first-secret").await;
        let mut events = client.events();
        assert_eq!(order(&["user", "passwd", "bob"], "other-secret").0, 0);
        let cause = ended(&mut events).await;
        assert!(
            cause.contains("NotAuthorized") || cause.contains("authorized"),
            "{cause}"
        );
        drop(client);
        let (client, _messages) = login("other-secret").await;
        let mut events = client.events();
        assert_eq!(order(&["user", "remove", "bob"], "").0, 0);
        ended(&mut events).await;
        assert_eq!(ctl(&broker, &["user", "list"]), "USER\nann\n");
    });
    // What cannot be changes nothing.
    let before = std::fs::read_to_string(&path).expect("read");
    assert_eq!(order(&["user", "remove", "bob"], "").0, 2);
    assert_eq!(order(&["user", "passwd", "bob"], "x").0, 2);
    assert_eq!(order(&["user", "add", "a:b"], "x").0, 1);
    assert_eq!(order(&["user", "add", "carl"], "").0, 1);
    assert!(std::fs::read_to_string(&path).expect("read") == before);
    let mode = std::fs::metadata(&path)
        .expect("there")
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);
    // A line that the broker cannot read stops the change, which is undone.
    let broken = format!("{before}nonsense\n");
    std::fs::write(&path, &broken).expect("written");
    assert_eq!(order(&["user", "add", "carl"], "x").0, 1);
    assert!(std::fs::read_to_string(&path).expect("read") == broken);
    let audit = std::fs::read_to_string(broker.data_dir().join("audit.log")).expect("read");
    assert!(
        audit.contains("add-user") && audit.contains("remove-user"),
        "{audit}"
    );
    assert!(
        !audit.contains("secret") && !before.contains("secret"),
        "{audit}"
    );
}

#[test]
fn rules_are_explained_by_their_lines() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("acl");
    std::fs::write(&path, "user ann\ntopic read a/#\ntopic deny a/b\n").expect("written");
    let list = format!("auth.acl_file={}", path.display());
    let broker = Broker::start_with(1, &[&list]);
    let why = |args: &[&str]| {
        let args = [&["acl", "explain"], args].concat();
        let rows = rows(&broker, &args);
        let shown = rows.iter().map(|row| {
            let text = |name: &str| row[name].as_str().expect("text").to_owned();
            (text("action"), row["allowed"] == true, text("why"))
        });
        shown.collect::<Vec<_>>()
    };
    let row = |action: &str, allowed, why: &str| (action.to_owned(), allowed, why.to_owned());
    assert_eq!(
        why(&["ann", "a/c"]),
        [
            row("subscribe", true, "line 2 allows it"),
            row("publish", false, "no line allows it"),
            row("receive", true, "line 2 allows it"),
        ]
    );
    assert_eq!(
        why(&["ann", "a/+"]),
        [row("subscribe", false, "line 3 denies it")]
    );
    assert_eq!(
        why(&["ann", "a/b"])[2],
        row("receive", false, "line 3 denies it")
    );
    assert_eq!(
        why(&["-", "a/c"])[0],
        row("subscribe", false, "no line allows it")
    );
    assert_eq!(fail(&broker, &["acl", "explain", "ann", "a/#/b"]).0, 1);
}

#[test]
fn what_is_filtered_is_explained_and_left_out() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("acl");
    std::fs::write(&path, "topic read a/#\ntopic deny a/b\ntopic write #\n").expect("written");
    let list = format!("auth.acl_file={}", path.display());
    let broker = Broker::start_with(2, &[&list, "auth.filter_subscriptions=true"]);
    let may_subscribe = |who: &[&str], filter: &str| {
        let row = &rows(&broker, &[&["acl", "explain"], who, &[filter]].concat())[0];
        let why = row["why"].as_str().expect("text").to_owned();
        (row["allowed"] == true, why)
    };
    run(async {
        let device = Device::connect(&broker, Transport::Quic, "d").await;
        for who in [&["-"][..], &["--client", "d"][..]] {
            let (allowed, why) = may_subscribe(who, "#");
            assert!(allowed && why.contains("left out"), "{why}");
            assert!(!may_subscribe(who, "b/#").0 && !may_subscribe(who, "a/b").0);
            assert!(!may_subscribe(who, "$share/g/#").0);
        }
        let builder = broker.client(Transport::Tcp).client_id("all");
        let (client, mut messages) = builder.connect().await.expect("connected");
        let granted = client.subscribe("#", QoS::AtLeastOnce).await;
        granted.expect("accepted");
        for topic in ["b", "a/c"] {
            let publish = Publish::new(topic, topic).qos(QoS::AtLeastOnce);
            device.client().publish(publish).await.expect("taken");
        }
        let first = messages.next().await.expect("a message");
        assert_eq!(&*first.topic, "a/c");
        client.disconnect().await;
    });
}

#[test]
fn a_drained_broker_sends_its_clients_elsewhere() {
    let broker = Broker::start_with(2, &["metrics.address=127.0.0.1:0"]);
    assert!(get(&broker, "/readyz").0.contains("200"));
    run(async {
        let mut devices = Vec::new();
        for number in 0..6 {
            let transport = match number % 2 {
                0 => Transport::Quic,
                _ => Transport::Tcp,
            };
            let id = format!("device-{number}");
            devices.push(Device::connect(&broker, transport, &id).await);
        }
        let mut caller = Caller::new(&broker);
        for request in [
            r#"{"request":"drain","rate":0}"#,
            r#"{"request":"drain","rate":9,"server":""}"#,
        ] {
            assert_eq!(caller.ask(request)["code"], "bad-request", "{request}");
        }
        let since = Instant::now();
        let drain = r#"{"request":"drain","rate":20,"server":"other.example"}"#;
        assert_eq!(caller.ask(drain)["count"], 6);
        assert_eq!(caller.ask(drain)["code"], "conflict");
        assert_eq!(caller.ask(r#"{"request":"status"}"#)["draining"], true);
        assert!(get(&broker, "/readyz").0.contains("503"));
        for device in &mut devices {
            let ended = device.ended().await;
            assert!(ended.contains("0x9c"), "{ended}");
        }
        // Two at a time.
        assert!(
            since.elapsed() >= Duration::from_millis(190),
            "{:?}",
            since.elapsed()
        );
        let late = broker
            .client(Transport::Tcp)
            .client_id("late")
            .connect()
            .await;
        late.expect_err("it listens no more");
    });
}

#[test]
fn a_drained_program_stops() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("dunlin.toml");
    let listener = "[[listener]]\ntransport = \"tcp\"\naddress = \"127.0.0.1:0\"\n";
    std::fs::write(&file, listener).expect("written");
    let data = dir.path().join("data");
    let mut program = Command::new(env!("CARGO_BIN_EXE_dunlin"))
        .args(["broker", "--config"])
        .arg(&file)
        .arg("--data-dir")
        .arg(&data)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("started");
    let socket = data.join("control.sock");
    let deadline = Instant::now() + PATIENCE;
    while UnixStream::connect(&socket).is_err() {
        assert!(Instant::now() < deadline, "no socket");
        std::thread::sleep(Duration::from_millis(20));
    }
    let order = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_dunlin"));
        command.arg("ctl").arg("--socket").arg(&socket).args(args);
        let output = command.output().expect("started");
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).expect("text")
    };
    assert_eq!(order(&["log-level", "debug"]), "level  debug\n");
    assert_eq!(order(&["log-level"]), "level  debug\n");
    assert!(order(&["drain"]).ends_with("the broker has stopped\n"));
    assert!(program.wait().expect("it ended").success());
}
