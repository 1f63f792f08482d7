//! The options of a client with their defaults, and CONNECT made of them.

use core::num::{NonZeroU16, NonZeroU32};
use core::time::Duration;
use std::sync::Arc;

use dunlin_base::Text;
use dunlin_base::limits::{MQTT_STRING_BYTES_MAX, PACKET_BYTES_DEFAULT};
use dunlin_base::topic::validate_name;
use dunlin_dial::{LinkOptions, Protocol, Url, random_u64};
use dunlin_mqtt::codec;
use dunlin_mqtt::codec::{ConnectProperties, Version, WillProperties};

use crate::arguments::Payload;
use crate::error::OptionError;
use crate::message::Will;
use crate::streams::StreamOptions;

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

/// Everything about one client, grouped by what it configures.
#[derive(Clone)]
pub(crate) struct Options {
    pub(crate) link: Arc<LinkOptions>,
    pub(crate) session: SessionOptions,
    pub(crate) inbox: InboxOptions,
    pub(crate) streams: StreamOptions,
}

/// The MQTT session: what CONNECT says, and how much may be in flight.
#[derive(Clone)]
pub(crate) struct SessionOptions {
    pub(crate) version: Version,
    /// Says so in MQTT 3.1.1.
    pub(crate) bridge: bool,
    pub(crate) client_id: Text,
    /// The application did not choose the client identifier.
    pub(crate) random_id: bool,
    pub(crate) clean_start: bool,
    pub(crate) session_expiry: Option<Duration>,
    pub(crate) keep_alive: Duration,
    pub(crate) ping_timeout: Option<Duration>,
    pub(crate) user: Option<Text>,
    pub(crate) password: Option<bytes::Bytes>,
    pub(crate) scram: Option<(String, Vec<u8>)>,
    pub(crate) will: Option<Will>,
    pub(crate) user_properties: Vec<(Text, Text)>,
    pub(crate) receive_maximum: u16,
    pub(crate) max_in_flight: u16,
    pub(crate) maximum_packet_size: u32,
    pub(crate) topic_aliases: u16,
}

/// How received messages wait for the application.
#[derive(Clone, Copy)]
pub(crate) struct InboxOptions {
    pub(crate) messages_max: usize,
    pub(crate) manual_acknowledgement: bool,
}

impl Options {
    /// The defaults, with the URL's user name and password.
    pub(crate) fn new(url: Url) -> Self {
        Self {
            session: SessionOptions {
                version: Version::V5,
                bridge: false,
                client_id: Text::new(),
                random_id: false,
                clean_start: true,
                session_expiry: None,
                keep_alive: Duration::from_secs(60),
                ping_timeout: None,
                user: url.user().map(Text::from),
                password: url.password().map(|p| Payload::from(p).0),
                scram: None,
                will: None,
                user_properties: Vec::new(),
                receive_maximum: RECEIVE_MAXIMUM_DEFAULT,
                max_in_flight: IN_FLIGHT_DEFAULT,
                maximum_packet_size: PACKET_BYTES_DEFAULT,
                topic_aliases: TOPIC_ALIASES_DEFAULT,
            },
            link: Arc::new(LinkOptions::new(url)),
            inbox: InboxOptions {
                messages_max: RECEIVE_QUEUE_DEFAULT,
                manual_acknowledgement: false,
            },
            streams: StreamOptions::default(),
        }
    }

    /// Makes up a client identifier where the application chose none.
    pub(crate) fn complete(&mut self) {
        let session = &mut self.session;
        if session.client_id.as_bytes().is_empty() {
            // 22 characters, which every server must accept [MQTT-3.1.3-5].
            session.client_id = Text::from(format!("dunlin{:016x}", random_u64()));
            session.random_id = true;
        }
    }

