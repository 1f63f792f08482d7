//! `dunlin-tiny` with the standard library. `firmware/linux` is the static one
//! without it.

#![allow(clippy::print_stdout, clippy::print_stderr)]

use core::ffi::CStr;
use core::fmt::{self, Write};
use core::net::SocketAddr;
use std::ffi::CString;
use std::net::ToSocketAddrs;
use std::os::unix::ffi::OsStringExt;
use std::process::ExitCode;

use dunlin_tiny::command::{Host, run};

struct Out;
struct Err;

impl Write for Out {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        print!("{text}");
        Ok(())
    }
}

impl Write for Err {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        eprint!("{text}");
        Ok(())
    }
}

fn find(server: &str) -> Option<SocketAddr> {
    server.to_socket_addrs().ok()?.next()
}

fn main() -> ExitCode {
    let arguments = std::env::args_os().skip(1);
    // No argument of a process has a zero in it.
    let arguments: Vec<CString> = arguments
        .filter_map(|argument| CString::new(argument.into_vec()).ok())
        .collect();
    let arguments: Vec<&CStr> = arguments.iter().map(CString::as_c_str).collect();
    let mut host = Host {
        find: &find,
        out: &mut Out,
        err: &mut Err,
    };
    run(&arguments, &mut host).into()
}
