//! How a program says how to connect: one method for each option.

use core::fmt;
use core::time::Duration;
use std::io;
use std::sync::Arc;

use dunlin_base::Text;
use dunlin_dial::{LinkOptions, Protocol, TicketFile, Url, UrlError};

use crate::client::{Client, Connecting};
use crate::error::{ConnectError, DisconnectCause, OptionError};
use crate::options::{Options, Sasl, StreamPolicy};
use crate::redirect::{REDIRECTS_MAX, Redirect};
use crate::renewing;
use crate::runtime::Runtime;
use crate::tokens::{Token, Tokens};

/// Builds a [`Client`]. Every option has a default.
///
/// # Examples
/// ```no_run
/// use dunlin_amqp_client::{Backoff, Client, Sasl, TlsOptions};
/// use std::time::Duration;
///
/// # async fn run() -> Result<(), Box<dyn std::error::Error>> {
/// let client = Client::builder("amqps://broker.example")?
///     .container_id("plant-7")
///     .credentials("plant-7", "secret")
///     .sasl(Sasl::ScramSha256)
///     .idle_timeout(Some(Duration::from_secs(30)))
///     .tls(TlsOptions::new().ca_file("ca.pem"))
///     .reconnect(Backoff { max: Duration::from_secs(10), ..Backoff::default() })
///     .connect()
///     .await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
#[must_use = "does nothing until it connects"]
pub struct Builder {
    options: Options,
    runtime: Option<Runtime>,
}

impl Builder {
    /// Options for a server, with the URL's user name and password.
    pub fn new(url: Url) -> Self {
        Self {
            options: Options::new(url),
            runtime: None,
        }
    }

    fn link(&mut self) -> &mut LinkOptions {
        Arc::make_mut(&mut self.options.link)
    }

    dunlin_dial::link_methods!();

    /// Sets the container id. Default: a random one. Durable subscriptions
    /// belong to it.
    pub fn container_id(mut self, id: impl AsRef<str>) -> Self {
        self.options.container_id = Text::from(id.as_ref());
        self.options.random_id = false;
        self
    }

    /// Sets the host that is meant, where a server has several. Default: the
    /// URL's.
    pub fn hostname(mut self, hostname: impl AsRef<str>) -> Self {
        self.options.hostname = Some(Text::from(hostname.as_ref()));
        self
    }

    /// Sets user name and password, instead of the URL's.
    pub fn credentials(mut self, user: impl AsRef<str>, password: impl AsRef<str>) -> Self {
        self.options.user = Some(Text::from(user.as_ref()));
        self.options.password = Some(Text::from(password.as_ref()));
        self
    }

    /// Sets how to authenticate. Default: PLAIN with a user name, else
    /// ANONYMOUS.
    pub fn sasl(mut self, sasl: Sasl) -> Self {
        self.options.sasl = sasl;
        self
    }

    /// Authenticates by OAUTHBEARER with the tokens of this source, which is asked when
    /// the client starts and again when three quarters of a token's time are over; the
    /// new one is set on the open connection, so that this goes on. It may block: it is
    /// asked by [`Builder::start`] and then on a thread that the client has for that.
    pub fn tokens(
        mut self,
        source: impl Fn() -> io::Result<Token> + Send + Sync + 'static,
    ) -> Self {
        self.options.tokens = Some(Arc::new(Tokens::new(Box::new(source))));
        self
    }

    /// Largest frame that the server may send, 512 bytes at least. Default
    /// 64 KiB.
    pub fn max_frame_size(mut self, bytes: u32) -> Self {
        self.options.frame_bytes = bytes;
        self
    }

    /// Silence of the server after which the connection is lost; half of it is
    /// what the server hears. Default 60 s.
    pub fn idle_timeout(mut self, timeout: Option<Duration>) -> Self {
        self.options.idle_timeout = timeout;
        self
    }

