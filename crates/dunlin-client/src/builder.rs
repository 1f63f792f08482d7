//! How a program says how to connect: one method for each option.

mod streams;

use core::fmt;
use core::time::Duration;
use std::sync::Arc;

use dunlin_dial::{LinkOptions, Protocol, TicketFile, Url, UrlError};
use dunlin_mqtt::codec::Version;
use dunlin_net::Connector;

use crate::arguments::{Payload, TextArg};
use crate::client::{Client, Connecting};
use crate::error::ConnectError;
use crate::message::Will;
use crate::messages::Messages;
use crate::options::{IN_FLIGHT_MAX, Options};
use crate::runtime::Runtime;

/// Builds a [`Client`]. Every option has a default.
///
/// # Examples
/// ```no_run
/// use dunlin_client::{Backoff, Client, TlsOptions};
/// use std::time::Duration;
///
/// # async fn run() -> Result<(), Box<dyn std::error::Error>> {
/// let (client, messages) = Client::builder("mqtts://broker.example")?
///     .client_id("plant-7")
///     .clean_start(false)
///     .session_expiry(Duration::from_secs(3600))
///     .keep_alive(Duration::from_secs(30))
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
    pub(crate) options: Options,
    pub(crate) runtime: Option<Runtime>,
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

    /// Sets the client identifier. Default: a random one.
    pub fn client_id(mut self, id: impl Into<TextArg>) -> Self {
        self.options.session.client_id = id.into().0;
        self
    }

    /// Whether to begin with a new session (default) or with the one that the
    /// server has for this client identifier. Reconnections always continue the
    /// session; in MQTT 3.1.1 they do only with `false`.
    pub fn clean_start(mut self, clean: bool) -> Self {
        self.options.session.clean_start = clean;
        self
    }

    /// How long the server keeps the session after the connection, in whole
    /// seconds; [`Duration::MAX`] for ever. Default: 5 minutes while the client
    /// reconnects by itself, nothing after [`Client::disconnect`].
    pub fn session_expiry(mut self, expiry: Duration) -> Self {
        self.options.session.session_expiry = Some(expiry);
        self
    }

    /// Longest silence before the client pings, in whole seconds; zero for no
    /// limit. Default 60 s. Also decides how soon a dead connection is noticed.
    pub fn keep_alive(mut self, keep_alive: Duration) -> Self {
        self.options.session.keep_alive = keep_alive;
        self
    }

    /// How long the server may take to answer a ping before the connection
    /// counts as dead. Default: half the keep alive, from 1 s to 10 s.
    pub fn ping_timeout(mut self, timeout: Duration) -> Self {
        self.options.session.ping_timeout = Some(timeout);
        self
    }

    /// Sets user name and password, instead of the URL's.
    pub fn credentials(self, user: impl Into<TextArg>, password: impl Into<Payload>) -> Self {
        self.user(user).password(password)
    }

    /// Sets the user name.
    pub fn user(mut self, user: impl Into<TextArg>) -> Self {
        self.options.session.user = Some(user.into().0);
        self
    }

    /// Sets the password.
    pub fn password(mut self, password: impl Into<Payload>) -> Self {
        self.options.session.password = Some(password.into().0);
        self
    }

    /// Authenticates with SCRAM-SHA-256: the password does not travel, and the
    /// server proves that it knows it. MQTT 5.0.
    pub fn scram(mut self, user: impl Into<String>, password: impl Into<Vec<u8>>) -> Self {
        self.options.session.scram = Some((user.into(), password.into()));
        self
    }

    /// Sets the message that the server publishes if the client vanishes.
    pub fn will(mut self, will: Will) -> Self {
        self.options.session.will = Some(will);
        self
    }

    /// Sets the version of MQTT. Default 5.0.
    pub fn version(mut self, version: Version) -> Self {
        self.options.session.version = version;
        self
    }

    /// How many messages of QoS 1 and 2 the server may send without
    /// acknowledgement, 1 to 32,000. Default 256. Costs 40 bytes each.
    pub fn receive_maximum(mut self, maximum: u16) -> Self {
        /// The engine wants twice as many slots.
        const RECEIVE_MAXIMUM_MAX: u16 = 32_000;
        self.options.session.receive_maximum = maximum.clamp(1, RECEIVE_MAXIMUM_MAX);
        self
    }

    /// How many messages may wait for their acknowledgement, or QoS 0 messages
    /// for room in the connection, 1 to 65,000; further calls of
    /// [`Client::publish`] wait. Default 256.
    pub fn max_in_flight(mut self, maximum: u16) -> Self {
        self.options.session.max_in_flight = maximum.clamp(1, IN_FLIGHT_MAX);
        self
    }

    /// How many received messages may wait for the application, at least 1,
    /// before no more are read from the connection. Default 1024. No more than
    /// 16 MiB wait in any case.
    pub fn receive_queue(mut self, messages: usize) -> Self {
        self.options.inbox.messages_max = messages.max(1);
        self
    }

    /// Largest packet accepted from the server, in bytes. Default 1 MiB.
    pub fn maximum_packet_size(mut self, bytes: u32) -> Self {
        /// The smallest size that leaves room for a short message.
        const PACKET_BYTES_MIN: u32 = 128;
        self.options.session.maximum_packet_size = bytes.max(PACKET_BYTES_MIN);
        self
    }

    /// How many topic aliases to use, in each direction; 0 for none. Default
    /// 16.
    pub fn topic_aliases(mut self, aliases: u16) -> Self {
        self.options.session.topic_aliases = aliases;
        self
    }

    /// Time for one attempt to connect, until the server's CONNACK. Default
    /// 20 s. Also bounds, if it is less than 5 s, how long a disconnect waits for
    /// messages to leave.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.link().connect_timeout = timeout;
        self
    }

    /// Keeps session tickets and address tokens in a file, so that a process
    /// that is started again sends CONNECT and its first messages in the first
    /// datagram. On QUIC only.
    pub fn tickets(mut self, file: TicketFile) -> Self {
        self.link().tickets = Some(file);
        self
    }

    /// Whether to send CONNECT, and subscriptions and messages that wait, with
    /// the first datagram (0-RTT) where a session ticket allows it; on by default, on
    /// QUIC only. A Dunlin broker takes such data once; of another server that
    /// is not known, so that an attacker who records and repeats a first datagram
    /// might repeat the messages in it.
    pub fn early_data(mut self, send: bool) -> Self {
        self.link().early_data = send;
        self
    }

    /// Whether subscriptions and messages that wait when the connection opens,
    /// of QoS 1 and 2 at most ten, are sent with CONNECT instead of after
    /// CONNACK, which saves a round trip on every transport. MQTT allows it
    /// (section 3.1.4): a server that refuses CONNECT throws the rest away. One
    /// that turns out to take less than they need ends the connection, and the
    /// next attempt waits for what it says in CONNACK. Off by default; early
    /// data ([`Builder::early_data`]) does so in any case.
    pub fn pipelined(mut self, pipelined: bool) -> Self {
        self.link().pipelined = pipelined;
        self
    }

    /// Lets the application acknowledge each message
    /// ([`Message::acknowledge`](crate::Message::acknowledge)) instead of doing
    /// so when it is taken from [`Messages`]. Acknowledgements leave in the
    /// order of the messages, so one that is held back holds back the others.
    pub fn manual_acknowledgement(mut self) -> Self {
        self.options.inbox.manual_acknowledgement = true;
        self
    }

    /// Tells the server that this client is a bridge, by the highest bit of the protocol
    /// level, as mosquitto's `try_private` does: the server then does not send back what
    /// the client publishes, and keeps the retain flag. MQTT 3.1.1 only; a server that
    /// does not know it refuses the connection. Default false.
    pub fn bridge(mut self, bridge: bool) -> Self {
        self.options.session.bridge = bridge;
        self
    }

    /// Takes connections from here instead of dialling, for a server in this process. The
    /// URL is then that of plain TCP to an address, which is not used.
    pub fn connector(mut self, connector: Connector) -> Self {
        self.link().connector = Some(connector);
        self
    }

    /// Goes on trying also when the first attempt has failed, as after a connection that
    /// was lost ([`Builder::reconnect`]): for a client whose server may be away when it
    /// starts. [`Connecting`] is answered when a server has accepted, or will never.
    pub fn persistent(mut self) -> Self {
        self.link().persistent = true;
        self
    }

    /// Adds a user property to CONNECT. MQTT 5.0.
    pub fn user_property(mut self, name: impl Into<TextArg>, value: impl Into<TextArg>) -> Self {
        let property = (name.into().0, value.into().0);
        self.options.session.user_properties.push(property);
        self
    }

    /// Runs the client on this runtime instead of the process-wide one.
    pub fn runtime(mut self, runtime: &Runtime) -> Self {
        self.runtime = Some(runtime.clone());
        self
    }

    /// Connects, and gives what to publish with and where messages arrive.
    /// The first attempt is the only one, unless [`Builder::persistent`] is set:
    /// reconnection begins after it has succeeded. Where the name has several addresses, they are tried in turn.
    ///
    /// # Errors
    /// An option is impossible, the server cannot be reached or refuses.
    ///
    /// # Cancel safety
    /// Dropping the future gives up the connection.
    pub async fn connect(self) -> Result<(Client, Messages), ConnectError> {
        let (client, messages, connecting) = self.start()?;
        connecting.await?;
        Ok((client, messages))
    }

    /// As [`Builder::connect`], but does not wait: what is published or
    /// subscribed to meanwhile goes out with the connection's first datagram
    /// where that is possible (0-RTT), with CONNECT where that is wanted
    /// ([`Builder::pipelined`]), and else as soon as the server accepts.
    ///
    /// # Errors
    /// An option is impossible; how connecting ended says [`Connecting`].
    ///
    /// # Examples
    /// ```no_run
    /// # use dunlin_client::{Client, Publish, QoS, TicketFile};
    /// # async fn run() -> Result<(), Box<dyn std::error::Error>> {
    /// let (client, _messages, connecting) = Client::builder("quic://broker.example")?
    ///     .client_id("plant-7")
    ///     .tickets(TicketFile::open("/var/lib/plant/tickets")?)
    ///     .start()?;
    /// let reading = Publish::new("plant/7", "21.5").qos(QoS::AtLeastOnce);
    /// let delivery = client.start_publish(reading).await?;
    /// let commands = client.subscribe("plant/7/commands", QoS::AtLeastOnce);
    /// let (connected, subscribed) = tokio::join!(connecting, commands);
    /// connected?;
    /// subscribed?;
    /// delivery.await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn start(mut self) -> Result<(Client, Messages, Connecting), ConnectError> {
        self.options.complete();
        self.options.check()?;
        let runtime = match self.runtime {
            Some(runtime) => runtime,
            None => Runtime::global()?,
        };
        Client::start(&runtime, Arc::new(self.options))
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
    /// Options for a server, such as `quic://host`, `mqtts://host:8883`,
    /// `wss://host/mqtt`.
    ///
    /// # Errors
    /// The URL is wrong, or not one of MQTT.
    pub fn builder(url: impl AsRef<str>) -> Result<Builder, UrlError> {
        let url = url.as_ref().parse::<Url>()?;
        url.require(Protocol::Mqtt)?;
        Ok(Builder::new(url))
    }
}

