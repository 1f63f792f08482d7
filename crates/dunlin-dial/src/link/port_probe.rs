//! Whether a UDP port is closed. The socket of QUIC is not connected, so that it
//! does not learn of ICMP errors; a connected one beside it does, from a
//! datagram that no QUIC server answers.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use core::time::Duration;
use std::io::ErrorKind;
use std::net::UdpSocket;

use dunlin_base::{ConnId, Instant};

/// A handshake that takes longer than this asks.
const PATIENCE: Duration = Duration::from_millis(250);

/// First wait for the answer; each further one is twice as long.
const WAIT_MIN: Duration = Duration::from_millis(20);

/// Without the fixed bit (RFC 9000 section 17.3) it belongs to no connection.
const NOT_QUIC: [u8; 1] = [0];

/// The question for one connection that is being made.
pub(super) struct PortProbe {
    pub(super) conn: ConnId,
    addr: SocketAddr,
    socket: Option<UdpSocket>,
    /// When to ask, or to look for the answer.
    pub(super) at: Instant,
    wait: Duration,
}

impl PortProbe {
    pub(super) fn new(now: Instant, conn: ConnId, addr: SocketAddr) -> Self {
        Self {
            conn,
            addr,
            socket: None,
            at: now + PATIENCE,
            wait: WAIT_MIN,
        }
    }

    /// Asks, or looks for the answer, when that is due: whether the port is
    /// closed.
    pub(super) fn is_refused(&mut self, now: Instant, local: Option<IpAddr>) -> bool {
        if now < self.at {
            return false;
        }
        self.at = now + self.wait;
        self.wait *= 2;
        match &self.socket {
            None => {
                self.socket = ask(self.addr, local).ok();
                false
            }
            Some(socket) => {
                let answer = socket.recv(&mut [0; 1]);
                answer.is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused)
            }
        }
    }
}

fn ask(addr: SocketAddr, local: Option<IpAddr>) -> std::io::Result<UdpSocket> {
    let any = match addr {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let local = local.unwrap_or(any);
    let socket = UdpSocket::bind((local, 0))?;
    socket.set_nonblocking(true)?;
    socket.connect(addr)?;
    socket.send(&NOT_QUIC)?;
    Ok(socket)
}
