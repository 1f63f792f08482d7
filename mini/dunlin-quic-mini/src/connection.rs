//! A connection: its owners, and what wires them. Each owner has its part of the
//! state and its rules in a file below `connection/`; what arrives, what leaves
//! and what time does are there as well.

mod cids;
mod frames;
mod handshake;
mod idle;
mod life;
mod path;
mod receive;
mod space;
mod streams;
mod timers;
mod transmit;

use dunlin_mini_crypto::Crypto;

use crate::error::Error;
use crate::hello::{Hello, Ticket, trust};
use crate::keys::Keys;
use crate::memory::Memory;
use crate::params::{Own, Params};
use crate::recovery::Recovery;
use crate::tls::{Early, Tls};
use crate::verify::Verifier;
use cids::Cids;
use handshake::{Handshake, Progress};
use idle::Idle;
use life::Life;
use path::{Path, Token};
use space::{APP, INITIAL, Spaces};
use streams::Streams;

pub use life::State;
pub use path::TOKEN_MAX;
pub use streams::StreamId;
pub(crate) use streams::find;

/// What a connection is made with.
#[derive(Clone, Copy, Debug)]
pub struct Config<'a> {
    /// The server's name for its choice of a certificate; may be empty.
    pub name: &'a [u8],
    /// The application protocol, which the server must choose.
    pub alpn: &'a [u8],
    /// Milliseconds without a packet after which the connection is over. The
    /// smaller one of this and the server's counts; zero is never.
    pub idle_ms: u32,
    /// Largest datagram that the caller can receive, at least 1200.
    pub max_datagram: u16,
    /// A token of an earlier connection, or nothing.
    pub token: &'a [u8],
    /// A ticket of an earlier connection.
    pub resume: Option<Resume<'a>>,
}

/// A ticket to resume with.
#[derive(Clone, Copy, Debug)]
pub struct Resume<'a> {
    /// The bytes that [`Client::ticket`](crate::Client::ticket) gave.
    pub ticket: &'a [u8],
    /// Milliseconds since then, sleep included.
    pub age_ms: u32,
    /// Whether streams may be used before the server has answered. What is
    /// written then can be replayed by anyone who recorded it.
    pub early: bool,
}

/// A connection with its owners.
pub(crate) struct Connection<C: Crypto, V: Verifier, M: Memory> {
    pub(crate) crypto: C,
    pub(crate) verifier: V,
    pub(crate) memory: M,
    pub(crate) life: Life,
    pub(crate) handshake: Handshake<C>,
    spaces: Spaces<C>,
    pub(crate) recovery: Recovery,
    peer: Params,
    idle: Idle,
    cids: Cids,
    pub(crate) path: Path,
    pub(crate) token: Token,
    pub(crate) streams: Streams,
}

impl<C: Crypto, V: Verifier, M: Memory> Connection<C, V, M> {
    /// A connection that has not begun. It is zeros in memory, as far as the
    /// arguments are.
    pub(crate) const fn new(crypto: C, verifier: V, memory: M) -> Self {
        Self {
            crypto,
            verifier,
            memory,
            life: Life::NEW,
            handshake: Handshake::NEW,
            spaces: Spaces::NEW,
            recovery: Recovery::ZERO,
            peer: Params::ZERO,
            idle: Idle::NEW,
            cids: Cids::NEW,
            path: Path::NEW,
            token: Token::NEW,
            streams: Streams::NEW,
        }
    }

    /// Forgets the connection without a word, and clears its buffers.
    #[inline(never)]
    pub(crate) fn clear(&mut self) {
        self.life = Life::NEW;
        self.handshake.clear();
        self.spaces.clear();
        self.recovery.clear();
        self.peer = Params::NEW;
        self.idle = Idle::NEW;
        self.cids = Cids::NEW;
        self.path = Path::NEW;
        self.token.clear();
        self.streams = Streams::NEW;
        let parts = self.memory.parts();
        for secret in [parts.hello, parts.handshake, parts.send, parts.receive] {
            secret.fill(0);
        }
    }

    /// Begins the handshake of a connection that is idle.
    pub(crate) fn connect(&mut self, now: u32, config: &Config<'_>) -> Result<(), Error> {
        if self.life.state != State::Idle {
            return Err(Error::State);
        }
        self.clear();
        if !self.handshake.is_prepared() {
            self.handshake.prepare(&mut self.crypto)?;
        }
        let mut id = [0; 8];
        self.crypto.random(&mut id).map_err(|_| Error::Entropy)?;
        self.cids.begin(&id);
        let cid = &self.cids.active.cid;
        self.spaces.initial_keys(&mut self.crypto, cid);
        self.token.set(config.token);
        self.handshake.began = now;
        self.recovery.probe_from = now;
        self.idle.begin(now, config.idle_ms);
        self.greet(config)
    }

