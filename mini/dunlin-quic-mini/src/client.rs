//! The connection: what an application calls, and the state behind it. What
//! arrives, what leaves and what time does are in the files below `client/`.

mod cids;
mod frames;
mod handshake;
mod receive;
mod space;
mod timers;
mod transmit;

use dunlin_mini_crypto::{Crypto, Suite};

use crate::assemble::Assembler;
use crate::cid::{Cid, Issued};
use crate::error::Error;
use crate::held::Held;
use crate::hello::{Hello, Ticket, trust};
use crate::keys::{self, Keys};
use crate::memory::{Memory, Slot};
use crate::params::{Own, Params};
use crate::recovery::{Recovery, what};
use crate::stream::Stream;
use crate::tls::{FLIGHT, KeyPair, Tls};
use crate::verify::Verifier;
use crate::wire::fill;
#[cfg(feature = "migration")]
use space::APP;
use space::{INITIAL, Phase, Space, space};

/// Longest token of Retry or NEW_TOKEN that is kept.
pub const TOKEN_MAX: usize = 192;

/// Connection ids of the server that wait. With one, a server that does not
/// replace the id of the handshake would have none left after one migration.
const SPARES: usize = 2;
/// Retired connection ids that the server does not know of yet.
const RETIRING: usize = 4;

/// Where a connection is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum State {
    /// Not begun.
    Idle,
    /// The handshake is under way; with early data, streams work already.
    Connecting,
    /// The server is verified.
    Connected,
    /// Over, but the server must still learn it.
    Closing,
    /// Over.
    Closed,
}

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
    /// The bytes that [`Client::ticket`] gave.
    pub ticket: &'a [u8],
    /// Milliseconds since then, sleep included.
    pub age_ms: u32,
    /// Whether streams may be used before the server has answered. What is
    /// written then can be replayed by anyone who recorded it.
    pub early: bool,
}

/// A stream: its number among those that this side opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamId(u32);

impl StreamId {
    /// The stream that was opened as the `number`th, from zero on. Calls refuse
    /// the id of a stream that does not exist.
    #[must_use]
    pub const fn nth(number: u32) -> Self {
        Self(number)
    }

    /// The id on the wire.
    #[must_use]
    pub const fn get(self) -> u32 {
        self.0 << 2
    }
}

/// A QUIC connection from the client's side.
///
/// It does no I/O: datagrams go in by [`receive`](Self::receive) and come out
/// of [`transmit`](Self::transmit), and [`timeout`](Self::timeout) tells when
/// to call again. Time is a counter of milliseconds that may wrap around.
pub struct Client<C: Crypto, V: Verifier, M: Memory> {
    crypto: C,
    verifier: V,
    memory: M,
    state: State,
    error: Option<Error>,
    /// What the server gave as reason, or what this side gives.
    code: u32,
    /// For the next handshake, made ahead.
    pair: Held<KeyPair<C>>,
    tls: Held<Tls<C>>,
    spaces: [Space<C>; 3],
    /// The space whose handshake messages are being read.
    level: u8,
    input: Assembler,
    /// Offset of the hello among the handshake bytes.
    hello_at: u32,
    recovery: Recovery,
    peer: Params,
    idle_ms: u32,
    /// When the connection began.
    began: u32,
    /// Since when nothing was heard, or answered.
    idle_from: u32,
    /// When the anti-deadlock timer was last set off.
    probe_from: u32,
    /// Whether something ack-eliciting was sent since the last packet came.
    asked: bool,
    /// Whether a packet of the server was understood.
    heard: bool,
    /// The id of the server's Retry.
    retried: Option<Cid>,
    /// Whether the server has surely seen this address.
    validated: bool,
    confirmed: bool,
    early: bool,
    active: Issued,
    spares: [Held<Issued>; SPARES],
    original: Cid,
    /// Sequence numbers and one, or zero.
    retiring: [u32; RETIRING],
    /// Control frames to send, bits of [`what`].
    pending: u8,
    response: Option<[u8; 8]>,
    challenge: [u8; 8],
    path_open: bool,
    /// Bytes that this side may send in all, and has sent.
    credit: u32,
    used: u32,
    /// Bytes that the server may send in all, has sent, and that were read.
    window: u32,
    arrived: u32,
    consumed: u32,
    streams_max: u32,
    streams_next: u32,
    /// Number of the first 1-RTT packet.
    first_pn: u32,
    phase: Phase<C>,
    token: [u8; TOKEN_MAX],
    token_len: usize,
    has_new_token: bool,
    ticket_len: usize,
    /// When a closing connection is forgotten, whether to tell again, and how
    /// many datagrams came since the end.
    close_at: u32,
    tell: bool,
    late: u32,
}

