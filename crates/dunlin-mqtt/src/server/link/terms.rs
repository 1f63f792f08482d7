//! What both sides of a connection agree on, in CONNECT and CONNACK.

use core::time::Duration;

use dunlin_base::{Repeat, Text};
use dunlin_mqtt_codec::{Connect, Version};

use crate::streams::option;

/// Longest age limit of a datagram.
const DATAGRAM_AGE_MAX: Duration = Duration::from_secs(60);

/// What the server offers on a connection.
#[derive(Clone, Copy, Debug, Default)]
pub struct Offer {
    /// It is carried by QUIC: there are streams and datagrams.
    pub quic: bool,
    /// By the application protocol, the client takes streams of the server unless it says
    /// otherwise.
    pub implies_streams: bool,
    /// The server sends datagrams.
    pub datagrams: bool,
    /// Streams that the server opens for deliveries.
    pub delivery_streams_max: usize,
    /// Longest keep alive in seconds; 0: any.
    pub keep_alive_secs_max: u16,
}

/// What holds for a connection.
#[derive(Clone, Debug)]
pub struct Terms {
    /// Version of the protocol.
    pub version: Version,
    /// The client is a bridge.
    pub bridge: bool,
    /// Largest packet that the client takes.
    pub packet_bytes_max: u32,
    /// The client's Receive Maximum.
    pub receive_maximum: u16,
    /// Age limit of datagrams to the client; zero: it takes none.
    pub datagram_age: Duration,
    /// Subscriptions of data streams outlive them.
    pub durable_streams: bool,
    /// The client asked how many data streams it may have.
    pub asked_for_streams: bool,
    /// Authentication method of CONNECT, for re-authentication.
    pub auth_method: Option<Text>,
}

impl Default for Terms {
    fn default() -> Self {
        Self {
            version: Version::V5,
            bridge: false,
            packet_bytes_max: u32::MAX,
            receive_maximum: u16::MAX,
            datagram_age: Duration::ZERO,
            durable_streams: true,
            asked_for_streams: false,
            auth_method: None,
        }
    }
}

/// What the server has to do about the agreement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Agreement {
    /// How long the client may be silent; zero: without limit.
    pub silence_max: Duration,
    /// The keep alive for CONNACK, if it differs from the client's.
    pub server_keep_alive: Option<u16>,
    /// Streams to be opened for deliveries.
    pub delivery_streams: usize,
    /// Bytes of different streams go in different packets.
    pub isolate: bool,
    /// When small packets are sent twice; `None`: the client does not say.
    pub repeat: Option<Repeat>,
}

impl Agreement {
    /// What follows from a CONNECT.
    pub(super) fn of(connect: &Connect<'_>, offer: &Offer) -> (Terms, Self) {
        let properties = &connect.properties;
        let options = match offer.quic {
            true => StreamOptions::of(connect, offer.implies_streams),
            false => StreamOptions::default(),
        };
        let mut asked_for = properties.user_properties.iter();
        let terms = Terms {
            version: connect.version,
            bridge: connect.bridge,
            packet_bytes_max: properties
                .maximum_packet_size
                .map_or(u32::MAX, |max| max.get()),
            receive_maximum: properties.receive_maximum.map_or(u16::MAX, |max| max.get()),
            datagram_age: match offer.datagrams {
                true => options.datagram_age.min(DATAGRAM_AGE_MAX),
                false => Duration::ZERO,
            },
            durable_streams: options.durable,
            asked_for_streams: offer.quic
                && asked_for.any(|(name, _)| name == option::DATA_STREAMS),
            auth_method: properties.authentication_method.map(Text::from),
        };
        let asked = connect.keep_alive;
        let keep_alive = match (asked, offer.keep_alive_secs_max) {
            (asked, 0) => asked,
            (0, max) => max,
            (asked, max) => asked.min(max),
        };
        // 3.1.1 has no Server Keep Alive: there the client's value stands.
        let (effective, server_keep_alive) = match connect.version {
            Version::V5 => (keep_alive, (keep_alive != asked).then_some(keep_alive)),
            Version::V311 => (asked, None),
        };
        let agreement = Self {
            //= mqtt5#[MQTT-3.1.2-22]
            silence_max: Duration::from_millis(u64::from(effective) * 1500),
            server_keep_alive,
            delivery_streams: options.streams.min(offer.delivery_streams_max),
            isolate: options.isolate,
            repeat: options.repeat,
        };
        (terms, agreement)
    }
}

/// What a client says, in CONNECT or by its application protocol, that it can
/// take besides the control stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamOptions {
    /// Streams of the server that it takes.
    pub streams: usize,
    /// Age limit of datagrams to it; zero: it takes none.
    pub datagram_age: Duration,
    /// Bytes of different streams go in different packets.
    pub isolate: bool,
    /// When small packets to it are sent twice; `None`: it does not say.
    pub repeat: Option<Repeat>,
    /// Subscriptions of data streams outlive them.
    pub durable: bool,
}

impl Default for StreamOptions {
    fn default() -> Self {
        Self {
            streams: 0,
            datagram_age: Duration::ZERO,
            isolate: false,
            repeat: None,
            durable: true,
        }
    }
}

impl StreamOptions {
    /// What a CONNECT says. A client that does not say how many streams it takes, takes
    /// any number if its application protocol `implies_streams`, else none.
    #[must_use]
    pub fn of(connect: &Connect<'_>, implies_streams: bool) -> Self {
        let mut options = Self {
            streams: if implies_streams { usize::MAX } else { 0 },
            ..Self::default()
        };
        for (name, value) in connect.properties.user_properties.iter() {
            let Ok(number) = value.parse::<u32>() else {
                continue;
            };
            match name {
                option::STREAMS => options.streams = number as usize,
                option::DATAGRAMS => {
                    options.datagram_age = Duration::from_millis(u64::from(number));
                }
                option::ISOLATE => options.isolate = number == 1,
                option::REPEAT => options.repeat = Repeat::from_asked(number),
                option::DURABLE_STREAMS => options.durable = number != 0,
                _ => {}
            }
        }
        options
    }
}
