//! TCP sockets as this crate wants them: non-blocking, without Nagle's
//! algorithm, listeners shareable between shards.

use core::net::SocketAddr;
use core::time::Duration;
use std::io;

use mio::net::{TcpListener, TcpStream};
use socket2::{Domain, Protocol, SockAddr, Socket, Type};

/// Connections the kernel may hold for a listener before they are accepted.
const LISTEN_BACKLOG: i32 = 4096;

/// Binds a listener.
pub(crate) fn listen(addr: SocketAddr, reuse_port: bool) -> io::Result<TcpListener> {
    let socket = new_socket(addr)?;
    // Without it a restart fails for as long as old connections linger.
    socket.set_reuse_address(true)?;
    if reuse_port {
        socket.set_reuse_port(true)?;
    }
    if addr.is_ipv6() {
        socket.set_only_v6(false)?;
    }
    socket.bind(&SockAddr::from(addr))?;
    socket.listen(LISTEN_BACKLOG)?;
    Ok(TcpListener::from_std(socket.into()))
}

/// Begins to connect; the result shows when the socket becomes writable.
pub(crate) fn connect(addr: SocketAddr, local: Option<SocketAddr>) -> io::Result<TcpStream> {
    let socket = new_socket(addr)?;
    socket.set_tcp_nodelay(true)?;
    if let Some(local) = local {
        socket.set_reuse_address(true)?;
        socket.bind(&SockAddr::from(local))?;
    }
    match socket.connect(&SockAddr::from(addr)) {
        Ok(()) => {}
        Err(e) if is_in_progress(&e) => {}
        Err(e) => return Err(e),
    }
    Ok(TcpStream::from_std(socket.into()))
}

/// A socket that was connected elsewhere, perhaps one of a pair.
pub(crate) fn given(socket: std::net::TcpStream) -> io::Result<TcpStream> {
    socket.set_nonblocking(true)?;
    Ok(TcpStream::from_std(socket))
}

/// Makes dropping the socket send RST instead of FIN.
pub(crate) fn reset_on_drop(socket: &TcpStream) {
    let _ = socket2::SockRef::from(socket).set_linger(Some(Duration::ZERO));
}

/// Whether accepting failed because descriptors or memory ran out, which
/// trying again at once cannot change.
pub(crate) fn is_exhausted(error: &io::Error) -> bool {
    /// ENFILE, EMFILE, ENOBUFS, ENOMEM on Linux and the BSDs.
    const EXHAUSTED: [i32; 5] = [23, 24, 105, 55, 12];
    error.raw_os_error().is_some_and(|e| EXHAUSTED.contains(&e))
}

fn is_in_progress(error: &io::Error) -> bool {
    /// EINPROGRESS on Linux, and on macOS and the BSDs.
    const IN_PROGRESS: [i32; 2] = [115, 36];
    error.kind() == io::ErrorKind::WouldBlock
        || error
            .raw_os_error()
            .is_some_and(|e| IN_PROGRESS.contains(&e))
}

fn new_socket(addr: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(addr), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}
