//! Proxies in front of a listener: which addresses are theirs, and how they say
//! where a client is. The PROXY protocol is in `header`, the headers of HTTP in
//! `forwarded`. What any other address says is never believed.

mod forwarded;
mod header;

use core::net::IpAddr;

use dunlin_base::AddrRange;
use dunlin_base::transport::Transport;

pub use forwarded::ForwardedHeader;
pub(crate) use forwarded::MalformedHeader;
pub use header::{HEADER_BYTES_MAX, Header, HeaderError, ProxyVersions};

/// Proxies in front of a listener.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Proxies {
    /// Their addresses.
    pub trusted: Vec<AddrRange>,
    /// Every connection begins with a header of the PROXY protocol; connections from
    /// other addresses are refused.
    pub header: Option<ProxyVersions>,
    /// The common name that a header of version 2 has of the client's certificate, as
    /// far as the proxy verified it, is the name of the peer.
    pub identity: bool,
    /// Header of a WebSocket's request that has the address of its client. From other
    /// addresses it means nothing.
    pub forwarded: Option<ForwardedHeader>,
}

impl Proxies {
    /// Whether they say where the clients of a listener are.
    pub(crate) fn name_clients(&self, transport: Transport) -> bool {
        let is_ws = matches!(transport, Transport::Ws | Transport::Wss);
        self.header.is_some() || is_ws && self.forwarded.is_some()
    }

    /// Whether a proxy has this address.
    pub(crate) fn trusts(&self, ip: IpAddr) -> bool {
        let ip = ip.to_canonical();
        self.trusted.iter().any(|range| range.contains(ip))
    }
}

/// Whether an address may be that of a client of who is at `from`: a loopback address only
/// on this machine. Elsewhere it is another machine's, and clients that are let in for
/// being here must not be mistaken for it.
pub(crate) const fn is_possible(client: IpAddr, from: IpAddr) -> bool {
    !client.is_loopback() || from.is_loopback()
}

/// The header of a connection that has not come as a whole.
#[derive(Debug)]
pub(crate) struct Awaited {
    versions: ProxyVersions,
    /// Whether the name in the header counts.
    identity: bool,
    received: Vec<u8>,
}

impl Awaited {
    pub(crate) const fn new(versions: ProxyVersions, identity: bool) -> Self {
        Self {
            versions,
            identity,
            received: Vec::new(),
        }
    }

    /// Takes received bytes. Once the header is complete: what it says, and how many
    /// of these bytes belong to it.
    ///
    /// # Errors
    /// That is no such header.
    pub(crate) fn input(&mut self, data: &[u8]) -> Result<Option<(Header, usize)>, HeaderError> {
        let before = self.received.len();
        let wanted = HEADER_BYTES_MAX.saturating_sub(before);
        let header = if before == 0 {
            Header::parse(data, self.versions)?
        } else {
            self.received.extend(data.iter().take(wanted));
            Header::parse(&self.received, self.versions)?
        };
        let Some(mut header) = header else {
            if before == 0 {
                self.received = data.to_vec();
            }
            return Ok(None);
        };
        if !self.identity {
            header.common_name = None;
        }
        let used = header.len.saturating_sub(before);
        Ok(Some((header, used)))
    }
}
