//! A broker whose store is a log in NATS: another one, with other files and another number
//! of shards, goes on where it was killed. Without a server of NATS, each test says so and
//! passes.

use core::sync::atomic::{AtomicU16, Ordering};
use core::time::Duration;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::Instant;

use dunlin_client::{Builder, Client, Message, Messages, Publish, QoS, Will};

use crate::nats_server::{Server, Sync};
use crate::support::{PATIENCE, free_port, run};

/// Messages of one publisher.
const COUNT: u64 = 60;

/// Time in which a message that must not come would have come.
const A_WHILE: Duration = Duration::from_millis(300);

/// A broker in a process of its own, with files of its own.
pub(crate) struct Broker {
    child: Child,
    port: u16,
    metrics: u16,
    dir: tempfile::TempDir,
}

/// The configuration of a broker with this store.
fn config(dir: &Path, port: u16, metrics: u16, shards: u16, store: &str) -> String {
    format!(
        "data_dir = '{}'\nshards = {shards}\nshard_threads = 'always'\n\
         [metrics]\naddress = '127.0.0.1:{metrics}'\n\
         [[listener]]\ntransport = 'tcp'\naddress = '127.0.0.1:{port}'\n[store.nats]\n{store}",
        dir.join("data").display(),
    )
}

/// Keys of `[store.nats]` for one server.
pub(crate) fn store(server: &Server) -> String {
    format!(
        "urls = ['{}']\nsystem_urls = ['{}']\nreplicas = 1\n",
        server.url("dl:d"),
        server.url("sys:s")
    )
}

/// With a lease that is not lost, however slow the machine is.
fn long(store: &str) -> String {
    format!("{store}lease = '10m'\n")
}

/// With a lease that is not lost by a machine that is slow for a moment.
fn short(store: &str) -> String {
    format!("{store}lease = '9s'\n")
}

/// The same for a broker that is to be a standby.
pub(crate) fn standby(store: &str) -> String {
    format!("{store}take = 'free'\n")
}

