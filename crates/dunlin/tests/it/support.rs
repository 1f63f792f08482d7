//! A broker in this process on ports that the system chose.

use core::future::Future;
use core::net::SocketAddr;
use core::time::Duration;
use std::process::{Command, Stdio};

use dunlin::config::Config;
use dunlin::daemon::Daemon;
use dunlin_base::transport::Transport;
use dunlin_client::{Builder, Client, Messages, QoS, TlsOptions};

/// Longest that anything in these tests may take; a machine under load must
/// not fail them, a hang must.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) const ALL: [Transport; 5] = [
    Transport::Quic,
    Transport::Tcp,
    Transport::Tls,
    Transport::Ws,
    Transport::Wss,
];

/// The program with arguments, words separated by single spaces.
pub(crate) fn dunlin(args: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_dunlin"));
    command.args(args.split(' ')).stdin(Stdio::null());
    command
}

/// A running broker and its data directory.
pub(crate) struct Broker {
    daemon: Option<Daemon>,
    dir: tempfile::TempDir,
}

const FILE: &str = r#"
[sys]
interval = "0s"
[[listener]]
transport = "quic"
address = "127.0.0.1:0"
[[listener]]
transport = "tcp"
address = "127.0.0.1:0"
[[listener]]
transport = "tls"
address = "127.0.0.1:0"
[[listener]]
transport = "ws"
address = "127.0.0.1:0"
[[listener]]
transport = "wss"
address = "127.0.0.1:0"
"#;

impl Broker {
    pub(crate) fn start(shards: u16) -> Self {
        Self::start_with(shards, &[])
    }

    /// With overrides of the configuration.
    pub(crate) fn start_with(shards: u16, overrides: &[&str]) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let mut broker = Self { daemon: None, dir };
        broker.start_again(shards, overrides);
        broker
    }

    /// One that waits as a standby until another gives the store back, and then serves.
    #[cfg(feature = "cluster")]
    pub(crate) fn stand_by(shards: u16, overrides: &[&str]) -> StandingBy {
        let dir = tempfile::tempdir().expect("a directory");
        let broker = Self { daemon: None, dir };
        let config = broker.config(shards, overrides);
        let (standby, outcome) = dunlin::daemon::Standby::start(config).expect("stands by");
        StandingBy {
            broker,
            standby,
            outcome,
        }
    }

    /// Starts (again) on the same data.
    pub(crate) fn start_again(&mut self, shards: u16, overrides: &[&str]) {
        self.stop();
        let config = self.config(shards, overrides);
        self.daemon = Some(Daemon::start(config).expect("started"));
    }

    fn config(&self, shards: u16, overrides: &[&str]) -> Config {
        let file = self.dir.path().join("dunlin.toml");
        std::fs::write(&file, FILE).expect("written");
        // A thread each, so that what they share is used by several.
        let mut all = vec![
            format!("shards={shards}"),
            "shard_threads=always".to_owned(),
        ];
        all.extend(overrides.iter().map(|&s| s.to_owned()));
        let mut config = Config::load(Some(&file), &all).expect("valid");
        config.data_dir = self.dir.path().join("data");
        config
    }

    pub(crate) fn stop(&mut self) {
        if let Some(daemon) = self.daemon.take() {
            daemon.shut_down();
        }
    }

    pub(crate) fn data_dir(&self) -> std::path::PathBuf {
        self.dir.path().join("data")
    }

    fn daemon(&self) -> &Daemon {
        self.daemon.as_ref().expect("running")
    }

    /// Carries out an order of an operator, which must succeed.
    #[cfg(unix)]
    pub(crate) fn order(&self, request: &str) {
        use std::io::{BufRead as _, BufReader, Write as _};

        let path = self.data_dir().join("control.sock");
        let mut stream = std::os::unix::net::UnixStream::connect(path).expect("connected");
        stream
            .write_all(format!("{request}\n").as_bytes())
            .expect("sent");
        let mut reply = String::new();
        BufReader::new(stream)
            .read_line(&mut reply)
            .expect("a reply");
        assert!(reply.contains(r#""reply":"done""#), "{reply}");
    }

    /// Threads that serve shards.
    pub(crate) fn threads(&self) -> usize {
        self.daemon().threads_in_use()
    }

    /// Reads files again, as SIGHUP does.
    pub(crate) fn reload(&self) -> Result<dunlin::daemon::Reloaded, dunlin::daemon::ReloadError> {
        self.daemon().reload()
    }

    pub(crate) fn addr(&self, transport: Transport) -> SocketAddr {
        let bound = self.daemon().bound();
        let found = bound.iter().find(|b| b.transport == transport);
        found.expect("configured").addr
    }

    /// The authority that signed the broker's certificates.
    pub(crate) fn ca(&self) -> std::path::PathBuf {
        let ca = self.daemon().development_ca();
        ca.expect("development certificates").to_owned()
    }

    /// Where metrics are shown.
    pub(crate) fn metrics(&self) -> SocketAddr {
        self.daemon().metrics().expect("configured")
    }

    /// Where the control plane is reached over HTTP.
    pub(crate) fn http(&self) -> String {
        self.daemon().http().expect("configured")
    }

    /// A client that is about to connect.
    pub(crate) fn client(&self, transport: Transport) -> Builder {
        let port = self.addr(transport).port();
        let url = format!("{}://localhost:{port}", dunlin_client::scheme(transport));
        let builder = Client::builder(url).expect("a URL").no_reconnect();
        let builder = builder.connect_timeout(PATIENCE);
        match self.daemon().development_ca() {
            Some(ca) if transport.is_encrypted() => builder.tls(TlsOptions::new().ca_file(ca)),
            _ => builder,
        }
    }
}

/// A standby in this process.
#[cfg(feature = "cluster")]
pub(crate) struct StandingBy {
    broker: Broker,
    standby: dunlin::daemon::Standby,
    outcome: dunlin::daemon::Outcome,
}

#[cfg(feature = "cluster")]
impl StandingBy {
    /// Waits for its turn.
    pub(crate) fn serve(mut self) -> Broker {
        self.outcome.wait().expect("its turn");
        self.broker.daemon = Some(self.standby.serve().expect("serves"));
        self.broker
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        self.stop();
    }
}

/// A port that nothing listens on at the moment, for a broker that comes back.
pub(crate) fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("an address").port()
}

/// Connects, which must succeed.
pub(crate) async fn connect(builder: Builder) -> (Client, Messages) {
    builder.connect().await.expect("connected")
}

/// Subscribes, which must succeed.
pub(crate) async fn subscribe(client: &Client, filter: &str, qos: QoS) {
    let subscribed = client.subscribe(filter, qos).await;
    subscribed.expect("subscribed");
}

/// Runs a test's conversation, but not for ever.
pub(crate) fn run<T>(conversation: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        tokio::time::timeout(PATIENCE, conversation)
            .await
            .expect("in time")
    })
}
