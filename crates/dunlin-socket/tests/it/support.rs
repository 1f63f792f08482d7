//! A certificate, servers and ways between, made for each test.

use core::net::SocketAddr;
use core::sync::atomic::{AtomicBool, Ordering};
use core::time::Duration;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, UdpSocket};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

use dunlin_socket::{ListenOptions, Listener, Options, Stream, TlsOptions};

/// Longest wait for what must happen.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A server's certificate, which is its own authority.
pub(crate) struct Identity {
    pub(crate) cert: String,
    pub(crate) key: String,
}

impl Identity {
    pub(crate) fn new() -> Self {
        let issued = rcgen::generate_simple_self_signed(vec!["localhost".into()]);
        let issued = issued.expect("a certificate");
        Self {
            cert: issued.cert.pem(),
            key: issued.signing_key.serialize_pem(),
        }
    }

    pub(crate) fn listen(&self) -> ListenOptions {
        ListenOptions::pem(self.cert.clone(), self.key.clone())
    }

    pub(crate) fn options(&self) -> Options {
        let tls = TlsOptions::new().ca_pem(self.cert.clone());
        Options::new().tls(tls).connect_timeout(PATIENCE)
    }
}

/// A listener and how to reach it.
pub(crate) fn server() -> (Listener, Options, (&'static str, u16)) {
    let identity = Identity::new();
    let listener = bind(&identity.listen());
    let port = listener.local_addr().port();
    (listener, identity.options(), ("localhost", port))
}

pub(crate) fn bind(options: &ListenOptions) -> Listener {
    options.bind("127.0.0.1:0").expect("bound")
}

/// Both ends of a stream, with time limits.
pub(crate) fn pair() -> (Stream, Stream) {
    let (listener, options, server) = server();
    let client = options.connect(server).expect("connected");
    let (accepted, _) = listener.accept().expect("accepted");
    for stream in [&client, &accepted] {
        patient(stream);
    }
    (client, accepted)
}

pub(crate) fn patient(stream: &Stream) {
    stream.set_read_timeout(Some(PATIENCE)).expect("a limit");
    stream.set_write_timeout(Some(PATIENCE)).expect("a limit");
}

/// Sends back what comes on each stream of each client, until it is dropped with
/// its last client.
pub(crate) fn echo(listener: Listener) -> JoinHandle<()> {
    thread::spawn(move || {
        while let Ok((stream, _)) = listener.accept() {
            thread::spawn(move || echo_one(stream));
        }
    })
}

pub(crate) fn echo_one(mut stream: Stream) -> io::Result<u64> {
    patient(&stream);
    let mut from = stream.try_clone()?;
    let copied = io::copy(&mut from, &mut stream)?;
    stream.shutdown(Shutdown::Write)?;
    Ok(copied)
}

/// Writes all, ends, and reads the answer to its end.
pub(crate) fn ask(stream: &Stream, question: &[u8]) -> Vec<u8> {
    patient(stream);
    let mut stream = stream;
    stream.write_all(question).expect("written");
    stream.shutdown(Shutdown::Write).expect("ended");
    rest(stream)
}

pub(crate) fn rest(mut stream: &Stream) -> Vec<u8> {
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).expect("its end");
    bytes
}

pub(crate) fn kind_of<T: core::fmt::Debug>(result: io::Result<T>) -> ErrorKind {
    result.expect_err("an error").kind()
}

/// Bytes in which no part equals its neighbour.
pub(crate) fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|n| (n ^ (n >> 8) ^ (n >> 16)) as u8).collect()
}

/// A way for datagrams to a server that can be cut.
pub(crate) struct Relay {
    pub(crate) port: u16,
    cut: Arc<AtomicBool>,
}

impl Relay {
    pub(crate) fn to(server: SocketAddr) -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
        let port = socket.local_addr().expect("an address").port();
        let onwards = UdpSocket::bind("127.0.0.1:0").expect("a port");
        onwards.connect(server).expect("connected");
        let (socket, onwards) = (Arc::new(socket), Arc::new(onwards));
        let cut = Arc::new(AtomicBool::new(false));
        let client = Arc::new(Mutex::new(None));
        let (from, to) = (Arc::clone(&socket), Arc::clone(&onwards));
        let (is_cut, last) = (Arc::clone(&cut), Arc::clone(&client));
        thread::spawn(move || {
            let mut buf = [0; 2048];
            while let Ok((len, addr)) = from.recv_from(&mut buf) {
                *last.lock().expect("whole") = Some(addr);
                if !is_cut.load(Ordering::Acquire) {
                    let _ = to.send(&buf[..len]);
                }
            }
        });
        let is_cut = Arc::clone(&cut);
        thread::spawn(move || {
            let mut buf = [0; 2048];
            loop {
                let len = match onwards.recv(&mut buf) {
                    Ok(len) => len,
                    Err(error) if error.kind() == ErrorKind::ConnectionRefused => continue,
                    Err(_) => return,
                };
                let addr = *client.lock().expect("whole");
                if let (Some(addr), false) = (addr, is_cut.load(Ordering::Acquire)) {
                    let _ = socket.send_to(&buf[..len], addr);
                }
            }
        });
        Self { port, cut }
    }

    pub(crate) fn cut(&self) {
        self.cut.store(true, Ordering::Release);
    }
}
