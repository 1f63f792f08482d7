//! One run: a client that sends on two streams and reads the echo, byte for
//! byte.

use dunlin_mini_crypto::Host;
use dunlin_quic_mini::{Buffers, Client, Config, Error, Pinned, Resume, State, StreamId, Verifier};

use quinn_proto::ConnectionError;

use super::server::{ALPN, Habits, Identity, NAME, Server, tls};
use super::{Faults, Link, Rng, To, crypto};

/// The client of a run.
pub(crate) type Tiny<V> = Client<Host<Rng>, V, Buffers>;

/// Both ends and the network between them.
pub(crate) struct World<V: Verifier> {
    pub(crate) client: Tiny<V>,
    verifier: V,
    pub(crate) server: Server,
    pub(crate) link: Link,
    /// Milliseconds.
    pub(crate) now: u64,
    /// The client's clock starts anywhere.
    offset: u32,
    pub(crate) port: u16,
    /// Datagrams that the client sent.
    pub(crate) sent: u64,
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Delivered,
    Failed(Error),
}

/// What is configured in all runs.
pub(crate) fn config() -> Config<'static> {
    Config {
        name: NAME,
        alpn: ALPN,
        idle_ms: 30_000,
        max_datagram: 1472,
        token: &[],
        resume: None,
    }
}

impl<V: Verifier + Clone> World<V> {
    pub(crate) fn new(verifier: V, server: Server, faults: Faults, seed: u64) -> Self {
        Self {
            client: Client::new(crypto(seed), verifier.clone(), Buffers::new()),
            verifier,
            server,
            link: Link::new(faults, seed),
            now: 1000,
            offset: u32::MAX - 4000,
            port: 4000,
            sent: 0,
        }
    }

    /// Another client, with nothing on the way.
    pub(crate) fn renew(&mut self, seed: u64) {
        self.client = Client::new(crypto(seed ^ 0x4e77), self.verifier.clone(), Buffers::new());
    }

    /// The client's time.
    pub(crate) fn time(&self) -> u32 {
        u32::try_from(self.now & 0xffff_ffff)
            .unwrap()
            .wrapping_add(self.offset)
    }

    /// Begins with a ticket, or without.
    pub(crate) fn connect(&mut self, resume: Option<Resume<'_>>) {
        let config = Config { resume, ..config() };
        self.client.connect(self.time(), &config).unwrap();
    }

    /// Lets the client send all it has.
    pub(crate) fn flush(&mut self) {
        let mut out = [0; 1200];
        for _ in 0..100 {
            let len = self.client.transmit(self.time(), &mut out);
            if len == 0 {
                return;
            }
            self.sent += 1;
            self.link.send(self.now, To::Server, self.port, &out[..len]);
        }
        panic!("a hundred datagrams at once");
    }

    /// Goes to the next thing that happens. Whether there is one.
    pub(crate) fn step(&mut self) -> bool {
        self.flush();
        self.server.drive(self.now, &mut self.link);
        let client = self.client.timeout(self.time());
        let client = client.map(|ms| self.now + u64::from(ms));
        // A timer that is due after it was served is one of the pacer, which
        // counts finer than a millisecond.
        let server = self.server.next_at().map(|at| at.max(self.now + 1));
        let next = [client, server, self.link.next_at()];
        let Some(next) = next.into_iter().flatten().min() else {
            return false;
        };
        self.now = self.now.max(next);
        while let Some((to, port, mut data)) = self.link.arrived(self.now) {
            match to {
                To::Server => self.server.receive(self.now, port, &data, &mut self.link),
                To::Client if port == self.port => {
                    let time = self.time();
                    self.client.receive(time, &mut data);
                    self.flush();
                }
                To::Client => {}
            }
        }
        true
    }

    /// Steps until something holds, for at most five minutes of virtual time.
    pub(crate) fn until(&mut self, mut holds: impl FnMut(&mut Self) -> bool) -> bool {
        let end = self.now + 300_000;
        let (mut at, mut turns) = (0, 0);
        while self.now < end {
            turns = if at == self.now { turns + 1 } else { 0 };
            at = self.now;
            assert!(
                turns < 1000,
                "time stands still: client in {:?}, server in {:?} of {}",
                self.client.timeout(self.time()),
                self.server.next_at(),
                self.now
            );
            if holds(self) {
                return true;
            }
            if !self.step() {
                return holds(self);
            }
        }
        false
    }

