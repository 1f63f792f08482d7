//! What a byte and a small message cost over a QUIC socket and over TCP with rustls,
//! in time of the processor of both ends together, on loopback.
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
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection};
use rustls::{StreamOwned, crypto::aws_lc_rs};

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
    measure("QUIC", megabytes, messages, || {
        let client = options.connect(server)?;
        Ok((client, listener.accept()?.0))
    })?;

    let (client_tls, server_tls) = tls(&pem.0, &pem.1)?;
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let addr = listener.local_addr()?;
    measure("TLS", megabytes, messages, || {
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
    Ok(())
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
) -> Result<(), Failure> {
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
    Ok(())
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