impl<C: Crypto, V: Verifier, M: Memory> core::fmt::Debug for Client<C, V, M> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Client")
    }
}

impl<C: Crypto, V: Verifier, M: Memory> Client<C, V, M> {
    /// A connection that has not begun. It is zeros in memory, as far as the
    /// arguments are.
    pub const fn new(crypto: C, verifier: V, memory: M) -> Self {
        Self {
            crypto,
            verifier,
            memory,
            state: State::Idle,
            error: None,
            code: 0,
            pair: Held::Nothing,
            tls: Held::Nothing,
            spaces: [Space::NEW; 3],
            level: INITIAL,
            input: Assembler::NEW,
            hello_at: 0,
            recovery: Recovery::ZERO,
            peer: Params::ZERO,
            idle_ms: 0,
            began: 0,
            idle_from: 0,
            probe_from: 0,
            asked: false,
            heard: false,
            retried: None,
            validated: false,
            confirmed: false,
            early: false,
            active: Issued::NEW,
            spares: [const { Held::Nothing }; SPARES],
            original: Cid::EMPTY,
            retiring: [0; RETIRING],
            pending: 0,
            response: None,
            challenge: [0; 8],
            path_open: false,
            credit: 0,
            used: 0,
            window: 0,
            arrived: 0,
            consumed: 0,
            streams_max: 0,
            streams_next: 0,
            first_pn: 0,
            phase: Phase::NEW,
            token: [0; TOKEN_MAX],
            token_len: 0,
            has_new_token: false,
            ticket_len: 0,
            close_at: 0,
            tell: false,
            late: 0,
        }
    }

    /// Gives back what [`new`](Self::new) took, to connect again.
    pub fn into_parts(self) -> (C, V, M) {
        (self.crypto, self.verifier, self.memory)
    }

    /// Who is believed to be the server, to be changed between two connections.
    pub const fn verifier(&mut self) -> &mut V {
        &mut self.verifier
    }

    /// Forgets the connection without a word, its keys and ticket included, and
    /// clears its buffers, so that the client can connect again where it is.
    #[inline(never)]
    pub fn clear(&mut self) {
        self.state = State::Idle;
        (self.error, self.code) = (None, 0);
        self.tls = Held::Nothing;
        for space in &mut self.spaces {
            space.clear();
        }
        self.level = INITIAL;
        self.input = Assembler::NEW;
        self.hello_at = 0;
        self.recovery.clear();
        self.peer = Params::NEW;
        (self.asked, self.heard, self.validated) = (false, false, false);
        (self.confirmed, self.early, self.path_open) = (false, false, true);
        self.retried = None;
        self.active = Issued::NEW;
        self.spares = [const { Held::Nothing }; SPARES];
        self.retiring = [0; RETIRING];
        self.pending = 0;
        self.response = None;
        (self.credit, self.used) = (0, 0);
        (self.window, self.arrived, self.consumed) = (0, 0, 0);
        (self.streams_max, self.streams_next) = (0, 0);
        self.first_pn = 0;
        self.phase = Phase::NEW;
        (self.token_len, self.has_new_token) = (0, false);
        self.ticket_len = 0;
        self.tell = false;
        let parts = self.memory.parts();
        for secret in [parts.hello, parts.handshake, parts.send, parts.receive] {
            secret.fill(0);
        }
    }

