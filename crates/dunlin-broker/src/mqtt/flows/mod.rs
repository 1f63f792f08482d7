//! The MQTT-next draft, all that the broker has of it: headers of streams, the flows that
//! they open, take over or recover, and the codes by which streams are reset.

pub(crate) mod headers;
pub(crate) mod resets;
