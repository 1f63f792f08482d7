//! A server of NATS of its own, with JetStream, on loopback. Tests of other crates have it
//! by its path.

use core::time::Duration;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use serde_json::{Value, json};
use tempfile::TempDir;

/// How to have a server.
const INSTALL: &str = "go install github.com/nats-io/nats-server/v2@v2.15.2";

/// Longest that a server may take for anything.
pub(crate) const WAIT: Duration = Duration::from_secs(60);

/// The program, if there is one that is new enough.
pub(crate) fn program() -> Option<PathBuf> {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target"),
        PathBuf::from,
    );
    let named = std::env::var_os("NATS_SERVER").map(PathBuf::from);
    let places = [
        named,
        Some(target.join("peers/bin/nats-server")),
        std::env::var_os("HOME").map(|home| Path::new(&home).join("go/bin/nats-server")),
        Some(PathBuf::from("nats-server")),
    ];
    let found = places.into_iter().flatten().find(|program| {
        let said = Command::new(program).arg("--version").output();
        said.is_ok_and(|said| {
            let said = String::from_utf8_lossy(&said.stdout).into_owned();
            let version = said.split_once("v2.").map(|(_, rest)| rest);
            let minor = version.and_then(|rest| rest.split('.').next());
            minor.and_then(|m| m.parse::<u32>().ok()) >= Some(15)
        })
    });
    if found.is_none() {
        // Past what the harness keeps of tests that pass.
        let mut out = std::io::stderr();
        let skipped = "skipped: no nats-server 2.15 or later: scripts/setup-test.sh, or";
        writeln!(out, "{skipped} {INSTALL}").expect("standard error");
    }
    found
}

/// Longest that an answer is waited for before it is asked for again.
const POLL: Duration = Duration::from_secs(2);

/// What a server is started with.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sync {
    Always,
    Default,
}

/// A running server.
pub(crate) struct Server {
    program: PathBuf,
    pub(crate) dir: TempDir,
    port: u16,
    process: Option<Child>,
}

impl Server {
    /// Starts one; `None`: there is no program.
    pub(crate) fn start(sync: Sync) -> Option<Self> {
        Self::start_with(sync, "")
    }

    /// With more in its configuration.
    pub(crate) fn start_with(sync: Sync, more: &str) -> Option<Self> {
        let mut server = Self::new(program()?, sync, more);
        server.run();
        Some(server)
    }

    /// Three that are one cluster.
    pub(crate) fn cluster() -> Option<Vec<Self>> {
        let program = program()?;
        let free: Vec<_> = (0..6)
            .map(|_| TcpListener::bind("127.0.0.1:0").expect("a port"))
            .collect();
        let port = |at: usize| free[at].local_addr().expect("bound").port();
        let routes: Vec<_> = (0..3)
            .map(|at| format!("nats-route://127.0.0.1:{}", port(at)))
            .collect();
        let mut servers: Vec<_> = (0..3)
            .map(|at| {
                let cluster = format!(
                    "server_name: n{at}\ncluster {{ name: c, listen: \"127.0.0.1:{}\", \
                     routes: {routes:?} }}\n",
                    port(at)
                );
                let mut server = Self::new(program.clone(), Sync::Always, &cluster);
                server.port = port(3 + at);
                server
            })
            .collect();
        drop(free);
        for server in &mut servers {
            server.process = Some(server.spawn());
        }
        for server in &servers {
            server.wait_ready();
        }
        Some(servers)
    }

    fn new(program: PathBuf, sync: Sync, more: &str) -> Self {
        let dir = tempfile::tempdir().expect("a folder");
        let interval = if sync == Sync::Always {
            "sync_interval: always"
        } else {
            ""
        };
        let config = format!(
            "jetstream {{ store_dir: \"{}\" \n {interval} }}\n\
             accounts {{\n\
             SYS {{ users: [{{ user: sys, password: s }}] }}\n\
             DL {{ jetstream: enabled, users: [{{ user: dl, password: d }}] }}\n\
             }}\nsystem_account: SYS\n{more}",
            dir.path().join("data").display()
        );
        std::fs::write(dir.path().join("nats.conf"), config).expect("a file");
        Self {
            program,
            dir,
            port: 0,
            process: None,
        }
    }

