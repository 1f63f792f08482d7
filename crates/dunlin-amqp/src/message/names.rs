//! Names of annotations and User Properties that carry what the other protocol
//! has no field for.

/// Annotation: QoS of the message, a number; without it, `durable` says 0 or 1.
pub const QOS: &str = "x-opt-mqtt-qos";
/// Annotation: when queues deliver the message at the earliest, in milliseconds since
/// 1970.
pub const DELIVERY_TIME: &str = "x-opt-delivery-time";
/// Annotation: how long queues keep the message back, in milliseconds.
pub const DELIVERY_DELAY: &str = "x-opt-delivery-delay";
/// Annotation: RETAIN of the message.
pub const RETAIN: &str = "x-opt-mqtt-retain";
/// Annotation: Payload Format Indicator, where the body does not say it.
pub const PAYLOAD_FORMAT: &str = "x-opt-mqtt-payload-format";
/// Annotation: Content Type that is not ASCII.
pub const CONTENT_TYPE: &str = "x-opt-mqtt-content-type";
/// Annotation: all User Properties in their order, a list of name, value, name…
pub const USER_PROPERTIES: &str = "x-opt-mqtt-user-properties";

/// What the User Properties begin with that are no application properties.
pub const PREFIX: &str = "amqp-";
/// Type and name of an application property that is no string: `int count`.
pub const TYPE: &str = "amqp-type";
/// `message-id`, a string.
pub const MESSAGE_ID: &str = "amqp-message-id";
/// `message-id`, a number.
pub const MESSAGE_ID_ULONG: &str = "amqp-message-id-ulong";
/// `message-id`, a UUID.
pub const MESSAGE_ID_UUID: &str = "amqp-message-id-uuid";
/// `message-id`, bytes in Base64.
pub const MESSAGE_ID_BINARY: &str = "amqp-message-id-binary";
/// `user-id`, bytes in Base64.
pub const USER_ID: &str = "amqp-user-id";
/// `to`, if it is not the topic; empty if there is none.
pub const TO: &str = "amqp-to";
/// `subject`.
pub const SUBJECT: &str = "amqp-subject";
/// `reply-to` that is no topic name.
pub const REPLY_TO: &str = "amqp-reply-to";
/// `correlation-id`, a string; Correlation Data has its bytes too.
pub const CORRELATION_ID: &str = "amqp-correlation-id";
/// `correlation-id`, a number; Correlation Data has its eight bytes too.
pub const CORRELATION_ID_ULONG: &str = "amqp-correlation-id-ulong";
/// `correlation-id`, a UUID; Correlation Data has its bytes too.
pub const CORRELATION_ID_UUID: &str = "amqp-correlation-id-uuid";
/// `content-encoding`.
pub const CONTENT_ENCODING: &str = "amqp-content-encoding";
/// `absolute-expiry-time`, milliseconds since 1970; empty if there is none.
pub const ABSOLUTE_EXPIRY_TIME: &str = "amqp-absolute-expiry-time";
/// `creation-time`, milliseconds since 1970.
pub const CREATION_TIME: &str = "amqp-creation-time";
/// `group-id`.
pub const GROUP_ID: &str = "amqp-group-id";
/// `group-sequence`.
pub const GROUP_SEQUENCE: &str = "amqp-group-sequence";
/// `reply-to-group-id`.
pub const REPLY_TO_GROUP_ID: &str = "amqp-reply-to-group-id";
/// `priority` of the header, if it is not 4.
pub const PRIORITY: &str = "amqp-priority";
/// The body, where payload and indicator do not say it: `string`, `binary`,
/// `null` (a value) or `none`.
pub const BODY: &str = "amqp-body";
/// Encoded bytes before the payload, in Base64; a long one is in several.
pub const HEAD: &str = "amqp-head";
/// Encoded bytes after the payload, as [`HEAD`].
pub const TAIL: &str = "amqp-tail";
/// All encoded bytes, as [`HEAD`], if the payload is none of them.
pub const WHOLE: &str = "amqp-whole";

/// Content Type of a payload that was written as JSON from a value of AMQP.
pub const JSON: &str = "application/json";
/// Content Type of a payload that is encoded body sections of AMQP.
pub const ENCODED: &str = "application/vnd.amqp";
