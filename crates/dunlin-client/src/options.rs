//! How to connect: options with their defaults, and CONNECT made of them.

use core::fmt;
use core::net::IpAddr;
use core::num::{NonZeroU16, NonZeroU32};
use core::time::Duration;

use dunlin_base::Text;
use dunlin_base::limits::{MQTT_STRING_BYTES_MAX, PACKET_BYTES_DEFAULT};
use dunlin_base::topic::{TopicError, validate_name};
use dunlin_mqtt::codec;
use dunlin_mqtt::codec::{ConnectProperties, Version, WillProperties};
use dunlin_mqtt::scram;

use crate::backoff::Backoff;
use crate::client::{Client, Connecting};
use crate::error::ConnectError;
use crate::inbox::Messages;
use crate::message::{Payload, Topic, Will};
use crate::network::NetworkOptions;
use crate::race::Race;
use crate::runtime::Runtime;
use crate::streams::{PriorityError, StreamOptions};
use crate::tickets::TicketFile;
use crate::tls::TlsOptions;
use crate::url::Url;

/// Messages that may be in flight at a time by default.
const IN_FLIGHT_DEFAULT: u16 = 256;

/// Receive Maximum announced by default.
const RECEIVE_MAXIMUM_DEFAULT: u16 = 256;

/// Received messages that wait for the application by default.
const RECEIVE_QUEUE_DEFAULT: usize = 1024;

/// How long the server keeps the session while the client reconnects, if
/// nothing else is said.
const SESSION_EXPIRY_DEFAULT: Duration = Duration::from_secs(300);

/// Topic aliases used by default, in each direction.
const TOPIC_ALIASES_DEFAULT: u16 = 16;

/// Largest number of messages in flight: packet identifiers are 16 bits, some
/// of which subscriptions need.
pub(crate) const IN_FLIGHT_MAX: u16 = 65_000;

/// SUBSCRIBEs and UNSUBSCRIBEs that may wait for their answer at a time.
pub(crate) const REQUESTS_MAX: u16 = 16;

