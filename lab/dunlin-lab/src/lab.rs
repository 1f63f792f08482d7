//! What all experiments need: certificates, links, brokers, clients.

use core::net::Ipv4Addr;
use core::sync::atomic::{AtomicU32, Ordering};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};
use dunlin_link::linux::Namespace;
use dunlin_link::{Side, Topology};

use crate::process::{Server, output};

/// Ports of the brokers.
pub(crate) const QUIC_PORT: u16 = 14567;
pub(crate) const TLS_PORT: u16 = 8883;
pub(crate) const TCP_PORT: u16 = 1883;

/// The address that certificates are for: host B of a link, `broker` of the
/// networks that come with this program.
pub(crate) const BROKER: Ipv4Addr = Topology::pair_address(Side::B);

/// Folders for temporary files are called so, with the process behind it.
const FOLDER: &str = "dunlin-lab-";

/// The folder and programs of a run. Dropping it removes the folder.
#[derive(Debug)]
pub(crate) struct Lab {
    dunlin: PathBuf,
    folder: PathBuf,
    out: PathBuf,
    brokers: AtomicU32,
}

impl Lab {
    pub(crate) fn new(dunlin: Option<PathBuf>, out: PathBuf) -> Result<Self> {
        let dunlin = match dunlin {
            Some(path) => path
                .canonicalize()
                .with_context(|| format!("{}", path.display()))?,
            None => std::env::current_exe()
                .context("cannot find this program")?
                .with_file_name("dunlin"),
        };
        if !dunlin.exists() {
            bail!(
                "there is no {}: build it, or name it with --dunlin",
                dunlin.display()
            );
        }
        remove_folders();
        let folder = std::env::temp_dir().join(format!("{FOLDER}{}", std::process::id()));
        std::fs::create_dir_all(&folder)
            .with_context(|| format!("cannot make {}", folder.display()))?;
        let lab = Self {
            dunlin,
            folder,
            out,
            brokers: AtomicU32::new(0),
        };
        let mut command = Command::new(&lab.dunlin);
        command.args(["cert", "init"]).arg(lab.folder.join("certs"));
        command.args(["--san", &BROKER.to_string()]);
        output(command).context("cannot make certificates")?;
        Ok(lab)
    }

    /// A file that stays.
    pub(crate) fn out(&self, name: &str) -> PathBuf {
        self.out.join(name)
    }

