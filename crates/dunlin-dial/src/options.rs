//! How a connection comes about and comes back, as options.

use core::net::IpAddr;
use core::time::Duration;

use dunlin_base::Text;
use dunlin_net::Connector;

use crate::backoff::Backoff;
use crate::network::NetworkOptions;
use crate::race::Race;
use crate::tickets::TicketFile;
use crate::tls::TlsOptions;
use crate::url::Url;

/// Time for one attempt by default.
const CONNECT_TIMEOUT_DEFAULT: Duration = Duration::from_secs(20);

/// Equal losses in a row that end a link by default.
const LOSSES_MAX_DEFAULT: u32 = 20;

/// How a connection comes about and comes back.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LinkOptions {
    /// Where the server is, and what is spoken there.
    pub url: Url,
    /// Application protocols to offer, by preference. Default: that of the URL.
    pub protocols: Vec<Text>,
    /// QUIC and TLS race. Default: where the scheme says so.
    pub race: Option<Race>,
    /// Whom to trust. Default: what the operating system trusts.
    pub tls: TlsOptions,
    /// How QUIC behaves towards the network.
    pub network: NetworkOptions,
    /// Address of this machine to send from.
    pub local_addr: Option<IpAddr>,
    /// Time for one attempt. Default 20 s.
    pub connect_timeout: Duration,
    /// How to connect again after a failure; `None`: not at all.
    pub reconnect: Option<Backoff>,
    /// Attempts go on also when the first has failed. Default false.
    pub persistent: bool,
    /// Equal losses in a row that end the link; 0: none do. Default 20.
    pub losses_max: u32,
    /// Whether to use early data (0-RTT). Default true.
    pub early_data: bool,
    /// More than the protocol's opening may leave before its answer has come.
    pub pipelined: bool,
    /// Keeps session tickets and address tokens.
    pub tickets: Option<TicketFile>,
    /// Where sockets come from, for a server in this process. Default: from the host
    /// of the URL, which must be an address if this is set.
    pub connector: Option<Connector>,
}

impl LinkOptions {
    /// The defaults.
    #[must_use]
    pub fn new(url: Url) -> Self {
        Self {
            protocols: vec![Text::from_static(url.protocol().name())],
            race: url.is_auto().then(Race::new),
            url,
            tls: TlsOptions::new(),
            network: NetworkOptions::new(),
            local_addr: None,
            connect_timeout: CONNECT_TIMEOUT_DEFAULT,
            reconnect: Some(Backoff::default()),
            persistent: false,
            losses_max: LOSSES_MAX_DEFAULT,
            early_data: true,
            pipelined: false,
            tickets: None,
            connector: None,
        }
    }
}
