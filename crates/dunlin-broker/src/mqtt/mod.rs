//! The front of MQTT: bytes to packets, CONNECT to the end of a connection,
//! streams, packets back to bytes.

pub(crate) mod accept;
pub(crate) mod acks;
pub(crate) mod asking;
pub(crate) mod authenticate;
pub(crate) mod claims;
pub(crate) mod conn;
pub(crate) mod connect;
pub(crate) mod crossing;
pub(crate) mod data_streams;
pub(crate) mod encode;
pub(crate) mod ending;
pub(crate) mod fault;
pub(crate) mod flows;
pub(crate) mod form;
pub(crate) mod gathered;
pub(crate) mod lifetime;
pub(crate) mod outgoing_streams;
pub(crate) mod pace;
pub(crate) mod packets;
pub(crate) mod publish;
pub(crate) mod pump;
pub(crate) mod records;
pub(crate) mod restore;
pub(crate) mod send;
pub(crate) mod session;
pub(crate) mod stored;
pub(crate) mod subscribe;
mod tables;
pub(crate) mod topics;
pub(crate) mod waiting;
