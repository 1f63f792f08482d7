//! What a byte and a small message cost over a QUIC socket, over TCP with rustls and
//! over quinn, in time of the processor of both ends together, on loopback, and how
//! they compare in this run.
//!
//! ```text
//! cargo run --release -p dunlin-socket --example cost [megabytes] [messages]
//! ```

#![allow(clippy::print_stdout, reason = "an example shows what it does")]

use core::error::Error;
use core::time::Duration;
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::Instant;

use dunlin_socket::{ListenOptions, Options, TlsOptions};
use quinn::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection};
use rustls::{StreamOwned, crypto::aws_lc_rs};
use tokio::runtime::Handle;

type Failure = Box<dyn Error + Send + Sync>;

/// Bytes of a small message, which goes there and back.
const MESSAGE_BYTES: usize = 64;
/// Bytes of one write of the bulk.
const BLOCK_BYTES: usize = 64 << 10;
/// Ticks of `/proc/self/stat` in a second, on Linux.
const TICKS: u64 = 100;

fn main() -> Result<(), Failure> {
    let mut args = std::env::args().skip(1);
    let mut number = |default: usize| args.next().map_or(Ok(default), |arg| arg.parse());
    let (megabytes, messages) = (number(500)?, number(50_000)?);
    let issued = rcgen::generate_simple_self_signed(vec!["localhost".into()])?;
    let pem = (issued.cert.pem(), issued.signing_key.serialize_pem());

    let listener = ListenOptions::pem(pem.0.clone(), pem.1.clone()).bind("127.0.0.1:0")?;
    let server = ("localhost", listener.local_addr().port());
    let options = Options::new().tls(TlsOptions::new().ca_pem(pem.0.clone()));
    let ours = measure("QUIC socket", megabytes, messages, || {
        let client = options.connect(server)?;
        Ok((client, listener.accept()?.0))
    })?;

    let (client_tls, server_tls) = tls(&pem.0, &pem.1)?;
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let addr = listener.local_addr()?;
    let tls = measure("TCP with rustls", megabytes, messages, || {
        let client = TcpStream::connect(addr)?;
        let (accepted, _) = listener.accept()?;
        client.set_nodelay(true)?;
        accepted.set_nodelay(true)?;
        let name = ServerName::try_from("localhost")?;
        let ours = ClientConnection::new(Arc::clone(&client_tls), name)?;
        let theirs = ServerConnection::new(Arc::clone(&server_tls))?;
        Ok((
            StreamOwned::new(ours, client),
            StreamOwned::new(theirs, accepted),
        ))
    })?;

    let quinn = Quinn::start(&client_tls, &server_tls)?;
    let quinn = measure("quinn", megabytes, messages, || quinn.connect())?;
    for (name, other) in [("TCP with rustls", tls), ("quinn", quinn)] {
        let byte = ours.nanos_a_byte / other.nanos_a_byte;
        let message = ours.micros_a_message / other.micros_a_message;
        println!("QUIC socket beside {name}: {byte:.2} a byte, {message:.2} a message");
    }
    Ok(())
}

/// What a pattern cost.
#[derive(Clone, Copy)]
struct Cost {
    nanos_a_byte: f64,
    micros_a_message: f64,
}

/// quinn with a thread for each end, as the socket has.
struct Quinn {
    client: quinn::Endpoint,
    server: quinn::Endpoint,
    drivers: [Handle; 2],
}

impl Quinn {
    fn start(client: &Arc<ClientConfig>, server: &Arc<ServerConfig>) -> Result<Self, Failure> {
        let drivers = [driver()?, driver()?];
        let mut client = (**client).clone();
        let mut server = (**server).clone();
        client.alpn_protocols = vec![b"cost".to_vec()];
        server.alpn_protocols = vec![b"cost".to_vec()];
        let client = QuicClientConfig::try_from(client)?;
        let server = QuicServerConfig::try_from(server)?;
        let any = "127.0.0.1:0".parse()?;
        let inside = drivers[0].enter();
        let mut dialling = quinn::Endpoint::client(any)?;
        drop(inside);
        dialling.set_default_client_config(quinn::ClientConfig::new(Arc::new(client)));
        let inside = drivers[1].enter();
        let config = quinn::ServerConfig::with_crypto(Arc::new(server));
        let server = quinn::Endpoint::server(config, any)?;
        drop(inside);
        let client = dialling;
        Ok(Self {
            client,
            server,
            drivers,
        })
    }

    fn connect(&self) -> Result<(Blocking, Blocking), Failure> {
        let [ours, theirs] = self.drivers.clone();
        let inside = ours.enter();
        let to = self.server.local_addr()?;
        let connecting = self.client.connect(to, "localhost")?;
        drop(inside);
        let server = self.server.clone();
        // A stream shows with its first byte.
        let accepting = thread::spawn(move || {
            let accepted = theirs.block_on(async {
                let incoming = server.accept().await.ok_or("closed")?;
                let connection = incoming.await?;
                let (send, mut recv) = connection.accept_bi().await?;
                recv.read_exact(&mut [0]).await?;
                Ok::<_, Failure>((send, recv, connection))
            });
            accepted.map(|stream| Blocking::new(theirs, stream))
        });
        let stream = ours.block_on(async {
            let connection = connecting.await?;
            let (mut send, recv) = connection.open_bi().await?;
            send.write_all(&[0]).await?;
            Ok::<_, Failure>((send, recv, connection))
        })?;
        let accepted = accepting.join().map_err(|_| "the server panicked")??;
        Ok((Blocking::new(ours, stream), accepted))
    }
}

