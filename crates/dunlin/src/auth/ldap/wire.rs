//! One connection to a directory: binds and searches, one at a time, each before a
//! deadline. What it reads is bounded.

use core::time::Duration;
use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs as _};
use std::sync::Arc;
use std::time::Instant;

use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{ClientConfig, ClientConnection, StreamOwned};

use super::ber::{self, BOOLEAN, ENUMERATED, INTEGER, OCTETS, Reader, SEQUENCE, SET, Writer};
use super::names::Filter;

/// Longest message.
const MESSAGE_BYTES_MAX: usize = 256 * 1024;

/// Messages that answer one request at most.
const MESSAGES_MAX: usize = 16;

/// Values of an attribute that are read.
const VALUES_MAX: usize = 1024;

/// Name of the request to begin TLS (RFC 4511 section 4.14.1).
const START_TLS: &[u8] = b"1.3.6.1.4.1.1466.20037";

/// Operations (RFC 4511 section 4).
const BIND: u8 = 0x60;
const BOUND: u8 = 0x61;
const SEARCH: u8 = 0x63;
const ENTRY: u8 = 0x64;
const SEARCHED: u8 = 0x65;
const REFERENCE: u8 = 0x73;
const EXTENDED: u8 = 0x77;
const EXTENDED_DONE: u8 = 0x78;

/// Results (RFC 4511 appendix A).
const SUCCESS: u32 = 0;
const SIZE_LIMIT: u32 = 4;
const NO_SUCH_OBJECT: u32 = 32;
/// The password is wrong, or no password lets this entry in.
const REFUSALS: [u32; 4] = [32, 48, 49, 53];

/// Why a directory gives no answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LdapError {
    /// It cannot be reached, does not answer in time, or its certificate is wrong.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// What it sends is not LDAP, or not what was asked for.
    #[error("the answer is not one: {0}")]
    Answer(&'static str),
    /// It refuses what it was asked.
    #[error("{what} failed with result {code}{}", shown(text))]
    Refused {
        /// What was asked.
        what: &'static str,
        /// Result code.
        code: u32,
        /// What it says.
        text: String,
    },
}

fn shown(text: &str) -> String {
    match text {
        "" => String::new(),
        text => format!(": {text}"),
    }
}

/// Where a directory is, and how it is reached.
#[derive(Clone, Debug)]
pub(super) struct Place {
    pub(super) host: String,
    pub(super) port: u16,
    pub(super) tls: Option<Arc<ClientConfig>>,
    /// TLS begins after a request for it.
    pub(super) start_tls: bool,
}

/// Whether a password is right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Bound {
    Right,
    Wrong,
}

/// What is searched for.
#[derive(Debug)]
pub(super) struct Search<'a> {
    pub(super) base: &'a str,
    /// The entry alone, or all below it too.
    pub(super) below: bool,
    /// `None`: every entry.
    pub(super) filter: Option<(&'a Filter, &'a str)>,
    pub(super) attributes: &'a [&'a str],
}

/// An entry that was found.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) name: String,
    attributes: Vec<(String, Vec<String>)>,
}

impl Entry {
    /// Values of an attribute, those that are text.
    pub(super) fn values(&self, attribute: &str) -> impl Iterator<Item = &str> {
        let is_it = move |(name, _): &&(String, Vec<String>)| name.eq_ignore_ascii_case(attribute);
        let found = self.attributes.iter().filter(is_it);
        found.flat_map(|(_, values)| values.iter().map(String::as_str))
    }
}

/// A socket whose every read and write ends at a deadline.
#[derive(Debug)]
struct Timed {
    socket: TcpStream,
    deadline: Instant,
}

impl Timed {
    fn left(&self) -> io::Result<Duration> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        match left.is_zero() {
            true => Err(late()),
            false => Ok(left),
        }
    }
}

fn late() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "there is no answer in time")
}

/// What the system says when a time limit of a socket is over.
fn timed(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::WouldBlock => late(),
        _ => error,
    }
}

impl Read for Timed {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.socket.set_read_timeout(Some(self.left()?))?;
        self.socket.read(buffer).map_err(timed)
    }
}

impl Write for Timed {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.socket.set_write_timeout(Some(self.left()?))?;
        self.socket.write(bytes).map_err(timed)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.socket.flush()
    }
}

#[derive(Debug)]
enum Stream {
    Plain(Timed),
    Tls(Box<StreamOwned<ClientConnection, Timed>>),
}