/// An option that cannot be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OptionError {
    /// A text or binary field is longer than MQTT can express.
    #[error("{0} is longer than 65,535 bytes")]
    TooLong(&'static str),
    /// The topic of the will is not a topic name.
    #[error("invalid will topic: {0}")]
    WillTopic(TopicError),
    /// MQTT 3.1.1 has no password without a user name.
    #[error("MQTT 3.1.1 needs a user name with a password")]
    PasswordWithoutUser,
    /// MQTT 3.1.1 has no enhanced authentication.
    #[error("SCRAM needs MQTT 5.0")]
    ScramVersion,
    /// An option of the network cannot be.
    #[error(transparent)]
    Network(#[from] dunlin_net::TuningError),
    /// A priority cannot be.
    #[error(transparent)]
    Priority(#[from] PriorityError),
    /// The client identifier contains the null character.
    #[error("a client identifier must not contain the null character")]
    ClientId,
}

/// Everything about one client.
#[derive(Clone)]
pub(crate) struct Options {
    pub(crate) url: Url,
    pub(crate) client_id: Text,
    pub(crate) clean_start: bool,
    pub(crate) session_expiry: Option<Duration>,
    pub(crate) keep_alive: Duration,
    pub(crate) ping_timeout: Option<Duration>,
    pub(crate) user: Option<Text>,
    pub(crate) password: Option<bytes::Bytes>,
    pub(crate) will: Option<Will>,
    pub(crate) version: Version,
    pub(crate) tls: TlsOptions,
    pub(crate) receive_maximum: u16,
    pub(crate) max_in_flight: u16,
    pub(crate) receive_queue: usize,
    pub(crate) maximum_packet_size: u32,
    pub(crate) topic_aliases: u16,
    pub(crate) reconnect: Option<Backoff>,
    pub(crate) connect_timeout: Duration,
    pub(crate) local_addr: Option<IpAddr>,
    pub(crate) manual_acknowledgement: bool,
    pub(crate) scram: Option<(String, Vec<u8>)>,
    pub(crate) user_properties: Vec<(Text, Text)>,
    pub(crate) streams: StreamOptions,
    pub(crate) network: NetworkOptions,
    pub(crate) early_data: bool,
    /// Other packets may leave before CONNACK has come.
    pub(crate) pipelined: bool,
    pub(crate) tickets: Option<TicketFile>,
    /// Nobody chose the client identifier.
    pub(crate) random_id: bool,
    pub(crate) race: Option<Race>,
}

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
        let user = url.user().map(Text::from);
        let password = url.password().map(|p| Payload::from(p).0);
        let race = url.is_auto().then(Race::new);
        Self {
            options: Options {
                url,
                client_id: Text::new(),
                clean_start: true,
                session_expiry: None,
                keep_alive: Duration::from_secs(60),
                ping_timeout: None,
                user,
                password,
                will: None,
                version: Version::V5,
                tls: TlsOptions::new(),
                receive_maximum: RECEIVE_MAXIMUM_DEFAULT,
                max_in_flight: IN_FLIGHT_DEFAULT,
                receive_queue: RECEIVE_QUEUE_DEFAULT,
                maximum_packet_size: PACKET_BYTES_DEFAULT,
                topic_aliases: TOPIC_ALIASES_DEFAULT,
                reconnect: Some(Backoff::default()),
                connect_timeout: Duration::from_secs(20),
                local_addr: None,
                manual_acknowledgement: false,
                scram: None,
                user_properties: Vec::new(),
                streams: StreamOptions::default(),
                network: NetworkOptions::new(),
                early_data: true,
                pipelined: false,
                tickets: None,
                random_id: false,
                race,
            },
            runtime: None,
        }
    }

    /// Sets the client identifier. Default: a random one.
    pub fn client_id(mut self, id: impl Into<Topic>) -> Self {
        self.options.client_id = id.into().0;
        self
    }

    /// Whether to begin with a new session (default) or with the one that the
    /// server has for this client identifier. Reconnections always continue the
    /// session; in MQTT 3.1.1 they do only with `false`.
    pub fn clean_start(mut self, clean: bool) -> Self {
        self.options.clean_start = clean;
        self
    }

    /// How long the server keeps the session after the connection, in whole
    /// seconds; [`Duration::MAX`] for ever. Default: 5 minutes while the client
    /// reconnects by itself, nothing after [`Client::disconnect`].
    pub fn session_expiry(mut self, expiry: Duration) -> Self {
        self.options.session_expiry = Some(expiry);
        self
    }

    /// Longest silence before the client pings, in whole seconds; zero for no
    /// limit. Default 60 s. Also decides how soon a dead connection is noticed.
    pub fn keep_alive(mut self, keep_alive: Duration) -> Self {
        self.options.keep_alive = keep_alive;
        self
    }

    /// How long the server may take to answer a ping before the connection
    /// counts as dead. Default: half the keep alive, from 1 s to 10 s.
    pub fn ping_timeout(mut self, timeout: Duration) -> Self {
        self.options.ping_timeout = Some(timeout);
        self
    }

    /// Sets user name and password, instead of the URL's.
    pub fn credentials(self, user: impl Into<Topic>, password: impl Into<Payload>) -> Self {
        self.user(user).password(password)
    }

    /// Sets the user name.
    pub fn user(mut self, user: impl Into<Topic>) -> Self {
        self.options.user = Some(user.into().0);
        self
    }

    /// Sets the password.
    pub fn password(mut self, password: impl Into<Payload>) -> Self {
        self.options.password = Some(password.into().0);
        self
    }

    /// Authenticates with SCRAM-SHA-256: the password does not travel, and the
    /// server proves that it knows it. MQTT 5.0.
    pub fn scram(mut self, user: impl Into<String>, password: impl Into<Vec<u8>>) -> Self {
        self.options.scram = Some((user.into(), password.into()));
        self
    }

    /// Sets the message that the server publishes if the client vanishes.
    pub fn will(mut self, will: Will) -> Self {
        self.options.will = Some(will);
        self
    }

    /// Sets the version of MQTT. Default 5.0.
    pub fn version(mut self, version: Version) -> Self {
        self.options.version = version;
        self
    }

    /// Sets whom to trust on `quic`, `mqtts` and `wss`. Default: what the
    /// operating system trusts.
    pub fn tls(mut self, tls: TlsOptions) -> Self {
        self.options.tls = tls;
        self
    }

    /// How many messages of QoS 1 and 2 the server may send without
    /// acknowledgement, 1 to 32,000. Default 256. Costs 40 bytes each.
    pub fn receive_maximum(mut self, maximum: u16) -> Self {
        /// The engine wants twice as many slots.
        const RECEIVE_MAXIMUM_MAX: u16 = 32_000;
        self.options.receive_maximum = maximum.clamp(1, RECEIVE_MAXIMUM_MAX);
        self
    }

    /// How many messages may wait for their acknowledgement, or QoS 0 messages
    /// for room in the connection, 1 to 65,000; further calls of
    /// [`Client::publish`] wait. Default 256.
    pub fn max_in_flight(mut self, maximum: u16) -> Self {
        self.options.max_in_flight = maximum.clamp(1, IN_FLIGHT_MAX);
        self
    }

    /// How many received messages may wait for the application, at least 1,
    /// before no more are read from the connection. Default 1024. Whatever is
    /// said here, 16 MiB may wait.
    pub fn receive_queue(mut self, messages: usize) -> Self {
        self.options.receive_queue = messages.max(1);
        self
    }

    /// Largest packet accepted from the server, in bytes. Default 1 MiB.
    pub fn maximum_packet_size(mut self, bytes: u32) -> Self {
        /// The smallest size that leaves room for a short message.
        const PACKET_BYTES_MIN: u32 = 128;
        self.options.maximum_packet_size = bytes.max(PACKET_BYTES_MIN);
        self
    }

    /// How many topic aliases to use, in each direction; 0 for none. Default
    /// 16.
    pub fn topic_aliases(mut self, aliases: u16) -> Self {
        self.options.topic_aliases = aliases;
        self
    }

    /// How to connect again after a failure. On by default.
    pub fn reconnect(mut self, backoff: Backoff) -> Self {
        self.options.reconnect = Some(backoff);
        self
    }

    /// Ends the client with its first connection.
    pub fn no_reconnect(mut self) -> Self {
        self.options.reconnect = None;
        self
    }

    /// Time for one attempt to connect, until the server's CONNACK. Default
    /// 20 s. Also bounds, if it is less than 5 s, how long a goodbye waits for
    /// messages to leave.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.options.connect_timeout = timeout;
        self
    }

    /// Sends from this address of the machine.
    pub fn local_addr(mut self, addr: IpAddr) -> Self {
        self.options.local_addr = Some(addr);
        self
    }

    /// How QUIC behaves towards the network.
    pub fn network(mut self, network: NetworkOptions) -> Self {
        self.options.network = network;
        self
    }

    /// Keeps session tickets and address tokens in a file, so that a process
    /// that is started anew sends CONNECT and its first messages in the first
    /// datagram. On QUIC only.
    pub fn tickets(mut self, file: TicketFile) -> Self {
        self.options.tickets = Some(file);
        self
    }

    /// Whether to send CONNECT, and subscriptions and messages that wait, with
    /// the first datagram (0-RTT) where a session ticket allows it; on by default, on
    /// QUIC only. A Dunlin broker takes such data once; of another server that
    /// is not known, so that somebody who records and repeats a first datagram
    /// might repeat the messages in it.
    pub fn early_data(mut self, send: bool) -> Self {
        self.options.early_data = send;
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
        self.options.pipelined = pipelined;
        self
    }

    /// Lets the application acknowledge each message
    /// ([`Message::acknowledge`](crate::Message::acknowledge)) instead of doing
    /// so when it is taken from [`Messages`]. Acknowledgements leave in the
    /// order of the messages, so one that is held back holds back the others.
    pub fn manual_acknowledgement(mut self) -> Self {
        self.options.manual_acknowledgement = true;
        self
    }

    /// Adds a user property to CONNECT. MQTT 5.0.
    pub fn user_property(mut self, name: impl Into<Topic>, value: impl Into<Topic>) -> Self {
        let property = (name.into().0, value.into().0);
        self.options.user_properties.push(property);
        self
    }

    /// Has QUIC and TLS over TCP race for the connection, as the URL scheme
    /// `auto` does: QUIC is taken if it gets through, else TLS, and a client
    /// that had to take TLS goes back to QUIC when that becomes possible. Only
    /// the winner carries a CONNECT; nothing is ever sent in the clear.
    pub fn race(mut self, race: Race) -> Self {
        self.options.race = Some(race);
        self
    }

    /// Runs the client on this runtime instead of the process-wide one.
    pub fn runtime(mut self, runtime: &Runtime) -> Self {
        self.runtime = Some(runtime.clone());
        self
    }

    /// Connects, and gives what to publish with and where messages arrive.
    /// The first attempt is the only one: reconnection begins after it has
    /// succeeded. Where the name has several addresses, they are tried in turn.
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
        if self.options.client_id.as_bytes().is_empty() {
            self.options.client_id = random_client_id();
            self.options.random_id = true;
        }
        self.options.check()?;
        let runtime = match self.runtime {
            Some(runtime) => runtime,
            None => Runtime::global()?,
        };
        Client::start(&runtime, self.options)
    }
}

impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder")
            .field("url", &self.options.url)
            .finish_non_exhaustive()
    }
}

impl Options {
    fn check(&self) -> Result<(), OptionError> {
        let too_long = |what, len: usize| match len > MQTT_STRING_BYTES_MAX {
            true => Err(OptionError::TooLong(what)),
            false => Ok(()),
        };
        too_long("the client identifier", self.client_id.as_bytes().len())?;
        too_long(
            "the user name",
            self.user.as_ref().map_or(0, |u| u.as_bytes().len()),
        )?;
        too_long(
            "the password",
            self.password.as_ref().map_or(0, bytes::Bytes::len),
        )?;
        self.streams.check()?;
        if self.client_id.as_bytes().contains(&0) {
            return Err(OptionError::ClientId);
        }
        if let Some(will) = &self.will {
            validate_name(&will.publish.topic).map_err(OptionError::WillTopic)?;
            too_long("the payload of the will", will.publish.payload.len())?;
        }
        if self.version == Version::V311 {
            if self.password.is_some() && self.user.is_none() {
                return Err(OptionError::PasswordWithoutUser);
            }
            if self.scram.is_some() {
                return Err(OptionError::ScramVersion);
            }
        }
        self.network.check()?;
        Ok(())
    }

    /// Session Expiry Interval of CONNECT.
    pub(crate) fn session_expiry_seconds(&self) -> u32 {
        let default = match self.reconnect {
            Some(_) => SESSION_EXPIRY_DEFAULT,
            None => Duration::ZERO,
        };
        whole_seconds(self.session_expiry.unwrap_or(default))
    }

