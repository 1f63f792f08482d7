//! What `pub`, `sub` and `rr` have in common: mosquitto's connection flags, and the
//! client that they describe.

mod opening;

use core::fmt;
use core::net::IpAddr;
use core::time::Duration;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::OnceLock;

use anyhow::{Context as _, Result, bail};
use clap::Args;
use dunlin_client::{
    Builder, Publish, QoS, Runtime, RuntimeLimits, TicketFile, Transport, Url, Version, Will,
    default_port,
};
use dunlin_dial::Protocol;

use super::network::Network;
use super::properties::{Properties, parse_property};
use super::streams::Streams;
use super::tls::Tls;
use super::unused::Mode;
pub(super) use opening::Begun;

/// Exit code of mosquitto's clients after -W.
pub(super) const TIMED_OUT: u8 = 27;

/// How long DISCONNECT may take to leave after -W.
pub(super) const LEAVE_MAX: Duration = Duration::from_secs(1);

/// Equal losses of a connection in a row after which there is no other attempt.
const LOSSES_MAX: u32 = 3;

/// Flags of the connection, as mosquitto's clients have them.
#[derive(Debug, Args)]
pub(super) struct Connect {
    /// Show this help.
    #[arg(long, action = clap::ArgAction::Help)]
    help: Option<bool>,
    /// File with more options, one a line; the command line counts first. What is
    /// in dunlin/client and dunlin/COMMAND of the user's configuration folder, and
    /// DUNLIN_URL, _USER, _PASSWORD, _CAFILE, _CERT and _KEY of the environment,
    /// counts after it.
    #[arg(short = 'o', long, value_name = "FILE")]
    options: Option<PathBuf>,
    /// Where to connect, instead of -h and -p: auto:// (QUIC, or TLS where
    /// QUIC does not get through), quic://, mqtts://, mqtt://, wss:// or
    /// ws://[USER:PASSWORD@]HOST[:PORT][/PATH], or unix:/PATH.
    #[arg(long, value_name = "URL")]
    url: Option<String>,
    /// As --url, and the path is the topic: mqtt(s)://HOST[:PORT]/TOPIC. The path of
    /// unix:/PATH is the socket's.
    #[arg(short = 'L', value_name = "URL", conflicts_with = "url")]
    topic_url: Option<String>,
    /// Connect to the Unix socket at this path, instead of -h and -p.
    #[arg(long, value_name = "PATH", conflicts_with_all = ["url", "topic_url"])]
    unix: Option<String>,
    /// Host to connect to.
    #[arg(short = 'h', long, default_value = "localhost")]
    host: String,
    /// Port to connect to; 1883, or 8883 with TLS, if not given.
    #[arg(short = 'p', long)]
    port: Option<u16>,
    /// Address of this machine to connect from.
    #[arg(short = 'A', value_name = "ADDRESS")]
    bind: Option<IpAddr>,
    /// User name.
    #[arg(short = 'u', long, value_name = "USER")]
    username: Option<String>,
    /// Password.
    #[arg(
        short = 'P',
        long = "pw",
        value_name = "PASSWORD",
        allow_hyphen_values = true
    )]
    password: Option<String>,
    /// Authenticate with SCRAM-SHA-256 instead of sending the password.
    #[arg(long)]
    scram: bool,
    /// Client identifier; a random one if not given.
    #[arg(short = 'i', long)]
    id: Option<String>,
    /// Client identifier is this prefix and the process id.
    #[arg(short = 'I', long, value_name = "PREFIX", conflicts_with = "id")]
    id_prefix: Option<String>,
    /// Continue the session that the server has for the client identifier, and
    /// let it keep the session.
    #[arg(short = 'c', long)]
    disable_clean_session: bool,
    /// Keep alive in seconds.
    #[arg(short = 'k', long, default_value_t = 60, value_name = "SECONDS")]
    keepalive: u16,
    /// Seconds that the server may take to answer a ping; half the keep alive
    /// if not given, from 1 to 10.
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u16).range(1..))]
    ping_timeout: Option<u16>,
    /// Version: 5 (or mqttv5), 311 (or mqttv311).
    #[arg(short = 'V', long, default_value = "5", value_name = "VERSION", value_parser = parse_version)]
    protocol_version: Version,
    /// How long the server keeps the session, in seconds; -1 for ever.
    #[arg(short = 'x', long, value_name = "SECONDS", value_parser = parse_expiry, allow_hyphen_values = true)]
    session_expiry_interval: Option<Duration>,
    /// A property: COMMAND NAME VALUE, or COMMAND user-property NAME VALUE.
    #[arg(short = 'D', long = "property", num_args = 3..=4, value_names = ["COMMAND", "NAME", "VALUE"], action = clap::ArgAction::Append)]
    properties: Vec<String>,
    /// Print what happens.
    #[arg(short = 'd', long)]
    debug: bool,
    /// Do not print errors.
    #[arg(long)]
    quiet: bool,
    /// Log QUIC connections to this directory, a file each, in the qlog format.
    #[arg(long, value_name = "DIR")]
    qlog: Option<PathBuf>,
    #[arg(skip)]
    runtime: OnceLock<Runtime>,
    /// Accepted for mosquitto's sake: packets are never delayed.
    #[arg(long, hide = true)]
    nodelay: bool,
    /// File with session tickets (quic), made if there is none: with one from
    /// an earlier run, CONNECT goes out in the first datagram, and
    /// subscriptions and messages with it.
    #[arg(long, value_name = "FILE")]
    tickets: Option<PathBuf>,
    /// Do not send anything before the server has answered.
    #[arg(long)]
    no_early_data: bool,
    #[command(flatten)]
    tls: Tls,
    #[command(flatten)]
    network: Network,
    #[command(flatten)]
    streams: Streams,
    #[command(flatten)]
    will: WillArgs,
}