impl Stream {
    const fn timed(&mut self) -> &mut Timed {
        match self {
            Self::Plain(timed) => timed,
            Self::Tls(tls) => &mut tls.sock,
        }
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Plain(timed) => timed.write_all(bytes),
            Self::Tls(tls) => tls.write_all(bytes).and_then(|()| tls.flush()),
        }
    }

    fn read_exact(&mut self, buffer: &mut [u8]) -> io::Result<()> {
        match self {
            Self::Plain(timed) => timed.read_exact(buffer),
            Self::Tls(tls) => tls.read_exact(buffer),
        }
    }
}

/// A connection.
#[derive(Debug)]
pub(super) struct Connection {
    stream: Stream,
    last: u32,
}

impl Connection {
    /// Connects, and begins TLS where it is wanted.
    pub(super) fn open(place: &Place, deadline: Instant) -> Result<Self, LdapError> {
        let socket = connect(place, deadline)?;
        socket.set_nodelay(true)?;
        let mut connection = Self {
            stream: Stream::Plain(Timed { socket, deadline }),
            last: 0,
        };
        if place.start_tls {
            connection.request_tls()?;
        }
        let Some(config) = &place.tls else {
            return Ok(connection);
        };
        let name = ServerName::try_from(place.host.clone()).map_err(io::Error::other)?;
        let tls = ClientConnection::new(Arc::clone(config), name).map_err(io::Error::other)?;
        let Stream::Plain(timed) = connection.stream else {
            return Err(LdapError::Answer("TLS began twice"));
        };
        connection.stream = Stream::Tls(Box::new(StreamOwned::new(tls, timed)));
        Ok(connection)
    }

    /// All that follows ends then.
    pub(super) const fn set_deadline(&mut self, deadline: Instant) {
        self.stream.timed().deadline = deadline;
    }

    fn request_tls(&mut self) -> Result<(), LdapError> {
        self.send(|out| {
            out.nested(EXTENDED, |it| {
                it.bytes(0x80, START_TLS);
            });
        })?;
        let message = self.receive()?;
        let answer = result(&message, EXTENDED_DONE)?;
        answer.succeeded("StartTLS")
    }

    /// Says who asks. A password must not be empty: a directory takes a name without a
    /// password for an anonymous bind, which succeeds (RFC 4513 section 5.1.2).
    pub(super) fn bind(&mut self, name: &str, password: &[u8]) -> Result<Bound, LdapError> {
        if name.is_empty() || password.is_empty() {
            return Ok(Bound::Wrong);
        }
        let answer = self.simple_bind(name, password)?;
        match answer.code {
            SUCCESS => Ok(Bound::Right),
            code if REFUSALS.contains(&code) => Ok(Bound::Wrong),
            _ => answer.succeeded("the bind").map(|()| Bound::Right),
        }
    }

    /// Says that it is not said who asks.
    pub(super) fn bind_anonymously(&mut self) -> Result<(), LdapError> {
        self.simple_bind("", b"")?.succeeded("the anonymous bind")
    }

    fn simple_bind(&mut self, name: &str, password: &[u8]) -> Result<Answer, LdapError> {
        self.send(|out| {
            out.nested(BIND, |it| {
                it.number(INTEGER, 3)
                    .bytes(OCTETS, name.as_bytes())
                    .bytes(0x80, password);
            });
        })?;
        let message = self.receive()?;
        result(&message, BOUND)
    }

    /// Searches; at most two entries, so that one more than one is noticed. An entry that
    /// there is not is none.
    pub(super) fn search(&mut self, search: &Search<'_>) -> Result<Vec<Entry>, LdapError> {
        self.send(|out| {
            out.nested(SEARCH, |it| write_search(search, it));
        })?;
        let mut found = Vec::new();
        for _ in 0..MESSAGES_MAX {
            let message = self.receive()?;
            let (tag, body) = operation(&message).ok_or(LdapError::Answer("no message"))?;
            match tag {
                ENTRY => found.push(entry(body).ok_or(LdapError::Answer("no entry"))?),
                // Another server may know more; it is not asked.
                REFERENCE => {}
                _ => {
                    let answer = result(&message, SEARCHED)?;
                    return match answer.code {
                        SUCCESS | SIZE_LIMIT => Ok(found),
                        NO_SUCH_OBJECT => Ok(Vec::new()),
                        _ => answer.succeeded("the search").map(|()| found),
                    };
                }
            }
        }
        Err(LdapError::Answer("too many messages"))
    }

    fn send(&mut self, write: impl FnOnce(&mut Writer)) -> Result<(), LdapError> {
        self.last = self.last.wrapping_add(1) & 0x7fff_ffff;
        let number = self.last;
        let mut out = Writer::default();
        out.nested(SEQUENCE, |it| {
            it.number(INTEGER, number);
            write(it);
        });
        Ok(self.stream.write(&out.finish())?)
    }

