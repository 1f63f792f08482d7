//! What is taken from the C library: the start of the program, names of hosts,
//! the two streams and the end. All that is unsafe is here. Knows no protocol.

#![allow(unsafe_code, reason = "functions of C have no safe form without std")]

use core::ffi::{CStr, c_char, c_int, c_void};
use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use core::ptr::{null, null_mut};
use core::slice;

/// `struct addrinfo`, as all C libraries of Linux have it.
#[repr(C)]
struct AddrInfo {
    flags: c_int,
    family: c_int,
    kind: c_int,
    protocol: c_int,
    addr_len: u32,
    addr: *const u8,
    name: *const c_char,
    next: *mut AddrInfo,
}

const SOCK_DGRAM: c_int = if cfg!(any(target_arch = "mips", target_arch = "mips64")) {
    1
} else {
    2
};

unsafe extern "C" {
    fn getaddrinfo(
        node: *const c_char,
        service: *const c_char,
        hints: *const AddrInfo,
        result: *mut *mut AddrInfo,
    ) -> c_int;
    fn freeaddrinfo(list: *mut AddrInfo);
    fn write(file: c_int, data: *const c_void, len: usize) -> isize;
    fn abort() -> !;
}

/// The first address of a name.
pub(crate) fn find(name: &CStr, port: &CStr) -> Option<SocketAddr> {
    let hints = AddrInfo {
        flags: 0,
        family: 0,
        kind: SOCK_DGRAM,
        protocol: 0,
        addr_len: 0,
        addr: null(),
        name: null(),
        next: null_mut(),
    };
    let mut list = null_mut();
    // SAFETY: the strings end with a zero, and both structures are as the
    // library has them.
    if unsafe { getaddrinfo(name.as_ptr(), port.as_ptr(), &hints, &mut list) } != 0 {
        return None;
    }
    // SAFETY: with success the list has an entry, which has an address of the
    // length beside it; it is read before it is freed, and freed once.
    unsafe {
        let bytes = slice::from_raw_parts((*list).addr, (*list).addr_len as usize);
        let found = address(bytes);
        freeaddrinfo(list);
        found
    }
}

/// `struct sockaddr_in` has 16 bytes, `struct sockaddr_in6` 28: family, port,
/// then the address, which for IPv6 is behind a label of the flow and before
/// the scope.
fn address(bytes: &[u8]) -> Option<SocketAddr> {
    let port = u16::from_be_bytes(*bytes.get(2..)?.first_chunk()?);
    let ip = if bytes.len() >= 28 {
        Ipv6Addr::from(*bytes.get(8..)?.first_chunk::<16>()?).into()
    } else {
        IpAddr::from(Ipv4Addr::from(*bytes.get(4..)?.first_chunk::<4>()?))
    };
    Some(SocketAddr::new(ip, port))
}

/// Standard output or standard error, without a buffer.
pub(crate) struct Stream(c_int);

impl Stream {
    /// Output, and errors.
    pub(crate) const BOTH: (Self, Self) = (Self(1), Self(2));
}

impl fmt::Write for Stream {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let mut rest = text.as_bytes();
        while !rest.is_empty() {
            // SAFETY: there are that many bytes.
            let written = unsafe { write(self.0, rest.as_ptr().cast(), rest.len()) };
            let written = usize::try_from(written).map_err(|_| fmt::Error)?;
            rest = rest.get(written..).unwrap_or_default();
        }
        Ok(())
    }
}

/// Where the C library begins the program.
///
/// # Safety
///
/// There are `count` strings of C behind `list`, and they live as long as the
/// program.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn main(count: c_int, list: *const *const c_char) -> c_int {
    let count = usize::try_from(count).unwrap_or(0);
    // SAFETY: promised by the caller, which is the start of the C library.
    let list = unsafe { slice::from_raw_parts(list, count) };
    // SAFETY: as above.
    let arguments = list
        .iter()
        .map(|argument| unsafe { CStr::from_ptr(*argument) });
    crate::program(arguments).into()
}

/// Ends as a panic does that is not unwound.
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    // SAFETY: can be called at any time.
    unsafe { abort() }
}
