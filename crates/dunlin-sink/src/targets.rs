//! The databases that there are.

mod influxdb;
mod kafka;
mod nats;
mod objects;
mod postgres;
mod stream;
mod web;

use std::sync::Arc;

use crate::config::{Config, ConfigError};
use crate::shape::Shape;
use crate::target::Target;

/// The target that the configuration names.
///
/// # Errors
/// Part of it cannot be used.
pub(crate) fn build(config: &Config) -> Result<Box<dyn Target>, ConfigError> {
    let shape = Arc::new(Shape::of(config)?);
    let timeout = config.retry.timeout.0;
    if let Some(postgres) = &config.postgres {
        return Ok(Box::new(postgres::Postgres::new(postgres, shape)?));
    }
    if let Some(http) = &config.http {
        return Ok(Box::new(objects::http(http, shape, timeout)?));
    }
    if let Some(clickhouse) = &config.clickhouse {
        return Ok(Box::new(objects::clickhouse(clickhouse, shape, timeout)?));
    }
    if let Some(influxdb) = &config.influxdb {
        return Ok(Box::new(influxdb::influxdb(influxdb, shape, timeout)?));
    }
    if let Some(nats) = &config.nats {
        return Ok(Box::new(nats::Nats::new(nats, shape)?));
    }
    if let Some(kafka) = &config.kafka {
        return Ok(Box::new(kafka::Kafka::new(config, kafka, shape)?));
    }
    Err(ConfigError::Value {
        key: "target",
        why: "there is none".into(),
    })
}
