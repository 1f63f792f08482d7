//! A UDP socket: datagrams in and out, and who waits until it takes more. It
//! knows no connection beyond its serial number.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::collections::BTreeSet;
use std::io;
#[cfg(target_os = "linux")]
use std::os::fd::AsFd as _;

use dunlin_quic::datagram::{DatagramSender, Transmit};
use mio::Interest;
use mio::net::UdpSocket;
use quinn_udp::UdpSocketState;
use socket2::{Domain, Protocol, SockAddr, Socket, Type};

#[cfg(target_os = "linux")]
use crate::mmsg::{self, Batches};
use crate::outbox::{Batch, Kernel, Outbox, Outgoing};
use crate::relay::{Answers, Ways};
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
    /// A transmission failed for want of a route or an address.
    unreachable: bool,
    outbox: Outbox,
    #[cfg(target_os = "linux")]
    batches: &'static Batches,
    /// The kernel says when it takes more.
    watched: bool,
    /// Connections that wait for the socket to take more.
    waiting: BTreeSet<u64>,
}

impl UdpPort {
    pub(crate) fn new(socket: UdpSocket, ecn: bool, limits: &NetLimits) -> io::Result<Self> {
        let state = UdpSocketState::new((&socket).into())?;
        // The kernel may grant less; that is no reason not to serve.
        let _ = state.set_recv_buffer_size((&socket).into(), limits.udp_buffer_bytes);
        let _ = state.set_send_buffer_size((&socket).into(), limits.udp_buffer_bytes);
        #[cfg(target_os = "linux")]
        let batches = mmsg::BATCHES.are_on(socket.as_fd());
        #[cfg(not(target_os = "linux"))]
        let batches = false;
        Ok(Self {
            socket,
            state,
            ecn,
            readable: false,
            unreachable: false,
            outbox: Outbox::new(batches),
            #[cfg(target_os = "linux")]
            batches: &mmsg::BATCHES,
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
        if self.outbox.is_blocked() {
            self.waiting.insert(serial);
        }
        self.outbox.is_blocked()
    }

    /// Whether [`UdpPort::flush`] has something to send.
    pub(crate) fn is_unsent(&self) -> bool {
        self.outbox.is_ready()
    }

    /// What to watch the socket for from the beginning.
    pub(crate) const INTEREST: Interest = Interest::READABLE;

    /// What to watch it for from now on, if that has changed.
    pub(crate) fn changed_interest(&mut self) -> Option<Interest> {
        if self.watched == self.outbox.is_blocked() {
            return None;
        }
        self.watched = self.outbox.is_blocked();
        Some(if self.watched {
            Self::INTEREST | Interest::WRITABLE
        } else {
            Self::INTEREST
        })
    }

    /// Sends with the next [`UdpPort::flush`], or before. While the socket takes
    /// nothing only stateless answers come here, which may be lost.
    pub(crate) fn transmit(
        &mut self,
        mut transmit: Transmit,
        contents: &[u8],
        counters: &mut Counters,
    ) {
        // quinn-proto sees that its marks are not acknowledged, and stops.
        transmit.ecn = transmit.ecn.filter(|_| self.ecn);
        let (outbox, mut wire) = self.wire(counters);
        outbox.push(transmit, contents, &mut wire);
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

    /// Sends what has gathered. Returns whether the way from here was gone for
    /// something sent since the last call.
    pub(crate) fn flush(&mut self, counters: &mut Counters) -> bool {
        let (outbox, mut wire) = self.wire(counters);
        outbox.flush(&mut wire);
        core::mem::take(&mut self.unreachable)
    }

    /// The socket is writable: sends what waited and says who waits.
    pub(crate) fn on_writable(&mut self, counters: &mut Counters) -> BTreeSet<u64> {
        let (outbox, mut wire) = self.wire(counters);
        outbox.unblock(&mut wire);
        if outbox.is_blocked() {
            return BTreeSet::new();
        }
        core::mem::take(&mut self.waiting)
    }

    const fn wire<'a>(&'a mut self, counters: &'a mut Counters) -> (&'a mut Outbox, Wire<'a>) {
        let wire = Wire {
            socket: &self.socket,
            state: &self.state,
            unreachable: &mut self.unreachable,
            counters,
            #[cfg(target_os = "linux")]
            batches: self.batches,
        };
        (&mut self.outbox, wire)
    }
}

/// The socket, as its outbox sees it.
struct Wire<'a> {
    socket: &'a UdpSocket,
    state: &'a UdpSocketState,
    unreachable: &'a mut bool,
    counters: &'a mut Counters,
    #[cfg(target_os = "linux")]
    batches: &'static Batches,
}

impl Wire<'_> {
    fn count(&mut self, sent: &[Outgoing<'_>]) {
        for one in sent {
            self.counters.datagrams_out += segments(one);
            self.counters.udp_bytes_out += one.contents.len() as u64;
        }
    }
}

impl Kernel for Wire<'_> {
    fn send(&mut self, one: Outgoing<'_>) -> bool {
        let transmit = quinn_udp::Transmit {
            destination: one.transmit.destination,
            ecn: one
                .transmit
                .ecn
                .and_then(quinn_udp::EcnCodepoint::from_bits),
            contents: one.contents,
            segment_size: one.transmit.segment_size,
            src_ip: one.transmit.src_ip,
        };
        self.counters.udp_send_calls += 1;
        match self.state.try_send(self.socket.into(), &transmit) {
            Ok(()) => self.count(&[one]),
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => return false,
            // The network lost it, as it may lose any datagram.
            Err(error) => {
                *self.unreachable |= is_unreachable(&error);
                tracing::debug!(%error, to = %transmit.destination, "datagram not sent");
                self.lose(one);
            }
        }
        true
    }