    /// Builds CONNECT and hands it to `send`: it borrows from what is built.
    pub(crate) fn with_connect<R>(
        &self,
        reconnect: bool,
        scram_first: Option<&[u8]>,
        send: impl FnOnce(&codec::Connect<'_>) -> R,
    ) -> R {
        let is_v5 = self.version == Version::V5;
        let mut user_properties = self.user_properties.clone();
        self.streams.add_properties(&mut user_properties);
        let expiry = self.session_expiry_seconds();
        let connect = codec::Connect {
            version: self.version,
            clean_start: self.clean_start && !(reconnect && is_v5),
            keep_alive: u16::try_from(self.keep_alive.as_secs()).unwrap_or(u16::MAX),
            client_id: &self.client_id,
            will: self.will.as_ref().map(encode_will),
            // SCRAM exists so that the password does not travel.
            username: self.user.as_deref().filter(|_| scram_first.is_none()),
            password: self.password.as_deref().filter(|_| scram_first.is_none()),
            properties: ConnectProperties {
                session_expiry_interval: (expiry > 0).then_some(expiry),
                receive_maximum: NonZeroU16::new(self.receive_maximum),
                maximum_packet_size: NonZeroU32::new(self.maximum_packet_size),
                topic_alias_maximum: (self.topic_aliases > 0).then_some(self.topic_aliases),
                authentication_method: scram_first.map(|_| scram::METHOD),
                authentication_data: scram_first,
                user_properties: user_properties.as_slice().into(),
                ..ConnectProperties::default()
            },
        };
        send(&connect)
    }
}

fn encode_will(will: &Will) -> codec::Will<'_> {
    let publish = &will.publish;
    let properties = publish.properties.as_deref();
    let delay = whole_seconds(will.delay);
    codec::Will {
        qos: publish.qos,
        retain: publish.retain,
        topic: &publish.topic,
        payload: &publish.payload,
        properties: WillProperties {
            delay_interval: (delay > 0).then_some(delay),
            payload_format_indicator: properties.and_then(|p| p.payload_is_utf8),
            message_expiry_interval: publish.expiry.map(whole_seconds),
            content_type: properties.and_then(|p| p.content_type.as_deref()),
            response_topic: properties.and_then(|p| p.response_topic.as_deref()),
            correlation_data: properties.and_then(|p| p.correlation_data.as_deref()),
            user_properties: properties
                .map_or(&[][..], |p| p.user_properties.as_slice())
                .into(),
        },
    }
}

