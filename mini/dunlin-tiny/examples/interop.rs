//! One scenario of the small client against a server that echoes streams, over
//! sockets. Says `ok` and what was measured, or why not.

#![allow(clippy::print_stdout, clippy::print_stderr)]

#[path = "../sim/plain.rs"]
mod plain;

use core::net::SocketAddr;
use core::time::Duration;
use std::net::UdpSocket;
use std::process::ExitCode;
use std::time::Instant;

use dunlin_mini_crypto::{Host, Suite, Tiny};
use dunlin_quic_mini::{
    Buffers, Client, Config, Crypto, Error, Pinned, Point, Resume, State, StreamId,
};
use dunlin_tiny::udp::System;
use plain::Plain;

const USAGE: &str = "usage: interop PORT KEY SCENARIO
  KEY       the server's public key: 65 bytes of a P-256 point in hexadecimal
  SCENARIO  handshake, retry, resume, early, group, chacha, keys, loss, rebind, migrate
  The server is on 127.0.0.1, speaks the protocol \"echo\", and sends back what
  arrives on a stream.";

/// Longest that one scenario may take.
const LIMIT: Duration = Duration::from_secs(60);
/// Datagrams in 1000 that are dropped, each way, by the scenario of losses.
const LOSS: u32 = 100;
/// Connections of the scenario of losses.
const LOSSY: u32 = 10;

type Result<T> = core::result::Result<T, String>;
type Engine<'k, C> = Client<C, Pinned<'k>, Buffers>;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let parsed = match words.as_slice() {
        [port, key, scenario] => port
            .parse()
            .ok()
            .zip(point(key))
            .map(|(port, key)| (port, key, scenario)),
        _ => None,
    };
    let Some((port, key, scenario)) = parsed else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    match run(address, &[key], scenario) {
        Ok(said) => {
            println!("ok {said}");
            ExitCode::SUCCESS
        }
        Err(reason) => {
            println!("failed {reason}");
            ExitCode::FAILURE
        }
    }
}

/// A point in hexadecimal.
fn point(text: &str) -> Option<Point> {
    let mut point = [0; 65];
    for (i, byte) in point.iter_mut().enumerate() {
        *byte = u8::from_str_radix(text.get(2 * i..2 * i + 2)?, 16).ok()?;
    }
    (text.len() == 130).then_some(point)
}

fn run(address: SocketAddr, keys: &[Point], scenario: &str) -> Result<String> {
    let mut first = Run::new(tiny(), address, keys)?;
    match scenario {
        "handshake" => {
            first.connect(None)?;
            first.echo(5000)?;
            first.close()?;
            // The other provider has to agree with the same server.
            let mut second = Run::new(Host::new(System), address, keys)?;
            second.connect(None)?;
            second.echo(5000)?;
            second.close()?;
            Ok(format!("rtt {} ms", second.client.rtt_ms()))
        }
        "retry" => {
            first.connect(None)?;
            first.echo(5000)?;
            match first.wire.retries {
                0 => Err("the server sent no Retry".to_owned()),
                n => Ok(format!("retries {n}")),
            }
        }
        "resume" | "early" | "group" => resume(first, address, keys, scenario),
        "chacha" => chacha(address, keys),
        "keys" => {
            first.connect(None)?;
            for _ in 0..4 {
                first.echo(3000)?;
                first.until("a confirmed phase", |run| run.client.update_keys().is_ok())?;
            }
            first.echo(3000)?;
            first.close()?;
            Ok("updates 4".to_owned())
        }
        "loss" => losses(address, keys),
        "rebind" => {
            first.connect(None)?;
            for _ in 0..3 {
                first.echo(3000)?;
                first.wire.rebind()?;
            }
            first.echo(3000)?;
            first.close()?;
            Ok("moves 3".to_owned())
        }
        "migrate" => {
            first.connect(None)?;
            for _ in 0..3 {
                first.echo(3000)?;
                first.until("another id", |run| run.client.migrate().is_ok())?;
                first.wire.rebind()?;
                first.echo(3000)?;
                first.until("a valid path", |run| run.client.is_path_valid())?;
            }
            first.close()?;
            Ok("moves 3".to_owned())
        }
        _ => Err(format!("no scenario {scenario}")),
    }
}