/// The will.
#[derive(Debug, Args)]
struct WillArgs {
    /// Topic of the will.
    #[arg(long, value_name = "TOPIC")]
    will_topic: Option<String>,
    /// Payload of the will; empty if not given.
    #[arg(
        long,
        value_name = "PAYLOAD",
        requires = "will_topic",
        allow_hyphen_values = true
    )]
    will_payload: Option<String>,
    /// QoS of the will.
    #[arg(long, value_name = "QOS", default_value = "0", value_parser = parse_qos)]
    will_qos: QoS,
    /// The will is retained.
    #[arg(long, requires = "will_topic")]
    will_retain: bool,
}

impl Connect {
    /// The topic in `-L`.
    pub(super) fn url_topic(&self) -> Result<Option<String>> {
        let Some(text) = &self.topic_url else {
            return Ok(None);
        };
        match split_topic(text).1 {
            "" if self.parse_url()?.socket().is_some() => Ok(None),
            "" => bail!("the URL of -L ends in a topic: mqtt://HOST/TOPIC"),
            topic => Ok(Some(topic.to_owned())),
        }
    }

    /// What decides about the options; `None` if the URL is wrong.
    pub(super) fn mode(&self) -> Option<Mode> {
        let url = self.parse_url().ok()?;
        let transport = url.transport();
        Some(Mode {
            quic: transport == Transport::Quic || url.is_auto(),
            tls: transport.is_encrypted() || url.is_auto(),
            race: url.is_auto(),
            v5: self.protocol_version == Version::V5,
        })
    }

    /// The version that is spoken.
    pub(super) const fn version(&self) -> Version {
        self.protocol_version
    }

    /// Whether the server is to keep the session after the connection.
    pub(super) fn keeps_session(&self, properties: &Properties) -> bool {
        self.disable_clean_session
            || self.session_expiry_interval.is_some()
            || properties.keep_session()
    }

    /// The properties of -D.
    pub(super) fn properties(&self) -> Result<Properties> {
        let mut properties = Properties::default();
        let mut words = self.properties.iter().map(String::as_str).peekable();
        while words.peek().is_some() {
            parse_property(&mut words, &mut properties)?;
        }
        if properties.has_will() && self.will.will_topic.is_none() {
            bail!("-D will has no effect here: it needs --will-topic");
        }
        Ok(properties)
    }

    /// Prints an error, unless that is not wanted.
    pub(super) fn complain(&self, message: &dyn fmt::Display) {
        if !self.quiet {
            let _ = writeln!(io::stderr(), "{message}");
        }
    }

    /// Prints what happens, if that is wanted.
    pub(super) fn say(&self, message: impl FnOnce() -> String) {
        if self.debug {
            let _ = writeln!(io::stdout(), "{}", message());
        }
    }

    /// Options for the client.
    pub(super) fn builder(&self, properties: &Properties) -> Result<Builder> {
        let url = self.parse_url()?;
        let mut builder = Builder::new(url.clone())
            .version(self.protocol_version)
            .keep_alive(Duration::from_secs(self.keepalive.into()))
            .clean_start(!self.disable_clean_session)
            .losses_max(LOSSES_MAX)
            .network(self.network.options())
            .early_data(!self.no_early_data)
            .tls(self.network.tls(self.tls.options()?));
        if let Some(user) = &self.username {
            builder = builder.user(user);
        }
        if let Some(password) = &self.password {
            builder = builder.password(password.as_str());
        }
        if self.scram {
            let user = self.username.as_deref().or_else(|| url.user());
            let password = self.password.as_deref().or_else(|| url.password());
            let (Some(user), Some(password)) = (user, password) else {
                bail!("--scram needs a user name (-u) and a password (-P)");
            };
            builder = builder.scram(user, password);
        }
        if let Some(seconds) = self.ping_timeout {
            builder = builder.ping_timeout(Duration::from_secs(seconds.into()));
        }
        if let Some(id) = &self.id {
            builder = builder.client_id(id);
        } else if let Some(prefix) = &self.id_prefix {
            builder = builder.client_id(format!("{prefix}{}", std::process::id()));
        } else if self.disable_clean_session {
            bail!("-c needs a client identifier (-i): the session belongs to it");
        }
        match self.session_expiry_interval {
            Some(expiry) => builder = builder.session_expiry(expiry),
            None if self.disable_clean_session => builder = builder.session_expiry(Duration::MAX),
            None => {}
        }
        if let Some(addr) = self.bind {
            builder = builder.local_addr(addr);
        }
        if let Some(path) = &self.tickets {
            let file = TicketFile::open(path)
                .with_context(|| format!("cannot use --tickets {}", path.display()))?;
            if let Some(notice) = file.notice() {
                self.complain(&format_args!("Warning: {notice}"));
            }
            builder = builder.tickets(file);
        }
        if let Some(topic) = &self.will.will_topic {
            let payload = self.will.will_payload.clone().unwrap_or_default();
            let publish = Publish::new(topic, payload)
                .qos(self.will.will_qos)
                .retain(self.will.will_retain);
            let will = Will::new(properties.will.apply(publish)).delay(properties.will_delay);
            builder = builder.will(will);
        }
        if let Some(dir) = &self.qlog {
            let runtime = Runtime::with_qlog(RuntimeLimits::default(), dir)
                .with_context(|| format!("--qlog {}", dir.display()))?;
            builder = builder.runtime(self.runtime.get_or_init(|| runtime));
        }
        let builder = self.streams.apply(builder, url.is_auto())?;
        Ok(properties.connect.apply(builder))
    }

