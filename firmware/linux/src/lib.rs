//! `dunlin-tiny` as a static program for routers and gateways: the function
//! `main` for a C library such as musl, which starts it and finds names.
//! `scripts/mcu/tiny-size.sh` links it. Knows no protocol.

#![no_std]
#![deny(unsafe_code)]

mod libc;

use core::ffi::CStr;
use core::net::SocketAddr;

use dunlin_tiny::command::{Host, run};

use crate::libc::Stream;

/// Arguments that are read; the command has five.
const ARGUMENTS: usize = 8;
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

fn find(server: &str) -> Option<SocketAddr> {
    let (name, port) = server.rsplit_once(':')?;
    let (mut first, mut second) = ([0; NAME + 1], [0; PORT + 1]);
    libc::find(
        terminated(name, &mut first)?,
        terminated(port, &mut second)?,
    )
}

/// The program, with its name in front of the arguments.
fn program<'a>(arguments: impl Iterator<Item = &'a CStr>) -> u8 {
    let mut list = [c""; ARGUMENTS];
    let mut count = 0;
    for (entry, argument) in list.iter_mut().zip(arguments.skip(1)) {
        *entry = argument;
        count += 1;
    }
    let (mut out, mut err) = Stream::BOTH;
    let mut host = Host {
        find: &find,
        out: &mut out,
        err: &mut err,
    };
    run(list.get(..count).unwrap_or_default(), &mut host)
}