/// Both suites are offered, ChaCha20-Poly1305 first.
fn chacha(address: SocketAddr, keys: &[Point]) -> Result<String> {
    let mut run = Run::new(Tiny::new(System), address, keys)?;
    run.connect(None)?;
    run.echo(5000)?;
    run.until("a confirmed phase", |run| run.client.update_keys().is_ok())?;
    run.echo(3000)?;
    run.close()?;
    match run.client.suite() {
        Suite::ChaCha20Poly1305 => Ok(String::new()),
        suite => Err(format!("{suite:?}")),
    }
}

/// The provider as the default image has it.
const fn tiny() -> Plain<Tiny<System>> {
    Plain(Tiny::new(System))
}

fn resume<C: Crypto>(
    mut first: Run<'_, C>,
    address: SocketAddr,
    keys: &[Point],
    scenario: &str,
) -> Result<String> {
    // Early data that is rejected by a request for another group comes again.
    let (early, group) = (scenario != "resume", scenario == "group");
    first.connect(None)?;
    first.echo(1000)?;
    first.until("a ticket", |run| run.client.ticket().is_some())?;
    let ticket = first.client.ticket().unwrap_or_default().to_vec();
    first.close()?;
    let mut second = Run::new(tiny(), address, keys)?;
    let resume = Resume {
        ticket: &ticket,
        age_ms: 10,
        early,
    };
    second.begin(Some(resume))?;
    if early && !second.client.is_usable() {
        return Err("the ticket allows no early data".to_owned());
    }
    second.echo(1000)?;
    second.until("the handshake", |run| run.client.is_confirmed())?;
    if !second.client.is_resumed() {
        return Err("not resumed".to_owned());
    }
    if group != second.client.was_asked_again() {
        return Err("no HelloRetryRequest, or one too many".to_owned());
    }
    if early && !group && !second.client.took_early_data() {
        return Err("early data refused".to_owned());
    }
    second.close()?;
    Ok(format!("ticket {} bytes", ticket.len()))
}

fn losses(address: SocketAddr, keys: &[Point]) -> Result<String> {
    let (mut sent, mut dropped, mut longest) = (0, 0, 0);
    for seed in 1..=LOSSY {
        let mut run = Run::new(tiny(), address, keys)?;
        run.wire.loss = LOSS;
        run.wire.rng = seed;
        run.connect(None)?;
        run.echo(20_000)?;
        run.wire.loss = 0;
        run.close()?;
        sent += run.wire.seen;
        dropped += run.wire.dropped;
        longest = longest.max(run.epoch.elapsed().as_millis());
    }
    Ok(format!(
        "connections {LOSSY}, datagrams {sent}, dropped {dropped}, longest {longest} ms"
    ))
}

/// A socket that loses datagrams.
struct Wire {
    socket: UdpSocket,
    server: SocketAddr,
    loss: u32,
    rng: u32,
    seen: u32,
    dropped: u32,
    retries: u32,
}

fn socket(server: SocketAddr) -> std::io::Result<UdpSocket> {
    let mut socket = UdpSocket::bind("127.0.0.1:0")?;
    // Some servers follow a client only within the dynamic ports of RFC 6335;
    // Linux begins below them.
    while socket.local_addr()?.port() < 49_152 {
        socket = UdpSocket::bind("127.0.0.1:0")?;
    }
    socket.connect(server)?;
    Ok(socket)
}

impl Wire {
    /// Goes on from another port.
    fn rebind(&mut self) -> Result<()> {
        self.socket = socket(self.server).map_err(|error| error.to_string())?;
        Ok(())
    }

    fn loses(&mut self) -> bool {
        // xorshift32
        self.rng ^= self.rng << 13;
        self.rng ^= self.rng >> 17;
        self.rng ^= self.rng << 5;
        self.seen += 1;
        let lost = self.rng % 1000 < self.loss;
        self.dropped += u32::from(lost);
        lost
    }
}

/// A client with its socket and clock.
struct Run<'k, C: Crypto> {
    client: Engine<'k, C>,
    wire: Wire,
    epoch: Instant,
}

impl<'k, C: Crypto> Run<'k, C> {
    fn new(crypto: C, server: SocketAddr, keys: &'k [Point]) -> Result<Self> {
        Ok(Self {
            client: Client::new(crypto, Pinned::new(keys), Buffers::new()),
            wire: Wire {
                socket: socket(server).map_err(|error| error.to_string())?,
                server,
                loss: 0,
                rng: 1,
                seen: 0,
                dropped: 0,
                retries: 0,
            },
            epoch: Instant::now(),
        })
    }

    fn now(&self) -> u32 {
        u32::try_from(self.epoch.elapsed().as_millis()).unwrap_or(u32::MAX)
    }

