//! The program as a service: what it says to a service manager, and the files of
//! its package.

use core::time::Duration;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::Instant;

/// A wait that no busy machine exceeds.
const PATIENCE: Duration = Duration::from_secs(60);

/// A broker, killed when the test ends, and the socket of its service manager.
struct Service {
    child: Child,
    socket: UnixDatagram,
    /// What was said and not looked for yet, a word an entry.
    said: Vec<String>,
}

impl Service {
    fn start(dir: &Path, watchdog: Option<Duration>) -> Self {
        let path = dir.join("notify");
        let socket = UnixDatagram::bind(&path).expect("a socket");
        let config = dir.join("dunlin.toml");
        let text = "[[listener]]\ntransport = \"tcp\"\naddress = \"127.0.0.1:0\"\n";
        std::fs::write(&config, text).expect("a file");
        let mut command = Command::new(env!("CARGO_BIN_EXE_dunlin"));
        command.args(["broker", "--config"]).arg(&config);
        command.arg("--data-dir").arg(dir.join("data"));
        command.env("NOTIFY_SOCKET", &path);
        command
            .env_remove("WATCHDOG_USEC")
            .env_remove("WATCHDOG_PID");
        let log = std::fs::File::create(dir.join("log")).expect("a file");
        command.stderr(log);
        if let Some(period) = watchdog {
            command.env("WATCHDOG_USEC", period.as_micros().to_string());
        }
        Self {
            child: command.spawn().expect("the broker starts"),
            socket,
            said: Vec::new(),
        }
    }

    /// Waits until a word that begins so is said; returns what was said until then.
    fn hears(&mut self, word: &str) -> Vec<String> {
        let end = Instant::now() + PATIENCE;
        loop {
            if let Some(at) = self.said.iter().position(|said| said.starts_with(word)) {
                return self.said.drain(..=at).collect();
            }
            let left = end.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "{word} was not said: {:?}", self.said);
            self.socket.set_read_timeout(Some(left)).expect("a limit");
            let mut bytes = [0; 1024];
            if let Ok(n) = self.socket.recv(&mut bytes) {
                let text = String::from_utf8_lossy(&bytes[..n]).into_owned();
                self.said.extend(text.lines().map(str::to_string));
            }
        }
    }

    fn signal(&self, name: &str) {
        let mut kill = Command::new("kill");
        kill.args([format!("-{name}"), self.child.id().to_string()]);
        assert!(kill.status().expect("kill runs").success());
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_service_manager_hears_what_the_broker_does() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut service = Service::start(dir.path(), None);
    service.hears("READY=1");
    service.hears("STATUS=1 listeners");
    service.signal("HUP");
    service.hears("RELOADING=1");
    service.hears("MONOTONIC_USEC=");
    service.hears("READY=1");
    service.signal("TERM");
    service.hears("STOPPING=1");
    assert!(service.child.wait().expect("it ends").success());
}

/// Waits until a file has a text; returns what it has.
fn read_until(path: &Path, text: &str) -> String {
    let end = Instant::now() + PATIENCE;
    loop {
        let found = std::fs::read_to_string(path).unwrap_or_default();
        if found.contains(text) {
            return found;
        }
        assert!(Instant::now() < end, "no {text:?} in {found}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_signal_reads_the_configuration_and_the_log_says_what_is_wrong_with_it() {
    let dir = tempfile::tempdir().expect("a folder");
    let (config, log) = (dir.path().join("dunlin.toml"), dir.path().join("log"));
    let mut service = Service::start(dir.path(), None);
    service.hears("READY=1");
    let before = std::fs::read_to_string(&config).expect("written");
    let mut reload = |more: &str| {
        std::fs::write(&config, format!("{before}{more}")).expect("written");
        service.signal("HUP");
        service.hears("RELOADING=1");
        service.hears("READY=1");
    };
    let remedy = format!("`dunlin broker --check --config {}`", config.display());
    let mistakes = [
        (
            "[limits]\nmax_inflight = 0\n",
            ":5: limits.max_inflight: must be",
        ),
        (
            "[limits]\nmax_inflght = 7\n",
            ":5: limits.max_inflght: unknown key",
        ),
        // Half written.
        ("[limits]\nmax_inflight = ", ":5: limits.max_inflight: "),
        ("[limits", ":4: "),
    ];
    for (more, place) in mistakes {
        reload(more);
        let text = read_until(&log, &format!("{}{place}", config.display()));
        let mut lines = text.lines().filter(|line| line.contains(place));
        let line = lines.next_back().expect("a line");
        assert!(
            line.contains(&remedy) && line.contains("stays in force"),
            "{line}"
        );
    }
    reload("[store]\ncommit_window = \"2ms\"\n");
    let text = read_until(&log, "store.commit_window");
    assert!(text.contains("restart=[\"store.commit_window\"]"), "{text}");
    // Each is an order of its own, with the same outcome.
    let audit = dir.path().join("data/audit.log");
    let audit = std::fs::read_to_string(audit).expect("an audit log");
    let orders: Vec<&str> = audit.lines().collect();
    assert_eq!(orders.len(), 5, "{audit}");
    for (order, (_, place)) in orders.iter().zip(mistakes) {
        assert!(
            order.contains("\"door\":\"signal\"") && order.contains(&remedy),
            "{order}"
        );
        assert!(
            order.contains(&format!("dunlin.toml{place}")),
            "{place}: {order}"
        );
    }
    assert!(orders[4].contains("\"outcome\":\"done\""), "{audit}");
}

#[test]
fn the_watchdog_hears_that_the_shards_answer() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut service = Service::start(dir.path(), Some(Duration::from_millis(300)));
    service.hears("READY=1");
    for _ in 0..3 {
        service.hears("WATCHDOG=1");
    }
}

#[test]
fn a_watchdog_without_a_time_is_none() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut service = Service::start(dir.path(), Some(Duration::ZERO));
    service.hears("READY=1");
    service.signal("TERM");
    let said = service.hears("STOPPING=1");
    assert!(!said.iter().any(|it| it == "WATCHDOG=1"), "{said:?}");
}

fn packaging(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../packaging")
        .join(name)
}

#[test]
fn the_configuration_of_the_package_is_valid() {
    let data = tempfile::tempdir().expect("a folder");
    let mut command = Command::new(env!("CARGO_BIN_EXE_dunlin"));
    command.args(["broker", "--check", "--config"]);
    command.arg(packaging("dunlin.toml"));
    command.arg("--data-dir").arg(data.path());
    let out = command.output().expect("the program runs");
    assert!(out.status.success(), "{out:?}");
}

#[test]
fn every_command_has_a_page_and_completions() {
    let dir = tempfile::tempdir().expect("a folder");
    let dunlin = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_dunlin"));
        let out = command.args(args).current_dir(dir.path()).output();
        let out = out.expect("the program runs");
        assert!(out.status.success(), "{out:?}");
        String::from_utf8(out.stdout).expect("text")
    };
    dunlin(&["man", "--out", "pages/man1"]);
    let read = |name: &str| std::fs::read_to_string(dir.path().join("pages/man1").join(name));
    assert!(
        read("dunlin.1")
            .expect("a page")
            .contains("dunlin\\-broker")
    );
    for name in ["broker", "pub", "sub", "send", "receive", "bench", "queue"] {
        let page = read(&format!("dunlin-{name}.1")).expect("a page");
        assert!(page.contains("OPTIONS"), "{name}");
    }
    for shell in ["bash", "zsh", "fish"] {
        let text = dunlin(&["completions", shell]);
        assert!(
            text.contains("data-dir") && text.contains("tunnel"),
            "{shell}"
        );
    }
}
