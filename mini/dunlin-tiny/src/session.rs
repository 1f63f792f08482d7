//! A task from beginning to end: whom to believe, what to say, what arrives, and
//! the ticket for the next time.

use core::fmt::Write;
use core::net::{IpAddr, Ipv4Addr, SocketAddr};

use dunlin_mini_crypto::Digest;
use dunlin_mqtt_mini::{Error, Event, Message, Options, Qos, Session};
use dunlin_quic_mini as quic;
use dunlin_quic_mini::{
    Authority, Config, Crypto, Identified, Identity, Name, Pinned, Point, Resume, Verifier,
};
use rustix::io::Errno;

use crate::arguments::{Task, Work};
use crate::files::{Text, keep, load, read_all, read_file, seconds, write_all};
use crate::host::{ADDRESSES, Failure, Host};
use crate::key::{certificates, of_file, point, private};
use crate::udp::{Connection, DATAGRAM, End, MESSAGE, Room, is_away};

/// Silence after which a connection is given up that was never there.
const SILENCE_MS: u32 = 10_000;
/// Longest wait for the last acknowledgement.
const LEAVE_MS: u32 = 2_000;
/// Longest name of a host (RFC 1035 section 2.3.4).
const NAME: usize = 255;
/// Longest stored ticket, with its time. The engine keeps none that is longer.
const STORED: usize = 4096;
/// Longest file with a key.
const KEY_FILE: usize = 16_384;
/// Longest first line of a file with a password.
const PASSWORD: usize = 1024;

type Result<'t, T> = core::result::Result<T, Failure<'t>>;

/// Who the server must be.
#[derive(Clone, Copy, Debug)]
enum Trust<'a> {
    Key(Pinned<'a>),
    Authority(Authority<'a>),
}

impl Verifier for Trust<'_> {
    fn verify<C: Crypto>(
        &self,
        crypto: &mut C,
        certificate: &[u8],
    ) -> core::result::Result<Point, quic::Error> {
        match self {
            Self::Key(keys) => keys.verify(crypto, certificate),
            Self::Authority(authority) => authority.verify(crypto, certificate),
        }
    }

    fn believed<C: Crypto>(&self, crypto: &mut C, hash: &mut C::Hash) {
        match self {
            Self::Key(keys) => keys.believed(crypto, hash),
            Self::Authority(authority) => authority.believed(crypto, hash),
        }
    }
}

/// The key that was given as text or as a file.
fn key<'t>(task: &Task<'t>) -> Result<'t, Point> {
    let given = task.key.to_str().ok().and_then(point);
    let key = given.or_else(|| of_file(read_file(task.key, &mut [0; KEY_FILE]).ok()?));
    key.ok_or(Failure::Key(task.key))
}

/// Longest own certificates together. With the ticket they are kept until the server
/// has them.
const CERTIFICATES: usize = 2048;

/// The own certificates and their key.
struct Shown {
    der: [u8; CERTIFICATES],
    len: usize,
    key: Digest,
}

impl Shown {
    const NOTHING: Self = Self {
        der: [0; CERTIFICATES],
        len: 0,
        key: [0; 32],
    };

    fn read<'t>(&mut self, task: &Task<'t>) -> Result<'t, ()> {
        let Some((certificate, key)) = task.identity else {
            return Ok(());
        };
        let mut room = [0; KEY_FILE];
        let unread = |errno| Failure::System(CERT, errno);
        let file = read_file(certificate, &mut room).map_err(unread)?;
        let len = certificates(file, &mut self.der);
        self.len = len.ok_or(Failure::Certificate(certificate))?;
        let file = read_file(key, &mut room).map_err(unread)?;
        self.key = private(file).ok_or(Failure::Certificate(key))?;
        room.fill(0);
        Ok(())
    }
}

/// What cannot be read.
const CERT: &str = "file with the own certificate or key";

/// The first line of a file.
fn first_line(file: &[u8]) -> &[u8] {
    file.split(|&byte| byte == b'\n' || byte == b'\r')
        .next()
        .unwrap_or_default()
}

