//! User properties of CONNECT (MQTT 5.0 only) by which a client tells a Dunlin broker
//! what it can take besides its first stream. Values are decimal numbers or the words
//! given; a value that cannot be read counts as absent.

/// How many streams opened by the server, with flow headers, the client
/// takes at once for deliveries. 0: none.
pub const STREAMS: &str = "dunlin-streams";
/// The client takes QoS 0 PUBLISH in QUIC datagrams; the value is the age
/// in milliseconds at which one that has not left is dropped. 0: none.
pub const DATAGRAMS: &str = "dunlin-datagrams";
/// `1`: the server keeps bytes of different streams in different packets.
pub const ISOLATE: &str = "dunlin-isolate";
/// `1`: the server sends small packets twice; `2`: for a while after one was
/// lost.
pub const REPEAT: &str = "dunlin-repeat";
/// The client asks how many data streams the server takes at a time; its
/// CONNACK answers with the number under the same name, and not at all
/// where there are none: on other transports than QUIC.
pub const DATA_STREAMS: &str = "dunlin-data-streams";
/// `0`: subscriptions made on a data stream end with the stream, as with
/// EMQX, and do not go on, on control.
pub const DURABLE_STREAMS: &str = "dunlin-durable-streams";
