//! TUN devices: IP packets of a namespace as reads and writes of a file.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::fd::{AsFd, BorrowedFd};

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};

use super::DEVICE;
use super::namespace::{Namespace, NamespaceError};
use super::sys::attach_tun;

/// Packets that the kernel keeps while this process does not read. More are
/// dropped, counted by the kernel and make the run fail.
const QUEUE_PACKETS: &str = "4096";

/// A TUN device in a namespace.
#[derive(Debug)]
pub(super) struct Tun {
    file: File,
    /// `/proc/net/dev` as that namespace sees it.
    statistics: File,
}

impl Tun {
    /// Opens the device, gives it an address and sets it up.
    pub(super) fn open(
        namespace: &Namespace,
        address: &str,
        mtu: u16,
    ) -> Result<Self, NamespaceError> {
        let opened = namespace.within(|| -> io::Result<Self> {
            let file = OpenOptions::new()
                .read(true)
                .write(true)
                .open("/dev/net/tun")?;
            attach_tun(&file, DEVICE)?;
            fcntl_setfl(&file, fcntl_getfl(&file)? | OFlags::NONBLOCK)?;
            let statistics = File::open("/proc/thread-self/net/dev")?;
            Ok(Self { file, statistics })
        })?;
        let tun = opened.map_err(|cause| NamespaceError::Run {
            command: format!("TUNSETIFF {DEVICE}"),
            cause,
        })?;
        let mtu = mtu.to_string();
        let queue = ["mtu", &mtu, "txqueuelen", QUEUE_PACKETS, "up"];
        namespace.ip(&[&["link", "set", DEVICE], &queue[..]].concat())?;
        namespace.ip(&["address", "add", address, "dev", DEVICE])?;
        Ok(tun)
    }

    /// A packet, or `None` if there is none now.
    pub(super) fn read(&mut self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        loop {
            match self.file.read(buffer) {
                Ok(len) => return Ok(Some(len)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    pub(super) fn write(&mut self, packet: &[u8]) -> io::Result<()> {
        self.file.write(packet).map(drop)
    }

    /// Packets that the kernel has dropped at this device, in both directions.
    pub(super) fn kernel_drops(&mut self) -> io::Result<u64> {
        let mut text = String::new();
        self.statistics.seek(SeekFrom::Start(0))?;
        self.statistics.read_to_string(&mut text)?;
        Ok(drops(&text))
    }
}

impl AsFd for Tun {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// Sums the columns for errors, drops and overruns of [`DEVICE`].
fn drops(table: &str) -> u64 {
    let line = table.lines().find_map(|line| {
        let (name, columns) = line.split_once(':')?;
        (name.trim() == DEVICE).then_some(columns)
    });
    let columns: Vec<u64> = line
        .unwrap_or_default()
        .split_whitespace()
        .filter_map(|word| word.parse().ok())
        .collect();
    // Receive: bytes packets errs drop fifo ...; transmit starts at column 8.
    [2, 3, 4, 10, 11, 12]
        .iter()
        .filter_map(|i| columns.get(*i))
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_table_is_read() {
        let table = "Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed
    lo:       0       9    9    9    9     0          0         0        0       0    0    0    0     0       0          0
 link0:     960      10    1    2    4     0          0         0      960      10    8   16   32     0       0          0
";
        assert_eq!(drops(table), 63);
        assert_eq!(drops(""), 0);
        assert_eq!(drops("link0: what"), 0);
    }
}
