//! `dunlin-tiny` as a static program for routers and gateways: the function
//! `main` for a C library such as musl, which starts it and finds names.
//! `scripts/mcu/tiny-size.sh` links it. Knows no protocol.

#![no_std]
#![deny(unsafe_code)]

mod libc;

use core::ffi::CStr;
use core::fmt::{self, Write};
use core::net::SocketAddr;

use dunlin_tiny::command::{ADDRESSES, Host, run};

/// Longest name of a host (RFC 1035 section 2.3.4), and of a port.
const NAME: usize = 255;
const PORT: usize = 15;

/// A copy with a zero behind it.
fn terminated<'a>(text: &str, room: &'a mut [u8]) -> Option<&'a CStr> {
    let len = text.len();
    room.get_mut(..len)?.copy_from_slice(text.as_bytes());
    *room.get_mut(len)? = 0;
    CStr::from_bytes_with_nul(room.get(..=len)?).ok()
}

fn find(server: &str, addresses: &mut [SocketAddr; ADDRESSES]) -> usize {
    let (mut first, mut second) = ([0; NAME + 1], [0; PORT + 1]);
    let parts = server.rsplit_once(':').and_then(|(name, port)| {
        Some((
            terminated(name, &mut first)?,
            terminated(port, &mut second)?,
        ))
    });
    parts.map_or(0, |(name, port)| libc::find(name, port, addresses))
}

fn explain(errno: i32, out: &mut dyn Write) -> fmt::Result {
    write!(out, "{} (os error {errno})", libc::text(errno))
}

/// The program, with its name in front of the arguments.
fn program<'a>(arguments: impl Iterator<Item = &'a CStr>) -> u8 {
    let [input, output, errors] = libc::streams();
    let host = Host {
        find: &find,
        explain: &explain,
        input,
        output,
        errors,
    };
    run(arguments.skip(1), &host)
}
