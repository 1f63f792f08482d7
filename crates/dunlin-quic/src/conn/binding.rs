//! What an exchange of SASL on a connection is bound by: keying material of TLS
//! (RFC 9266). An accepted connection lets its TLS go, so the material is taken
//! out before and kept until the application knows its peer, for longer only if
//! it was asked for.

use bytes::Bytes;
use quinn_proto::Connection;

use crate::inspect::export;
use crate::session;

/// Whether the material of one connection is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Binding {
    /// It may be.
    Unasked,
    /// The handshake goes on.
    Asked,
    /// It was given, and may be again.
    Given,
    /// It is not any more.
    Unwanted,
}

impl Binding {
    /// The handshake is complete: gives the material to who asked before.
    pub(super) fn confirm(&mut self, proto: &Connection) -> Option<Bytes> {
        match self {
            Self::Unasked | Self::Given => None,
            Self::Asked => {
                *self = Self::Given;
                material(proto)
            }
            Self::Unwanted => {
                forget(proto);
                None
            }
        }
    }
}

/// What an exchange of SASL on a connection is bound by.
pub struct BindingMut<'a> {
    binding: &'a mut Binding,
    proto: &'a Connection,
    confirmed: bool,
}

dunlin_base::opaque_debug!(BindingMut<'_>);

impl<'a> BindingMut<'a> {
    pub(super) const fn new(
        binding: &'a mut Binding,
        proto: &'a Connection,
        confirmed: bool,
    ) -> Self {
        Self {
            binding,
            proto,
            confirmed,
        }
    }

    /// The application asks for the material: `None` without it, or as long as
    /// the handshake goes on, and then an event gives it.
    pub fn ask(self) -> Option<Bytes> {
        *self.binding = match self.binding {
            Binding::Unwanted => return None,
            _ if self.confirmed => Binding::Given,
            _ => Binding::Asked,
        };
        self.confirmed.then(|| material(self.proto)).flatten()
    }

    /// The application knows the peer: what was not asked for will not be.
    pub fn settle(self) {
        if *self.binding == Binding::Unasked {
            *self.binding = Binding::Unwanted;
            forget(self.proto);
        }
    }
}

/// The material of a connection whose handshake is complete.
fn material(proto: &Connection) -> Option<Bytes> {
    let tls = proto.crypto_session();
    let data = match session::inspector(proto) {
        Some(inspector) => inspector.exported(),
        None => export(|data, label, context| tls.export_keying_material(data, label, context)),
    };
    data.map(|data| Bytes::copy_from_slice(&data))
}

fn forget(proto: &Connection) {
    if let Some(inspector) = session::inspector(proto) {
        inspector.set_exported(None);
    }
}
