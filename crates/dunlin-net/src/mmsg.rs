//! Datagrams to several peers with one system call (`sendmmsg`, Linux 3.0). All
//! unsafe code of the crate is here: no crate wraps this call together with the
//! control messages that QUIC needs, which are ECN, segment size and local address.
//!
//! A kernel without the call, or a seccomp filter that forbids it, is noticed at the
//! start or at the first batch that is refused. From then on the process does not
//! make the call any more, and each transmission leaves by itself.

#![allow(
    unsafe_code,
    reason = "sendmmsg has no safe wrapper that takes these control messages"
)]

use core::net::IpAddr;
use core::sync::atomic::{AtomicBool, Ordering};
use std::io::{self, IoSlice};
use std::os::fd::{AsRawFd as _, BorrowedFd};

use socket2::SockAddr;

use crate::outbox::{Batch, Outgoing, TRANSMITS_MAX};

/// Bytes of the control messages of one datagram: traffic class, segment size and
/// local address, each with its header, on a machine of 64 bits.
const CONTROL_BYTES: usize = 24 + 24 + 40;

/// Control messages of a datagram, as the kernel reads them (cmsg(3)).
#[repr(align(8))]
struct Control {
    bytes: [u8; CONTROL_BYTES],
    len: usize,
}

impl Control {
    fn of(one: &Outgoing<'_>) -> Self {
        let mut control = Self {
            bytes: [0; CONTROL_BYTES],
            len: 0,
        };
        let transmit = one.transmit;
        let class = i32::from(transmit.ecn.unwrap_or(0)).to_ne_bytes();
        if is_v4(transmit.destination.ip()) {
            control.push(libc::IPPROTO_IP, libc::IP_TOS, &class);
        } else {
            control.push(libc::IPPROTO_IPV6, libc::IPV6_TCLASS, &class);
        }
        if let Some(size) = transmit.segment_size
            && size < one.contents.len()
        {
            control.push(
                libc::SOL_UDP,
                libc::UDP_SEGMENT,
                &(size as u16).to_ne_bytes(),
            );
        }
        match transmit.src_ip {
            // Interface, local address, and one that is not used here.
            Some(IpAddr::V4(ip)) => {
                let info = [[0; 4], ip.octets(), [0; 4]];
                control.push(libc::IPPROTO_IP, libc::IP_PKTINFO, info.as_flattened());
            }
            Some(IpAddr::V6(ip)) => {
                let mut info = [0; 20];
                let (addr, _interface) = info.split_at_mut(16);
                addr.copy_from_slice(&ip.octets());
                control.push(libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, &info);
            }
            None => {}
        }
        control
    }

    /// Adds a message: its length, level and type, then data, then padding.
    fn push(&mut self, level: i32, kind: i32, data: &[u8]) {
        const WORD: usize = size_of::<usize>();
        let (level, kind) = (level.to_ne_bytes(), kind.to_ne_bytes());
        let len = (WORD + level.len() + kind.len()).next_multiple_of(WORD) + data.len();
        let parts = [&len.to_ne_bytes()[..], &level, &kind, data];
        let Some(mut place) = self.bytes.get_mut(self.len..) else {
            return;
        };
        for part in parts {
            if let Some((to, rest)) = core::mem::take(&mut place).split_at_mut_checked(part.len()) {
                to.copy_from_slice(part);
                place = rest;
            }
        }
        self.len += len.next_multiple_of(WORD);
        debug_assert!(self.len <= CONTROL_BYTES);
    }
}

/// Whether a datagram goes out over IPv4, as do those to mapped addresses.
fn is_v4(to: IpAddr) -> bool {
    match to {
        IpAddr::V4(_) => true,
        IpAddr::V6(ip) => ip.to_ipv4_mapped().is_some(),
    }
}

/// Sends transmissions; see [`send`].
type Call = fn(BorrowedFd<'_>, &[Outgoing<'_>]) -> io::Result<usize>;

/// Whether batches are sent with one call.
#[derive(Debug)]
pub(crate) struct Batches {
    call: Call,
    /// The call was refused.
    off: AtomicBool,
}

/// Those of this process.
pub(crate) static BATCHES: Batches = Batches::new(send);

impl Batches {
    pub(crate) const fn new(call: Call) -> Self {
        Self {
            call,
            off: AtomicBool::new(false),
        }
    }

    /// Whether the kernel has the call, and this process may use it: asked with an
    /// empty batch, until it was refused once.
    pub(crate) fn are_on(&self, socket: BorrowedFd<'_>) -> bool {
        if self.off.load(Ordering::Relaxed) {
            return false;
        }
        match (self.call)(socket, &[]) {
            Err(error) if is_refusal(&error) => {
                if !self.off.swap(true, Ordering::Relaxed) {
                    tracing::warn!(%error, "sendmmsg is refused: datagrams leave one by one");
                }
                false
            }
            result => result.is_ok(),
        }
    }

