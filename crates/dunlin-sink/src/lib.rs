//! Writes messages of MQTT into databases. A sink is a durable member of a shared
//! subscription; it acknowledges a message when its target has stored it, so that a
//! restart of any of the three loses nothing.
//!
//! [`Config`] says what to read, what rows are and where they go; [`Sink`] does it. A
//! [`Target`] is a database: it turns messages into rows of its own form and stores many
//! at a time. Batches, attempts and refused rows are the same for all of them.

#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)
)]

mod batch;
mod check;
mod config;
mod decode;
mod expression;
mod guard;
mod input;
mod marks;
mod moment;
mod refusal;
mod refused;
mod shape;
mod sink;
mod sparkplug;
mod stats;
mod target;
mod targets;
mod value;
mod window;
mod worker;

pub use check::{Sample, check};
pub use config::{
    BatchConfig, Body, Broker, ClickHouse, Column, Config, ConfigError, Http, InfluxDb, Kafka,
    MessageConfig, Nats, OnConflict, Postgres, RefusedConfig, Retry, Size, Span, Tls, Unit,
};
pub use decode::Format;
pub use expression::{Expression, Expressions, Found, Scope, Work};
pub use input::Input;
pub use refusal::{Cause, Refusal};
pub use shape::{Shape, Shaped};
pub use sink::{Sink, SinkError, Stopper};
pub use stats::Stats;
pub use target::{Encode, Failure, Rows, Step, Target};
pub use value::Value;
