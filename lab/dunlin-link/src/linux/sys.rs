//! The two system calls that have no safe wrapper: attaching a file to a TUN
//! device, and asking for real-time priority. All unsafe code of the crate is
//! here.

use core::ffi::c_char;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd as _;

/// Priority of the thread that moves packets. Kernel threads that matter to
/// it run at 50.
const PRIORITY: i32 = 60;

/// Makes `file`, an open `/dev/net/tun`, the TUN device of this name in the
/// namespace of the calling thread, with packets that start with IP headers.
pub(super) fn attach_tun(file: &File, name: &str) -> io::Result<()> {
    // SAFETY: all-zero bytes are a valid `ifreq`, which is integers and arrays.
    let mut request: libc::ifreq = unsafe { core::mem::zeroed() };
    let room = request.ifr_name.len() - 1;
    if name.len() > room {
        return Err(io::Error::from(io::ErrorKind::InvalidInput));
    }
    for (place, byte) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *place = byte as c_char;
    }
    let flags = libc::IFF_TUN | libc::IFF_NO_PI;
    request.ifr_ifru.ifru_flags =
        i16::try_from(flags).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
    // SAFETY: TUNSETIFF reads and writes one `ifreq`, which lives until the
    // call returns, and keeps no pointer to it.
    let result = unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF, &raw mut request) };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Gives the calling thread real-time priority (SCHED_FIFO), without which an
/// emulated link shows the scheduler's delays.
///
/// # Errors
/// When the kernel refuses, as without `CAP_SYS_NICE`.
pub fn set_realtime() -> io::Result<()> {
    // SAFETY: all-zero bytes are a valid `sched_param`, which is integers.
    let mut param: libc::sched_param = unsafe { core::mem::zeroed() };
    param.sched_priority = PRIORITY;
    // SAFETY: the pointer is to a live `sched_param`, which is only read; 0 is
    // the calling thread.
    let result = unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const param) };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}
