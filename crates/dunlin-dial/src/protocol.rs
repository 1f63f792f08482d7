//! The message protocols that a connection may carry, as far as a connection
//! has to name them: URL schemes, ports, ALPN and WebSocket. Knows no frame.

use dunlin_base::transport::Transport;

/// A message protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Protocol {
    /// MQTT 5.0 and 3.1.1.
    Mqtt,
    /// AMQP 1.0.
    Amqp,
}

/// One URL scheme.
pub(crate) struct Scheme {
    pub(crate) name: &'static str,
    pub(crate) protocol: Protocol,
    /// QUIC for a race, which prefers it.
    pub(crate) transport: Transport,
    /// QUIC, or TLS over TCP where QUIC does not get through.
    pub(crate) auto: bool,
    pub(crate) default_port: u16,
}

/// All schemes. The first one of a protocol and a transport is the one shown;
/// the others are further names.
pub(crate) const SCHEMES: &[Scheme] = &[
    auto("auto", Protocol::Mqtt, 14567),
    scheme("quic", Protocol::Mqtt, Transport::Quic, 14567),
    scheme("mqtt", Protocol::Mqtt, Transport::Tcp, 1883),
    scheme("mqtts", Protocol::Mqtt, Transport::Tls, 8883),
    scheme("ws", Protocol::Mqtt, Transport::Ws, 8083),
    scheme("wss", Protocol::Mqtt, Transport::Wss, 8084),
    scheme("unix", Protocol::Mqtt, Transport::Unix, 0),
    scheme("mqtt-quic", Protocol::Mqtt, Transport::Quic, 14567),
    scheme("tcp", Protocol::Mqtt, Transport::Tcp, 1883),
    scheme("ssl", Protocol::Mqtt, Transport::Tls, 8883),
    scheme("tls", Protocol::Mqtt, Transport::Tls, 8883),
    auto("amqp+auto", Protocol::Amqp, 5671),
    scheme("amqp+quic", Protocol::Amqp, Transport::Quic, 5671),
    scheme("amqp", Protocol::Amqp, Transport::Tcp, 5672),
    scheme("amqps", Protocol::Amqp, Transport::Tls, 5671),
    scheme("amqp+ws", Protocol::Amqp, Transport::Ws, 8083),
    scheme("amqp+wss", Protocol::Amqp, Transport::Wss, 8084),
    scheme("amqp+unix", Protocol::Amqp, Transport::Unix, 0),
];

const fn scheme(
    name: &'static str,
    protocol: Protocol,
    transport: Transport,
    default_port: u16,
) -> Scheme {
    Scheme {
        name,
        protocol,
        transport,
        auto: false,
        default_port,
    }
}

const fn auto(name: &'static str, protocol: Protocol, default_port: u16) -> Scheme {
    Scheme {
        auto: true,
        ..scheme(name, protocol, Transport::Quic, default_port)
    }
}

impl Protocol {
    /// Its name in ALPN and as the subprotocol of a WebSocket.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Mqtt => "mqtt",
            Self::Amqp => "amqp",
        }
    }

    /// Path of a WebSocket unless the URL names another.
    #[must_use]
    pub const fn ws_path(self) -> &'static str {
        match self {
            Self::Mqtt => "/mqtt",
            Self::Amqp => "/amqp",
        }
    }

    /// URL scheme of a transport, as in `quic://`.
    #[must_use]
    pub fn scheme(self, transport: Transport) -> &'static str {
        self.row(transport).map_or("", |row| row.name)
    }

    /// Port of a transport when nothing else is said.
    #[must_use]
    pub fn default_port(self, transport: Transport) -> u16 {
        self.row(transport).map_or(0, |row| row.default_port)
    }

    /// Its name for people.
    pub(crate) const fn title(self) -> &'static str {
        match self {
            Self::Mqtt => "MQTT",
            Self::Amqp => "AMQP",
        }
    }

    /// Its scheme for QUIC, or TLS where QUIC does not get through.
    pub(crate) fn auto_scheme(self) -> &'static str {
        let mut rows = self.rows();
        rows.find(|row| row.auto).map_or("", |row| row.name)
    }

    /// Its schemes, each once, for people.
    pub(crate) fn schemes(self) -> String {
        let shown = |row: &&Scheme| row.auto || self.scheme(row.transport) == row.name;
        let names: Vec<_> = self.rows().filter(shown).map(|row| row.name).collect();
        names.join(", ")
    }

    fn rows(self) -> impl Iterator<Item = &'static Scheme> {
        SCHEMES.iter().filter(move |row| row.protocol == self)
    }

    fn row(self, transport: Transport) -> Option<&'static Scheme> {
        let mut rows = self.rows();
        rows.find(|row| row.transport == transport && !row.auto)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_protocol_has_a_scheme_and_a_port_for_every_transport() {
        use Transport::{Quic, Tcp, Tls, Ws, Wss};
        for protocol in [Protocol::Mqtt, Protocol::Amqp] {
            for transport in [Quic, Tcp, Tls, Ws, Wss] {
                assert_ne!(protocol.scheme(transport), "", "{protocol:?} {transport:?}");
                assert_ne!(protocol.default_port(transport), 0);
            }
            assert_ne!(protocol.auto_scheme(), "");
            assert_ne!(protocol.scheme(Transport::Unix), "");
        }
    }

    #[test]
    fn a_name_means_one_scheme() {
        for (at, row) in SCHEMES.iter().enumerate() {
            let same = SCHEMES.iter().position(|other| other.name == row.name);
            assert_eq!(same, Some(at), "{}", row.name);
        }
    }
}
