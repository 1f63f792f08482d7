//! The command: publishes one reading with QoS 1 over QUIC, the way a device
//! would: wake, connect or resume, publish, keep the ticket, sleep. Knows no
//! standard library; who calls it brings the arguments and finds names.

use core::ffi::CStr;
use core::fmt::{self, Write};
use core::net::SocketAddr;

use dunlin_mqtt_mini::{Error, Event, Message, Options, Qos, Session, Streams};
use dunlin_quic_mini::{Config, Pinned, Point, Resume};
use rustix::fs::{Mode, OFlags};
use rustix::io::{Errno, retry_on_intr};
use rustix::time::{ClockId, clock_gettime};

use crate::udp::{Connection, DATAGRAM};

const USAGE: &str = "usage: dunlin-tiny HOST:PORT KEY TOPIC PAYLOAD [TICKET-FILE]
  KEY   the server's public key: 65 bytes of a P-256 point in hexadecimal
  With a file, the ticket of the last run is used for early data, and renewed.\n";

const OPTIONS: Options<'static> = Options {
    client_id: b"dunlin-tiny",
    keep_alive: 60,
    ..Options::NEW
};

/// Longest stored ticket, with its time. The engine keeps none that is longer.
const STORED: usize = 2048;
/// Bytes of the time in front of a stored ticket.
const TIME: usize = 8;

/// What the program around this has to give.
pub struct Host<'a> {
    /// Finds the address of `HOST:PORT`, where that is not an address.
    pub find: &'a dyn Fn(&str) -> Option<SocketAddr>,
    /// Where results are told.
    pub out: &'a mut dyn Write,
    /// Where failures are told.
    pub err: &'a mut dyn Write,
}

impl fmt::Debug for Host<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Host")
    }
}

/// Why nothing was published.
enum Failure {
    System(Errno),
    /// The number only: names of all errors would weigh more than the reading.
    Code(u8),
    /// Also the reason that the broker gave.
    Reason(u8, u8),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::System(error) => write!(f, "os error {}", error.raw_os_error()),
            Self::Code(code) => write!(f, "error {code}"),
            Self::Reason(code, reason) => write!(f, "error {code}, reason {reason:#x}"),
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Code(error.code())
    }
}

impl From<Errno> for Failure {
    fn from(error: Errno) -> Self {
        Self::System(error)
    }
}

/// What is to be published, and where.
struct Task<'a> {
    address: SocketAddr,
    /// Empty for an address.
    name: &'a str,
    key: Point,
    topic: &'a str,
    payload: &'a [u8],
    file: Option<&'a CStr>,
}