/// The host of `HOST:PORT` as certificates have it: in lower case, without a dot
/// at the end.
fn host_name<'r>(server: &str, room: &'r mut [u8; NAME]) -> Option<&'r [u8]> {
    let (name, _) = server.rsplit_once(':')?;
    let name = name.strip_suffix('.').unwrap_or(name);
    let room = room.get_mut(..name.len()).filter(|room| !room.is_empty())?;
    room.copy_from_slice(name.as_bytes());
    room.make_ascii_lowercase();
    Some(room)
}

/// Does the task.
pub(crate) fn perform<'t>(task: &Task<'t>, host: &Host<'_>) -> Result<'t, ()> {
    let key = key(task)?;
    let mut password = [0; PASSWORD];
    let password = match task.password_file {
        Some(file) => {
            let read = read_file(file, &mut password);
            first_line(read.map_err(|errno| Failure::System("file with the password", errno))?)
        }
        None => task.password.to_bytes(),
    };
    let mut input = [0; MESSAGE];
    let payload = match &task.work {
        Work::Publish { payload, .. } if payload.to_bytes() == b"-" => {
            let read = read_all(host.input, &mut input);
            read.map_err(|errno| Failure::System("standard input", errno))?
        }
        Work::Publish { payload, .. } => payload.to_bytes(),
        Work::Subscribe { .. } => &[],
    };
    let mut addresses = [SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0); ADDRESSES];
    let known = task.server.parse::<SocketAddr>();
    let (mut name, mut octets) = ([0; NAME], [0; 16]);
    let (count, name, trust) = if let Ok(address) = known {
        addresses[0] = address;
        (
            1,
            &[][..],
            Name::Address(self::octets(address, &mut octets)),
        )
    } else {
        let name = host_name(task.server, &mut name).ok_or(Failure::Address(task.server))?;
        (
            (host.find)(task.server, &mut addresses),
            name,
            Name::Host(name),
        )
    };
    let keys = [key];
    let trust = if task.authority {
        // A clock that never was set says nothing of dates.
        let now = u32::try_from(seconds()).ok().filter(|&now| now > 0);
        Trust::Authority(Authority::new(&key, trust, now))
    } else {
        Trust::Key(Pinned::new(&keys))
    };
    let mut shown = Shown::NOTHING;
    shown.read(task)?;
    let identity = Identity {
        certificates: shown.der.get(..shown.len).unwrap_or_default(),
        key: &shown.key,
    };
    let trust = Identified::new(trust, identity);
    let mut last = Failure::Address(task.server);
    for &address in addresses.get(..count).unwrap_or_default() {
        let login = Login {
            address,
            name,
            trust,
            password,
            payload,
        };
        let mut room = Room::new();
        match Talk::new(task, host, &login, &mut room).and_then(|mut talk| talk.run()) {
            Err(failure @ Failure::System(_, errno)) if is_away(errno) => last = failure,
            done => return done,
        }
    }
    Err(last)
}

/// The bytes of an address.
fn octets(address: SocketAddr, room: &mut [u8; 16]) -> &[u8] {
    match address.ip() {
        IpAddr::V4(ip) => {
            let (four, _) = room.split_at_mut(4);
            four.copy_from_slice(&ip.octets());
            four
        }
        IpAddr::V6(ip) => {
            *room = ip.octets();
            room
        }
    }
}

/// Who the server must be, and who this side is.
type Believed<'a> = Identified<'a, Trust<'a>>;

/// Whom to connect to, and what to say there.
struct Login<'a> {
    address: SocketAddr,
    /// Empty for an address.
    name: &'a [u8],
    trust: Believed<'a>,
    password: &'a [u8],
    payload: &'a [u8],
}

/// A connection with its session.
struct Talk<'t, 'a> {
    task: &'a Task<'t>,
    host: &'a Host<'a>,
    login: &'a Login<'a>,
    connection: Connection<'a, Believed<'a>>,
    session: Session,
    begun: bool,
    /// Whether the message or the subscription is on its way.
    asked: bool,
    /// Messages that are still to be printed, and how many one of them is: zero
    /// where there is no end.
    left: u32,
    counts: u32,
    done: bool,
    /// When MQTT last said something, for its keep alive.
    said: u32,
    kept: bool,
    /// Why the ticket could not be kept.
    lost: Option<Failure<'t>>,
}

