//! Messages of AMQP and the neutral message, both ways without loss.
//!
//! | neutral (MQTT) | AMQP |
//! |---|---|
//! | topic | `to` |
//! | payload | one data section; with Payload Format Indicator 1 and no Content Type a string value |
//! | QoS, RETAIN | `durable`, the annotations `x-opt-mqtt-qos`, `x-opt-mqtt-retain` |
//! | expiry | `ttl`, `absolute-expiry-time` |
//! | Content Type, Response Topic, Correlation Data | `content-type`, `reply-to`, `correlation-id` |
//! | User Properties | `application-properties` |
//! | User Properties `amqp-*` | every other property, see [`names`] |
//!
//! [`to_mqtt`] and [`to_amqp`] check themselves: each maps its result back at
//! once. If that is not what it began with, because the other protocol cannot
//! say it or says it in another order, what is missing goes along: to AMQP in an
//! annotation with all User Properties, to MQTT in User Properties with the
//! encoded bytes. Both are believed only if they still fit to the rest of the
//! message, so that a program may change a message that it passes on.
//!
//! Other bodies than data, strings and bytes become JSON where JSON can say
//! them, else the payload is their encoded sections.
//!
//! A message of AMQP keeps its bytes ([`dunlin_base::Encoded`]); to receivers of
//! AMQP they go unchanged. It is mapped once there is a receiver of MQTT: what
//! comes from [`from_amqp`] has no properties, and goes to MQTT by [`to_mqtt`]
//! only.

mod annotating;
mod application;
mod body;
mod fields;
mod form;
mod json;
pub mod names;
mod neutral;
mod original;
mod sending;
mod typed;

pub use annotating::annotate;
pub use neutral::{from_amqp, to_mqtt};
pub use sending::{Attempt, to_amqp, to_amqp_parts};
