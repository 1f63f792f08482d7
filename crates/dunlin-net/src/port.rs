//! A UDP socket: datagrams in and out, and what waits until it takes more. It
//! knows no connection beyond its serial number.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::collections::BTreeSet;
use std::io;

use dunlin_quic::datagram::{DatagramSender, Transmit};
use mio::Interest;
use mio::net::UdpSocket;
use quinn_udp::UdpSocketState;
use socket2::{Domain, Protocol, SockAddr, Socket, Type};

use crate::{Counters, NetLimits};

/// A UDP socket for QUIC.
#[derive(Debug)]
pub(crate) struct UdpPort {
    socket: UdpSocket,
    state: UdpSocketState,
    /// Whether packets may be marked as ECN-capable.
    ecn: bool,
    /// The kernel may have more datagrams for us.
    pub(crate) readable: bool,
    /// The last transmission failed for want of a route or an address.
    pub(crate) unreachable: bool,
    /// A transmission that the kernel did not take.
    held: Option<Held>,
    /// The kernel says when it takes more.
    watched: bool,
    /// Connections that wait for the socket to take more.
    waiting: BTreeSet<u64>,
}

#[derive(Debug)]
struct Held {
    transmit: Transmit,
    contents: Vec<u8>,
}

impl UdpPort {
    pub(crate) fn new(socket: UdpSocket, ecn: bool, limits: &NetLimits) -> io::Result<Self> {
        let state = UdpSocketState::new((&socket).into())?;
        // The kernel may grant less; that is no reason not to serve.
        let _ = state.set_recv_buffer_size((&socket).into(), limits.udp_buffer_bytes);
        let _ = state.set_send_buffer_size((&socket).into(), limits.udp_buffer_bytes);
        Ok(Self {
            socket,
            state,
            ecn,
            readable: false,
            unreachable: false,
            held: None,
            watched: false,
            waiting: BTreeSet::new(),
        })
    }

    pub(crate) fn socket_mut(&mut self) -> &mut UdpSocket {
        &mut self.socket
    }

    pub(crate) fn local_addr(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    pub(crate) fn allows_mtu_discovery(&self) -> bool {
        !self.state.may_fragment()
    }

    fn max_segments(&self) -> usize {
        /// More delays other connections for longer than it saves calls.
        const SEGMENTS_MAX: usize = 32;
        self.state.max_gso_segments().clamp(1, SEGMENTS_MAX)
    }

    pub(crate) fn recv(
        &self,
        bufs: &mut [io::IoSliceMut<'_>],
        meta: &mut [quinn_udp::RecvMeta],
    ) -> io::Result<usize> {
        self.state.recv((&self.socket).into(), bufs, meta)
    }

    /// Whether the socket takes nothing; `serial` is woken when it does again.
    pub(crate) fn is_blocked_for(&mut self, serial: u64) -> bool {
        if self.held.is_some() {
            self.waiting.insert(serial);
        }
        self.held.is_some()
    }

    /// What to watch the socket for from the beginning.
    pub(crate) const INTEREST: Interest = Interest::READABLE;

    /// What to watch it for from now on, if that has changed.
    pub(crate) fn changed_interest(&mut self) -> Option<Interest> {
        if self.watched == self.held.is_some() {
            return None;
        }
        self.watched = self.held.is_some();
        Some(if self.watched {
            Self::INTEREST | Interest::WRITABLE
        } else {
            Self::INTEREST
        })
    }

    /// Sends, or holds it until the socket is writable.
    pub(crate) fn transmit(
        &mut self,
        transmit: Transmit,
        contents: &[u8],
        counters: &mut Counters,
    ) {
        let contents = contents.get(..transmit.size).unwrap_or(contents);
        if self.held.is_some() {
            // Only stateless answers come here then; they may be lost.
            counters.datagrams_unsent += 1;
            return;
        }
        if !self.try_transmit(&transmit, contents, counters) {
            self.held = Some(Held {
                contents: contents.to_vec(),
                transmit,
            });
        }
    }

    /// Sends one datagram of our own, or loses it.
    pub(crate) fn send(&mut self, to: SocketAddr, contents: &[u8], counters: &mut Counters) {
        let transmit = Transmit {
            destination: to,
            ecn: None,
            size: contents.len(),
            segment_size: None,
            src_ip: None,
        };
        self.transmit(transmit, contents, counters);
    }

    /// The socket is writable: sends what was held and says who waits.
    pub(crate) fn on_writable(&mut self, counters: &mut Counters) -> BTreeSet<u64> {
        if let Some(held) = self.held.take()
            && !self.try_transmit(&held.transmit, &held.contents, counters)
        {
            self.held = Some(held);
            return BTreeSet::new();
        }
        core::mem::take(&mut self.waiting)
    }

    fn try_transmit(
        &mut self,
        transmit: &Transmit,
        contents: &[u8],
        counters: &mut Counters,
    ) -> bool {
        // quinn-proto sees that its marks are not acknowledged, and stops.
        let ecn = transmit.ecn.filter(|_| self.ecn);
        let udp = quinn_udp::Transmit {
            destination: transmit.destination,
            ecn: ecn.and_then(quinn_udp::EcnCodepoint::from_bits),
            contents,
            segment_size: transmit.segment_size,
            src_ip: transmit.src_ip,
        };
        let segments = transmit
            .segment_size
            .map_or(1, |size| contents.len().div_ceil(size.max(1)));
        match self.state.try_send((&self.socket).into(), &udp) {
            Ok(()) => {
                counters.datagrams_out += segments as u64;
                counters.udp_bytes_out += contents.len() as u64;
            }
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => return false,
            // The network lost it, as it may lose any datagram.
            Err(error) => {
                counters.datagrams_unsent += segments as u64;
                self.unreachable = is_unreachable(&error);
                tracing::debug!(%error, to = %transmit.destination, "datagram not sent");
            }
        }
        true
    }
}

/// A UDP socket, as one connection uses it.
pub(crate) struct PortOf<'a> {
    pub(crate) port: &'a mut UdpPort,
    /// The connection, which is woken when the socket takes more.
    pub(crate) serial: u64,
}

impl DatagramSender for PortOf<'_> {
    fn is_blocked(&mut self) -> bool {
        self.port.is_blocked_for(self.serial)
    }

