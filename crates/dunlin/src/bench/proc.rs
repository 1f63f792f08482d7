//! What a process costs, read from `/proc`. Elsewhere than on Linux nothing is
//! known, and nothing is reported.

use core::net::SocketAddr;
use core::time::Duration;
use std::fs;
use std::path::PathBuf;

use dunlin_base::transport::Transport;

/// A running process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Process {
    pid: u32,
}

impl Process {
    /// The process with this number, if its cost can be read.
    #[must_use]
    pub fn new(pid: u32) -> Option<Self> {
        let process = Self { pid };
        process.cpu().map(|_| process)
    }

    /// This process.
    #[must_use]
    pub fn own() -> Option<Self> {
        Self::new(std::process::id())
    }

    /// The process that listens at `addr`, if that is on this machine and it
    /// may be looked at.
    #[must_use]
    pub fn listening_at(addr: SocketAddr, transport: Transport) -> Option<Self> {
        if !addr.ip().is_loopback() {
            return None;
        }
        let tables: &[&str] = if transport == Transport::Quic {
            &["/proc/net/udp", "/proc/net/udp6"]
        } else {
            &["/proc/net/tcp", "/proc/net/tcp6"]
        };
        let inodes: Vec<u64> = tables
            .iter()
            .filter_map(|table| fs::read_to_string(table).ok())
            .flat_map(|table| listening_inodes(&table, addr.port()))
            .collect();
        if inodes.is_empty() {
            return None;
        }
        pids()
            .find(|pid| holds_socket(*pid, &inodes))
            .and_then(Self::new)
    }

    /// Its number.
    #[must_use]
    pub const fn pid(self) -> u32 {
        self.pid
    }

    /// The name of its program.
    #[must_use]
    pub fn name(self) -> String {
        let name = fs::read_to_string(self.path("comm")).unwrap_or_default();
        name.trim().to_owned()
    }

    /// CPU time that all its threads have used, in user and kernel mode.
    #[must_use]
    pub fn cpu(self) -> Option<Duration> {
        let stat = fs::read_to_string(self.path("stat")).ok()?;
        let ticks = cpu_ticks(&stat)?;
        Some(Duration::from_secs_f64(ticks as f64 / ticks_per_second()))
    }

    /// Resident memory in bytes.
    #[must_use]
    pub fn rss(self) -> Option<u64> {
        let status = fs::read_to_string(self.path("status")).ok()?;
        bytes_of(&status, "VmRSS:")
    }

    /// Those of them in bytes that no file is behind: not the pages of the
    /// program, which all its processes share and the system can drop.
    #[must_use]
    pub fn private(self) -> Option<u64> {
        let status = fs::read_to_string(self.path("status")).ok()?;
        bytes_of(&status, "RssAnon:")
    }

    fn path(self, file: &str) -> PathBuf {
        PathBuf::from(format!("/proc/{}/{file}", self.pid))
    }
}

fn ticks_per_second() -> f64 {
    #[cfg(unix)]
    let ticks = rustix::param::clock_ticks_per_second();
    #[cfg(not(unix))]
    let ticks = 100u64;
    ticks as f64
}

/// Sum of `utime` and `stime` of `/proc/PID/stat`. The name of the program,
/// which may contain anything, ends with the last parenthesis.
fn cpu_ticks(stat: &str) -> Option<u64> {
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_ascii_whitespace().skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some(user + system)
}

fn bytes_of(status: &str, name: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    let kilobytes: u64 = line.split_ascii_whitespace().next()?.parse().ok()?;
    Some(kilobytes * 1024)
}

/// Inodes of the sockets of a table of `/proc/net` that wait for peers at
/// `port`: TCP in state LISTEN (0A), UDP without a peer (07).
fn listening_inodes(table: &str, port: u16) -> Vec<u64> {
    let wanted = format!(":{port:04X}");
    let of_line = |line: &str| {
        let mut fields = line.split_ascii_whitespace().skip(1);
        let local = fields.next()?;
        let _remote = fields.next()?;
        let state = fields.next()?;
        let inode = fields.nth(5)?;
        (local.ends_with(&wanted) && matches!(state, "0A" | "07"))
            .then(|| inode.parse().ok())
            .flatten()
    };
    table.lines().skip(1).filter_map(of_line).collect()
}

fn pids() -> impl Iterator<Item = u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

fn holds_socket(pid: u32, inodes: &[u64]) -> bool {
    let entries = fs::read_dir(format!("/proc/{pid}/fd"));
    entries.into_iter().flatten().flatten().any(|entry| {
        let Ok(link) = fs::read_link(entry.path()) else {
            return false;
        };
        let inode = link
            .to_str()
            .and_then(|link| link.strip_prefix("socket:[")?.strip_suffix(']'))
            .and_then(|inode| inode.parse().ok());
        inode.is_some_and(|inode| inodes.contains(&inode))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_may_have_any_name() {
        let stat = "42 (a) b (c) S 1 2 3 4 5 6 7 8 9 10 150 50 0 0 20";
        assert_eq!(cpu_ticks(stat), Some(200));
        assert_eq!(cpu_ticks("garbage"), None);
    }

    #[test]
    fn memory_is_in_kilobytes() {
        let status = "Name:\tx\nVmRSS:\t  1234 kB\nRssAnon:\t 1000 kB\n";
        assert_eq!(bytes_of(status, "VmRSS:"), Some(1_263_616));
        assert_eq!(bytes_of(status, "RssAnon:"), Some(1_024_000));
        assert_eq!(bytes_of("Name:\tx\n", "VmRSS:"), None);
    }

    #[test]
    fn listeners_and_connections_are_distinguished() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n   \
            0: 0100007F:075B 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 777 1 0 100 0 0 10 0\n   \
            1: 0100007F:075B 0100007F:A000 01 00000000:00000000 00:00000000 00000000     0        0 778 1 0 100 0 0 10 0\n   \
            2: 0100007F:075C 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 779 1 0 100 0 0 10 0\n";
        assert_eq!(listening_inodes(table, 1883), [777]);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn this_process_is_found_by_its_listener() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        let process = Process::listening_at(addr, Transport::Tcp).unwrap();
        assert_eq!(process.pid(), std::process::id());
        assert!(process.rss().unwrap() > process.private().unwrap());
        assert!(!process.name().is_empty());
    }
}
