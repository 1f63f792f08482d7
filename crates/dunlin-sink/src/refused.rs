//! Where refused messages go: a topic, a file, or nowhere, which ends the sink.

use core::time::Duration;
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use dunlin_client::{Client, Publish, QoS};

use crate::config::RefusedConfig;
use crate::input::Input;
use crate::refusal::Refusal;
use crate::value::Value;

/// Time for the broker to take a refused message over.
const PUBLISH_MAX: Duration = Duration::from_secs(30);

/// The place for refused messages.
#[derive(Clone, Debug)]
pub(crate) enum Place {
    /// There is none.
    Nowhere,
    /// A topic.
    Topic(String),
    /// A file, which all workers share.
    File(Arc<Mutex<File>>),
}

/// The file of refused messages: a JSON object a line.
#[derive(Debug)]
pub(crate) struct File {
    path: PathBuf,
    bytes_max: u64,
}

impl Place {
    pub(crate) fn new(config: &RefusedConfig) -> Self {
        match (&config.topic, &config.file) {
            (Some(topic), _) => Self::Topic(topic.clone()),
            (None, Some(path)) => Self::File(Arc::new(Mutex::new(File {
                path: path.clone(),
                bytes_max: config.file_max.0,
            }))),
            (None, None) => Self::Nowhere,
        }
    }

    /// Whether there is one.
    pub(crate) const fn is_there(&self) -> bool {
        !matches!(self, Self::Nowhere)
    }

    /// Puts messages there; when this is done they are stored.
    pub(crate) async fn put(
        &self,
        client: &Client,
        refused: &[(Input<'_>, &Refusal)],
    ) -> Result<(), String> {
        match self {
            Self::Nowhere => Err("there is no place for refused messages".into()),
            Self::Topic(topic) => {
                let all = publish(client, topic, refused);
                let done = tokio::time::timeout(PUBLISH_MAX, all).await;
                done.unwrap_or_else(|_| Err("the broker did not answer in time".into()))
            }
            Self::File(file) => {
                let mut text = Vec::new();
                for (input, refusal) in refused {
                    line(input, refusal, &mut text);
                }
                let file = file.lock().unwrap_or_else(PoisonError::into_inner);
                file.append(&text)
                    .map_err(|error| format!("{}: {error}", file.path.display()))
            }
        }
    }
}

async fn publish(
    client: &Client,
    topic: &str,
    refused: &[(Input<'_>, &Refusal)],
) -> Result<(), String> {
    let mut deliveries = Vec::new();
    for (input, refusal) in refused {
        let mut publish = Publish::new(topic, input.payload.to_vec());
        if let Some(properties) = input.properties {
            publish = publish.properties(properties.clone());
        }
        let publish = publish
            .qos(QoS::AtLeastOnce)
            .user_property("sink-topic", input.topic)
            .user_property("sink-cause", refusal.cause.name())
            .user_property("sink-why", refusal.why.replace('\0', " "));
        let started = client.start_publish(publish).await;
        deliveries.push(started.map_err(|error| error.to_string())?);
    }
    for delivery in deliveries {
        delivery.await.map_err(|error| error.to_string())?;
    }
    Ok(())
}

/// A line of the file: the payload as text where it is text.
fn line(input: &Input<'_>, refusal: &Refusal, out: &mut Vec<u8>) {
    let payload = match core::str::from_utf8(input.payload) {
        Ok(text) => ("payload", Value::Text(text.into())),
        Err(_) => ("payload_base64", Value::Bytes(input.payload.into())),
    };
    let fields = [
        ("time", Value::Time(input.time)),
        ("topic", Value::Text(input.topic.into())),
        ("cause", Value::Text(refusal.cause.name().into())),
        ("why", Value::Text(refusal.why.as_str().into())),
        payload,
    ];
    let fields = fields.map(|(name, value)| (name.into(), value));
    Value::Map(fields.into()).write_json(out);
    out.push(b'\n');
}

impl File {
    fn append(&self, text: &[u8]) -> io::Result<()> {
        let mut options = std::fs::OpenOptions::new();
        let mut file = options.create(true).append(true).open(&self.path)?;
        let bytes = file.metadata()?.len();
        if bytes.saturating_add(text.len() as u64) > self.bytes_max {
            let why = "it has reached `refused.file_max`; move it away";
            return Err(io::Error::other(why));
        }
        let written = file.write_all(text).and_then(|()| file.sync_data());
        if written.is_err() {
            // Half a line must not stand before the next one.
            let _ = file.set_len(bytes);
        }
        written
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::refusal::Cause;

    #[test]
    fn a_file_has_a_bound_and_whole_lines() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("refused.ndjson");
        let input = |payload| Input {
            topic: "a/b",
            payload,
            time: 0,
            qos: 1,
            retain: false,
            properties: None,
        };
        let refusal = Refusal::new(Cause::Decode, "not JSON");
        let mut text = Vec::new();
        line(&input(b"x\n"), &refusal, &mut text);
        line(&input(b"\xff"), &refusal, &mut text);
        let file = File {
            path: path.clone(),
            bytes_max: text.len() as u64 + 10,
        };
        file.append(&text).expect("room");
        file.append(&text).expect_err("full");
        let read = std::fs::read_to_string(&path).expect("written");
        let want = concat!(
            r#"{"time":"1970-01-01T00:00:00Z","topic":"a/b","cause":"decode","#,
            r#""why":"not JSON","payload":"x\n"}"#,
            "\n",
            r#"{"time":"1970-01-01T00:00:00Z","topic":"a/b","cause":"decode","#,
            r#""why":"not JSON","payload_base64":"/w=="}"#,
            "\n",
        );
        assert_eq!(read, want);
    }
}
