//! Files, streams and the clock: what a command needs of the system beside its
//! socket. Knows no protocol.

use core::ffi::CStr;
use core::fmt;

use rustix::fd::{AsFd, BorrowedFd};
use rustix::fs::{Mode, OFlags, fchmod, open};
use rustix::io::{Errno, retry_on_intr};
use rustix::time::{ClockId, clock_gettime};

/// Bytes of the time in front of a stored ticket.
const TIME: usize = 8;

/// Seconds since 1970; 0 while the clock is wrong.
pub(crate) fn seconds() -> u64 {
    u64::try_from(clock_gettime(ClockId::Realtime).tv_sec).unwrap_or(0)
}

/// Reads to the end, which must be within `room`.
pub(crate) fn read_all<F: AsFd>(file: F, room: &mut [u8]) -> Result<&[u8], Errno> {
    let mut len = 0;
    loop {
        let rest = room.get_mut(len..).filter(|rest| !rest.is_empty());
        let rest = rest.ok_or(Errno::FBIG)?;
        match retry_on_intr(|| rustix::io::read(&file, &mut *rest))? {
            0 => break,
            more => len += more,
        }
    }
    Ok(room.get(..len).unwrap_or_default())
}

/// A file, which must be smaller than `room`.
pub(crate) fn read_file<'r>(file: &CStr, room: &'r mut [u8]) -> Result<&'r [u8], Errno> {
    let file = open(file, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    read_all(file, room)
}

pub(crate) fn write_all<F: AsFd>(file: F, mut bytes: &[u8]) -> Result<(), Errno> {
    while !bytes.is_empty() {
        let written = retry_on_intr(|| rustix::io::write(&file, bytes))?;
        bytes = bytes.get(written..).unwrap_or_default();
    }
    Ok(())
}

/// A stored ticket and its age in milliseconds, from the time in front of it.
pub(crate) fn load<'r>(file: &CStr, room: &'r mut [u8]) -> Option<(&'r [u8], u32)> {
    let (time, ticket) = read_file(file, room).ok()?.split_first_chunk::<TIME>()?;
    // Nothing if the clock went back behind the time of the ticket.
    let age = seconds().checked_sub(u64::from_be_bytes(*time))?;
    Some((ticket, u32::try_from(age.checked_mul(1000)?).ok()?))
}

/// Stores a ticket for its owner only: its reader can pose as the server.
pub(crate) fn keep(file: &CStr, ticket: &[u8]) -> Result<(), Errno> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::CLOEXEC;
    let owner = Mode::RUSR | Mode::WUSR;
    let file = open(file, flags, owner)?;
    // A file that was there may be open to others. Not all systems of files have
    // permissions.
    let _ = fchmod(&file, owner);
    write_all(&file, &seconds().to_be_bytes())?;
    write_all(&file, ticket)
}

/// A stream for text.
pub(crate) struct Text<'a>(pub(crate) BorrowedFd<'a>);

impl fmt::Write for Text<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        write_all(self.0, text.as_bytes()).map_err(|_| fmt::Error)
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::CString;
    use std::os::unix::fs::PermissionsExt;
    use std::vec;

    use super::*;

    #[test]
    fn a_ticket_is_for_its_owner_only() {
        let folder = tempfile::tempdir().unwrap();
        for (name, before) in [("new", None), ("old", Some(0o644))] {
            let path = folder.path().join(name);
            if let Some(mode) = before {
                std::fs::write(&path, vec![7; 100]).unwrap();
                std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
            }
            let file = CString::new(path.to_str().unwrap()).unwrap();
            keep(&file, b"ticket").unwrap();
            let mode = path.metadata().unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600, "{name}");
            let mut room = [0; 64];
            let (ticket, age) = load(&file, &mut room).unwrap();
            assert_eq!(ticket, b"ticket");
            assert!(age <= 5000, "{age}");
        }
    }
}