    #[cfg(target_os = "linux")]
    fn send_many(&mut self, several: &[Outgoing<'_>]) -> Batch {
        self.counters.udp_send_calls += 1;
        let batch = self.batches.send(self.socket.as_fd(), several);
        if let Batch::Taken(sent) = batch {
            self.count(several.get(..sent).unwrap_or(several));
        }
        batch
    }

    #[cfg(not(target_os = "linux"))]
    fn send_many(&mut self, _: &[Outgoing<'_>]) -> Batch {
        Batch::Off
    }

    fn lose(&mut self, one: Outgoing<'_>) {
        self.counters.datagrams_unsent += segments(&one);
    }
}

/// Datagrams of a transmission.
fn segments(one: &Outgoing<'_>) -> u64 {
    let bytes = one.contents.len();
    let size = one.transmit.segment_size.unwrap_or(bytes);
    bytes.div_ceil(size.max(1)) as u64
}

/// A UDP socket, as one connection uses it.
pub(crate) struct PortOf<'a> {
    pub(crate) port: &'a mut UdpPort,
    /// The connection, which is woken when the socket takes more.
    pub(crate) serial: u64,
    /// The number of its listener, and what goes to the client by other processes.
    pub(crate) elsewhere: Option<(u16, (&'a Ways, &'a mut Answers))>,
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
        if let Some((listener, (ways, answers))) = &mut self.elsewhere
            && let Some(way) = ways.to(transmit.destination)
        {
            let transmit = Transmit {
                src_ip: way.local_ip,
                ..transmit
            };
            return answers.push((way.by, *listener), transmit, contents, counters);
        }
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
    use dunlin_quic::datagram::ECN_CONGESTED;

    use super::*;

    fn port(addr: &str) -> UdpPort {
        let socket = bind(addr.parse().unwrap(), false).unwrap();
        UdpPort::new(socket, true, &NetLimits::default()).unwrap()
    }

    fn to(destination: SocketAddr) -> Transmit {
        Transmit {
            destination,
            ecn: None,
            size: 5,
            segment_size: None,
            src_ip: None,
        }
    }

    /// Datagrams that have come: sender, ECN bits and contents.
    fn received(port: &UdpPort) -> Vec<(SocketAddr, u8, Vec<u8>)> {
        let mut buf = vec![0; 65_536];
        let mut meta = [quinn_udp::RecvMeta::default()];
        let mut all = Vec::new();
        while port
            .recv(&mut [io::IoSliceMut::new(&mut buf)], &mut meta)
            .is_ok()
        {
            let [meta] = &meta;
            for part in buf[..meta.len].chunks(meta.stride) {
                let ecn = meta.ecn.map_or(0, |ecn| ecn as u8);
                all.push((meta.addr, ecn, part.to_vec()));
            }
        }
        all
    }

    #[test]
    fn a_socket_is_watched_for_room_only_while_it_has_none() {
        let mut port = port("127.0.0.1:0");
        let to = to(port.local_addr().unwrap());
        assert_eq!(port.changed_interest(), None);
        let mut counters = Counters::default();
        // The kernel's buffers have no end that a test could rely on.
        port.outbox.block();
        port.transmit(to, b"hello", &mut counters);
        assert!(!port.is_unsent());
        let both = Interest::READABLE | Interest::WRITABLE;
        assert_eq!(port.changed_interest(), Some(both));
        assert_eq!(port.changed_interest(), None);
        assert!(port.is_blocked_for(7));
        assert_eq!(Vec::from_iter(port.on_writable(&mut counters)), [7]);
        assert_eq!(counters.datagrams_out, 1);
        assert_eq!(port.changed_interest(), Some(UdpPort::INTEREST));
        // Blocked and free again before anyone looked.
        port.outbox.block();
        let _ = port.on_writable(&mut counters);
        assert_eq!(port.changed_interest(), None);
    }

    #[test]
    fn datagrams_to_several_peers_leave_with_few_calls() {
        for (batches, calls) in [(true, 1), (false, 4)] {
            let mut port = port("0.0.0.0:0");
            port.outbox.batches &= batches;
            let peers = [(); 4].map(|()| self::port("127.0.0.1:0"));
            let mut counters = Counters::default();
            for (index, peer) in (0..).zip(&peers) {
                let mut to = to(peer.local_addr().unwrap());
                to.ecn = [None, Some(2), Some(ECN_CONGESTED), None][index];
                to.src_ip = (index > 0).then(|| IpAddr::from([127, 0, 0, 1 + index as u8]));
                // The last are three datagrams, of two, two and one byte.
                to.segment_size = (index == 3).then_some(2);
                port.transmit(to, b"hello", &mut counters);
            }
            assert!(port.is_unsent());
            assert!(!port.flush(&mut counters));
            assert!(!port.is_unsent());
            assert_eq!(
                (counters.udp_send_calls, counters.udp_bytes_out),
                (calls, 20)
            );
            assert_eq!((counters.datagrams_out, counters.datagrams_unsent), (6, 0));
            let local = port.local_addr().unwrap().port();
            let from = |last| SocketAddr::from(([127, 0, 0, last], local));
            let [one, two, three, four] = peers.each_ref().map(received);
            assert_eq!(one, [(from(1), 0, b"hello".to_vec())]);
            assert_eq!(two, [(from(2), 2, b"hello".to_vec())]);
            assert_eq!(three, [(from(3), 3, b"hello".to_vec())]);
            let parts = [&b"he"[..], b"ll", b"o"];
            assert_eq!(four, parts.map(|part| (from(4), 0, part.to_vec())));
        }
    }

    #[test]
    fn one_socket_serves_both_families() {
        let mut port = port("[::]:0");
        let peers = ["127.0.0.1:0", "[::1]:0"].map(self::port);
        let mut counters = Counters::default();
        for peer in &peers {
            let addr = peer.local_addr().unwrap();
            let mapped = match addr.ip() {
                IpAddr::V4(ip) => ip.to_ipv6_mapped(),
                IpAddr::V6(ip) => ip,
            };
            let mut to = to((mapped, addr.port()).into());
            (to.ecn, to.src_ip) = (Some(2), Some(mapped.into()));
            port.transmit(to, b"hello", &mut counters);
        }
        port.flush(&mut counters);
        for peer in &peers {
            let addr = (
                peer.local_addr().unwrap().ip(),
                port.local_addr().unwrap().port(),
            );
            assert_eq!(received(peer), [(addr.into(), 2, b"hello".to_vec())]);
        }
        assert_eq!(counters.udp_send_calls, 1);
    }

    #[test]
    fn a_destination_that_cannot_be_sent_to_holds_up_no_other() {
        for batches in [true, false] {
            let mut port = port("127.0.0.1:0");
            port.outbox.batches &= batches;
            let peer = self::port("127.0.0.1:0");
            let alive = peer.local_addr().unwrap();
            // Not from a loopback address, and not without leave to broadcast.
            let dead = [([192, 0, 2, 1], 9), ([255; 4], 9)].map(SocketAddr::from);
            let mut counters = Counters::default();
            for addr in [dead[0], alive, dead[1], alive, dead[0], dead[1], alive] {
                port.transmit(to(addr), b"hello", &mut counters);
            }
            assert!(port.flush(&mut counters), "the way is gone");
            assert!(!port.flush(&mut counters), "once");
            assert_eq!((counters.datagrams_out, counters.datagrams_unsent), (3, 4));
            assert_eq!(received(&peer).len(), 3);
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn what_a_refused_call_should_have_sent_leaves_one_by_one() {
        for (batches, [at_start, after]) in mmsg::tests::refused() {
            let batches: &'static Batches = Box::leak(Box::new(batches));
            let peer = port("127.0.0.1:0");
            let addr = peer.local_addr().unwrap();
            let mut counters = Counters::default();
            // Two sockets: what the first finds out holds for the process.
            for round in 0..2 {
                let mut port = port("127.0.0.1:0");
                port.batches = batches;
                port.outbox.batches = batches.are_on(port.socket.as_fd());
                let on = if round == 0 { at_start } else { after };
                assert_eq!(port.outbox.batches, on);
                for byte in 0..4 {
                    port.transmit(to(addr), &[byte; 5], &mut counters);
                }
                assert!(!port.flush(&mut counters) && !port.is_unsent());
                assert_eq!(port.outbox.batches, after);
                let contents = received(&peer).into_iter().map(|(_, _, bytes)| bytes);
                let all = (0..4).map(|byte| vec![byte; 5]);
                assert_eq!(Vec::from_iter(contents), Vec::from_iter(all));
            }
            assert_eq!((counters.datagrams_out, counters.datagrams_unsent), (8, 0));
            // Four each, and one for each batch that was tried: three of four
            // datagrams that are not the last, while the call is thought to be there.
            let tried = [at_start, after].map(|on| match (on, after) {
                (true, true) => 3,
                (true, false) => 1,
                (false, _) => 0,
            });
            let tried: u64 = tried.iter().sum();
            assert_eq!(counters.udp_send_calls, 8 + tried);
        }
    }
}
