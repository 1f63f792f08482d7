//! How much memory the machine has for the broker: what is installed, or what
//! the broker's control group may take, whichever is less.

use std::fs;
use std::path::{Path, PathBuf};

/// Bytes where the system does not say.
const UNKNOWN: u64 = 4 << 30;

/// Bytes of memory that this process may count on.
pub(crate) fn memory() -> u64 {
    let installed = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let group = group_limit(Path::new("/sys/fs/cgroup"), &groups);
    let all = installed_bytes(&installed).into_iter().chain(group);
    all.min().unwrap_or(UNKNOWN)
}

/// `MemTotal` of `/proc/meminfo`.
fn installed_bytes(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|l| l.strip_prefix("MemTotal:"))?;
    let kib = line.trim().strip_suffix("kB")?.trim();
    kib.parse::<u64>().ok()?.checked_mul(1024)
}

/// The least limit of the control groups that the process is in, given the
/// lines of `/proc/self/cgroup`: `0::PATH` of version 2, `N:memory:PATH` of
/// version 1. A container may see only its own group, as the root.
fn group_limit(root: &Path, groups: &str) -> Option<u64> {
    let mut limits = Vec::new();
    for line in groups.lines() {
        let mut fields = line.splitn(3, ':').skip(1);
        let (controllers, path) = (fields.next()?, fields.next()?);
        let (root, file) = match controllers {
            "" => (root.to_owned(), "memory.max"),
            _ if controllers.split(',').any(|name| name == "memory") => {
                (root.join("memory"), "memory.limit_in_bytes")
            }
            _ => continue,
        };
        let mut folder: PathBuf = root.join(path.trim_start_matches('/'));
        loop {
            let text = fs::read_to_string(folder.join(file)).unwrap_or_default();
            limits.extend(text.trim().parse::<u64>().ok());
            if folder == root || !folder.pop() {
                break;
            }
        }
    }
    limits.into_iter().min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_installed_is_read() {
        let text = "MemFree:        1 kB\nMemTotal:       24682416 kB\n";
        assert_eq!(installed_bytes(text), Some(24_682_416 * 1024));
        assert_eq!(installed_bytes("MemTotal: much"), None);
        assert!(memory() > 0);
    }

    #[test]
    fn the_least_limit_of_all_groups_counts() {
        let root = tempfile::tempdir().expect("a folder");
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().expect("a folder")).expect("folders");
            fs::write(path, text).expect("a file");
        };
        let limit = |groups: &str| group_limit(root.path(), groups);
        assert_eq!(limit("0::/a/b\n"), None);
        write("a/b/memory.max", "max\n");
        assert_eq!(limit("0::/a/b\n"), None);
        write("a/memory.max", "5000\n");
        assert_eq!(limit("0::/a/b\n"), Some(5000));
        assert_eq!(limit("0::/\n"), None);
        write("memory/x/memory.limit_in_bytes", "4000\n");
        let both = "9:name=systemd:/\n4:cpu,memory:/x\n0::/a/b\n";
        assert_eq!(limit(both), Some(4000));
    }
}
