//! What SASL on a dialled connection can be bound by (RFC 5056).

use bytes::Bytes;
use dunlin_base::ConnId;
use dunlin_base::transport::BindingType;
use dunlin_net::Net;

/// The end of a connection that an exchange of SASL can be bound to.
#[derive(Clone, Debug, Default)]
pub struct Channel {
    kind: Option<BindingType>,
    data: Bytes,
}

impl Channel {
    /// That of a connection that is open. Where its handshake goes on,
    /// [`NetEventKind::ChannelBinding`](dunlin_base::transport::NetEventKind::ChannelBinding)
    /// gives the data.
    #[must_use]
    pub fn of(net: &mut Net, conn: ConnId) -> Self {
        let mut conn = net.conn(conn);
        let kind = conn.binding_type();
        let data = kind.and_then(|_| conn.bind_channel()).unwrap_or_default();
        Self { kind, data }
    }

    /// How it is bound; `None`: it cannot be.
    #[must_use]
    pub const fn kind(&self) -> Option<BindingType> {
        self.kind
    }

    /// The data; empty as long as it is not known.
    #[must_use]
    pub fn data(&self) -> &[u8] {
        &self.data
    }

    /// The transport gives the data.
    pub fn set_data(&mut self, data: Bytes) {
        self.data = data;
    }
}
