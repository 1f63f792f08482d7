//! Unix sockets: where clients of the same machine connect, whom the permissions of a
//! file let in. A socket appears under its path with its permissions, never before, and
//! takes the place of one on which no process listens; another file stays.

use std::fs::{DirBuilder, Permissions};
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::fs::{
    DirBuilderExt as _, FileTypeExt as _, MetadataExt as _, PermissionsExt as _,
};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use core::net::SocketAddr;
use dunlin_base::transport::unix_addr;
use mio::event::Source;
use mio::net::{TcpListener, TcpStream};
use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};
use socket2::{Domain, SockAddr, Socket, Type};

/// Who may connect to a socket, by its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnixAccess {
    /// Permission bits; who may write may connect.
    pub mode: u32,
    /// Number of the group that the file is given to; `None`: the process's own.
    pub group: Option<u32>,
}

/// A socket that listens at a path. Dropping it removes the file.
#[derive(Debug)]
pub struct UnixSocket {
    listener: UnixListener,
    path: PathBuf,
    /// Device and number of the file, so that no other one is removed.
    file: (u64, u64),
}

impl UnixSocket {
    /// Listens at a path, which a process that was killed may have left behind.
    ///
    /// # Errors
    /// What the system says; a path of more than about 90 bytes, a file that is no
    /// socket, or a process that listens there, among others.
    pub fn bind(path: &Path, access: UnixAccess) -> io::Result<Self> {
        make_room(path)?;
        // Nothing can connect to it in there before its permissions are set.
        let private = Private::beside(path)?;
        let inside = private.0.join("s");
        let listener = UnixListener::bind(&inside)?;
        if access.group.is_some() {
            std::os::unix::fs::chown(&inside, None, access.group)?;
        }
        std::fs::set_permissions(&inside, Permissions::from_mode(access.mode & 0o777))?;
        let found = std::fs::symlink_metadata(&inside)?;
        // Unlike a renaming, this replaces nothing.
        std::fs::hard_link(&inside, path)?;
        Ok(Self {
            listener,
            path: path.to_owned(),
            file: (found.dev(), found.ino()),
        })
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The socket.
    #[must_use]
    pub const fn listener(&self) -> &UnixListener {
        &self.listener
    }
}

impl Drop for UnixSocket {
    fn drop(&mut self) {
        let found = std::fs::symlink_metadata(&self.path);
        if found.is_ok_and(|it| (it.dev(), it.ino()) == self.file) {
            // What cannot be removed is removed at the next start.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Removes a socket on which no process listens.
fn make_room(path: &Path) -> io::Result<()> {
    let Ok(found) = std::fs::symlink_metadata(path) else {
        return Ok(());
    };
    if !found.file_type().is_socket() {
        let why = "there is a file of this name that is no socket";
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, why));
    }
    if UnixStream::connect(path).is_ok() {
        let why = "another process listens there";
        return Err(io::Error::new(io::ErrorKind::AddrInUse, why));
    }
    std::fs::remove_file(path)
}

/// A directory that is for this process's user alone, beside a file. Dropping it removes
/// it with the socket in it.
struct Private(PathBuf);

impl Private {
    fn beside(path: &Path) -> io::Result<Self> {
        let mut random = [0; 4];
        getrandom::fill(&mut random).map_err(io::Error::other)?;
        let name = format!(".d{:08x}", u32::from_ne_bytes(random));
        let dir = match path.parent() {
            Some(parent) => parent.join(name),
            None => PathBuf::from(name),
        };
        DirBuilder::new().mode(0o700).create(&dir)?;
        Ok(Self(dir))
    }
}

impl Drop for Private {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(self.0.join("s"));
        let _ = std::fs::remove_dir(&self.0);
    }
}

/// A socket that accepts byte streams.
#[derive(Debug)]
pub(crate) enum Acceptor {
    Tcp(TcpListener),
    /// Loops share it.
    Unix(Arc<UnixSocket>),
}

impl Acceptor {
    /// One that shards share; it never waits.
    pub(crate) fn unix(socket: Arc<UnixSocket>) -> io::Result<Self> {
        socket.listener.set_nonblocking(true)?;
        Ok(Self::Unix(socket))
    }

