//! Datagrams to several peers with one system call (`sendmmsg`, Linux 3.0). All
//! unsafe code of the crate is here: no crate wraps this call together with the
//! control messages that QUIC needs, which are ECN, segment size and local address.

#![allow(
    unsafe_code,
    reason = "sendmmsg has no safe wrapper that takes these control messages"
)]

use core::net::IpAddr;
use std::io::{self, IoSlice};
use std::os::fd::{AsRawFd as _, BorrowedFd};

use socket2::SockAddr;

use crate::outbox::{Outgoing, TRANSMITS_MAX};

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

/// Whether the kernel has the call, and this process may use it.
pub(crate) fn is_known(socket: BorrowedFd<'_>) -> bool {
    send(socket, &[]).is_ok()
}

/// Sends transmissions, at most [`TRANSMITS_MAX`]; returns how many the kernel
/// took, from the first.
///
/// # Errors
/// It did not take the first.
pub(crate) fn send(socket: BorrowedFd<'_>, several: &[Outgoing<'_>]) -> io::Result<usize> {
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