    /// A file that goes with the run.
    pub(crate) fn temporary(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    pub(crate) fn certificate(&self, name: &str) -> PathBuf {
        self.folder.join("certs").join(name)
    }

    /// Dunlin in a namespace, listening at all ports, with a store of its own.
    pub(crate) fn broker_in(&self, namespace: &Namespace, settings: &[&str]) -> Result<Server> {
        self.dunlin_with(namespace, settings, "")
    }

    /// The same, with more tables at the end of its configuration.
    pub(crate) fn dunlin_with(
        &self,
        namespace: &Namespace,
        settings: &[&str],
        tables: &str,
    ) -> Result<Server> {
        let number = self.brokers.fetch_add(1, Ordering::Relaxed);
        let mut config = String::from("[auth]\nanonymous = \"always\"\n");
        for (transport, port) in [("quic", QUIC_PORT), ("tls", TLS_PORT), ("tcp", TCP_PORT)] {
            config.push_str(&format!(
                "[[listener]]\ntransport = \"{transport}\"\naddress = \"*:{port}\"\n"
            ));
            if transport != "tcp" {
                for (key, file) in [("cert", "server.pem"), ("key", "server.key")] {
                    let file = self.certificate(file);
                    config.push_str(&format!("tls.{key} = {:?}\n", file.display().to_string()));
                }
            }
        }
        config.push_str(tables);
        let path = self.temporary(&format!("broker-{number}.toml"));
        std::fs::write(&path, config)?;
        let mut command = namespace.command(&self.dunlin);
        command.arg("broker").arg("--config").arg(&path);
        command
            .arg("--data-dir")
            .arg(self.temporary(&format!("data-{number}")));
        for setting in settings {
            command.args(["--set", setting]);
        }
        let log = self.temporary(&format!("dunlin-{number}.log"));
        Server::start(namespace, command, TCP_PORT, &log)
    }

    /// Mosquitto in a namespace, TLS and TCP; `None` where it is not installed.
    pub(crate) fn mosquitto_in(&self, namespace: &Namespace) -> Result<Option<Server>> {
        self.mosquitto_with(namespace, "")
    }

    /// The same, with more lines at the end of its configuration; `FOLDER` in them is
    /// where the certificates are that it can read.
    pub(crate) fn mosquitto_with(
        &self,
        namespace: &Namespace,
        lines: &str,
    ) -> Result<Option<Server>> {
        let Some(program) = find("mosquitto") else {
            return Ok(None);
        };
        // It gives up root, so the key must be readable to others.
        let number = self.brokers.fetch_add(1, Ordering::Relaxed);
        let folder = self.temporary(&format!("mosquitto-{number}"));
        std::fs::create_dir_all(&folder)?;
        for file in ["ca.pem", "server.pem", "server.key"] {
            let copy = folder.join(file);
            std::fs::copy(self.certificate(file), &copy)?;
            let readable = std::os::unix::fs::PermissionsExt::from_mode(0o644);
            std::fs::set_permissions(&copy, readable)?;
        }
        let shown = folder.display();
        let config = format!(
            "persistence false\nallow_anonymous true\nset_tcp_nodelay true\n\
             max_queued_messages 0\nmax_inflight_messages 0\n\
             listener {TCP_PORT}\nlistener {TLS_PORT}\n\
             certfile {shown}/server.pem\nkeyfile {shown}/server.key\ntls_version tlsv1.3\n{}",
            lines.replace("FOLDER", &shown.to_string())
        );
        let path = folder.join("mosquitto.conf");
        std::fs::write(&path, config)?;
        let mut command = namespace.command(program);
        command.arg("-c").arg(&path);
        let log = self.temporary(&format!("mosquitto-{number}.log"));
        Server::start(namespace, command, TCP_PORT, &log).map(Some)
    }

    /// The `dunlin` program.
    pub(crate) fn program(&self) -> &Path {
        &self.dunlin
    }

    /// The `dunlin` program inside a namespace.
    pub(crate) fn dunlin(&self, namespace: &Namespace) -> Command {
        namespace.command(&self.dunlin)
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// Removes folders of labs that were killed; gives their names.
pub(crate) fn remove_folders() -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(std::env::temp_dir()) else {
        return Vec::new();
    };
    let dead = |name: &String| {
        let process = name.strip_prefix(FOLDER);
        let process = process.and_then(|process| process.parse::<u32>().ok());
        process.is_some_and(|process| !Path::new(&format!("/proc/{process}")).exists())
    };
    entries
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(dead)
        .filter(|name| std::fs::remove_dir_all(std::env::temp_dir().join(name)).is_ok())
        .collect()
}

/// Where a program is, if it is installed.
pub(crate) fn find(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin", "/sbin"].map(PathBuf::from))
        .map(|folder| folder.join(name))
        .find(|file| Path::is_file(file))
}

/// Where Cargo and `scripts/setup-test.sh` put what they make.
pub(crate) fn targets() -> Vec<PathBuf> {
    let named = std::env::var_os("CARGO_TARGET_DIR");
    let beside = std::env::current_exe().ok();
    // target/release/dunlin-lab, with target/peers for the others.
    let beside = beside.as_deref().and_then(|me| me.parent()?.parent());
    let target = named.map_or_else(|| "target".into(), PathBuf::from);
    core::iter::once(target)
        .chain(beside.map(PathBuf::from))
        .collect()
}
