//! Limits that more than one crate must agree on. Limits of one crate live in
//! that crate, beside the thing they bound.

/// Largest packet that MQTT can express: one byte of type, four of length,
/// 268,435,455 of body (MQTT 5.0 section 1.5.5).
pub const MQTT_PACKET_BYTES_MAX: u32 = 268_435_460;

/// Longest UTF-8 string or binary field of MQTT (section 1.5.4).
pub const MQTT_STRING_BYTES_MAX: usize = 65_535;

/// Default for the largest packet accepted from a peer. Applied before the
/// body is buffered.
pub const PACKET_BYTES_DEFAULT: u32 = 1024 * 1024;

/// Default for the largest packet accepted from a peer that is not known yet.
pub const CONNECT_BYTES_DEFAULT: u32 = 64 * 1024;

/// Deepest topic name or filter accepted, in levels. The specification sets no
/// limit; a trie node per level needs one.
pub const TOPIC_LEVELS_MAX: usize = 128;

/// Default Receive Maximum announced to clients. Real clients (Paho, MQTT.js)
/// overrun small values, so this stays at or above 1,000.
pub const RECEIVE_MAXIMUM_DEFAULT: u16 = 1024;

const _: () = assert!(RECEIVE_MAXIMUM_DEFAULT >= 1000);