    fn begin(&mut self, resume: Option<Resume<'_>>) -> Result<()> {
        let config = Config {
            name: b"localhost",
            alpn: b"echo",
            idle_ms: 20_000,
            max_datagram: 1472,
            token: &[],
            resume,
        };
        self.client.connect(self.now(), &config).map_err(text)
    }

    fn connect(&mut self, resume: Option<Resume<'_>>) -> Result<()> {
        self.begin(resume)?;
        self.until("the handshake", |run| run.client.is_confirmed())
    }

    /// Steps until something holds, or the connection fails.
    fn until(&mut self, what: &str, mut holds: impl FnMut(&mut Self) -> bool) -> Result<()> {
        while !holds(self) {
            if let Some(error) = self.client.error() {
                let code = self.client.peer_code();
                return Err(format!("{error:?}, code {code:#x}, before {what}"));
            }
            if self.epoch.elapsed() > LIMIT {
                return Err(format!("{what} takes too long"));
            }
            self.step();
        }
        Ok(())
    }

    fn step(&mut self) {
        let mut frame = [0; 1472];
        loop {
            let len = self.client.transmit(self.now(), &mut frame);
            let Some(datagram) = frame.get(..len).filter(|_| len > 0) else {
                break;
            };
            if !self.wire.loses() {
                let _ = self.wire.socket.send(datagram);
            }
        }
        let wait = self.client.timeout(self.now()).unwrap_or(100);
        let wait = Duration::from_millis(u64::from(wait.clamp(1, 100)));
        let _ = self.wire.socket.set_read_timeout(Some(wait));
        if let Ok(len) = self.wire.socket.recv(&mut frame)
            && let Some(datagram) = frame.get_mut(..len)
        {
            let retry = datagram.first().is_some_and(|first| first & 0xf0 == 0xf0);
            self.wire.retries += u32::from(retry);
            if !self.wire.loses() {
                self.client.receive(self.now(), datagram);
            }
        }
    }

    /// Sends bytes on each of two streams, and reads them back.
    fn echo(&mut self, len: usize) -> Result<()> {
        let mut streams = [Echo::new(0), Echo::new(1)];
        let mut failed = None;
        self.until("the echo", |run| {
            for stream in &mut streams {
                if let Err(reason) = stream.step(&mut run.client, len) {
                    failed = Some(reason);
                }
            }
            failed.is_some() || streams.iter().all(|stream| stream.done)
        })?;
        failed.map_or(Ok(()), Err)
    }

    fn close(&mut self) -> Result<()> {
        let now = self.now();
        self.client.close(now, 0);
        self.step();
        match self.client.state() {
            State::Closing | State::Closed => Ok(()),
            state => Err(format!("{state:?} after the end")),
        }
    }
}

fn text(error: Error) -> String {
    format!("{error:?}")
}

/// One stream.
struct Echo {
    id: Option<StreamId>,
    salt: usize,
    written: usize,
    read: usize,
    finished: bool,
    done: bool,
}

impl Echo {
    const fn new(salt: usize) -> Self {
        Self {
            id: None,
            salt,
            written: 0,
            read: 0,
            finished: false,
            done: false,
        }
    }

    fn byte(&self, at: usize) -> u8 {
        (at.wrapping_mul(31) ^ (at >> 8).wrapping_mul(7) ^ self.salt).to_le_bytes()[0]
    }

    fn step<C: Crypto>(&mut self, client: &mut Engine<'_, C>, len: usize) -> Result<()> {
        if self.done {
            return Ok(());
        }
        let Some(id) = self.id else {
            self.id = client.open().ok();
            return Ok(());
        };
        if self.written < len {
            let to = len.min(self.written + 1000);
            let chunk: Vec<u8> = (self.written..to).map(|at| self.byte(at)).collect();
            self.written += client.write(id, &chunk).map_err(text)?;
        }
        if self.written == len && !self.finished {
            client.finish(id).map_err(text)?;
            self.finished = true;
        }
        let (data, end) = client.received(id).map_err(text)?;
        for (i, &byte) in data.iter().enumerate() {
            if byte != self.byte(self.read + i) {
                return Err("a wrong byte".to_owned());
            }
        }
        let n = data.len();
        self.read += n;
        self.done = end;
        client.consume(id, n);
        if end && self.read != len {
            return Err(format!("{} of {len} bytes", self.read));
        }
        Ok(())
    }
}
