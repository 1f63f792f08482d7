//! A UDP relay between a client and brokers that come and go, with one address
//! for the client; it records what the client sends first, and can lose it.

use core::net::SocketAddr;
use core::time::Duration;
use std::io::ErrorKind;
use std::net::UdpSocket;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

/// Pause of the relay when nothing comes.
const TICK: Duration = Duration::from_millis(1);

/// Passes UDP between one client at a time and a broker.
pub(crate) struct Relay {
    port: u16,
    state: Arc<Mutex<State>>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct State {
    server: Option<SocketAddr>,
    /// Where the client is, and the socket that stands for it.
    client: Option<(SocketAddr, Arc<UdpSocket>)>,
    /// What the client sent before the server said anything.
    first_flight: Vec<Vec<u8>>,
    answered: bool,
    /// What the client sent last.
    last: Vec<u8>,
    over: bool,
}

impl Relay {
    pub(crate) fn new() -> Self {
        let outside = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        outside.set_read_timeout(Some(TICK)).expect("a timeout");
        let port = outside.local_addr().expect("an address").port();
        let state = Arc::new(Mutex::new(State::default()));
        let ours = Arc::clone(&state);
        let thread = Some(thread::spawn(move || pass(&outside, &ours)));
        Self {
            port,
            state,
            thread,
        }
    }

    pub(crate) const fn port(&self) -> u16 {
        self.port
    }

    /// Where the broker is now.
    pub(crate) fn lead_to(&self, server: SocketAddr) {
        lock(&self.state).server = Some(server);
    }

    /// What the newest client sent before it was answered, and the socket that
    /// the broker knows it by, which the relay gives up.
    pub(crate) fn first_flight(&self) -> (Vec<Vec<u8>>, Arc<UdpSocket>) {
        let mut state = lock(&self.state);
        let (_, socket) = state.client.take().expect("a client");
        (state.first_flight.clone(), socket)
    }
}

impl Relay {
    /// What the newest client sent before it was answered.
    pub(crate) fn recorded(&self) -> Vec<Vec<u8>> {
        lock(&self.state).first_flight.clone()
    }

    /// What the newest client sent last.
    pub(crate) fn last(&self) -> Vec<u8> {
        lock(&self.state).last.clone()
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        lock(&self.state).over = true;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

fn pass(outside: &UdpSocket, state: &Mutex<State>) {
    let mut bytes = [0; 2048];
    loop {
        if lock(state).over {
            return;
        }
        if let Some((len, from)) = receive(outside, &mut bytes) {
            from_client(&mut lock(state), from, &bytes[..len]);
        }
        let client = lock(state).client.clone();
        let Some((addr, socket)) = client else {
            continue;
        };
        while let Some((len, _)) = receive(&socket, &mut bytes) {
            lock(state).answered = true;
            let _ = outside.send_to(&bytes[..len], addr);
        }
    }
}

fn from_client(state: &mut State, from: SocketAddr, datagram: &[u8]) {
    if state.client.as_ref().is_none_or(|(addr, _)| *addr != from) {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        socket.set_read_timeout(Some(TICK)).expect("a timeout");
        state.client = Some((from, Arc::new(socket)));
        state.first_flight.clear();
        state.answered = false;
    }
    state.last = datagram.to_vec();
    if !state.answered {
        state.first_flight.push(datagram.to_vec());
    }
    if let (Some((_, socket)), Some(server)) = (&state.client, state.server) {
        let _ = socket.send_to(datagram, server);
    }
}

fn receive(socket: &UdpSocket, bytes: &mut [u8]) -> Option<(usize, SocketAddr)> {
    match socket.recv_from(bytes) {
        Ok(received) => Some(received),
        Err(error) => {
            let idle = matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut);
            assert!(
                idle || error.kind() == ErrorKind::ConnectionRefused,
                "{error}"
            );
            None
        }
    }
}
