//! A connection over a UDP socket, blocking. Knows no MQTT.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use dunlin_mini_crypto::{CryptoError, Entropy, Tiny};
use dunlin_quic_mini::{Buffers, Client, Config, Error, State, Verifier};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::OwnedFd;
use rustix::io::{Errno, retry_on_intr};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};
use rustix::rand::{GetRandomFlags, getrandom};
use rustix::time::{ClockId, clock_gettime};

/// Largest datagram that is received.
pub const DATAGRAM: u16 = 1472;

/// Memory of a connection with one stream: messages of 16 KB, own certificates of 2 KB
/// and tickets of 1.8 KB behind them, and a certificate with others behind it.
pub type Room = Buffers<1, MESSAGE, MESSAGE, 4096, 8192>;
/// Longest packet of MQTT, with its head, in both directions.
pub const MESSAGE: usize = 16_384;

/// Random bytes of the operating system.
#[derive(Debug)]
pub struct System;

impl Entropy for System {
    fn fill(&mut self, out: &mut [u8]) -> Result<(), CryptoError> {
        let mut rest = out;
        while !rest.is_empty() {
            let got = retry_on_intr(|| getrandom(&mut *rest, GetRandomFlags::empty()));
            let got = got.map_err(|_| CryptoError::Entropy)?;
            rest = rest.get_mut(got..).unwrap_or_default();
        }
        Ok(())
    }
}

/// Why a connection is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The network has no way to the server, or there is no socket.
    System(Errno),
    /// The engine's reason.
    Quic(Error),
}

impl From<Errno> for End {
    fn from(error: Errno) -> Self {
        Self::System(error)
    }
}

impl From<Error> for End {
    fn from(error: Error) -> Self {
        Self::Quic(error)
    }
}

/// A client with its socket.
#[derive(Debug)]
pub struct Connection<'m, V: Verifier> {
    /// The engine.
    pub client: Client<Tiny<System>, V, &'m mut Room>,
    socket: OwnedFd,
    epoch: Timespec,
}

impl<'m, V: Verifier> Connection<'m, V> {
    /// Begins a connection to `server`.
    ///
    /// # Errors
    ///
    /// Those of the socket and of [`Client::connect`].
    pub fn begin(
        server: SocketAddr,
        verifier: V,
        room: &'m mut Room,
        config: &Config<'_>,
    ) -> Result<Self, End> {
        let (family, any) = match server {
            SocketAddr::V4(_) => (AddressFamily::INET, IpAddr::V4(Ipv4Addr::UNSPECIFIED)),
            SocketAddr::V6(_) => (AddressFamily::INET6, IpAddr::V6(Ipv6Addr::UNSPECIFIED)),
        };
        let (kind, flags) = (SocketType::DGRAM, SocketFlags::CLOEXEC);
        let socket = rustix::net::socket_with(family, kind, flags, None)?;
        rustix::net::bind(&socket, &SocketAddr::new(any, 0))?;
        rustix::net::connect(&socket, &server)?;
        let mut client = Client::new(Tiny::new(System), verifier, room);
        client.connect(0, config)?;
        Ok(Self {
            client,
            socket,
            epoch: clock_gettime(ClockId::Monotonic),
        })
    }

    /// Milliseconds of the connection's clock.
    #[allow(
        clippy::useless_conversion,
        reason = "nanoseconds have 32 bits elsewhere"
    )]
    pub fn now(&self) -> u32 {
        let now = clock_gettime(ClockId::Monotonic);
        let seconds = now.tv_sec.wrapping_sub(self.epoch.tv_sec);
        let nanos = i64::from(now.tv_nsec).wrapping_sub(i64::from(self.epoch.tv_nsec));
        // It wraps around after 49 days, as the engine allows.
        let ms = seconds.wrapping_mul(1000).wrapping_add(nanos / 1_000_000);
        u32::try_from(ms & i64::from(u32::MAX)).unwrap_or(0)
    }

    /// Sends what there is.
    pub fn send(&mut self) {
        let mut frame = [0; DATAGRAM as usize];
        loop {
            let len = self.client.transmit(self.now(), &mut frame);
            let Some(datagram) = frame.get(..len).filter(|_| len > 0) else {
                break;
            };
            // A datagram that cannot be sent is a lost one.
            let _ = rustix::net::send(&self.socket, datagram, SendFlags::empty());
        }
    }

    /// Sends what there is, waits for a datagram, a timer or as many
    /// milliseconds, and takes the datagram.
    ///
    /// # Errors
    ///
    /// The reason, when the connection is over.
    pub fn step(&mut self, most_ms: u32) -> Result<(), End> {
        self.send();
        if let Some(error) = self.client.error() {
            return Err(error.into());
        }
        let timer = self.client.timeout(self.now()).unwrap_or(u32::MAX);
        if !self.wait(timer.min(most_ms).max(1)) {
            return Ok(());
        }
        let mut frame = [0; DATAGRAM as usize];
        match rustix::net::recv(&self.socket, &mut frame, RecvFlags::DONTWAIT) {
            Ok((len, _)) => {
                if let Some(datagram) = frame.get_mut(..len) {
                    self.client.receive(self.now(), datagram);
                }
                Ok(())
            }
            // What the network says is believed only while there is no server that
            // could say otherwise.
            Err(error) if self.client.state() == State::Connecting && is_away(error) => {
                Err(error.into())
            }
            Err(_) => Ok(()),
        }
    }

    /// Whether there is something to receive, after this time at the latest.
    fn wait(&self, ms: u32) -> bool {
        let timeout = Timespec {
            tv_sec: (ms / 1000).into(),
            tv_nsec: (ms % 1000 * 1_000_000).into(),
        };
        let mut sockets = [PollFd::new(&self.socket, PollFlags::IN)];
        poll(&mut sockets, Some(&timeout)) == Ok(1)
    }
}

/// Whether a socket says that there is no socket at the address, or no way to it.
pub(crate) fn is_away(error: Errno) -> bool {
    matches!(
        error,
        Errno::CONNREFUSED
            | Errno::HOSTUNREACH
            | Errno::NETUNREACH
            | Errno::AFNOSUPPORT
            | Errno::ADDRNOTAVAIL
    )
}
