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
/// Longest wait in one step, so that a caller can look around.
const STEP_MS: u32 = 250;

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

/// A client with its socket.
#[derive(Debug)]
pub struct Connection<V: Verifier> {
    /// The engine.
    pub client: Client<Tiny<System>, V, Buffers>,
    socket: OwnedFd,
    epoch: Timespec,
}

impl<V: Verifier> Connection<V> {
    /// Begins a connection to `server`.
    ///
    /// # Errors
    ///
    /// Those of the socket, and [`Errno::INVAL`] for a configuration that the
    /// engine refuses.
    pub fn begin(server: SocketAddr, verifier: V, config: &Config<'_>) -> Result<Self, Errno> {
        let (family, any) = match server {
            SocketAddr::V4(_) => (AddressFamily::INET, IpAddr::V4(Ipv4Addr::UNSPECIFIED)),
            SocketAddr::V6(_) => (AddressFamily::INET6, IpAddr::V6(Ipv6Addr::UNSPECIFIED)),
        };
        let (kind, flags) = (SocketType::DGRAM, SocketFlags::CLOEXEC);
        let socket = rustix::net::socket_with(family, kind, flags, None)?;
        rustix::net::bind(&socket, &SocketAddr::new(any, 0))?;
        rustix::net::connect(&socket, &server)?;
        let mut client = Client::new(Tiny::new(System), verifier, Buffers::new());
        client.connect(0, config).map_err(|_| Errno::INVAL)?;
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

    /// Sends what there is, waits for a datagram or a timer, and takes it.
    ///
    /// # Errors
    ///
    /// The reason, when the connection is over.
    pub fn step(&mut self) -> Result<(), Error> {
        let mut frame = [0; DATAGRAM as usize];
        loop {
            let len = self.client.transmit(self.now(), &mut frame);
            let Some(datagram) = frame.get(..len).filter(|_| len > 0) else {
                break;
            };
            // A datagram that cannot be sent is a lost one.
            let _ = rustix::net::send(&self.socket, datagram, SendFlags::empty());
        }
        if self.client.state() == State::Closed {
            return Err(self.client.error().unwrap_or(Error::ClosedLocally));
        }
        let wait = self.client.timeout(self.now()).unwrap_or(STEP_MS);
        if self.wait(wait.clamp(1, STEP_MS))
            && let Ok((len, _)) = rustix::net::recv(&self.socket, &mut frame, RecvFlags::DONTWAIT)
            && let Some(datagram) = frame.get_mut(..len)
        {
            self.client.receive(self.now(), datagram);
        }
        Ok(())
    }

    /// Whether there is something to receive, after this time at the latest.
    fn wait(&self, ms: u32) -> bool {
        let timeout = Timespec {
            tv_sec: 0,
            tv_nsec: (ms * 1_000_000).into(),
        };
        let mut sockets = [PollFd::new(&self.socket, PollFlags::IN)];
        poll(&mut sockets, Some(&timeout)) == Ok(1)
    }
}
