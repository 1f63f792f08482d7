//! Servers of NATS of their own, with JetStream, on loopback.

use core::time::Duration;
use std::io::Write as _;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use tempfile::TempDir;

/// How to have a server.
const INSTALL: &str = "go install github.com/nats-io/nats-server/v2@v2.15.2";

/// Longest that anything may take.
pub(crate) const WAIT: Duration = Duration::from_secs(60);

/// The program, if there is one that is new enough.
fn program() -> Option<PathBuf> {
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

fn free_port() -> u16 {
    let free = TcpListener::bind("127.0.0.1:0").expect("a port");
    free.local_addr().expect("bound").port()
}

/// A running server.
pub(crate) struct Server {
    program: PathBuf,
    dir: TempDir,
    port: u16,
    process: Option<Child>,
}

impl Server {
    /// Starts one; `None`: there is no program.
    pub(crate) fn start() -> Option<Self> {
        Self::start_with("")
    }

    /// With more in its configuration.
    pub(crate) fn start_with(more: &str) -> Option<Self> {
        let mut server = Self::new(program()?, more);
        // A port that was free may be taken meanwhile: then another one.
        for _ in 0..20 {
            server.port = free_port();
            if server.run() {
                return Some(server);
            }
        }
        panic!("no server starts");
    }

    /// Three that are one cluster.
    pub(crate) fn cluster() -> Option<Vec<Self>> {
        let program = program()?;
        let routes: Vec<_> = (0..3).map(|_| free_port()).collect();
        let urls: Vec<_> = routes
            .iter()
            .map(|port| format!("nats-route://127.0.0.1:{port}"))
            .collect();
        let servers = routes.iter().enumerate().map(|(at, route)| {
            let cluster = format!(
                "server_name: n{at}\ncluster {{ name: c, listen: \"127.0.0.1:{route}\", \
                 routes: {urls:?} }}\n"
            );
            let mut server = Self::new(program.clone(), &cluster);
            server.port = free_port();
            server.process = Some(server.spawn());
            server
        });
        Some(servers.collect())
    }

    fn new(program: PathBuf, more: &str) -> Self {
        let dir = tempfile::tempdir().expect("a folder");
        let config = format!(
            "jetstream {{ store_dir: \"{}\" }}\n\
             authorization {{ users: [{{ user: dl, password: d }}] }}\n{more}",
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

    /// Starts it on its port; whether it listens.
    pub(crate) fn run(&mut self) -> bool {
        let mut process = self.spawn();
        let until = Instant::now() + WAIT;
        while process.try_wait().expect("a child").is_none() {
            assert!(Instant::now() < until, "the server does not start");
            if TcpStream::connect(("127.0.0.1", self.port)).is_ok() {
                self.process = Some(process);
                return true;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        false
    }

    pub(crate) fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.kill().expect("it runs");
            process.wait().expect("it has ended");
        }
    }

    /// The name that it has in its cluster, if it leads the bucket by what it logs.
    pub(crate) fn url(&self) -> String {
        format!("nats://dl:d@127.0.0.1:{}", self.port)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}