#[cfg(test)]
mod tests {
    use dunlin_base::topic::TopicError;

    use super::*;
    use crate::error::OptionError;
    use crate::message::Publish;

    #[test]
    fn impossible_options_are_refused() {
        let base = || Builder::new("mqtt://h".parse().expect("URL"));
        let long = "x".repeat(65_536);
        let cases: Vec<(Builder, OptionError)> = vec![
            (
                base().client_id(&long),
                OptionError::TooLong("the client identifier"),
            ),
            (base().user(&long), OptionError::TooLong("the user name")),
            (
                base().password(long.as_str()),
                OptionError::TooLong("the password"),
            ),
            (base().client_id("a\0"), OptionError::ClientId),
            (
                base().will(Will::new(Publish::new("a/#", ""))),
                OptionError::WillTopic(TopicError::WildcardInName),
            ),
            (
                base().version(Version::V311).password("p"),
                OptionError::PasswordWithoutUser,
            ),
            (
                base().version(Version::V311).scram("u", "p"),
                OptionError::ScramVersion,
            ),
        ];
        for (builder, want) in cases {
            assert_eq!(builder.options.check(), Err(want));
        }
        let amqp: Url = "amqp://h".parse().expect("URL");
        let refused = amqp.require(Protocol::Mqtt);
        assert_eq!(Client::builder("amqp://h").err(), refused.clone().err());
        let checked = Builder::new(amqp).options.check();
        assert_eq!(checked, refused.map_err(OptionError::Url));
        assert_eq!(base().options.check(), Ok(()));
    }
}