impl<'a> Task<'a> {
    /// Nothing if the arguments are wrong or the server has no address.
    fn read(arguments: &[&'a CStr], find: &dyn Fn(&str) -> Option<SocketAddr>) -> Option<Self> {
        let [server, key, topic, payload, more @ ..] = arguments else {
            return None;
        };
        let server = server.to_str().ok()?;
        let key = point(key.to_str().ok()?)?;
        let known = server.parse().ok();
        let (name, _) = server.rsplit_once(':')?;
        Some(Self {
            address: known.or_else(|| find(server))?,
            name: if known.is_some() { "" } else { name },
            key,
            topic: topic.to_str().ok()?,
            payload: payload.to_bytes(),
            file: more.first().copied(),
        })
    }
}

/// Does what the arguments say, without the program's name in front. Gives the
/// status to exit with: 0, or 1 for a failure, or 2 for wrong arguments.
pub fn run(arguments: &[&CStr], host: &mut Host<'_>) -> u8 {
    let Some(task) = Task::read(arguments, host.find) else {
        let _ = host.err.write_str(USAGE);
        return 2;
    };
    match publish(&task, host.out) {
        Ok(()) => 0,
        Err(failure) => {
            let _ = writeln!(host.err, "dunlin-tiny: {failure}");
            1
        }
    }
}

/// A point in hexadecimal.
fn point(text: &str) -> Option<Point> {
    let mut point = [0; 65];
    for (i, byte) in point.iter_mut().enumerate() {
        *byte = u8::from_str_radix(text.get(2 * i..2 * i + 2)?, 16).ok()?;
    }
    // Rust reads a sign in front of a number, too.
    let digits = text.bytes().all(|digit| digit.is_ascii_hexdigit());
    (text.len() == 130 && digits).then_some(point)
}

/// Seconds since 1970; 0 while the clock is wrong.
fn seconds() -> u64 {
    u64::try_from(clock_gettime(ClockId::Realtime).tv_sec).unwrap_or(0)
}

/// A stored ticket, behind the time at which it was stored.
fn load<'a>(file: Option<&CStr>, stored: &'a mut [u8; STORED]) -> Option<(&'a [u8], u32)> {
    let file = rustix::fs::open(file?, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let mut len = 0;
    loop {
        let room = stored.get_mut(len..).filter(|room| !room.is_empty())?;
        match retry_on_intr(|| rustix::io::read(&file, &mut *room)).ok()? {
            0 => break,
            more => len += more,
        }
    }
    let (time, ticket) = stored.get(..len)?.split_first_chunk::<TIME>()?;
    // Nothing if the clock went back behind the time of the ticket.
    let age = seconds().checked_sub(u64::from_be_bytes(*time))?;
    Some((ticket, u32::try_from(age.checked_mul(1000)?).ok()?))
}

/// Stores a ticket for its owner only: whoever reads it can be the server.
fn keep(file: &CStr, ticket: &[u8]) -> Result<(), Errno> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::CLOEXEC;
    let file = rustix::fs::open(file, flags, Mode::RUSR | Mode::WUSR)?;
    for mut part in [&seconds().to_be_bytes(), ticket] {
        while !part.is_empty() {
            let written = retry_on_intr(|| rustix::io::write(&file, part))?;
            part = part.get(written..).unwrap_or_default();
        }
    }
    Ok(())
}

fn publish(task: &Task<'_>, out: &mut dyn Write) -> Result<(), Failure> {
    let mut stored = [0; STORED];
    let resume = load(task.file, &mut stored).map(|(ticket, age_ms)| Resume {
        ticket,
        age_ms,
        early: true,
    });
    let config = Config {
        name: task.name.as_bytes(),
        alpn: b"mqtt",
        idle_ms: 10_000,
        max_datagram: DATAGRAM,
        token: &[],
        resume,
    };
    let keys = [task.key];
    let mut connection = Connection::begin(task.address, Pinned::new(&keys), &config)?;
    let mut session = Session::new();
    let mut begun = false;
    loop {
        let quic = &mut connection.client;
        if !begun && quic.is_usable() {
            session.begin(quic, &OPTIONS)?;
            let message = Message {
                topic: task.topic.as_bytes(),
                payload: task.payload,
                qos: Qos::AtLeastOnce,
                retain: false,
            };
            session.publish(quic, &message)?;
            begun = true;
        }
        let arrived = arrived(&mut session, quic);
        let reason = session.reason();
        if arrived.map_err(|error| Failure::Reason(error.code(), reason))? {
            break;
        }
        connection.step().map_err(Error::from)?;
    }
    // The ticket comes behind the handshake, mostly before the answer.
    if let (Some(file), Some(ticket)) = (task.file, connection.client.ticket()) {
        keep(file, ticket)?;
    }
    let _ = writeln!(
        out,
        "published; resumed: {}, early data: {}, round trip: {} ms",
        connection.client.is_resumed(),
        connection.client.took_early_data(),
        connection.client.rtt_ms()
    );
    let now = connection.now();
    connection.client.close(now, 0);
    let _ = connection.step();
    Ok(())
}

/// Takes what the broker sent. Whether the reading has arrived.
fn arrived<Q: Streams>(session: &mut Session, quic: &mut Q) -> Result<bool, Error> {
    while let Some(event) = session.poll(quic)? {
        match event {
            Event::Published { reason, .. } if reason >= 128 => return Err(Error::Refused),
            Event::Published { .. } => return Ok(true),
            _ => {}
        }
    }
    Ok(false)
}