    /// Makes the key pair of the next handshake ahead, so that a device that
    /// wakes need not, and has its first datagram sooner. It outlives
    /// [`clear`](Self::clear) and is used once.
    ///
    /// # Errors
    ///
    /// [`Error::Entropy`].
    #[inline(never)]
    pub fn prepare(&mut self) -> Result<(), Error> {
        let pair = KeyPair::new(&mut self.crypto).map_err(|_| Error::Entropy)?;
        self.pair = Held::Value(pair);
        Ok(())
    }

    /// Begins the handshake; [`transmit`](Self::transmit) has its first
    /// datagram.
    ///
    /// # Errors
    ///
    /// [`Error::State`] if it has begun before, [`Error::Entropy`], and
    /// [`Error::Memory`] if the hello does not fit. A ticket that is of no use
    /// is left aside without an error: one of an earlier form, too old, or of a
    /// connection with another name, protocol or verifier.
    pub fn connect(&mut self, now: u32, config: &Config<'_>) -> Result<(), Error> {
        if self.state != State::Idle {
            return Err(Error::State);
        }
        self.clear();
        if self.pair.as_ref().is_none() {
            self.prepare()?;
        }
        let mut id = [0; 8];
        self.crypto.random(&mut id).map_err(|_| Error::Entropy)?;
        self.original = Cid::new(&id).unwrap_or_default();
        self.active.cid = self.original;
        self.initial_keys();
        self.token_len = fill(&mut self.token, config.token);
        if self.token_len < config.token.len() {
            self.token_len = 0;
        }
        self.idle_ms = config.idle_ms;
        self.began = now;
        (self.idle_from, self.probe_from) = (now, now);
        self.greet(config)
    }

