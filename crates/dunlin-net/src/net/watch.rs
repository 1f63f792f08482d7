//! Dialled connections that follow the network: when a local address
//! disappears, or another route is taken, those of QUIC move (see `paths`).
//! Those over TCP cannot: without their address they end, so that their
//! owner learns so long before a timeout.
//!
//! The kernel only says that something changed; what to do is then found by
//! asking it where it would send from, so that a missed or a strange message
//! does no harm. Elsewhere than on Linux only failing transmissions tell.

use core::net::{IpAddr, SocketAddr};
use core::time::Duration;

use dunlin_base::Instant;
use dunlin_base::transport::CloseCause;
use mio::Registry;

use super::Net;
use super::conns::{Conn, Conns};
use super::paths::Move;
use super::sources::Sources;
use crate::port::{any_for, preferred_ip};

/// Changes come in groups: addresses, then routes. They are looked at together.
const SETTLE: Duration = Duration::from_millis(100);

/// What a connection does about a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Stay,
    Move(Move),
}

/// What follows from where a connection sends from and where the kernel would.
fn verdict(current: IpAddr, preferred: Option<IpAddr>, exists: bool, chosen: bool) -> Verdict {
    match preferred {
        // Nothing can be reached now; the next change may help.
        None => Verdict::Stay,
        Some(preferred) if preferred == current => Verdict::Stay,
        Some(_) if !exists => Verdict::Move(Move::AtOnce),
        // The application asked for this address, and it is still there.
        Some(_) if chosen => Verdict::Stay,
        Some(_) => Verdict::Move(Move::Probed),
    }
}

/// The connections that follow the network.
#[derive(Debug, Default)]
pub(super) struct Follow {
    /// Hears of changes, once a connection follows them.
    watch: Option<sys::Watch>,
    /// Serials of the connections; some may be gone.
    following: Vec<u64>,
    /// When to look where they should send from.
    look_at: Option<Instant>,
}

impl Follow {
    /// Has a dialled connection move, or end, by itself from now on.
    pub(super) fn add(&mut self, serial: u64, conns: &mut Conns, registry: &Registry) {
        let watch = self
            .watch
            .get_or_insert_with(|| sys::Watch::start(registry));
        let heard = watch.hears();
        // Those that are gone leave from time to time.
        if self.following.len() > 2 * conns.len() {
            self.drop_gone(conns);
        }
        self.following.push(serial);
        if let Some(quic) = conns.quic_mut(serial)
            && let Some(moves) = quic.conn.path_mut().moves()
        {
            moves.follow(heard);
        }
    }

    fn drop_gone(&mut self, conns: &Conns) {
        self.following.retain(|serial| conns.get(*serial).is_some());
    }

    /// The kernel says that addresses, links or routes changed.
    pub(super) fn on_change(&mut self, now: Instant) {
        if self.watch.as_ref().is_some_and(|watch| watch.drain()) {
            self.look_soon(now);
        }
    }

    /// Looks soon where connections should send from.
    pub(super) fn look_soon(&mut self, now: Instant) {
        if !self.following.is_empty() {
            self.look_at.get_or_insert(now + SETTLE);
        }
    }

    pub(super) const fn look_at(&self) -> Option<Instant> {
        self.look_at
    }

    /// The connections to look at, when it is time.
    fn take_due(&mut self, now: Instant, conns: &Conns) -> Vec<u64> {
        if self.look_at.is_none_or(|at| at > now) {
            return Vec::new();
        }
        self.look_at = None;
        self.drop_gone(conns);
        self.following.clone()
    }
}

/// Moves the connections whose address is gone or no longer the one to use,
/// when it is time.
pub(super) fn run_follow(net: &mut Net) {
    for serial in net.follow.take_due(net.env.now, &net.conns) {
        let Some((current, remote, chosen)) = sends_from(&net.conns, &net.sources, serial) else {
            continue;
        };
        let how = verdict(current, preferred_ip(remote), exists(current), chosen);
        let Verdict::Move(how) = how else {
            continue;
        };
        let conn = net.conns.id(serial);
        if must_stay(&net.conns, serial) {
            if how == Move::AtOnce {
                // The server would drop all that comes from elsewhere. An
                // owner that knows connects again sooner than by a timeout.
                net.conns.end(conn, CloseCause::AddressGone, &mut net.env);
            }
            continue;
        }
        match net.migrate(conn, Some(any_for(remote)), how) {
            Ok(()) => tracing::debug!(%conn, %current, "the network changed, moving"),
            Err(error) => tracing::debug!(%conn, %error, "cannot follow the network"),
        }
    }
}

/// Looks again if a connection stays at an address that disappeared while it
/// tried another.
pub(super) fn look_if_lost(net: &mut Net, serial: u64) {
    if net.follow.following.contains(&serial)
        && let Some((current, ..)) = sends_from(&net.conns, &net.sources, serial)
        && !exists(current)
    {
        net.follow.look_soon(net.env.now);
    }
}