impl<'t, 'a> Talk<'t, 'a> {
    fn new(
        task: &'a Task<'t>,
        host: &'a Host<'a>,
        login: &'a Login<'a>,
        room: &'a mut Room,
    ) -> Result<'t, Self> {
        let mut stored = [0; STORED];
        let stored = task.ticket.and_then(|file| load(file, &mut stored));
        let resume = stored.map(|(ticket, age_ms)| Resume {
            ticket,
            age_ms,
            early: true,
        });
        // A quarter more than the keep alive, for there is an answer to each.
        let idle_ms = match (&task.work, task.keep_alive) {
            (Work::Publish { .. }, _) => SILENCE_MS,
            (Work::Subscribe { .. }, seconds) => {
                (u32::from(seconds) * 1250).max(SILENCE_MS * u32::from(seconds > 0))
            }
        };
        let config = Config {
            name: login.name,
            alpn: b"mqtt",
            idle_ms,
            max_datagram: DATAGRAM,
            token: &[],
            resume,
        };
        let (left, counts) = match task.work {
            Work::Subscribe {
                count: Some(count), ..
            } => (count.get(), 1),
            _ => (1, 0),
        };
        Ok(Self {
            task,
            host,
            login,
            connection: Connection::begin(login.address, login.trust, room, &config)?,
            session: Session::new(),
            begun: false,
            asked: false,
            left,
            counts,
            done: false,
            said: 0,
            kept: false,
            lost: None,
        })
    }

    fn run(&mut self) -> Result<'t, ()> {
        loop {
            self.ask()?;
            self.listen()?;
            self.keep_ticket();
            if self.done {
                break;
            }
            let most = self.patience()?;
            self.connection.step(most).map_err(|end| self.ended(end))?;
        }
        if let Work::Publish { .. } = self.task.work {
            let client = &self.connection.client;
            let _ = writeln!(
                Text(self.host.output),
                "published; resumed: {}, early data: {}, round trip: {} ms",
                client.is_resumed(),
                client.took_early_data(),
                client.rtt_ms()
            );
        }
        self.leave();
        self.lost.map_or(Ok(()), Err)
    }

    /// Says what there is to say as soon as the connection can carry it, which
    /// with a ticket is at once.
    fn ask(&mut self) -> Result<'t, ()> {
        let quic = &mut self.connection.client;
        if !quic.is_usable() || self.asked {
            return Ok(());
        }
        if !self.begun {
            let options = Options {
                client_id: self.task.id.as_bytes(),
                keep_alive: self.task.keep_alive,
                user: self.task.user.as_bytes(),
                password: self.login.password,
                ..Options::NEW
            };
            match self.session.begin(quic, &options) {
                // The server grants a stream later.
                Err(Error::Quic(quic::Error::NoStreamLeft)) => return Ok(()),
                begun => begun?,
            }
            self.begun = true;
        }
        let asked = match self.task.work {
            Work::Publish { topic, retain, .. } => {
                let message = Message {
                    topic: topic.as_bytes(),
                    payload: self.login.payload,
                    qos: self.task.qos,
                    retain,
                };
                self.session.publish(quic, &message)
            }
            Work::Subscribe { filter, .. } => {
                self.session
                    .subscribe(quic, self.task.qos, filter.as_bytes())
            }
        };
        match asked {
            // Behind CONNECT there was no room.
            Err(Error::Full) => return Ok(()),
            asked => asked?,
        };
        self.said = self.connection.now();
        self.asked = true;
        Ok(())
    }

    /// Takes what the broker sent.
    fn listen(&mut self) -> Result<'t, ()> {
        loop {
            let quic = &mut self.connection.client;
            let event = match self.session.poll(quic) {
                Ok(Some(event)) => event,
                Ok(None) | Err(Error::Full) => break,
                Err(error) => return Err(refused(error, self.session.reason())),
            };
            match event {
                Event::Message(message) if self.left > 0 => {
                    self.left = self.left.saturating_sub(self.counts);
                    let shown = show(self.host, &self.task.work, &message);
                    shown.map_err(|errno| Failure::System("standard output", errno))?;
                    if self.left == 0 {
                        // What comes behind it is for others, or for the next time.
                        break;
                    }
                }
                Event::Published { .. } => self.done = true,
                Event::Rejected { reason, .. } => {
                    taken("the broker refused the message", reason)?;
                }
                Event::Subscribed { reason, .. } => {
                    taken("the broker refused the subscription", reason)?;
                }
                _ => {}
            }
        }
        if let Work::Publish { .. } = self.task.work {
            let unanswered = self.task.qos == Qos::AtMostOnce;
            self.done |= unanswered && self.asked && self.session.is_up();
        }
        self.done |= self.left == 0;
        Ok(())
    }

    /// Keeps the ticket as soon as it is there: mostly before the first answer of
    /// the broker, and always behind the handshake.
    fn keep_ticket(&mut self) {
        let Some(file) = self.task.ticket.filter(|_| !self.kept) else {
            return;
        };
        if let Some(ticket) = self.connection.client.ticket() {
            self.kept = true;
            if let Err(errno) = keep(file, ticket) {
                self.lost = Some(Failure::System("file for the ticket", errno));
            }
        }
    }

    /// Milliseconds until there is something to do. Says that the client lives.
    fn patience(&mut self) -> Result<'t, u32> {
        let now = self.connection.now();
        let mut most = u32::MAX;
        if let Some(timeout) = self.task.timeout_ms {
            most = timeout.checked_sub(now).ok_or(Failure::TimedOut)?;
        }
        if !self.session.is_up() {
            let silence = quic::Error::IdleTimeout;
            let rest = SILENCE_MS.checked_sub(now);
            most = most.min(rest.ok_or(Error::Quic(silence))?);
        } else if self.session.keep_alive() > 0 {
            // A quarter is left for the way.
            let period = u32::from(self.session.keep_alive()) * 750;
            if now.wrapping_sub(self.said) >= period {
                // Without room for it, what is in the way is a sign of life, too.
                let _ = self.session.ping(&mut self.connection.client);
                self.said = now;
            }
            most = most.min(period - now.wrapping_sub(self.said));
        }
        Ok(most)
    }

    /// Ends the session in order: all that was said has arrived.
    fn leave(&mut self) {
        let begun = self.connection.now();
        let stream = self.session.stream();
        let mut said = false;
        while self.connection.now().wrapping_sub(begun) < LEAVE_MS {
            let quic = &mut self.connection.client;
            said |= !matches!(self.session.disconnect(quic), Err(Error::Full));
            if said && quic.is_flushed(stream) || self.connection.step(LEAVE_MS).is_err() {
                break;
            }
            self.keep_ticket();
        }
        let now = self.connection.now();
        self.connection.client.close(now, 0);
        self.connection.send();
    }

    /// Why the connection is over.
    fn ended(&self, end: End) -> Failure<'t> {
        match end {
            End::Quic(error @ (quic::Error::ClosedByPeer | quic::Error::ClosedByApplication)) => {
                Failure::Closed(error, self.connection.client.peer_code())
            }
            end => end.into(),
        }
    }
}

/// An error of MQTT with the broker's reason, where it gave one.
fn refused<'t>(error: Error, reason: u8) -> Failure<'t> {
    match error {
        Error::Refused => Failure::Reason(error, "the broker refused the connection", reason),
        Error::Disconnected => Failure::Reason(error, "the broker ended the connection", reason),
        error => error.into(),
    }
}

/// Whether the broker took it.
const fn taken<'t>(what: &'static str, reason: u8) -> Result<'t, ()> {
    match reason {
        0..128 => Ok(()),
        _ => Err(Failure::Reason(Error::Refused, what, reason)),
    }
}

/// Prints a message.
fn show(
    host: &Host<'_>,
    work: &Work<'_>,
    message: &Message<'_>,
) -> core::result::Result<(), Errno> {
    if let Work::Subscribe { verbose: true, .. } = work {
        write_all(host.output, message.topic)?;
        write_all(host.output, b" ")?;
    }
    write_all(host.output, message.payload)?;
    write_all(host.output, b"\n")
}