    fn max_segments(&self) -> usize {
        self.port.max_segments()
    }

    fn marks_ecn(&self) -> bool {
        self.port.ecn
    }

    fn send(&mut self, transmit: Transmit, contents: &[u8], counters: &mut Counters) {
        self.port.transmit(transmit, contents, counters);
    }
}

/// Whether an error says that our address or the way there is gone. Linux says
/// of a bound address that is gone that the argument is invalid.
fn is_unreachable(error: &io::Error) -> bool {
    use io::ErrorKind::{
        AddrNotAvailable, HostUnreachable, InvalidInput, NetworkDown, NetworkUnreachable,
    };
    matches!(
        error.kind(),
        AddrNotAvailable | HostUnreachable | InvalidInput | NetworkDown | NetworkUnreachable
    )
}

/// The address that lets the system choose, of the same family.
pub(crate) fn any_for(remote: SocketAddr) -> SocketAddr {
    if remote.is_ipv4() {
        (Ipv4Addr::UNSPECIFIED, 0).into()
    } else {
        (Ipv6Addr::UNSPECIFIED, 0).into()
    }
}

/// The local address that the system would send from now; `None`: the network
/// cannot be reached. It sends nothing.
pub(crate) fn preferred_ip(remote: SocketAddr) -> Option<IpAddr> {
    let socket = std::net::UdpSocket::bind(any_for(remote)).ok()?;
    socket.connect(remote).ok()?;
    Some(socket.local_addr().ok()?.ip())
}

/// Binds a UDP socket.
pub(crate) fn bind(addr: SocketAddr, reuse_port: bool) -> io::Result<UdpSocket> {
    let socket = Socket::new(Domain::for_address(addr), Type::DGRAM, Some(Protocol::UDP))?;
    socket.set_nonblocking(true)?;
    if reuse_port {
        socket.set_reuse_port(true)?;
    }
    if addr.is_ipv6() {
        socket.set_only_v6(false)?;
    }
    socket.bind(&SockAddr::from(addr))?;
    Ok(UdpSocket::from_std(socket.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_is_watched_for_room_only_while_it_has_none() {
        let socket = bind("127.0.0.1:0".parse().unwrap(), false).unwrap();
        let to = socket.local_addr().unwrap();
        let mut port = UdpPort::new(socket, true, &NetLimits::default()).unwrap();
        assert_eq!(port.changed_interest(), None);
        // The kernel's buffers have no end that a test could rely on.
        let held = |port: &mut UdpPort| {
            port.held = Some(Held {
                transmit: Transmit {
                    destination: to,
                    ecn: None,
                    size: 5,
                    segment_size: None,
                    src_ip: None,
                },
                contents: b"hello".to_vec(),
            });
        };
        held(&mut port);
        let both = Interest::READABLE | Interest::WRITABLE;
        assert_eq!(port.changed_interest(), Some(both));
        assert_eq!(port.changed_interest(), None);
        assert!(port.is_blocked_for(7));
        let mut counters = Counters::default();
        assert_eq!(Vec::from_iter(port.on_writable(&mut counters)), [7]);
        assert_eq!(counters.datagrams_out, 1);
        assert_eq!(port.changed_interest(), Some(UdpPort::INTEREST));
        // Blocked and free again before anyone looked.
        held(&mut port);
        let _ = port.on_writable(&mut counters);
        assert_eq!(port.changed_interest(), None);
    }
}
