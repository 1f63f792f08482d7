//! What the program around a command gives it, and how a failure is written
//! there.

use core::ffi::CStr;
use core::fmt::{self, Write};
use core::net::SocketAddr;

use dunlin_mqtt_mini::{Error, error_text, reason_text};
use dunlin_quic_mini as quic;
use rustix::fd::BorrowedFd;
use rustix::io::Errno;

use crate::files::Text;
use crate::udp::End;

/// Most addresses of a name that are tried.
pub const ADDRESSES: usize = 4;

/// What the program around this has to give.
#[derive(Clone, Copy)]
pub struct Host<'a> {
    /// Finds the addresses of `HOST:PORT`, and gives how many.
    pub find: &'a dyn Fn(&str, &mut [SocketAddr; ADDRESSES]) -> usize,
    /// Says what the number of an error of the system means.
    pub explain: &'a dyn Fn(i32, &mut dyn Write) -> fmt::Result,
    /// Where a message may come from.
    pub input: BorrowedFd<'a>,
    /// Where results are written.
    pub output: BorrowedFd<'a>,
    /// Where failures are written.
    pub errors: BorrowedFd<'a>,
}

impl fmt::Debug for Host<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Host")
    }
}

/// Why the task is not done.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Failure<'a> {
    /// KEY is none.
    Key(&'a CStr),
    /// A file has no own certificate, or no key for it.
    Certificate(&'a CStr),
    /// HOST:PORT has no address.
    Address(&'a str),
    /// The time given is over.
    TimedOut,
    /// What could not be done, and the system's reason.
    System(&'static str, Errno),
    /// Of MQTT or of the engine.
    Error(Error),
    /// The server closed the connection with this number.
    Closed(quic::Error, u32),
    /// The broker ended it, or did not take something, for this reason.
    Reason(Error, &'static str, u8),
}

impl From<Error> for Failure<'_> {
    fn from(error: Error) -> Self {
        Self::Error(error)
    }
}

impl From<End> for Failure<'_> {
    fn from(end: End) -> Self {
        match end {
            End::System(errno) => Self::System("cannot connect", errno),
            End::Quic(error) => Self::Error(error.into()),
        }
    }
}

impl Failure<'_> {
    /// The status to exit with.
    pub(crate) const fn status(self) -> u8 {
        match self {
            Self::Key(_) | Self::Certificate(_) => 2,
            Self::TimedOut => 27,
            _ => 1,
        }
    }

    /// Tells it in a line.
    pub(crate) fn tell(self, host: &Host<'_>) -> fmt::Result {
        let mut out = Text(host.errors);
        out.write_str("dunlin-tiny: ")?;
        match self {
            Self::Key(key) => {
                out.write_str("KEY is neither a point of P-256 nor a PEM file with one: ")?;
                out.write_str(key.to_str().unwrap_or("not UTF-8"))?;
            }
            Self::Certificate(file) => {
                out.write_str("neither certificates nor a key of P-256 in PEM, or too long: ")?;
                out.write_str(file.to_str().unwrap_or("not UTF-8"))?;
            }
            Self::Address(server) => write!(out, "HOST:PORT has no address: {server}")?,
            Self::TimedOut => out.write_str("timed out")?,
            Self::System(what, errno) => {
                write!(out, "{what}: ")?;
                (host.explain)(errno.raw_os_error(), &mut out)?;
            }
            Self::Error(error) => write!(out, "error {}: {}", error.code(), text(error))?,
            Self::Closed(error, code) => {
                let error = Error::Quic(error);
                write!(
                    out,
                    "error {}: {} (code {code:#x})",
                    error.code(),
                    text(error)
                )?;
            }
            Self::Reason(error, what, reason) => {
                let because = reason_text(reason).to_str().unwrap_or_default();
                let code = error.code();
                write!(out, "error {code}: {what}: {because} (reason {reason:#x})")?;
            }
        }
        out.write_str("\n")
    }
}

fn text(error: Error) -> &'static str {
    error_text(error.code()).to_str().unwrap_or_default()
}
