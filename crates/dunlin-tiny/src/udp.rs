//! A connection over a UDP socket, blocking. Knows no MQTT.

use core::net::SocketAddr;
use core::time::Duration;
use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::net::UdpSocket;
use std::time::Instant;

use dunlin_mini_crypto::{CryptoError, Entropy, Tiny};
use dunlin_quic_mini::{Buffers, Client, Config, Error, State, Verifier};

/// Largest datagram that is received.
pub const DATAGRAM: u16 = 1472;
/// Longest wait in one step, so that a caller can look around.
const STEP: Duration = Duration::from_millis(250);

/// Random bytes of the operating system.
#[derive(Debug)]
pub struct System(File);

impl System {
    /// Opens the source.
    ///
    /// # Errors
    ///
    /// Those of the file system.
    pub fn open() -> io::Result<Self> {
        File::open("/dev/urandom").map(Self)
    }
}

impl Entropy for System {
    fn fill(&mut self, out: &mut [u8]) -> Result<(), CryptoError> {
        self.0.read_exact(out).map_err(|_| CryptoError::Entropy)
    }
}

/// A client with its socket.
#[derive(Debug)]
pub struct Connection<V: Verifier> {
    /// The engine.
    pub client: Client<Tiny<System>, V, Buffers>,
    socket: UdpSocket,
    epoch: Instant,
}

impl<V: Verifier> Connection<V> {
    /// Begins a connection to `server`.
    ///
    /// # Errors
    ///
    /// Those of the socket, and [`ErrorKind::InvalidInput`] for a
    /// configuration that the engine refuses.
    pub fn begin(server: SocketAddr, verifier: V, config: &Config<'_>) -> io::Result<Self> {
        let any: SocketAddr = if server.is_ipv4() {
            ([0, 0, 0, 0], 0).into()
        } else {
            ([0_u16; 8], 0).into()
        };
        let socket = UdpSocket::bind(any)?;
        socket.connect(server)?;
        let mut client = Client::new(Tiny::new(System::open()?), verifier, Buffers::new());
        client
            .connect(0, config)
            .map_err(|_| io::Error::from(ErrorKind::InvalidInput))?;
        Ok(Self {
            client,
            socket,
            epoch: Instant::now(),
        })
    }

    /// Milliseconds of the connection's clock.
    pub fn now(&self) -> u32 {
        // It wraps around after 49 days, as the engine allows.
        let millis = self.epoch.elapsed().as_millis() & u128::from(u32::MAX);
        u32::try_from(millis).unwrap_or(0)
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
            let _ = self.socket.send(datagram);
        }
        if self.client.state() == State::Closed {
            return Err(self.client.error().unwrap_or(Error::ClosedLocally));
        }
        let wait = self.client.timeout(self.now()).map(u64::from);
        let wait = wait.map_or(STEP, Duration::from_millis);
        let wait = wait.clamp(Duration::from_millis(1), STEP);
        if self.socket.set_read_timeout(Some(wait)).is_ok()
            && let Ok(len) = self.socket.recv(&mut frame)
            && let Some(datagram) = frame.get_mut(..len)
        {
            self.client.receive(self.now(), datagram);
        }
        Ok(())
    }
}
