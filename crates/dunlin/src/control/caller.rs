//! The other end of the control socket: requests to a running broker, one at a time.

use core::time::Duration;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

use super::values::{Reply, Request, Status};
use crate::config::Config;
pub(crate) use crate::config::sections::CONTROL_SOCKET as SOCKET;

/// How long the broker may take for an answer.
const ANSWER_TIME: Duration = Duration::from_secs(120);

/// Where a broker that is installed as a service has its configuration.
const SERVICE: &str = "/etc/dunlin/dunlin.toml";

/// Where it is started, and its relative paths begin.
const SERVICE_DIRECTORY: &str = "/var/lib/dunlin";

/// The socket of the broker with this configuration file. Without one: of the broker
/// that was started without one in this directory, or else of the service. Where the file
/// has a mistake, the broker may run on what it said before: the mistake is shown, and the
/// socket is the one that the rest of the file names, which is shown, too.
///
/// # Errors
/// The configuration cannot be read, or wants no socket.
pub(crate) fn socket_of(config: Option<&Path>) -> anyhow::Result<PathBuf> {
    let here = Config::default()
        .control_path()
        .filter(|path| path.exists());
    let service = Some(Path::new(SERVICE)).filter(|path| here.is_none() && path.exists());
    let file = config.or(service);
    let (loaded, mistake) = match Config::load(file, &[]) {
        Ok(loaded) => (loaded, None),
        Err(error) => match file.and_then(Config::salvage) {
            Some(rest) => (rest, Some(error)),
            None => return Err(error.into()),
        },
    };
    let path = match loaded.control_path() {
        Some(path) if config.is_none() && service.is_some() => {
            Path::new(SERVICE_DIRECTORY).join(path)
        }
        Some(path) => path,
        None => bail!("the configuration says that there is no control socket"),
    };
    if let Some(error) = mistake {
        let at = path.display();
        writeln!(
            io::stderr(),
            "Warning: {error}; the broker is asked at {at}"
        )?;
    }
    Ok(path)
}

/// A connection to a running broker.
#[derive(Debug)]
pub(crate) struct Caller {
    stream: BufReader<UnixStream>,
}

impl Caller {
    /// Connects to the broker that listens on this socket.
    ///
    /// # Errors
    /// None does, or it is not for this user.
    pub(crate) fn connect(socket: &Path) -> anyhow::Result<Self> {
        let connect = || -> io::Result<UnixStream> {
            let stream = UnixStream::connect(socket)?;
            stream.set_read_timeout(Some(ANSWER_TIME))?;
            stream.set_write_timeout(Some(ANSWER_TIME))?;
            Ok(stream)
        };
        let at = socket.display();
        let stream = connect().map_err(|error| match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {
                anyhow::anyhow!("no broker is running that listens on {at} (see --socket)")
            }
            io::ErrorKind::PermissionDenied => {
                anyhow::anyhow!("{at} is for the user that the broker runs as, and root")
            }
            _ => anyhow::Error::new(error).context(format!("cannot connect to {at}")),
        })?;
        let stream = BufReader::new(stream);
        Ok(Self { stream })
    }

    /// Asks, and waits for the reply.
    ///
    /// # Errors
    /// The broker refuses ([`Failure`](super::values::Failure)), or does not answer.
    pub(crate) fn ask(&mut self, request: &Request) -> anyhow::Result<Reply> {
        self.send(request)?;
        let mut line = String::new();
        let read = self.stream.read_line(&mut line);
        if read.context("the broker does not answer")? == 0 {
            bail!("the broker ended the connection without an answer");
        }
        match serde_json::from_str(&line).context("the broker's answer is not understood")? {
            Reply::Failed(failure) => Err(failure.into()),
            reply => Ok(reply),
        }
    }

    /// What is running there.
    ///
    /// # Errors
    /// As [`Caller::ask`].
    pub(crate) fn status(&mut self) -> anyhow::Result<Status> {
        match self.ask(&Request::Status {})? {
            Reply::Status(status) => Ok(status),
            _ => bail!("the broker's answer is not understood"),
        }
    }

    /// Asks for a copy of the store, which is read from what is returned.
    ///
    /// # Errors
    /// The broker does not read.
    pub(crate) fn backup(mut self) -> anyhow::Result<impl BufRead> {
        self.send(&Request::Backup {})?;
        Ok(self.stream)
    }

    fn send(&mut self, request: &Request) -> anyhow::Result<()> {
        let mut line = serde_json::to_vec(request)?;
        line.push(b'\n');
        // A broker that refuses early may close before everything is sent.
        match self.stream.get_mut().write_all(&line) {
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
                Err(error).context("the broker does not read")
            }
            _ => Ok(()),
        }
    }
}
