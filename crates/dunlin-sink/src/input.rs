//! A message as expressions see it. Knows no client.

use dunlin_base::MessageProperties;

/// A message, and when it was taken.
#[derive(Clone, Copy, Debug)]
pub struct Input<'a> {
    /// Its topic.
    pub topic: &'a str,
    /// Its payload.
    pub payload: &'a [u8],
    /// When it was taken, in microseconds since 1970.
    pub time: i64,
    /// QoS of its delivery.
    pub qos: u8,
    /// It was retained.
    pub retain: bool,
    /// Its properties.
    pub properties: Option<&'a MessageProperties>,
}
