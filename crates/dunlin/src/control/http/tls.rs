//! TLS of the HTTP door, whose certificate is read again while it runs.

use std::sync::{Arc, PoisonError, RwLock};

use dunlin_base::Text;
use dunlin_net::ServerTls;
use tokio_rustls::TlsAcceptor;

/// What is spoken over it.
const PROTOCOL: &str = "http/1.1";

/// TLS with the certificate that is in force.
#[derive(Clone)]
pub(crate) struct Tls(Arc<RwLock<TlsAcceptor>>);

impl Tls {
    pub(crate) fn new(tls: &ServerTls) -> Self {
        Self(Arc::new(RwLock::new(acceptor(tls))))
    }

    /// Connections to come get this certificate.
    pub(crate) fn replace(&self, tls: &ServerTls) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = acceptor(tls);
    }

    pub(super) fn acceptor(&self) -> TlsAcceptor {
        let acceptor = self.0.read();
        acceptor.unwrap_or_else(PoisonError::into_inner).clone()
    }
}

dunlin_base::opaque_debug!(Tls);

fn acceptor(tls: &ServerTls) -> TlsAcceptor {
    tls.over_tcp(&[Text::from_static(PROTOCOL)]).into()
}