    /// Whether the connection can be used or has failed.
    pub(crate) fn handshake(&mut self) -> Result<(), Error> {
        self.until(|world| world.client.is_confirmed() || world.client.error().is_some());
        if let Some(error) = self.client.error() {
            eprintln!("{error:?}, code {:#x}", self.client.peer_code());
            return Err(error);
        }
        Ok(())
    }

    /// Sends `len` bytes on each of two streams and reads them back.
    pub(crate) fn echo(&mut self, len: usize) -> Outcome {
        let mut streams: [Option<Echo>; 2] = [None, None];
        let done = self.until(|world| {
            if world.client.error().is_some() {
                return true;
            }
            if world.client.is_usable() {
                for (i, stream) in streams.iter_mut().enumerate() {
                    if stream.is_none()
                        && let Ok(id) = world.client.open()
                    {
                        *stream = Some(Echo::new(id, i));
                    }
                    if let Some(stream) = stream {
                        stream.step(&mut world.client, len);
                    }
                }
            }
            streams
                .iter()
                .all(|stream| stream.as_ref().is_some_and(|s| s.done))
        });
        if let Some(error) = self.client.error() {
            return Outcome::Failed(error);
        }
        assert!(
            done,
            "neither delivered nor failed: {:?}",
            self.client.state()
        );
        Outcome::Delivered
    }

    /// Closes and waits until the client has forgotten.
    pub(crate) fn close(&mut self) {
        let time = self.time();
        self.client.close(time, 7);
        assert!(self.until(|world| world.client.state() == State::Closed));
    }
}

/// One stream of a run.
struct Echo {
    id: StreamId,
    salt: usize,
    written: usize,
    finished: bool,
    read: usize,
    done: bool,
}

/// Byte `at` of what is sent.
fn byte(salt: usize, at: usize) -> u8 {
    (at.wrapping_mul(31) ^ (at >> 8).wrapping_mul(7) ^ salt.wrapping_mul(101)).to_le_bytes()[0]
}

impl Echo {
    fn new(id: StreamId, salt: usize) -> Self {
        Self {
            id,
            salt,
            written: 0,
            finished: false,
            read: 0,
            done: false,
        }
    }

    fn step<V: Verifier>(&mut self, client: &mut Tiny<V>, len: usize) {
        if self.done {
            return;
        }
        while self.written < len {
            let to = len.min(self.written + 100);
            let chunk: Vec<u8> = (self.written..to).map(|at| byte(self.salt, at)).collect();
            let n = client.write(self.id, &chunk).unwrap();
            self.written += n;
            if n == 0 {
                break;
            }
        }
        if self.written == len && !self.finished {
            client.finish(self.id).unwrap();
            self.finished = true;
        }
        let (data, fin) = client.received(self.id).unwrap();
        for (i, &got) in data.iter().enumerate() {
            assert_eq!(got, byte(self.salt, self.read + i), "a wrong byte");
        }
        let n = data.len();
        self.read += n;
        assert!(self.read <= len, "more bytes than were sent");
        client.consume(self.id, n);
        if fin {
            assert_eq!(self.read, len, "an end before the end");
            self.done = true;
        }
    }
}

/// One run with faults at random, and a server that is as strict or slow as
/// the seed says. Anything but an echo or a timeout is a panic.
pub(crate) fn faulty(identity: &Identity, seed: u64) -> Result<u64, Error> {
    let mut rng = Rng::new(seed);
    let faults = Faults::random(&mut rng);
    let habits = Habits {
        retry: rng.chance(200),
        window: rng.chance(300).then_some(700),
        ..Habits::default()
    };
    let keys = [identity.point];
    let server = Server::new(tls(identity, habits), habits, seed);
    let mut world = World::new(Pinned::new(&keys), server, faults, seed);
    world.connect(None);
    let len = usize::try_from(rng.below(6000)).unwrap();
    let outcome = world.echo(len);
    match outcome {
        Outcome::Delivered => {
            world.close();
            Ok(world.now)
        }
        Outcome::Failed(error) => {
            let lost = &world.server.lost;
            // A server that gave up first says so when asked again.
            let gone = lost.contains(&ConnectionError::TimedOut);
            let timeout = error == Error::IdleTimeout || gone && error == Error::StatelessReset;
            // A flipped bit can make a Retry of a packet, for which quinn-proto
            // closes before it could know that it was not sent.
            let flipped = format!("{lost:?}").contains("client sent Retry");
            assert!(
                timeout || flipped,
                "seed {seed}: {error:?} {faults:?} {habits:?} {lost:?}"
            );
            Err(error)
        }
    }
}