/// A runtime on a thread of its own.
fn driver() -> Result<Handle, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let handle = runtime.handle().clone();
    thread::spawn(move || runtime.block_on(core::future::pending::<()>()));
    Ok(handle)
}

/// A stream of quinn for threads that block.
struct Blocking {
    driver: Handle,
    send: quinn::SendStream,
    recv: quinn::RecvStream,
    _connection: quinn::Connection,
}

impl Blocking {
    fn new(
        driver: Handle,
        (send, recv, connection): (quinn::SendStream, quinn::RecvStream, quinn::Connection),
    ) -> Self {
        Self {
            driver,
            send,
            recv,
            _connection: connection,
        }
    }
}

impl Read for Blocking {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.driver.block_on(self.recv.read(into));
        Ok(read.map_err(io::Error::other)?.unwrap_or(0))
    }
}

impl Write for Blocking {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.driver.block_on(self.send.write(bytes));
        written.map_err(io::Error::other)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Blocking {
    /// What was written is read before the connection closes.
    fn drop(&mut self) {
        if self.send.finish().is_ok() {
            let _ = self.driver.block_on(self.send.stopped());
        }
    }
}

fn tls(cert: &str, key: &str) -> Result<(Arc<ClientConfig>, Arc<ServerConfig>), Failure> {
    let cert = CertificateDer::from_pem_slice(cert.as_bytes())?;
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes())?;
    let provider = Arc::new(aws_lc_rs::default_provider());
    let mut roots = RootCertStore::empty();
    roots.add(cert.clone())?;
    let client = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    let server = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(vec![cert], key)?;
    Ok((Arc::new(client), Arc::new(server)))
}

/// Measures both patterns, each on a stream of its own.
fn measure<C: Read + Write, S: Read + Write + Send + 'static>(
    name: &str,
    megabytes: usize,
    messages: usize,
    mut connect: impl FnMut() -> Result<(C, S), Failure>,
) -> Result<Cost, Failure> {
    let (mut client, server) = connect()?;
    let bytes = megabytes << 20;
    let reader = thread::spawn(move || read_all(server, bytes));
    let (cpu, time) = timed(|| {
        let block = [7; BLOCK_BYTES];
        for _ in 0..bytes / BLOCK_BYTES {
            client.write_all(&block)?;
        }
        client.flush()?;
        // The reader says when it has everything.
        client.read_exact(&mut [0])?;
        Ok(())
    })?;
    reader.join().map_err(|_| "the reader panicked")??;
    let nanos = cpu.as_nanos() as f64 / bytes as f64;
    let rate = bytes as f64 / time.as_secs_f64() / f64::from(1 << 20);
    println!("{name}: {nanos:.2} ns of processor a byte, {rate:.0} MiB/s");

    let (mut client, server) = connect()?;
    let echo = thread::spawn(move || echo(server, messages));
    let (cpu, time) = timed(|| {
        let mut message = [7; MESSAGE_BYTES];
        for _ in 0..messages {
            client.write_all(&message)?;
            client.flush()?;
            client.read_exact(&mut message)?;
        }
        Ok(())
    })?;
    echo.join().map_err(|_| "the echo panicked")??;
    let each = |time: Duration| time.as_secs_f64() * 1e6 / messages as f64;
    let (cpu, time) = (each(cpu), each(time));
    println!("{name}: {cpu:.1} us of processor a message there and back, {time:.1} us");
    Ok(Cost {
        nanos_a_byte: nanos,
        micros_a_message: cpu,
    })
}

fn read_all(mut stream: impl Read + Write, bytes: usize) -> io::Result<()> {
    let mut into = vec![0; BLOCK_BYTES];
    let mut left = bytes / BLOCK_BYTES * BLOCK_BYTES;
    while left > 0 {
        left = left.saturating_sub(stream.read(&mut into)?);
    }
    stream.write_all(&[1])?;
    stream.flush()
}

fn echo(mut stream: impl Read + Write, messages: usize) -> io::Result<()> {
    let mut message = [0; MESSAGE_BYTES];
    for _ in 0..messages {
        stream.read_exact(&mut message)?;
        stream.write_all(&message)?;
        stream.flush()?;
    }
    Ok(())
}

/// Time of the processor and of the clock that something takes.
fn timed(run: impl FnOnce() -> io::Result<()>) -> Result<(Duration, Duration), Failure> {
    let (cpu, began) = (processor_time()?, Instant::now());
    run()?;
    Ok((processor_time()?.saturating_sub(cpu), began.elapsed()))
}

/// Time of the processor that this process has had (Linux).
fn processor_time() -> Result<Duration, Failure> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    let (_, fields) = stat.rsplit_once(')').ok_or("no fields")?;
    let mut fields = fields.split_whitespace().skip(11);
    let mut next = || fields.next().map_or(Ok(0), str::parse::<u64>);
    let ticks = next()? + next()?;
    Ok(Duration::from_millis(ticks * 1000 / TICKS))
}
