//! Tries a configuration: asks whether broker and target are there, and shows the rows
//! of the first messages as they would be written. Takes nothing from the sink's group,
//! and stores nothing.

use core::time::Duration;
use std::time::{SystemTime, UNIX_EPOCH};

use dunlin_client::{QoS, Subscribe};
use tokio::time::{Instant, timeout, timeout_at};

use crate::batch::Item as _;
use crate::config::Config;
use crate::refusal::Refusal;
use crate::shape::{Shape, write_object};
use crate::sink::SinkError;
use crate::target::Failure;
use crate::targets;

/// What a message would become.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sample {
    /// Its topic.
    pub topic: String,
    /// Its rows as JSON objects; none if it is not selected. Or why it would be refused.
    pub rows: Result<Vec<String>, Refusal>,
}

/// Connects to the target and to the broker, and calls `show` for each of the first
/// `count` messages, until `time` is over; gives how many came.
///
/// # Errors
/// The configuration is wrong, or one of the two is not there.
pub async fn check(
    config: &Config,
    count: usize,
    time: Duration,
    mut show: impl FnMut(Sample),
) -> Result<usize, SinkError> {
    let failed = SinkError::Client;
    config.check()?;
    let shape = Shape::of(config)?;
    let mut target = targets::build(config)?;
    let opened = timeout(config.retry.timeout.0, target.open()).await;
    let encoder = match opened {
        Ok(Ok(encoder)) => encoder,
        Ok(Err(Failure::Later(why) | Failure::Refused(why))) => {
            return Err(failed(format!("the target: {why}")));
        }
        Err(_) => return Err(failed("the target did not answer in time".into())),
    };
    let builder = config
        .client()?
        .session_expiry(Duration::ZERO)
        .losses_max(1);
    let connected = timeout(config.retry.timeout.0, builder.connect()).await;
    let (client, mut messages) = match connected {
        Ok(connected) => connected.map_err(|error| failed(format!("the broker: {error}")))?,
        Err(_) => return Err(failed("the broker did not answer in time".into())),
    };
    let how = Subscribe::new(QoS::AtMostOnce);
    let filters = config.broker.filters.iter().map(|it| (it.as_str(), how));
    let answers = client.subscribe_many(filters).await;
    let answers = answers.map_err(|error| failed(format!("the broker: {error}")))?;
    for (answer, filter) in answers.into_iter().zip(&config.broker.filters) {
        answer.map_err(|error| failed(format!("the broker: {filter}: {error}")))?;
    }
    let until = Instant::now() + time;
    let mut seen = 0;
    while seen < count {
        let Ok(Some(message)) = timeout_at(until, messages.next()).await else {
            break;
        };
        seen += 1;
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        let now = since.map_or(0, |it| i64::try_from(it.as_micros()).unwrap_or(i64::MAX));
        let input = message.input(now);
        let mut rows = Vec::new();
        let shaped = shape.rows(&input, |scope| {
            let mut row = Vec::new();
            write_object(shape.columns(), scope, &mut row)?;
            rows.push(String::from_utf8_lossy(&row).into_owned());
            Ok(())
        });
        let written = shaped.and_then(|_| encoder.encode(&input, &mut Vec::new()));
        show(Sample {
            topic: message.topic.as_str().to_owned(),
            rows: written.map(|_| rows),
        });
    }
    client.disconnect().await;
    Ok(seen)
}