    /// The message that answers the last request, without its head. Exactly its bytes are
    /// read, so that nothing of before TLS is taken for something of after it.
    fn receive(&mut self) -> Result<Vec<u8>, LdapError> {
        let mut head = vec![0; 2];
        self.stream.read_exact(&mut head)?;
        let [tag, first] = [head.first(), head.get(1)].map(|it| it.copied().unwrap_or(0));
        if tag != SEQUENCE {
            return Err(LdapError::Answer("no message"));
        }
        if first >= 0x80 {
            let digits = usize::from(first & 0x7f);
            if digits > 4 {
                return Err(LdapError::Answer("a length"));
            }
            head.resize(2 + digits, 0);
            let rest = head.get_mut(2..).unwrap_or_default();
            self.stream.read_exact(rest)?;
        }
        let length = ber::length(&head).filter(|(length, _)| *length <= MESSAGE_BYTES_MAX);
        let (length, _) = length.ok_or(LdapError::Answer("a length"))?;
        let mut body = vec![0; length];
        self.stream.read_exact(&mut body)?;
        match Reader::new(&body).number(INTEGER) {
            Some(number) if number == self.last => Ok(body),
            // It says that it closes the connection, among others.
            Some(0) => Err(LdapError::Answer("a notice of disconnection")),
            _ => Err(LdapError::Answer("a message that answers nothing")),
        }
    }
}

fn connect(place: &Place, deadline: Instant) -> io::Result<TcpStream> {
    let mut failed = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for addr in (place.host.as_str(), place.port).to_socket_addrs()? {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(late());
        }
        match TcpStream::connect_timeout(&addr, left) {
            Ok(socket) => return Ok(socket),
            Err(error) => failed = error,
        }
    }
    Err(failed)
}

fn write_search(search: &Search<'_>, out: &mut Writer) {
    const WHOLE_SUBTREE: u32 = 2;
    const ENTRIES_MAX: u32 = 2;
    let scope = if search.below { WHOLE_SUBTREE } else { 0 };
    out.bytes(OCTETS, search.base.as_bytes())
        .number(ENUMERATED, scope)
        // Aliases are not followed.
        .number(ENUMERATED, 0)
        .number(INTEGER, ENTRIES_MAX)
        .number(INTEGER, 0)
        .bytes(BOOLEAN, &[0]);
    match search.filter {
        Some((filter, user)) => filter.write(user, out),
        None => {
            out.bytes(0x87, b"objectClass");
        }
    }
    out.nested(SEQUENCE, |it| {
        for attribute in search.attributes {
            it.bytes(OCTETS, attribute.as_bytes());
        }
    });
}

/// The operation in a message.
fn operation(message: &[u8]) -> Option<(u8, &[u8])> {
    let mut reader = Reader::new(message);
    reader.number(INTEGER)?;
    reader.element()
}

/// How a request ended.
struct Answer {
    code: u32,
    text: String,
}

impl Answer {
    fn succeeded(self, what: &'static str) -> Result<(), LdapError> {
        match self.code {
            SUCCESS => Ok(()),
            code => Err(LdapError::Refused {
                what,
                code,
                text: self.text,
            }),
        }
    }
}

fn result(message: &[u8], wanted: u8) -> Result<Answer, LdapError> {
    /// Longest text of a directory in our log.
    const TEXT_CHARS_MAX: usize = 200;
    let read = || {
        let (tag, body) = operation(message)?;
        let mut reader = Reader::new(body);
        let code = reader.number(ENUMERATED).filter(|_| tag == wanted)?;
        reader.expect(OCTETS)?;
        let text = String::from_utf8_lossy(reader.expect(OCTETS)?).into_owned();
        let text = text.chars().filter(|c| !c.is_control());
        Some(Answer {
            code,
            text: text.take(TEXT_CHARS_MAX).collect(),
        })
    };
    read().ok_or(LdapError::Answer("another operation"))
}

fn entry(body: &[u8]) -> Option<Entry> {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).ok();
    let mut reader = Reader::new(body);
    let name = text(reader.expect(OCTETS)?)?;
    let mut list = Reader::new(reader.expect(SEQUENCE)?);
    let mut attributes = Vec::new();
    while !list.is_empty() {
        let mut attribute = Reader::new(list.expect(SEQUENCE)?);
        let kind = text(attribute.expect(OCTETS)?)?;
        let mut set = Reader::new(attribute.expect(SET)?);
        let mut values = Vec::new();
        while !set.is_empty() && values.len() < VALUES_MAX {
            // A value that is no text, such as a picture, is none for us.
            values.extend(text(set.expect(OCTETS)?));
        }
        attributes.push((kind, values));
    }
    Some(Entry { name, attributes })
}