    /// Time for one attempt to connect, until the server's `open`. Default 20 s.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.link().connect_timeout = timeout;
        self
    }

    /// Keeps session tickets and address tokens in a file, so that a process
    /// that is started again opens connection, session and links in the first
    /// datagram. On QUIC only.
    pub fn tickets(mut self, file: TicketFile) -> Self {
        self.link().tickets = Some(file);
        self
    }

    /// Whether to open with the first datagram (0-RTT) where a session ticket
    /// allows it; on by default, on QUIC only, and never with PLAIN or
    /// OAUTHBEARER. No message can be in it: a server gives credit first.
    pub fn early_data(mut self, send: bool) -> Self {
        self.link().early_data = send;
        self
    }

    /// Whether SASL, `open`, `begin` and `attach` leave in one flight, without
    /// waiting for answers; on by default. A server that ends such a connection
    /// at once gets the next one step by step.
    pub fn pipelined(mut self, pipelined: bool) -> Self {
        self.link().pipelined = pipelined;
        self
    }

    /// Which links share a stream of QUIC. Default: all.
    pub fn streams(mut self, policy: StreamPolicy) -> Self {
        self.options.streams = policy;
        self
    }

    /// Hosts, by name or address, that a server may send this client to:
    /// [`Builder::connect`] goes there with the same credentials and over the same kind
    /// of transport, at most four times in a row. Default: none, and a server that names
    /// another one is an error.
    pub fn follow_redirects(mut self, hosts: impl IntoIterator<Item = impl AsRef<str>>) -> Self {
        let hosts = hosts.into_iter().map(|host| Text::from(host.as_ref()));
        self.options.redirect_hosts = hosts.collect();
        self
    }

    /// The same client at the server that another one names; `None` if that is none of
    /// the hosts of [`Builder::follow_redirects`]. A link that was redirected
    /// ([`LinkError::Redirected`](crate::LinkError::Redirected)) is attached there.
    ///
    /// # Examples
    /// ```no_run
    /// # use dunlin_amqp_client::{Client, LinkError};
    /// # async fn run() -> Result<(), Box<dyn std::error::Error>> {
    /// let builder = Client::builder("amqps://one.example")?.follow_redirects(["two.example"]);
    /// let client = builder.clone().connect().await?;
    /// let sender = match client.sender("plant2/door").attach().await {
    ///     Err(LinkError::Redirected(redirect)) => {
    ///         let builder = builder.redirected(&redirect).ok_or("not to be followed")?;
    ///         let address = redirect.address().unwrap_or("plant2/door");
    ///         builder.connect().await?.sender(address).attach().await?
    ///     }
    ///     answer => answer?,
    /// };
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn redirected(&self, redirect: &Redirect) -> Option<Self> {
        let mut hosts = self.options.redirect_hosts.iter();
        let host = hosts.find(|host| host.eq_ignore_ascii_case(redirect.host()))?;
        let mut next = self.clone();
        let url = self.options.link.url.at(host, redirect.port());
        next.options.hostname = redirect.hostname.as_deref().map(Text::from);
        next.link().url = url;
        Some(next)
    }

    /// Runs the client on this runtime instead of the process-wide one.
    pub fn runtime(mut self, runtime: &Runtime) -> Self {
        self.runtime = Some(runtime.clone());
        self
    }

    /// Connects. The first attempt is the only one: reconnection begins after it
    /// has succeeded. Where a server names another one, there is one attempt there, if
    /// [`Builder::follow_redirects`] allows that.
    ///
    /// # Errors
    /// An option is impossible, the server cannot be reached or refuses.
    ///
    /// # Cancel safety
    /// Dropping the future gives up the connection.
    pub async fn connect(self) -> Result<Client, ConnectError> {
        let mut builder = self;
        for _ in 0..REDIRECTS_MAX {
            let (client, connecting) = builder.clone().start()?;
            let error = match connecting.await {
                Ok(()) => return Ok(client),
                Err(error) => error,
            };
            let next = match &error {
                ConnectError::Failed(DisconnectCause::Redirected(to)) => builder.redirected(to),
                _ => None,
            };
            builder = next.ok_or(error)?;
        }
        let (client, connecting) = builder.start()?;
        connecting.await?;
        Ok(client)
    }

    /// Begins to connect and does not wait: links that are asked for now leave
    /// in the first flight, so that a message is settled two round trips after
    /// the transport stands.
    ///
    /// # Errors
    /// An option is impossible.
    ///
    /// # Examples
    /// ```no_run
    /// use dunlin_amqp_client::{Client, Message};
    ///
    /// # async fn run() -> Result<(), Box<dyn std::error::Error>> {
    /// let (client, connecting) = Client::builder("amqp+quic://broker.example")?.start()?;
    /// let (sender, _) = client.sender("plant/7/temperature").start()?;
    /// let sent = sender.start_send(Message::new("21.5")).await?;
    /// connecting.await?;
    /// println!("{}", sent.await?);
    /// # Ok(())
    /// # }
    /// ```
    pub fn start(mut self) -> Result<(Client, Connecting), ConnectError> {
        self.options.check()?;
        let runtime = match self.runtime {
            Some(runtime) => runtime,
            None => Runtime::global()?,
        };
        let tokens = self.options.tokens.clone();
        let due = tokens.as_ref().map(|tokens| tokens.fetch()).transpose();
        let due = due.map_err(|error| OptionError::Token(Arc::new(error)))?;
        let (client, connecting) = Client::start(&runtime, Arc::new(self.options))?;
        if let Some((tokens, due)) = tokens.zip(due) {
            renewing::start(tokens, &client, due)?;
        }
        Ok((client, connecting))
    }
}

impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder")
            .field("url", &self.options.link.url)
            .finish_non_exhaustive()
    }
}

impl Client {
    /// Options for a server, such as `amqp://host`, `amqps://user:password@host`,
    /// `amqp+quic://host:5671`, `amqp+wss://host/amqp`.
    ///
    /// # Errors
    /// The URL is wrong, or not one of AMQP.
    pub fn builder(url: impl AsRef<str>) -> Result<Builder, UrlError> {
        let url = url.as_ref().parse::<Url>()?;
        url.require(Protocol::Amqp)?;
        Ok(Builder::new(url))
    }
}
