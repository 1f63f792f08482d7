//! A relay of datagrams that changes its port towards the server on demand, as
//! a NAT does that forgot. Knows no QUIC.

use core::net::{Ipv4Addr, SocketAddr};
use core::time::Duration;
use std::io;
use std::net::UdpSocket;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

/// How often its threads look whether they are still needed.
const LOOK: Duration = Duration::from_millis(100);
const DATAGRAM_BYTES_MAX: usize = 65_536;

/// One client's way to a server.
pub(crate) struct Relay {
    port: u16,
    shared: Arc<Shared>,
}

struct Shared {
    front: UdpSocket,
    server: SocketAddr,
    state: Mutex<State>,
}

struct State {
    client: Option<SocketAddr>,
    /// The socket towards the server; `None` swallows what comes.
    back: Option<Arc<UdpSocket>>,
    ended: bool,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn any_port() -> io::Result<UdpSocket> {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    socket.set_read_timeout(Some(LOOK))?;
    Ok(socket)
}

impl Relay {
    /// A relay to a port of this machine.
    pub(crate) fn to(port: u16) -> io::Result<Self> {
        let relay = Self::blackhole(port)?;
        relay.rebind()?;
        Ok(relay)
    }

    /// One that swallows everything, until [`Relay::rebind`].
    pub(crate) fn blackhole(port: u16) -> io::Result<Self> {
        let front = any_port()?;
        let relay = Self {
            port: front.local_addr()?.port(),
            shared: Arc::new(Shared {
                front,
                server: (Ipv4Addr::LOCALHOST, port).into(),
                state: Mutex::new(State {
                    client: None,
                    back: None,
                    ended: false,
                }),
            }),
        };
        let shared = Arc::clone(&relay.shared);
        thread::spawn(move || forth(&shared));
        Ok(relay)
    }

    /// Where the client finds it.
    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Goes on from another port.
    pub(crate) fn rebind(&self) -> io::Result<()> {
        let back = Arc::new(any_port()?);
        self.shared.lock().back = Some(Arc::clone(&back));
        let shared = Arc::clone(&self.shared);
        thread::spawn(move || back_to_client(&shared, &back));
        Ok(())
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.shared.lock().ended = true;
    }
}

/// From the client to the server.
fn forth(shared: &Shared) {
    let mut buffer = vec![0; DATAGRAM_BYTES_MAX];
    loop {
        let received = shared.front.recv_from(&mut buffer);
        let mut state = shared.lock();
        if state.ended {
            return;
        }
        if let Ok((len, client)) = received {
            state.client = Some(client);
            if let (Some(back), Some(datagram)) = (&state.back, buffer.get(..len)) {
                // A datagram may be lost.
                let _ = back.send_to(datagram, shared.server);
            }
        }
    }
}

/// From the server to the client, on one port, as long as that is the one.
fn back_to_client(shared: &Shared, back: &Arc<UdpSocket>) {
    let mut buffer = vec![0; DATAGRAM_BYTES_MAX];
    loop {
        let received = back.recv(&mut buffer);
        let state = shared.lock();
        let is_current = state.back.as_ref().is_some_and(|b| Arc::ptr_eq(b, back));
        if state.ended || !is_current {
            return;
        }
        if let (Ok(len), Some(client)) = (received, state.client) {
            let datagram = buffer.get(..len).unwrap_or_default();
            let _ = shared.front.send_to(datagram, client);
        }
    }
}
