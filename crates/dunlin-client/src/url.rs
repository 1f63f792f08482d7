//! Schemes and ports of the URLs of MQTT.

use dunlin_base::transport::Transport;
use dunlin_dial::Protocol;

/// URL scheme of a transport, as in `quic://`.
#[must_use]
pub fn scheme(transport: Transport) -> &'static str {
    Protocol::Mqtt.scheme(transport)
}

/// Port of a transport when nothing else is said.
#[must_use]
pub fn default_port(transport: Transport) -> u16 {
    Protocol::Mqtt.default_port(transport)
}
