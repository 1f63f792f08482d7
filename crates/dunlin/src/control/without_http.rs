//! In the place of the HTTP door, in a program that was built without it. A configuration
//! that asks for the door is refused when the broker starts.

use core::net::SocketAddr;
use std::io;
use std::sync::Arc;

use crate::control::plane::Plane;
use crate::metrics::history::Recorder;

/// What would be served.
#[derive(Debug)]
#[expect(dead_code, reason = "nothing is served")]
pub(crate) struct Settings {
    pub(crate) addr: SocketAddr,
    pub(crate) tls: Option<tls::Tls>,
    pub(crate) hosts: Vec<String>,
    pub(crate) plane: Arc<Plane>,
    pub(crate) recorder: Recorder,
}

/// There is none.
#[derive(Debug)]
pub(crate) enum Server {}

impl Server {
    pub(crate) fn start(_: Settings) -> io::Result<Self> {
        let why = "this program was built without the control API over HTTP (feature `http`)";
        Err(io::Error::new(io::ErrorKind::Unsupported, why))
    }

    pub(crate) const fn addr(&self) -> SocketAddr {
        match *self {}
    }

    pub(crate) const fn is_encrypted(&self) -> bool {
        match *self {}
    }
}

pub(crate) mod tls {
    //! Likewise.

    use dunlin_net::ServerTls;

    /// A certificate that nothing is encrypted with.
    #[derive(Clone, Debug)]
    pub(crate) struct Tls;

    impl Tls {
        pub(crate) const fn new(_: &ServerTls) -> Self {
            Self
        }

        pub(crate) const fn replace(&self, _: &ServerTls) {}
    }
}
