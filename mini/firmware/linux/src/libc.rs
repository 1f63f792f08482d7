//! What is taken from the C library: the start of the program, names of hosts,
//! texts of errors and the end. All that is unsafe is here. Knows no protocol.

#![allow(unsafe_code, reason = "functions of C have no safe form without std")]

use core::ffi::{CStr, c_char, c_int};
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use core::ptr::{null, null_mut};
use core::slice;

use dunlin_tiny::command::BorrowedFd;

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
    fn strerror(number: c_int) -> *const c_char;
    fn open(path: *const c_char, flags: c_int, ...) -> c_int;
    fn close(file: c_int) -> c_int;
    fn abort() -> !;
}

/// The addresses of a name, as many as there is room for. Gives how many.
pub(crate) fn find(name: &CStr, port: &CStr, addresses: &mut [SocketAddr]) -> usize {
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
        return 0;
    }
    let mut count = 0;
    let mut rest = list;
    // SAFETY: null ends the list, which is read before it is freed.
    while let Some(entry) = unsafe { rest.as_ref() } {
        // SAFETY: each entry has an address of the length beside it.
        let bytes = unsafe { slice::from_raw_parts(entry.addr, entry.addr_len as usize) };
        if let (Some(place), Some(found)) = (addresses.get_mut(count), address(bytes)) {
            *place = found;
            count += 1;
        }
        rest = entry.next;
    }
    // SAFETY: with success there is a list, and it is freed once.
    unsafe { freeaddrinfo(list) };
    count
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

/// What the number of an error means.
pub(crate) fn text(errno: c_int) -> &'static str {
    // SAFETY: there is a text for every number, which does not change while
    // there is one thread.
    let text = unsafe { CStr::from_ptr(strerror(errno)) };
    text.to_str().unwrap_or_default()
}

/// Standard input, output and errors. Those that the program was started without
/// lead nowhere, so that nothing else can have their numbers.
pub(crate) fn streams() -> [BorrowedFd<'static>; 3] {
    const READ_WRITE: c_int = 2;
    // SAFETY: a string of C, and a file that is closed once.
    unsafe {
        let mut file = 0;
        while (0..=2).contains(&file) {
            file = open(c"/dev/null".as_ptr(), READ_WRITE);
        }
        close(file);
    }
    // SAFETY: they are open, and nothing here closes one.
    [0, 1, 2].map(|number| unsafe { BorrowedFd::borrow_raw(number) })
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