    /// Writes the ClientHello. Not inlined: the keys before it need the stack.
    #[inline(never)]
    fn greet(&mut self, config: &Config<'_>) -> Result<(), Error> {
        let (window, stream_data) = self.streams.begin(&mut self.memory);
        let resume = config.resume.filter(|_| cfg!(feature = "resumption"));
        let ticket = resume
            .as_ref()
            .and_then(|resume| Ticket::read(resume.ticket));
        let age = resume.as_ref().map_or(0, |resume| resume.age_ms);
        let trust = if cfg!(feature = "resumption") {
            trust(&mut self.crypto, &self.verifier, config.name, config.alpn)
        } else {
            [0; 8]
        };
        let ticket = ticket.filter(|ticket| {
            // Another provider may have had the suite.
            let has = !cfg!(feature = "chacha20-poly1305") || C::SUITES.contains(&ticket.suite);
            has && ticket.is_fresh(age) && *ticket.trust == trust
        });
        let wanted = resume.is_some_and(|resume| resume.early);
        let early = wanted && ticket.as_ref().is_some_and(|ticket| ticket.early);
        let hello = Hello {
            name: config.name,
            alpn: config.alpn,
            own: Own {
                idle: config.idle_ms,
                max_udp: u32::from(config.max_datagram),
                max_data: window,
                stream_data,
            },
            resume: ticket.as_ref().map(|ticket| (ticket, age)),
            early: cfg!(feature = "early-data") && early,
            trust,
        };
        let pair = self.handshake.pair.take().ok_or(Error::Entropy)?;
        let place = &mut self.handshake.tls;
        let buffer = self.memory.parts().hello;
        let len = Tls::start(place, &mut self.crypto, pair, &hello, buffer)?;
        self.spaces.of(INITIAL).end = u32::try_from(len).unwrap_or(0);
        if hello.early
            && let Some(ticket) = &ticket
            && let Some(tls) = self.handshake.tls.as_ref()
        {
            let tx = &mut self.spaces.of(APP).tx;
            Keys::install(tx, &mut self.crypto, tls.suite, &tls.client);
            self.peer = ticket.params;
            self.streams.allow(&self.peer);
        }
        self.life.state = State::Connecting;
        Ok(())
    }

    /// Whether streams can be used: connected, or with early data before.
    pub(crate) fn is_usable(&self) -> bool {
        match self.life.state {
            State::Connected => true,
            State::Connecting => self.handshake.early() != Early::No,
            _ => false,
        }
    }

    /// Whether the server knows that this side knows that it is verified.
    pub(crate) fn is_confirmed(&self) -> bool {
        self.handshake.progress == Progress::Confirmed
    }

    /// Opens a stream.
    pub(crate) fn open(&mut self) -> Result<StreamId, Error> {
        if !self.is_usable() {
            return Err(Error::State);
        }
        let limit = self.peer.stream_data;
        self.streams
            .open(&mut self.memory, &mut self.recovery, limit)
    }

    /// Closes the connection with a number of the application.
    pub(crate) fn close(&mut self, now: u32, code: u32) {
        if matches!(self.life.state, State::Connecting | State::Connected) {
            self.end(now, Error::ClosedLocally);
            self.life.code = code;
        }
    }

    /// Ends the connection and tells the server why.
    fn end(&mut self, now: u32, error: Error) {
        // RFC 9000 section 10.2: three times the probe timeout.
        let close_at = now.wrapping_add(3 * self.recovery.pto());
        self.life.end(close_at, error);
    }

    /// Begins to use new keys.
    #[cfg(feature = "key-update")]
    pub(crate) fn update_keys(&mut self) -> Result<(), Error> {
        if !self.is_confirmed() || !self.spaces.may_update() {
            return Err(Error::State);
        }
        let suite = self.handshake.suite();
        self.spaces.update(&mut self.crypto, suite);
        Ok(())
    }

    /// Asks the server for a sign of life.
    pub(crate) const fn ping(&mut self) {
        let app = self.spaces.of(APP);
        if app.probes == 0 {
            app.probes = 1;
        }
    }

    /// Goes on from another address.
    #[cfg(feature = "migration")]
    pub(crate) fn migrate(&mut self) -> Result<(), Error> {
        if !self.is_confirmed() || self.life.state != State::Connected {
            return Err(Error::State);
        }
        if !self.peer.migration {
            return Err(Error::Migration);
        }
        let mut challenge = [0; 8];
        let random = self.crypto.random(&mut challenge);
        random.map_err(|_| Error::Entropy)?;
        if !self.cids.advance()? {
            return Err(Error::Migration);
        }
        self.path.change(challenge);
        self.recovery.new_path();
        self.probe(APP);
        Ok(())
    }
}