    /// Sends transmissions, at most [`TRANSMITS_MAX`].
    pub(crate) fn send(&self, socket: BorrowedFd<'_>, several: &[Outgoing<'_>]) -> Batch {
        if self.off.load(Ordering::Relaxed) {
            return Batch::Off;
        }
        match (self.call)(socket, several) {
            Ok(taken) if taken > 0 => Batch::Taken(taken),
            // A firewall refuses one destination with the same error.
            Err(error) if is_refusal(&error) && !self.are_on(socket) => Batch::Off,
            // What is wrong with the first is found out when it is sent alone.
            _ => Batch::SendFirst,
        }
    }
}

/// Whether the kernel does not know a call (`ENOSYS`), or a filter forbids it.
fn is_refusal(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOSYS | libc::EPERM))
}

/// Sends transmissions, at most [`TRANSMITS_MAX`]; returns how many the kernel
/// took, from the first.
///
/// # Errors
/// It did not take the first.
fn send(socket: BorrowedFd<'_>, several: &[Outgoing<'_>]) -> io::Result<usize> {
    let several = several.get(..TRANSMITS_MAX).unwrap_or(several);
    let names: Vec<SockAddr> = several
        .iter()
        .map(|one| one.transmit.destination.into())
        .collect();
    let controls: Vec<Control> = several.iter().map(Control::of).collect();
    let slices: Vec<IoSlice<'_>> = several
        .iter()
        .map(|one| IoSlice::new(one.contents))
        .collect();
    let parts = names.iter().zip(&controls).zip(&slices);
    let headers = parts.map(|((name, control), slice)| {
        // SAFETY: a header of zeros is one of a message without address, bytes
        // and control messages; no field is a reference.
        let mut header: libc::mmsghdr = unsafe { core::mem::zeroed() };
        header.msg_hdr.msg_name = name.as_ptr().cast_mut().cast();
        header.msg_hdr.msg_namelen = name.len();
        header.msg_hdr.msg_iov = core::ptr::from_ref(slice).cast_mut().cast();
        header.msg_hdr.msg_iovlen = 1;
        header.msg_hdr.msg_control = control.bytes.as_ptr().cast_mut().cast();
        header.msg_hdr.msg_controllen = length(control.len);
        header
    });
    let mut headers: Vec<libc::mmsghdr> = headers.collect();
    // SAFETY: there are `headers.len()` headers. What each points to, `names`,
    // `controls`, `slices` and the bytes of these, is borrowed until the end of
    // this function and as long as the header says; an `IoSlice` is an `iovec` in
    // memory. The kernel reads all of it, and writes the length sent into `headers`.
    let sent = unsafe {
        let count = headers.len() as libc::c_uint;
        libc::sendmmsg(socket.as_raw_fd(), headers.as_mut_ptr(), count, 0)
    };
    usize::try_from(sent).map_err(|_| io::Error::last_os_error())
}

/// The length of control messages as the C library's header has it.
#[cfg(target_env = "musl")]
const fn length(bytes: usize) -> libc::socklen_t {
    // At most CONTROL_BYTES.
    bytes as libc::socklen_t
}

/// The length of control messages as the C library's header has it.
#[cfg(not(target_env = "musl"))]
const fn length(bytes: usize) -> usize {
    bytes
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    fn refuse(error: i32) -> io::Result<usize> {
        Err(io::Error::from_raw_os_error(error))
    }

    /// A kernel without the call.
    fn unknown(_: BorrowedFd<'_>, _: &[Outgoing<'_>]) -> io::Result<usize> {
        refuse(libc::ENOSYS)
    }

    /// A filter forbids the call, from the second on: the first asks at the start.
    fn forbidden(_: BorrowedFd<'_>, _: &[Outgoing<'_>]) -> io::Result<usize> {
        static CALLED: AtomicBool = AtomicBool::new(false);
        match CALLED.swap(true, Ordering::Relaxed) {
            false => Ok(0),
            true => refuse(libc::EPERM),
        }
    }

    /// A firewall drops what is in the batch; the call itself is allowed.
    fn filtered(_: BorrowedFd<'_>, several: &[Outgoing<'_>]) -> io::Result<usize> {
        match several {
            [] => Ok(0),
            _ => refuse(libc::EPERM),
        }
    }

    /// Those calls, and what the sockets of a process find out at their start
    /// and at the first batch.
    pub(crate) fn refused() -> [(Batches, [bool; 2]); 3] {
        [
            (Batches::new(unknown), [false, false]),
            (Batches::new(forbidden), [true, false]),
            (Batches::new(filtered), [true, true]),
        ]
    }
}