    /// Writes the ClientHello. Not inlined: the keys before it need the stack.
    #[inline(never)]
    fn greet(&mut self, config: &Config<'_>) -> Result<(), Error> {
        let parts = self.memory.parts();
        let streams = u32::try_from(parts.streams.len()).unwrap_or(0);
        let stream_data = u32::try_from(parts.receive_len).unwrap_or(0);
        self.window = streams * stream_data;
        for stream in parts.streams.iter_mut() {
            *stream = Stream::FREE;
        }
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
                max_data: self.window,
                stream_data,
            },
            resume: ticket.as_ref().map(|ticket| (ticket, age)),
            early: cfg!(feature = "early-data") && early,
            trust,
        };
        let pair = self.pair.take().ok_or(Error::Entropy)?;
        let len = Tls::start(&mut self.tls, &mut self.crypto, pair, &hello, parts.hello)?;
        let [initial, _, app] = &mut self.spaces;
        initial.end = u32::try_from(len).unwrap_or(0);
        if hello.early
            && let Some(ticket) = &ticket
            && let Some(tls) = self.tls.as_ref()
        {
            Keys::install(&mut app.tx, &mut self.crypto, tls.suite, &tls.client);
            self.peer = ticket.params;
            self.early = true;
            self.credit = self.peer.max_data;
            self.streams_max = self.peer.streams;
        }
        self.state = State::Connecting;
        Ok(())
    }

    fn initial_keys(&mut self) {
        let [tx, rx] = keys::initial(&mut self.crypto, self.active.cid.bytes());
        let initial = space(&mut self.spaces, INITIAL);
        let suite = Suite::Aes128Gcm;
        Keys::install(&mut initial.tx, &mut self.crypto, suite, &tx);
        Keys::install(&mut initial.rx, &mut self.crypto, suite, &rx);
    }

    /// Where the connection is in its life.
    pub const fn state(&self) -> State {
        self.state
    }

    /// Why it ended.
    pub const fn error(&self) -> Option<Error> {
        self.error
    }

    /// The number that the server gave with its reason to close.
    pub const fn peer_code(&self) -> u32 {
        self.code
    }

    /// Whether streams can be used: connected, or with early data before.
    pub const fn is_usable(&self) -> bool {
        matches!(self.state, State::Connected)
            || matches!(self.state, State::Connecting) && self.early
    }

    /// Whether the server knows that this side knows that it is verified, from
    /// when on keys can be updated and addresses changed.
    pub const fn is_confirmed(&self) -> bool {
        self.confirmed
    }

    /// Whether the session of the ticket was resumed.
    pub fn is_resumed(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.resumed)
    }

    /// Whether the server took the early data. If not, it was sent again.
    pub fn took_early_data(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.early)
    }

    /// Whether the server asked for another hello, which costs a round trip.
    pub fn was_asked_again(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.again)
    }

    /// The cipher suite that the server chose, or that of early data before.
    pub fn suite(&self) -> Suite {
        let tls = self.tls.as_ref();
        tls.map_or(Suite::Aes128Gcm, |tls| tls.suite)
    }

    /// Smoothed round-trip time in milliseconds.
    pub const fn rtt_ms(&self) -> u32 {
        self.recovery.rtt()
    }

    /// The newest ticket of this connection, to be stored for the next one.
    pub fn ticket(&mut self) -> Option<&[u8]> {
        if self.ticket_len == 0 {
            return None;
        }
        self.memory
            .parts()
            .hello
            .get(FLIGHT..)?
            .get(..self.ticket_len)
    }

    /// The newest token of this connection, to be stored for the next one.
    pub fn token(&self) -> Option<&[u8]> {
        let known = self.confirmed && self.token_len > 0;
        self.token.get(..self.token_len).filter(|_| known)
    }

    /// Closes the connection with a number of the application.
    pub fn close(&mut self, now: u32, code: u32) {
        if matches!(self.state, State::Connecting | State::Connected) {
            self.end(now, Error::ClosedLocally);
            self.code = code;
        }
    }

    /// Ends the connection and tells the server why.
    fn end(&mut self, now: u32, error: Error) {
        self.error = Some(error);
        self.state = State::Closing;
        self.tell = true;
        self.late = 0;
        // RFC 9000 section 10.2: three times the probe timeout.
        self.close_at = now.wrapping_add(3 * self.recovery.pto());
    }

    /// Ends the connection without a word.
    const fn forget(&mut self, error: Error) {
        self.error = Some(error);
        self.state = State::Closed;
    }

    /// Begins to use new keys (RFC 9001 section 6).
    ///
    /// # Errors
    ///
    /// [`Error::State`] before the handshake is confirmed, and before a packet
    /// with the current keys was acknowledged.
    #[cfg(feature = "key-update")]
    pub fn update_keys(&mut self) -> Result<(), Error> {
        if !self.confirmed || !self.phase.acked {
            return Err(Error::State);
        }
        self.update_sending();
        Ok(())
    }

    /// Asks the server for a sign of life.
    pub const fn ping(&mut self) {
        let [_, _, app] = &mut self.spaces;
        if app.probes == 0 {
            app.probes = 1;
        }
    }

    /// Opens a stream in both directions.
    ///
    /// # Errors
    ///
    /// [`Error::State`] if streams cannot be used, and [`Error::NoStreamLeft`]
    /// if the server or the memory allows no more now.
    pub fn open(&mut self) -> Result<StreamId, Error> {
        if !self.is_usable() {
            return Err(Error::State);
        }
        let number = self.streams_next;
        let limit = self.peer.stream_data;
        let parts = self.memory.parts();
        let window = u32::try_from(parts.receive_len).unwrap_or(0);
        let mut slots = parts.streams.iter_mut().enumerate();
        let free = slots.find(|(_, stream)| stream.is_free());
        let free = free.filter(|_| number < self.streams_max);
        let (index, slot) = free.ok_or(Error::NoStreamLeft)?;
        *slot = Stream::open(number, limit, window);
        self.recovery.release(index.to_le_bytes()[0]);
        self.streams_next += 1;
        Ok(StreamId(number))
    }

    /// The stream with this number, if it is not over.
    fn slot(&mut self, number: u32) -> Option<Slot<'_>> {
        let parts = self.memory.parts();
        let index = parts.streams.iter().position(|stream| stream.is(number))?;
        parts.slot(index)
    }

    /// Writes to a stream as much as its buffer takes, and tells how much.
    ///
    /// # Errors
    ///
    /// [`Error::NoStream`], and [`Error::State`] after the end.
    pub fn write(&mut self, id: StreamId, data: &[u8]) -> Result<usize, Error> {
        let slot = self.slot(id.0).ok_or(Error::NoStream)?;
        slot.state.write(slot.send, data)
    }

    /// Bytes that [`write`](Self::write) takes now, and at most ever.
    ///
    /// # Errors
    ///
    /// [`Error::NoStream`].
    pub fn room(&mut self, id: StreamId) -> Result<(usize, usize), Error> {
        let slot = self.slot(id.0).ok_or(Error::NoStream)?;
        let size = slot.send.len();
        Ok((size.saturating_sub(slot.state.buffered()), size))
    }

    /// Bytes that the server may send ahead on a stream.
    pub fn window(&mut self) -> usize {
        self.memory.parts().receive_len
    }

    /// Ends this side's direction of a stream.
    ///
    /// # Errors
    ///
    /// [`Error::NoStream`].
    pub fn finish(&mut self, id: StreamId) -> Result<(), Error> {
        let slot = self.slot(id.0).ok_or(Error::NoStream)?;
        slot.state.finish();
        Ok(())
    }

    /// Gives a stream up in both directions, with a number of the application.
    ///
    /// # Errors
    ///
    /// [`Error::NoStream`].
    pub fn reset(&mut self, id: StreamId, code: u32) -> Result<(), Error> {
        let slot = self.slot(id.0).ok_or(Error::NoStream)?;
        slot.state.reset(code);
        slot.state.stop();
        Ok(())
    }

    /// What arrived on a stream and was not [consumed](Self::consume), and
    /// whether the stream ends behind it.
    ///
    /// # Errors
    ///
    /// [`Error::NoStream`], and [`Error::StreamReset`] if the server gave the
    /// stream up.
    pub fn received(&mut self, id: StreamId) -> Result<(&[u8], bool), Error> {
        let slot = self.slot(id.0).ok_or(Error::NoStream)?;
        slot.state.readable(slot.receive)
    }

    /// Removes bytes from the front of what arrived, which lets the server
    /// send more.
    pub fn consume(&mut self, id: StreamId, n: usize) {
        let Some(slot) = self.slot(id.0) else {
            return;
        };
        let gone = slot.state.consume(slot.receive, n);
        self.read(gone);
    }

    /// Counts bytes of the connection's window that were read.
    fn read(&mut self, n: u32) {
        self.consumed = self.consumed.saturating_add(n);
        self.widen(2);
    }

    /// Tells the server of a window that grew by one part in `parts` of its
    /// size, or at all.
    fn widen(&mut self, parts: u32) {
        let size = self.memory.parts().receive.len();
        let size = u32::try_from(size).unwrap_or(0);
        let window = self.consumed.saturating_add(size);
        if window - self.window > size.checked_div(parts).unwrap_or(0) {
            self.window = window;
            self.pending |= what::MAX_DATA;
        }
    }

    /// Whether all that was written to a stream was acknowledged.
    pub fn is_flushed(&mut self, id: StreamId) -> bool {
        self.slot(id.0).is_none_or(|slot| slot.state.is_flushed())
    }

    /// Goes on from another address: call it after the socket or the network
    /// has changed. The round-trip time is measured again, and the server sees
    /// another connection id.
    ///
    /// # Errors
    ///
    /// [`Error::State`] before the handshake is confirmed,
    /// [`Error::Migration`] if the server forbids it or gave no other id, and
    /// [`Error::Entropy`].
    #[cfg(feature = "migration")]
    pub fn migrate(&mut self) -> Result<(), Error> {
        if !self.confirmed || self.state != State::Connected {
            return Err(Error::State);
        }
        if !self.peer.migration {
            return Err(Error::Migration);
        }
        let mut challenge = [0; 8];
        let random = self.crypto.random(&mut challenge);
        random.map_err(|_| Error::Entropy)?;
        if !self.advance()? {
            return Err(Error::Migration);
        }
        self.challenge = challenge;
        self.recovery.new_path();
        self.path_open = false;
        self.pending |= what::CHALLENGE;
        self.probe(APP);
        Ok(())
    }

    /// Whether the server has answered from the present path.
    pub const fn is_path_valid(&self) -> bool {
        self.path_open
    }
}