    /// Lets logs of connections end, when there are some.
    pub(super) fn finish(&self) {
        /// Longer than the end of a connection takes on most paths.
        const PATIENCE: Duration = Duration::from_secs(1);
        if let Some(runtime) = self.runtime.get() {
            runtime.finish_qlog(PATIENCE);
        }
    }

    fn parse_url(&self) -> Result<Url> {
        if let Some(text) = &self.url {
            return text.parse().with_context(|| format!("--url {text}"));
        }
        if let Some(text) = &self.topic_url {
            return split_topic(text)
                .0
                .parse()
                .with_context(|| format!("-L {text}"));
        }
        if let Some(path) = &self.unix {
            return Url::unix(Protocol::Mqtt, path).with_context(|| format!("--unix {path}"));
        }
        let transport = if self.tls.is_wanted() {
            Transport::Tls
        } else {
            Transport::Tcp
        };
        let port = self.port.unwrap_or_else(|| default_port(transport));
        let host = match self.host.contains(':') {
            true => format!("[{}]", self.host),
            false => self.host.clone(),
        };
        let url = format!("{}://{host}:{port}", dunlin_client::scheme(transport));
        url.parse()
            .with_context(|| format!("-h {} -p {port}", self.host))
    }
}

/// `mqtt://host/a/b` is `mqtt://host` and `a/b`. A Unix socket has no topic.
fn split_topic(url: &str) -> (&str, &str) {
    let scheme = url.split(':').next().unwrap_or_default();
    if scheme.eq_ignore_ascii_case(dunlin_client::scheme(Transport::Unix)) {
        return (url, "");
    }
    let start = url.find("://").map_or(0, |at| at + 3);
    match url.get(start..).and_then(|rest| rest.find('/')) {
        Some(at) => {
            let (server, topic) = url.split_at(start + at);
            (server, topic.get(1..).unwrap_or_default())
        }
        None => (url, ""),
    }
}

pub(super) fn parse_qos(text: &str) -> Result<QoS, String> {
    text.parse()
        .ok()
        .and_then(QoS::from_u8)
        .ok_or_else(|| format!("invalid QoS given: {text}; it is 0, 1 or 2"))
}

fn parse_version(text: &str) -> Result<Version, String> {
    match text {
        "5" | "mqttv5" => Ok(Version::V5),
        "311" | "mqttv311" => Ok(Version::V311),
        "31" | "mqttv31" => Err("MQTT 3.1 is not supported; 3.1.1 is 311".into()),
        _ => Err("it is 5 (mqttv5) or 311 (mqttv311)".into()),
    }
}

fn parse_expiry(text: &str) -> Result<Duration, String> {
    match text {
        "-1" | "4294967295" | "∞" => Ok(Duration::MAX),
        _ => text
            .parse::<u32>()
            .map(|seconds| Duration::from_secs(seconds.into()))
            .map_err(|_| "it is a number of seconds, or -1 for ever".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_topic_url_ends_in_the_topic() {
        let cases = [
            ("mqtt://h/a/b", "mqtt://h", "a/b"),
            ("mqtt://u:p@h:1/t", "mqtt://u:p@h:1", "t"),
            ("mqtt://h", "mqtt://h", ""),
            ("unix:/run/m.sock", "unix:/run/m.sock", ""),
            ("unix:///run/m.sock", "unix:///run/m.sock", ""),
            ("mqtt://h//a", "mqtt://h", "/a"),
        ];
        for (url, server, topic) in cases {
            assert_eq!(split_topic(url), (server, topic), "{url}");
        }
    }

    #[test]
    fn expiries_may_be_endless() {
        assert_eq!(parse_expiry("-1"), Ok(Duration::MAX));
        assert_eq!(parse_expiry("60"), Ok(Duration::from_secs(60)));
        assert!(parse_expiry("-2").is_err());
    }
}