/// A port that the system gives to none by itself, so that a standby may listen there much
/// later.
pub(crate) fn late_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    loop {
        let step = NEXT.fetch_add(1, Ordering::Relaxed) + (std::process::id() % 500) as u16 * 20;
        let port = 20_000 + step % 12_000;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

fn spawn(shards: u16, store: &str, errors: Stdio) -> Broker {
    let dir = tempfile::tempdir().expect("a directory");
    let (port, metrics) = (late_port(), late_port());
    let child = launch(dir.path(), (port, metrics), shards, store, errors);
    Broker {
        child,
        port,
        metrics,
        dir,
    }
}

/// Starts the program with this configuration, which is left in the directory.
fn launch(
    dir: &Path,
    (port, metrics): (u16, u16),
    shards: u16,
    store: &str,
    errors: Stdio,
) -> Child {
    let file = dir.join("dunlin.toml");
    let text = config(dir, port, metrics, shards, store);
    std::fs::write(&file, text).expect("written");
    let mut command = Command::new(env!("CARGO_BIN_EXE_dunlin"));
    command.arg("broker").arg("--config").arg(&file);
    let child = command.stdout(Stdio::null()).stderr(errors).spawn();
    child.expect("the broker starts")
}

impl Broker {
    /// Starts one, and waits until it listens. It serves when it has the store.
    pub(crate) fn start(shards: u16, store: &str) -> Self {
        let mut broker = Self::begin(shards, store);
        broker.wait_for_listener();
        broker
    }

    /// Stops it and starts it again in the same directory, with another configuration.
    pub(crate) fn again(&mut self, shards: u16, store: &str) {
        self.stop();
        let (dir, ports) = (self.dir.path(), (self.port, self.metrics));
        self.child = launch(dir, ports, shards, store, Stdio::inherit());
        self.wait_for_listener();
    }

    /// `SIGTERM`, where it runs, and its end.
    pub(crate) fn stop(&mut self) {
        if self.child.try_wait().expect("a child").is_none() {
            self.signal("-TERM");
            assert_eq!(self.end().code(), Some(0));
        }
    }

    /// Writes another configuration, for its next start.
    pub(crate) fn configure(&self, shards: u16, store: &str) -> PathBuf {
        let file = self.dir.path().join("dunlin.toml");
        let text = config(self.dir.path(), self.port, self.metrics, shards, store);
        std::fs::write(&file, text).expect("written");
        file
    }

    pub(crate) fn data_dir(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    pub(crate) const fn port(&self) -> u16 {
        self.port
    }

    /// Starts one, and waits for nothing.
    pub(crate) fn begin(shards: u16, store: &str) -> Self {
        spawn(shards, store, Stdio::inherit())
    }

    /// Starts one that waits until no other has the store, and waits until it is there.
    pub(crate) fn stand_by(shards: u16, store: &str) -> Self {
        let mut broker = spawn(shards, &standby(store), Stdio::inherit());
        broker.wait_until_standby();
        broker
    }

    pub(crate) fn wait_until_standby(&mut self) {
        self.wait_until("a standby", |it| it.get("/healthz").contains("standby"));
    }

    /// Waits until it listens for clients.
    pub(crate) fn wait_for_listener(&mut self) {
        self.wait_until("listening", |it| {
            TcpStream::connect(("127.0.0.1", it.port)).is_ok()
        });
    }

    pub(crate) fn wait_until(&mut self, what: &str, is_so: impl Fn(&Self) -> bool) {
        let begin = Instant::now();
        while !is_so(self) {
            assert!(begin.elapsed() < PATIENCE, "the broker is not {what}");
            let ended = self.child.try_wait().expect("a child");
            assert_eq!(ended, None, "the broker ended");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// What it answers to a question over HTTP; nothing: it does not listen.
    pub(crate) fn get(&self, target: &str) -> String {
        let mut answer = String::new();
        if let Ok(mut stream) = TcpStream::connect(("127.0.0.1", self.metrics)) {
            let asked = write!(stream, "GET {target} HTTP/1.1\r\nHost: localhost\r\n\r\n");
            // One that ends meanwhile answers nothing.
            let _ = asked.and_then(|()| stream.read_to_string(&mut answer));
        }
        answer
    }

    /// What `dunlin ctl` says of it on standard error.
    #[cfg(unix)]
    fn ctl(&self, command: &str) -> (Option<i32>, String) {
        let said = self.ask(&[command]);
        let text = String::from_utf8_lossy(&said.stderr).into_owned();
        (said.status.code(), text)
    }

    /// What comes of `dunlin ctl`.
    #[cfg(unix)]
    pub(crate) fn ask(&self, args: &[&str]) -> Output {
        let socket = self.dir.path().join("data/control.sock");
        let mut command = Command::new(env!("CARGO_BIN_EXE_dunlin"));
        command.args(["ctl", "--socket"]).arg(socket).args(args);
        command.output().expect("it runs")
    }

    /// `SIGKILL`.
    pub(crate) fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    pub(crate) fn signal(&self, name: &str) {
        let id = self.child.id().to_string();
        let sent = Command::new("kill").args([name, &id]).status();
        assert!(sent.expect("kill").success());
    }

    /// Waits until it has ended by itself.
    pub(crate) fn end(&mut self) -> ExitStatus {
        let begin = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().expect("a child") {
                return status;
            }
            assert!(begin.elapsed() < PATIENCE, "the broker goes on");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    pub(crate) fn client(&self, id: &str) -> Builder {
        let url = format!("mqtt://127.0.0.1:{}", self.port);
        let builder = Client::builder(url).expect("a URL").no_reconnect();
        builder
            .client_id(id)
            .clean_start(false)
            .session_expiry(Duration::MAX)
            .connect_timeout(PATIENCE)
    }

    /// Makes a session that keeps what comes.
    pub(crate) async fn leave_session(&self, id: &str, filter: &str) {
        let (client, _messages) = self.client(id).connect().await.expect("connected");
        let how = QoS::ExactlyOnce;
        client.subscribe(filter, how).await.expect("subscribed");
        client.disconnect().await;
    }

    /// Comes back to a session, takes so many messages, and sees that there are no more.
    pub(crate) async fn take(&self, id: &str, count: usize) -> Vec<String> {
        let (client, mut messages) = self.client(id).connect().await.expect("connected");
        let mut found = Vec::new();
        while found.len() < count {
            found.push(text(&messages.next().await.expect("a message")));
        }
        let more = tokio::time::timeout(A_WHILE, messages.next()).await;
        assert!(more.is_err(), "{id}: {more:?} after {found:?}");
        client.disconnect().await;
        found
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        self.kill();
    }
}

fn text(message: &Message) -> String {
    String::from_utf8_lossy(&message.payload).into_owned()
}

/// Whether these numbers came, each once, and in order at each QoS: MQTT orders messages
/// of one topic and QoS.
fn assert_numbers(found: &[String], from: u64, to: u64) {
    let found = found
        .iter()
        .map(|text| text.parse::<u64>().expect("a number"));
    let (even, odd): (Vec<u64>, Vec<u64>) = found.partition(|number| number % 2 == 0);
    let wanted = |rest| (from..=to).filter(move |number| number % 2 == rest);
    assert!(even.iter().copied().eq(wanted(0)), "{even:?}");
    assert!(odd.iter().copied().eq(wanted(1)), "{odd:?}");
}

/// Publishes numbers, at QoS 1 and 2 in turn, and waits for each acknowledgement.
async fn publish(client: &Client, topic: &str, from: u64, to: u64) {
    for number in from..=to {
        let qos = [QoS::AtLeastOnce, QoS::ExactlyOnce][number as usize % 2];
        let message = Publish::new(topic, number.to_string()).qos(qos);
        client.publish(message).await.expect("acknowledged");
    }
}

#[test]
fn another_machine_goes_on_where_a_broker_was_killed() {
    let Some(server) = Server::start(Sync::Always) else {
        return;
    };
    let mut first = Broker::start(1, &store(&server));
    run(async {
        for (id, filter) in [
            ("reader", "q/#"),
            ("mourner", "will/#"),
            ("member", "$share/g/s/#"),
        ] {
            first.leave_session(id, filter).await;
        }
        let will = Publish::new("will/x", "gone").qos(QoS::AtLeastOnce);
        let builder = first.client("writer").will(Will::new(will));
        let (writer, _messages) = builder.connect().await.expect("connected");
        publish(&writer, "q/x", 1, COUNT).await;
        publish(&writer, "s/x", 1, COUNT).await;
        let retained = Publish::new("r/x", "kept").qos(QoS::AtLeastOnce);
        let retained = writer.publish(retained.retain(true)).await;
        retained.expect("acknowledged");
        first.kill();
    });
    let mut second = Broker::start(3, &store(&server));
    run(async {
        let found = second.take("reader", COUNT as usize).await;
        assert_numbers(&found, 1, COUNT);
        let found = second.take("member", COUNT as usize).await;
        assert_numbers(&found, 1, COUNT);
        assert_eq!(second.take("mourner", 1).await, ["gone"]);
        let (client, mut messages) = second.client("new").connect().await.expect("connected");
        let how = QoS::AtLeastOnce;
        client.subscribe("r/#", how).await.expect("subscribed");
        let message = messages.next().await.expect("a message");
        assert!(message.retain && text(&message) == "kept", "{message:?}");
        publish(&client, "q/x", COUNT + 1, 2 * COUNT).await;
        second.kill();
    });
    // Back, with fewer shards, and what was read before does not come again.
    let third = Broker::start(2, &store(&server));
    run(async {
        let found = third.take("reader", COUNT as usize).await;
        assert_numbers(&found, COUNT + 1, 2 * COUNT);
        assert!(third.take("mourner", 0).await.is_empty());
        assert!(third.take("member", 0).await.is_empty());
    });
}

/// The first has nothing to write, and ends all the same; with the code that keeps a
/// service manager from starting it again.
#[test]
fn a_broker_whose_store_was_taken_over_ends() {
    let Some(server) = Server::start(Sync::Always) else {
        return;
    };
    let mut first = Broker::start(2, &store(&server));
    let mut waiting: Messages = run(async {
        first.leave_session("reader", "q/#").await;
        let builder = first.client("idle");
        let (client, messages) = builder.connect().await.expect("connected");
        publish(&client, "q/x", 1, 5).await;
        messages
    });
    let second = Broker::start(1, &store(&server));
    assert_eq!(first.end().code(), Some(75));
    run(async {
        assert!(waiting.next().await.is_none(), "its client is disconnected");
        assert_numbers(&second.take("reader", 5).await, 1, 5);
        let (client, _messages) = second.client("idle").connect().await.expect("connected");
        publish(&client, "q/x", 6, 9).await;
        assert_numbers(&second.take("reader", 4).await, 6, 9);
    });
}

/// A service that is started again does not take the store from the machine that has it.
#[test]
fn a_broker_that_takes_only_its_own_ends_at_its_start() {
    let Some(server) = Server::start(Sync::Always) else {
        return;
    };
    let own = format!("{}take = 'own'\n", store(&server));
    let first = Broker::start(1, &own);
    run(first.leave_session("reader", "q/#"));
    let mut second = spawn(1, &own, Stdio::inherit());
    assert_eq!(second.end().code(), Some(75));
    run(first.take("reader", 0));
}

/// One that waits for NATS has acknowledged nothing.
#[test]
fn a_start_that_waits_can_be_stopped() {
    let port = free_port();
    let away = format!("urls = ['nats://127.0.0.1:{port}']\naccept_unsynced = true\n");
    let mut broker = Broker::start(1, &format!("{away}patience = '1h'\n"));
    broker.signal("-TERM");
    assert_eq!(broker.end().code(), Some(1));
}

/// A machine that stood still while another one took over.
#[test]
fn a_broker_that_was_stopped_meanwhile_ends_when_it_goes_on() {
    let Some(server) = Server::start(Sync::Always) else {
        return;
    };
    let mut first = Broker::start(2, &store(&server));
    run(async {
        first.leave_session("reader", "q/#").await;
        let (client, _messages) = first.client("writer").connect().await.expect("connected");
        publish(&client, "q/x", 1, 5).await;
        first.signal("-STOP");
        let message = Publish::new("q/x", "lost").qos(QoS::AtLeastOnce);
        let mut lost = core::pin::pin!(client.publish(message));
        assert!(tokio::time::timeout(A_WHILE, &mut lost).await.is_err());
        let second = Broker::start(1, &store(&server));
        assert_numbers(&second.take("reader", 5).await, 1, 5);
        first.signal("-CONT");
        // What it took into its hands while it was not the owner is not acknowledged.
        assert!(lost.await.is_err());
        assert_eq!(first.end().code(), Some(75));
        assert!(second.take("reader", 0).await.is_empty());
    });
}

/// Comes back to an address until a broker listens there.
pub(crate) async fn come_back(broker: &Broker, id: &str) -> Client {
    let begin = Instant::now();
    loop {
        match broker.client(id).connect().await {
            Ok((client, _)) => return client,
            Err(error) => assert!(begin.elapsed() < PATIENCE, "{error}"),
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// A standby serves when the owner was killed, with all that was acknowledged.
#[test]
fn a_standby_serves_when_the_owner_is_killed() {
    let Some(server) = Server::start(Sync::Always) else {
        return;
    };
    let mut first = Broker::start(2, &short(&store(&server)));
    run(first.leave_session("reader", "q/#"));
    let mut second = Broker::stand_by(3, &short(&store(&server)));
    let ready = second.get("/readyz");
    assert!(
        ready.contains(" 503 ") && ready.contains("standby"),
        "{ready}"
    );
    assert!(TcpStream::connect(("127.0.0.1", second.port)).is_err());
    #[cfg(unix)]
    {
        let (code, said) = second.ctl("status");
        assert_eq!(code, Some(1), "{said}");
        assert!(said.contains("standby"), "{said}");
    }
    let shows = |broker: &Broker, line: &str| {
        let text = broker.get("/metrics");
        assert!(text.lines().any(|it| it == line), "{line}\n{text}");
    };
    shows(&first, "dunlin_store_log_owner 1");
    shows(&second, "dunlin_store_log_owner 0");
    let gap = run(async {
        let (writer, _messages) = first.client("writer").connect().await.expect("connected");
        publish(&writer, "q/x", 1, COUNT).await;
        first.kill();
        let begin = Instant::now();
        let writer = come_back(&second, "another writer").await;
        publish(&writer, "q/x", COUNT + 1, COUNT + 1).await;
        let gap = begin.elapsed();
        publish(&writer, "q/x", COUNT + 2, 2 * COUNT).await;
        gap
    });
    println!("{gap:?} from the kill to the next acknowledgement");
    let found = run(second.take("reader", 2 * COUNT as usize));
    assert_numbers(&found, 1, 2 * COUNT);
    second.wait_until("ready", |it| it.get("/readyz").contains(" 200 "));
    shows(&second, "dunlin_store_log_owner 1");
    shows(&second, "dunlin_store_log_lease 1");
}

/// An owner that is stopped hands over to its standby; and that one, which is stopped in
/// turn, to the first, which is a standby now.
#[test]
fn a_broker_that_is_stopped_hands_over() {
    let Some(server) = Server::start(Sync::Always) else {
        return;
    };
    let mut first = Broker::start(1, &long(&store(&server)));
    run(first.leave_session("reader", "q/#"));
    let mut last = 0;
    for shards in [2, 1, 3] {
        let second = Broker::stand_by(shards, &long(&store(&server)));
        let gap = run(async {
            let (writer, _messages) = first.client("writer").connect().await.expect("connected");
            publish(&writer, "q/x", last + 1, last + COUNT).await;
            last += COUNT;
            let begin = Instant::now();
            first.signal("-TERM");
            let writer = come_back(&second, "another writer").await;
            publish(&writer, "q/x", last + 1, last + 1).await;
            last += 1;
            begin.elapsed()
        });
        println!("{gap:?} from SIGTERM to the next acknowledgement");
        assert_eq!(first.end().code(), Some(0));
        first = second;
    }
    let found = run(first.take("reader", last as usize));
    assert_numbers(&found, 1, last);
}

/// A standby that is stopped ends, and nothing else happens.
#[test]
fn a_standby_can_be_stopped() {
    let Some(server) = Server::start(Sync::Always) else {
        return;
    };
    let first = Broker::start(1, &long(&store(&server)));
    run(first.leave_session("reader", "q/#"));
    let mut second = Broker::stand_by(1, &long(&store(&server)));
    second.signal("-HUP");
    second.signal("-TERM");
    assert_eq!(second.end().code(), Some(0));
    run(first.take("reader", 0));
}

/// One that stood still while its standby took over becomes a standby in turn, and serves
/// again when the other is killed.
#[test]
fn a_broker_that_was_taken_over_becomes_a_standby() {
    let Some(server) = Server::start(Sync::Always) else {
        return;
    };
    let free = standby(&short(&store(&server)));
    let mut first = spawn(2, &free, Stdio::inherit());
    first.wait_for_listener();
    run(first.leave_session("reader", "q/#"));
    let mut second = Broker::stand_by(1, &short(&store(&server)));
    run(async {
        let (client, _messages) = first.client("writer").connect().await.expect("connected");
        publish(&client, "q/x", 1, 5).await;
        first.signal("-STOP");
        let message = Publish::new("q/x", "lost").qos(QoS::AtLeastOnce);
        let mut lost = core::pin::pin!(client.publish(message));
        assert!(tokio::time::timeout(A_WHILE, &mut lost).await.is_err());
        second.wait_for_listener();
        let writer = come_back(&second, "another writer").await;
        publish(&writer, "q/x", 6, 9).await;
        first.signal("-CONT");
        // What it took into its hands while it was not the owner is not acknowledged.
        assert!(lost.await.is_err());
    });
    first.wait_until_standby();
    run(async {
        let writer = come_back(&second, "another writer").await;
        publish(&writer, "q/x", 10, 12).await;
        second.kill();
        first.wait_for_listener();
        let writer = come_back(&first, "writer").await;
        publish(&writer, "q/x", 13, 15).await;
        let found = first.take("reader", 15).await;
        assert_numbers(&found, 1, 15);
    });
}

#[test]
fn publishes_wait_while_nats_stops() {
    let Some(server) = Server::start(Sync::Always) else {
        return;
    };
    let broker = Broker::start(2, &store(&server));
    run(async {
        broker.leave_session("reader", "q/#").await;
        let (client, _messages) = broker.client("writer").connect().await.expect("connected");
        publish(&client, "q/x", 1, 3).await;
        server.signal("-STOP");
        {
            let mut rest = core::pin::pin!(publish(&client, "q/x", 4, 20));
            let early = tokio::time::timeout(Duration::from_secs(3), &mut rest).await;
            assert!(early.is_err(), "acknowledged without the log");
            server.signal("-CONT");
            rest.await;
        }
        assert_numbers(&broker.take("reader", 20).await, 1, 20);
    });
}

/// A server that stays away ends the broker, which is then to be started again.
#[test]
fn a_broker_ends_when_nats_stays_away() {
    let Some(mut server) = Server::start(Sync::Always) else {
        return;
    };
    let patience = format!("{}patience = '5s'\n", store(&server));
    let mut broker = Broker::start(1, &patience);
    run(broker.leave_session("reader", "q/#"));
    server.kill();
    assert_eq!(broker.end().code(), Some(1));
}

#[test]
fn a_server_that_does_not_sync_is_refused() {
    let Some(server) = Server::start(Sync::Default) else {
        return;
    };
    let mut broker = spawn(1, &store(&server), Stdio::piped());
    let status = broker.end();
    let mut said = String::new();
    let errors = broker.child.stderr.as_mut().expect("piped");
    errors.read_to_string(&mut said).expect("text");
    assert_eq!(status.code(), Some(1), "{said}");
    assert!(said.contains("sync_interval"), "{said}");
    assert!(!said.contains("sys:s") && !said.contains("dl:d"), "{said}");
    let accepted = "replicas = 1\naccept_unsynced = true\n";
    let accepted = format!("urls = ['{}']\n{accepted}", server.url("dl:d"));
    let broker = Broker::start(1, &accepted);
    run(broker.leave_session("reader", "q/#"));
}

/// Over TLS, to a server that an authority of one's own has signed, and to no other.
#[test]
fn the_server_is_known_by_its_certificate() {
    let certs = tempfile::tempdir().expect("a directory");
    let certs = dunlin::certs::ensure_development(certs.path()).expect("certificates");
    let tls = format!(
        "tls {{ cert_file: \"{}\", key_file: \"{}\" }}\nallow_non_tls: true\n",
        certs.cert.display(),
        certs.key.display(),
    );
    let Some(server) = Server::start_with(Sync::Default, &tls) else {
        return;
    };
    let url = server.url("dl:d").replace("nats://", "tls://");
    let accepted = format!("urls = ['{url}']\nreplicas = 1\naccept_unsynced = true\n");
    let known = format!("{accepted}ca = '{}'\n", certs.ca.display());
    let broker = Broker::start(1, &known);
    run(broker.leave_session("reader", "q/#"));
    let accepted = format!("{accepted}patience = '5s'\n");
    let mut unknown = spawn(1, &accepted, Stdio::null());
    assert_eq!(unknown.end().code(), Some(1));
}
