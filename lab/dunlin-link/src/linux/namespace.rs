//! Network namespaces, made with the `ip` command so that people can look into
//! them with it.

use std::fs::File;
use std::io;
use std::os::fd::AsFd as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use thiserror::Error;

/// Where `ip netns` keeps names.
pub(super) const NAMES: &str = "/run/netns";

/// Why something about a namespace failed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum NamespaceError {
    /// An `ip` command failed.
    #[error("`{command}` failed: {why}")]
    Ip {
        /// The command.
        command: String,
        /// What it said.
        why: String,
    },
    /// A command could not be started.
    #[error("cannot run `{command}`: {cause}")]
    Run {
        /// The command.
        command: String,
        /// Why.
        cause: io::Error,
    },
    /// A thread could not enter the namespace.
    #[error("cannot enter the namespace {name}: {cause}")]
    Enter {
        /// The namespace.
        name: String,
        /// Why.
        cause: io::Error,
    },
}

/// A network namespace with a name.
#[derive(Clone, Debug)]
pub struct Namespace {
    name: String,
}

impl Namespace {
    /// Makes one, with its loopback device up and without IPv6, whose
    /// discovery would put packets on the link that are not part of a test.
    pub(super) fn create(name: &str) -> Result<Self, NamespaceError> {
        ip(&["netns", "add", name])?;
        let namespace = Self::existing(name);
        let quiet = namespace.within(|| {
            std::fs::write("/proc/sys/net/ipv6/conf/all/disable_ipv6", "1")
                .and_then(|()| std::fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1"))
        });
        // A kernel without IPv6 has no such file, and nothing to silence.
        let up = match quiet {
            Ok(_) => namespace.ip(&["link", "set", "lo", "up"]),
            Err(error) => Err(error),
        };
        if let Err(error) = up {
            let _ = namespace.delete();
            return Err(error);
        }
        Ok(namespace)
    }

    /// A namespace that `ip netns` knows by this name.
    #[must_use]
    pub fn existing(name: &str) -> Self {
        Self {
            name: name.to_owned(),
        }
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A command that will run inside.
    #[must_use]
    pub fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.name]).arg(program);
        command
    }

    /// Runs `ip` on this namespace.
    ///
    /// # Errors
    /// When it fails.
    pub fn ip(&self, arguments: &[&str]) -> Result<(), NamespaceError> {
        let mut all = vec!["-n", &self.name];
        all.extend(arguments);
        ip(&all).map(drop)
    }

    /// Runs something on a thread of its own inside the namespace. Sockets and
    /// files that it opens stay inside.
    ///
    /// # Errors
    /// When the thread cannot enter.
    pub fn within<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, NamespaceError> {
        let failed = |cause| NamespaceError::Enter {
            name: self.name.clone(),
            cause,
        };
        let enter_and_work = || {
            enter(&self.name)?;
            Ok(work())
        };
        thread::scope(|scope| scope.spawn(enter_and_work).join())
            .unwrap_or_else(|_| Err(io::Error::other("the work inside panicked")))
            .map_err(failed)
    }

    /// Moves the calling thread into the namespace for good.
    ///
    /// # Errors
    /// When it cannot enter.
    pub fn enter(&self) -> Result<(), NamespaceError> {
        enter(&self.name).map_err(|cause| NamespaceError::Enter {
            name: self.name.clone(),
            cause,
        })
    }

    /// Ends what runs inside and removes the namespace.
    pub(super) fn delete(&self) -> Result<(), NamespaceError> {
        for process in self.processes() {
            if let Some(process) = rustix::process::Pid::from_raw(process) {
                // It may have ended by itself meanwhile.
                let _ = rustix::process::kill_process(process, rustix::process::Signal::KILL);
            }
        }
        ip(&["netns", "delete", &self.name]).map(drop)
    }

    /// Processes inside.
    pub(super) fn processes(&self) -> Vec<i32> {
        let listed = ip(&["netns", "pids", &self.name]).unwrap_or_default();
        listed
            .lines()
            .filter_map(|line| line.trim().parse().ok())
            .collect()
    }
}

fn enter(name: &str) -> io::Result<()> {
    let file = File::open(PathBuf::from(NAMES).join(name))?;
    move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))?;
    Ok(())
}

/// Runs `ip` and gives what it printed.
fn ip(arguments: &[&str]) -> Result<String, NamespaceError> {
    let command = || format!("ip {}", arguments.join(" "));
    let output = Command::new("ip")
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .map_err(|cause| NamespaceError::Run {
            command: command(),
            cause,
        })?;
    if !output.status.success() {
        return Err(NamespaceError::Ip {
            command: command(),
            why: String::from_utf8_lossy(&output.stderr).trim().to_owned(),
        });
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