    /// Whether the options are possible.
    pub(crate) fn check(&self) -> Result<(), OptionError> {
        self.link.url.require(Protocol::Mqtt)?;
        let session = &self.session;
        let too_long = |what, len: usize| match len > MQTT_STRING_BYTES_MAX {
            true => Err(OptionError::TooLong(what)),
            false => Ok(()),
        };
        too_long("the client identifier", session.client_id.as_bytes().len())?;
        too_long(
            "the user name",
            session.user.as_ref().map_or(0, |u| u.as_bytes().len()),
        )?;
        too_long(
            "the password",
            session.password.as_ref().map_or(0, bytes::Bytes::len),
        )?;
        self.streams.check()?;
        if session.client_id.as_bytes().contains(&0) {
            return Err(OptionError::ClientId);
        }
        if let Some(will) = &session.will {
            validate_name(&will.publish.topic).map_err(OptionError::WillTopic)?;
            too_long("the payload of the will", will.publish.payload.len())?;
        }
        if session.version == Version::V311 {
            if session.password.is_some() && session.user.is_none() {
                return Err(OptionError::PasswordWithoutUser);
            }
            if session.scram.is_some() {
                return Err(OptionError::ScramVersion);
            }
        }
        self.link.network.check()?;
        Ok(())
    }

    /// Whose session tickets are used: its own where the application chose
    /// a client identifier.
    pub(crate) fn tickets_of(&self) -> &str {
        match self.session.random_id {
            true => "",
            false => self.session.client_id.as_str(),
        }
    }

    /// Session Expiry Interval of CONNECT.
    pub(crate) fn session_expiry_seconds(&self) -> u32 {
        let default = match self.link.reconnect {
            Some(_) => SESSION_EXPIRY_DEFAULT,
            None => Duration::ZERO,
        };
        whole_seconds(self.session.session_expiry.unwrap_or(default))
    }

    /// Builds CONNECT and hands it to `send`: it borrows from what is built.
    /// The client identifier may be one that the server assigned.
    pub(crate) fn with_connect<R>(
        &self,
        client_id: &str,
        reconnect: bool,
        scram_first: Option<(&'static str, &[u8])>,
        send: impl FnOnce(&codec::Connect<'_>) -> R,
    ) -> R {
        let session = &self.session;
        let is_v5 = session.version == Version::V5;
        let mut user_properties = session.user_properties.clone();
        self.streams.add_properties(&mut user_properties);
        let expiry = self.session_expiry_seconds();
        let connect = codec::Connect {
            bridge: session.bridge && !is_v5,
            version: session.version,
            clean_start: session.clean_start && !(reconnect && is_v5),
            keep_alive: u16::try_from(session.keep_alive.as_secs()).unwrap_or(u16::MAX),
            client_id,
            will: session.will.as_ref().map(encode_will),
            // SCRAM exists so that the password does not travel.
            username: session.user.as_deref().filter(|_| scram_first.is_none()),
            password: session
                .password
                .as_deref()
                .filter(|_| scram_first.is_none()),
            properties: ConnectProperties {
                session_expiry_interval: (expiry > 0).then_some(expiry),
                receive_maximum: NonZeroU16::new(session.receive_maximum),
                maximum_packet_size: NonZeroU32::new(session.maximum_packet_size),
                topic_alias_maximum: (session.topic_aliases > 0).then_some(session.topic_aliases),
                authentication_method: scram_first.map(|(method, _)| method),
                authentication_data: scram_first.map(|(_, first)| first),
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

#[cfg(test)]
mod tests {
    use super::*;

    fn options(url: &str) -> Options {
        Options::new(url.parse().expect("URL"))
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
            options.session.version = version;
            let got = options.with_connect("c", reconnect, None, |connect| {
                assert_eq!(connect.username, Some("u"));
                assert_eq!(connect.password, Some(b"p".as_slice()));
                connect.clean_start
            });
            assert_eq!(got, clean);
        }
        assert_eq!(options.session_expiry_seconds(), 300);
        Arc::make_mut(&mut options.link).reconnect = None;
        assert_eq!(options.session_expiry_seconds(), 0);
        options.session.session_expiry = Some(Duration::MAX);
        assert_eq!(options.session_expiry_seconds(), u32::MAX);
    }

    #[test]
    fn durations_are_rounded_up() {
        for (millis, seconds) in [(0, 0), (1, 1), (1000, 1), (1001, 2)] {
            assert_eq!(whole_seconds(Duration::from_millis(millis)), seconds);
        }
    }
}