/// Seconds, rounded up, so that a short time is not none.
pub(crate) fn whole_seconds(duration: Duration) -> u32 {
    let up = u64::from(duration.subsec_nanos() > 0);
    u32::try_from(duration.as_secs().saturating_add(up)).unwrap_or(u32::MAX)
}

/// 22 characters, which every server must accept [MQTT-3.1.3-5].
fn random_client_id() -> Text {
    Text::from(format!("dunlin{:016x}", random_u64()))
}

/// Random bits; from the clock's address space if the system has none, which
/// only makes names less unlikely to collide.
pub(crate) fn random_u64() -> u64 {
    let mut bytes = [0; 8];
    match getrandom::fill(&mut bytes) {
        Ok(()) => u64::from_le_bytes(bytes),
        Err(_) => {
            use core::hash::BuildHasher as _;
            std::hash::RandomState::new().hash_one(0)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::Publish;

    fn options(url: &str) -> Options {
        Builder::new(url.parse().expect("URL")).options
    }

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
        assert_eq!(base().options.check(), Ok(()));
    }

    #[test]
    fn reconnections_continue_the_session() {
        let mut options = options("mqtt://u:p@h");
        for (version, reconnect, clean) in [
            (Version::V5, false, true),
            (Version::V5, true, false),
            (Version::V311, false, true),
            (Version::V311, true, true),
        ] {
            options.version = version;
            let got = options.with_connect(reconnect, None, |connect| {
                assert_eq!(connect.username, Some("u"));
                assert_eq!(connect.password, Some(b"p".as_slice()));
                connect.clean_start
            });
            assert_eq!(got, clean);
        }
        assert_eq!(options.session_expiry_seconds(), 300);
        options.reconnect = None;
        assert_eq!(options.session_expiry_seconds(), 0);
        options.session_expiry = Some(Duration::MAX);
        assert_eq!(options.session_expiry_seconds(), u32::MAX);
    }

    #[test]
    fn durations_are_rounded_up() {
        for (millis, seconds) in [(0, 0), (1, 1), (1000, 1), (1001, 2)] {
            assert_eq!(whole_seconds(Duration::from_millis(millis)), seconds);
        }
    }
}