    fn spawn(&self) -> Child {
        let log = std::fs::File::create(self.dir.path().join("log")).expect("a file");
        Command::new(&self.program)
            .args(["-a", "127.0.0.1", "-p", &self.port.to_string(), "-c"])
            .arg(self.dir.path().join("nats.conf"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("a process")
    }

    /// Starts it, again on the port that it had.
    pub(crate) fn run(&mut self) {
        // A port that was free may be taken meanwhile: then another one.
        for _ in 0..20 {
            if self.port == 0 {
                let free = TcpListener::bind("127.0.0.1:0").expect("a port");
                self.port = free.local_addr().expect("bound").port();
            }
            let mut process = self.spawn();
            let until = Instant::now() + WAIT;
            while process.try_wait().expect("a child").is_none() {
                assert!(Instant::now() < until, "the server does not start");
                if self.try_ask("$JS.API.INFO", &Value::Null).is_some() {
                    self.process = Some(process);
                    return;
                }
                std::thread::sleep(Duration::from_millis(20));
            }
            self.port = 0;
        }
        panic!("no server starts");
    }

    /// Waits until it answers for the cluster.
    fn wait_ready(&self) {
        let until = Instant::now() + WAIT;
        loop {
            let info = self.try_ask("$JS.API.INFO", &Value::Null);
            if info.is_some_and(|info| info["limits"].is_object()) {
                return;
            }
            assert!(Instant::now() < until, "no cluster");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Name of the server that leads a stream.
    pub(crate) fn leader(&self, stream: &str) -> Option<String> {
        let subject = format!("$JS.API.STREAM.INFO.{stream}");
        let info = self.try_ask(&subject, &Value::Null)?;
        info["cluster"]["leader"].as_str().map(str::to_owned)
    }

    /// Starts it again, and waits until it answers.
    pub(crate) fn back(&mut self) {
        self.process = Some(self.spawn());
        self.wait_ready();
    }

    /// From its next start on, it acknowledges before it syncs.
    pub(crate) fn forget_sync(&self) {
        let file = self.dir.path().join("nats.conf");
        let config = std::fs::read_to_string(&file).expect("a file");
        let config = config.replace("sync_interval: always", "");
        std::fs::write(file, config).expect("a file");
    }

    pub(crate) fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.kill().expect("it runs");
            process.wait().expect("it has ended");
        }
    }

    /// Stops it where it is, or lets it go on.
    pub(crate) fn signal(&self, name: &str) {
        let id = self.process.as_ref().expect("it runs").id().to_string();
        let sent = Command::new("kill").args([name, &id]).status();
        assert!(sent.expect("kill").success());
    }

    pub(crate) fn url(&self, who: &str) -> String {
        format!("nats://{who}@127.0.0.1:{}", self.port)
    }

    pub(crate) const fn port(&self) -> u16 {
        self.port
    }

    /// A request in the account of the store, and its answer.
    pub(crate) fn ask(&self, subject: &str, question: &Value) -> Value {
        let question = question.to_string();
        let answer = self.try_ask_bytes(subject, question.as_bytes(), WAIT);
        answer.expect("an answer")
    }

    fn try_ask(&self, subject: &str, question: &Value) -> Option<Value> {
        self.try_ask_bytes(subject, question.to_string().as_bytes(), POLL)
    }

    /// As a client does that knows the subject.
    pub(crate) fn publish(&self, subject: &str, body: &[u8]) -> Value {
        self.try_ask_bytes(subject, body, WAIT).expect("an answer")
    }

    fn try_ask_bytes(&self, subject: &str, body: &[u8], wait: Duration) -> Option<Value> {
        let stream = TcpStream::connect(("127.0.0.1", self.port)).ok()?;
        stream.set_read_timeout(Some(wait)).ok()?;
        let mut writer = stream.try_clone().ok()?;
        let mut reader = BufReader::new(stream);
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let connect = json!({
            "verbose": false, "user": "dl", "pass": "d", "headers": true, "no_responders": true,
        });
        let head = format!("CONNECT {connect}\r\nSUB answer 1\r\n");
        writer.write_all(head.as_bytes()).ok()?;
        let head = format!("PUB {subject} answer {}\r\n", body.len());
        writer
            .write_all(&[head.as_bytes(), body, b"\r\n"].concat())
            .ok()?;
        loop {
            line.clear();
            if reader.read_line(&mut line).ok()? == 0 {
                return None;
            }
            let words: Vec<_> = line.split_whitespace().collect();
            match words.as_slice() {
                ["MSG", .., len] => {
                    let mut body = vec![0; len.parse().ok()?];
                    reader.read_exact(&mut body).ok()?;
                    return serde_json::from_slice(&body).ok();
                }
                ["HMSG", ..] => return Some(json!({ "status": 503 })),
                _ => {}
            }
        }
    }

    /// Ends the server, alters the files of its streams, and starts it again.
    pub(crate) fn alter(&mut self, find: &[u8], alter: impl Fn(&mut [u8])) {
        self.kill();
        let mut altered = 0;
        let mut folders = vec![self.dir.path().join("data")];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).expect("a folder") {
                let path = entry.expect("an entry").path();
                if path.is_dir() {
                    folders.push(path);
                    continue;
                }
                let mut bytes = std::fs::read(&path).expect("a file");
                let at = bytes.windows(find.len()).position(|part| part == find);
                if let Some(at) = at {
                    alter(&mut bytes[at..]);
                    std::fs::write(&path, bytes).expect("a file");
                    altered += 1;
                }
            }
        }
        assert_eq!(altered, 1, "it is in one file");
        self.run();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}
