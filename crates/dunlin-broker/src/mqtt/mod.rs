//! The front of MQTT: bytes to packets, CONNECT to the end of a connection,
//! streams, packets back to bytes.

pub(crate) mod accept;
pub(crate) mod acks;
pub(crate) mod authenticate;
pub(crate) mod claims;
pub(crate) mod connect;
pub(crate) mod data_streams;
pub(crate) mod encode;
pub(crate) mod ending;
pub(crate) mod flow_headers;
pub(crate) mod form;
pub(crate) mod outgoing_streams;
pub(crate) mod packets;
pub(crate) mod publish;
pub(crate) mod pump;
pub(crate) mod send;
pub(crate) mod subscribe;
