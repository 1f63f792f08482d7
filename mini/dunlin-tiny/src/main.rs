//! `dunlin-tiny` with the standard library. `mini/firmware/linux` is the static one
//! without it.

use core::fmt::{self, Write};
use core::net::SocketAddr;
use std::ffi::CString;
use std::io;
use std::net::ToSocketAddrs;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStringExt;
use std::process::ExitCode;

use dunlin_tiny::command::{ADDRESSES, Host, run};

fn find(server: &str, addresses: &mut [SocketAddr; ADDRESSES]) -> usize {
    let found = server.to_socket_addrs().into_iter().flatten();
    let entries = addresses.iter_mut().zip(found);
    entries.map(|(entry, address)| *entry = address).count()
}

fn explain(errno: i32, out: &mut dyn Write) -> fmt::Result {
    write!(out, "{}", io::Error::from_raw_os_error(errno))
}

fn main() -> ExitCode {
    let arguments = std::env::args_os().skip(1);
    // No argument of a process has a zero in it.
    let arguments: Vec<CString> = arguments
        .filter_map(|argument| CString::new(argument.into_vec()).ok())
        .collect();
    let (input, output, errors) = (io::stdin(), io::stdout(), io::stderr());
    let host = Host {
        find: &find,
        explain: &explain,
        input: input.as_fd(),
        output: output.as_fd(),
        errors: errors.as_fd(),
    };
    run(arguments.iter().map(CString::as_c_str), &host).into()
}