    /// The next connection, and its address.
    pub(crate) fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        match self {
            Self::Tcp(listener) => listener.accept(),
            Self::Unix(socket) => {
                let (stream, _) = socket.listener.accept()?;
                stream.set_nonblocking(true)?;
                let addr = unix_addr(user_of(&stream));
                let stream = std::net::TcpStream::from(OwnedFd::from(stream));
                Ok((TcpStream::from_std(stream), addr))
            }
        }
    }
}

impl Source for Acceptor {
    fn register(&mut self, to: &Registry, token: Token, interests: Interest) -> io::Result<()> {
        match self {
            Self::Tcp(listener) => listener.register(to, token, interests),
            Self::Unix(socket) => {
                SourceFd(&socket.listener.as_raw_fd()).register(to, token, interests)
            }
        }
    }

    fn reregister(&mut self, to: &Registry, token: Token, interests: Interest) -> io::Result<()> {
        match self {
            Self::Tcp(listener) => listener.reregister(to, token, interests),
            Self::Unix(socket) => {
                SourceFd(&socket.listener.as_raw_fd()).reregister(to, token, interests)
            }
        }
    }

    fn deregister(&mut self, from: &Registry) -> io::Result<()> {
        match self {
            Self::Tcp(listener) => listener.deregister(from),
            Self::Unix(socket) => SourceFd(&socket.listener.as_raw_fd()).deregister(from),
        }
    }
}

/// Number of the user at the other end.
#[cfg(target_os = "linux")]
fn user_of(stream: &UnixStream) -> u32 {
    let peer = rustix::net::sockopt::socket_peercred(stream);
    peer.map_or(u32::MAX, |peer| peer.uid.as_raw())
}

#[cfg(not(target_os = "linux"))]
fn user_of(_stream: &UnixStream) -> u32 {
    u32::MAX
}

/// Connects to the socket at a path, at once or not at all; the error names the path.
pub(crate) fn connect(path: &Path) -> io::Result<std::net::TcpStream> {
    begin(path).map_err(|error| {
        let text = format!("{}: {error}", path.display());
        io::Error::new(error.kind(), text)
    })
}

fn begin(path: &Path) -> io::Result<std::net::TcpStream> {
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.set_nonblocking(true)?;
    socket.connect(&SockAddr::unix(path)?)?;
    Ok(std::net::TcpStream::from(OwnedFd::from(socket)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRIVATE: UnixAccess = UnixAccess {
        mode: 0o600,
        group: None,
    };

    /// A directory of this test alone.
    fn dir(name: &str) -> PathBuf {
        let dir = std::env::temp_dir().join(format!("dunlin-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir(&dir).unwrap();
        dir
    }

    #[test]
    fn a_socket_takes_the_place_of_one_that_is_left_and_of_nothing_else() {
        let dir = dir("unix");
        let path = dir.join("s.sock");
        // As a process that was killed leaves it.
        drop(UnixListener::bind(&path).unwrap());
        let socket = UnixSocket::bind(&path, PRIVATE).unwrap();
        let found = std::fs::symlink_metadata(&path).unwrap();
        assert!(found.file_type().is_socket());
        assert_eq!(found.permissions().mode() & 0o777, 0o600);
        UnixStream::connect(&path).unwrap();
        let error = UnixSocket::bind(&path, PRIVATE).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
        assert_eq!(std::fs::read_dir(&dir).unwrap().count(), 1, "nothing else");
        drop(socket);
        assert!(!path.exists());
        std::fs::write(&path, "kept").unwrap();
        let error = UnixSocket::bind(&path, PRIVATE).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "kept");
        assert_eq!(std::fs::read_dir(&dir).unwrap().count(), 1);
        std::fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn a_file_that_came_in_its_place_is_not_removed() {
        let dir = dir("unix-other");
        let path = dir.join("s.sock");
        let socket = UnixSocket::bind(&path, PRIVATE).unwrap();
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, "other").unwrap();
        drop(socket);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "other");
        std::fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn permissions_are_those_that_were_asked_for() {
        let dir = dir("unix-mode");
        let path = dir.join("s.sock");
        let group = std::fs::metadata(&dir).unwrap().gid();
        let access = UnixAccess {
            mode: 0o660,
            group: Some(group),
        };
        let _socket = UnixSocket::bind(&path, access).unwrap();
        let found = std::fs::symlink_metadata(&path).unwrap();
        assert_eq!(found.permissions().mode() & 0o777, 0o660);
        assert_eq!(found.gid(), group);
        drop(_socket);
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
