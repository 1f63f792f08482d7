//! What a connection is made with.

use dunlin_amqp_codec::Symbols;

use crate::limits::Limits;

/// Which end of the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// It dialled.
    Client,
    /// It was dialled.
    Server,
}

/// Whether there is a SASL layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SaslPolicy {
    /// None.
    Off,
    /// As a server: if the client wants it. As a client: there is.
    Optional,
    /// There is.
    Required,
}

/// What a connection is made with.
#[derive(Clone, Copy, Debug)]
pub struct Settings<'a> {
    /// Which end it is.
    pub side: Side,
    /// Our container id.
    pub container_id: &'a str,
    /// Whether there is a SASL layer.
    pub sasl: SaslPolicy,
    /// As a server: the mechanisms that are offered.
    pub mechanisms: Symbols<'a>,
    /// The bounds.
    pub limits: Limits,
}