fn must_stay(conns: &Conns, serial: u64) -> bool {
    match conns.get(serial) {
        Some(Conn::Quic(quic)) => quic.conn.path().is_move_forbidden(),
        Some(Conn::Stream(_)) => true,
        None => false,
    }
}

/// Where a connection sends from, to whom, and whether someone chose that
/// address; `None`: it is not known, or it is moving.
fn sends_from(conns: &Conns, sources: &Sources, serial: u64) -> Option<(IpAddr, SocketAddr, bool)> {
    let quic = match conns.get(serial)? {
        Conn::Quic(quic) => quic,
        Conn::Stream(stream) => {
            let current = stream.local_ip()?;
            return Some((current.to_canonical(), stream.addr(), true));
        }
    };
    let moves = quic
        .conn
        .path()
        .moves()
        .filter(|moves| moves.probe().is_none())?;
    let bound = sources.port(quic.via)?.local_addr().ok()?.ip();
    let chosen = !bound.is_unspecified();
    let current = if chosen {
        Some(bound)
    } else {
        moves.local_ip()
    };
    Some((current?.to_canonical(), quic.conn.path().remote(), chosen))
}

/// Whether this machine has an address.
fn exists(ip: IpAddr) -> bool {
    std::net::UdpSocket::bind((ip, 0)).is_ok()
}

#[cfg(target_os = "linux")]
pub(super) mod sys {
    //! rtnetlink: a socket that becomes readable when something changed.

    use std::os::fd::{AsRawFd as _, OwnedFd};

    use mio::unix::SourceFd;
    use mio::{Interest, Registry};
    use rustix::io::Errno;
    use rustix::net::netlink::SocketAddrNetlink;
    use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, bind, recv, socket_with};

    use super::super::sources::WATCH;

    /// Groups of rtnetlink(7): links, addresses and routes of both families.
    const GROUPS: u32 = 0x1 | 0x10 | 0x40 | 0x100 | 0x400;

    /// A socket that hears of changes; `None` inside: there is none to be had.
    #[derive(Debug)]
    pub(crate) struct Watch(Option<OwnedFd>);

    impl Watch {
        pub(crate) fn start(registry: &Registry) -> Self {
            match open(registry) {
                Ok(fd) => Self(Some(fd)),
                Err(error) => {
                    tracing::debug!(%error, "cannot watch the network");
                    Self(None)
                }
            }
        }

        /// Whether there will ever be something.
        pub(crate) const fn hears(&self) -> bool {
            self.0.is_some()
        }

        /// Takes everything that was said; whether it was anything.
        pub(crate) fn drain(&self) -> bool {
            let Some(fd) = &self.0 else {
                return false;
            };
            let mut buf = [0; 8192];
            let mut any = false;
            loop {
                match recv(fd, &mut buf[..], RecvFlags::DONTWAIT) {
                    Ok((_, 0)) => return any,
                    // More was said than the kernel kept: that is a change too.
                    Ok(_) | Err(Errno::NOBUFS) => any = true,
                    Err(Errno::INTR) => {}
                    Err(_) => return any,
                }
            }
        }
    }

    fn open(registry: &Registry) -> std::io::Result<OwnedFd> {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        // No protocol: number 0 is NETLINK_ROUTE.
        let fd = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, None)?;
        bind(&fd, &SocketAddrNetlink::new(0, GROUPS))?;
        registry.register(&mut SourceFd(&fd.as_raw_fd()), WATCH, Interest::READABLE)?;
        Ok(fd)
    }
}

#[cfg(not(target_os = "linux"))]
pub(super) mod sys {
    //! No way to hear of changes.

    /// Hears nothing.
    #[derive(Debug)]
    pub(crate) struct Watch;

    impl Watch {
        pub(crate) fn start(_: &mio::Registry) -> Self {
            Self
        }

        pub(crate) const fn hears(&self) -> bool {
            false
        }

        pub(crate) const fn drain(&self) -> bool {
            false
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_follow_what_exists_and_is_preferred() {
        let [a, b] = [1, 2].map(|n| IpAddr::from([10, 0, 0, n]));
        let cases = [
            ((a, Some(a), true, false), Verdict::Stay),
            ((a, None, false, false), Verdict::Stay),
            ((a, Some(b), false, false), Verdict::Move(Move::AtOnce)),
            ((a, Some(b), false, true), Verdict::Move(Move::AtOnce)),
            ((a, Some(b), true, false), Verdict::Move(Move::Probed)),
            ((a, Some(b), true, true), Verdict::Stay),
        ];
        for ((current, preferred, exists, chosen), what) in cases {
            assert_eq!(verdict(current, preferred, exists, chosen), what);
        }
    }
}
