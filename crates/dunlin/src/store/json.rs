//! What a store holds as lines of JSON, one object a line: a first line with the
//! version, one for each session, subscription, message, packet identifier and
//! named value, and a last line with their number, so that a copy that was cut
//! off is noticed. Knows no file.

use std::io::{self, BufRead, Write};
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use dunlin_base::{Encoded, Form, Instant, Message, MessageExtra, MessageProperties, QoS, Text};
use dunlin_store::{InflightState, Seq, SessionKey, SessionRecord, StoreOp, StoredWill, Target};
use serde::{Deserialize, Serialize};

/// Version of the lines.
const VERSION: u32 = 1;

/// One line.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
enum Line {
    DunlinStore {
        version: u32,
    },
    Session {
        session: u64,
        client_id: String,
        protocol_level: u8,
        expiry_secs: u32,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        disconnected_at_micros: Option<u64>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        user_name: Option<String>,
        #[serde(default, skip_serializing_if = "String::is_empty")]
        owner: String,
        #[serde(default, skip_serializing_if = "String::is_empty")]
        options_base64: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        will: Option<WillLine>,
    },
    Subscription {
        session: u64,
        filter: String,
        options: u8,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        identifier: Option<u32>,
    },
    Inflight {
        session: u64,
        packet_id: u16,
        seq: u64,
        released: bool,
    },
    Inbound {
        session: u64,
        packet_id: u16,
    },
    Queued {
        seq: u64,
        targets: Vec<TargetLine>,
        message: MessageLine,
    },
    Retained {
        message: MessageLine,
    },
    Value {
        name: String,
        base64: String,
    },
    /// The copy ends before its end, and why.
    Failed {
        error: String,
    },
    End {
        lines: u64,
        /// Rows of a damaged store that could not be read.
        lost: u64,
    },
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct WillLine {
    delay_secs: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    message_expiry_secs: Option<u32>,
    message: MessageLine,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct TargetLine {
    session: u64,
    qos: u8,
    #[serde(default, skip_serializing_if = "is_false")]
    retain: bool,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    identifiers: Vec<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    shared: Option<String>,
    #[serde(default, skip_serializing_if = "is_zero")]
    failed: u16,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    priority: Option<u8>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    not_before_micros: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    added_base64: Option<String>,
}

/// A message; its payload as text if it is UTF-8.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct MessageLine {
    topic: String,
    qos: u8,
    #[serde(skip_serializing_if = "is_false")]
    retain: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    expires_at_micros: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    properties: Option<PropertiesLine>,
    #[serde(skip_serializing_if = "Option::is_none")]
    extra: Option<ExtraLine>,
    #[serde(skip_serializing_if = "Option::is_none")]
    payload: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    payload_base64: Option<String>,
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct ExtraLine {
    #[serde(skip_serializing_if = "Option::is_none")]
    priority: Option<u8>,
    #[serde(skip_serializing_if = "Option::is_none")]
    created_at_millis: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    amqp_base64: Option<String>,
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct PropertiesLine {
    #[serde(skip_serializing_if = "Option::is_none")]
    payload_is_utf8: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    content_type: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    response_topic: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    correlation_data_base64: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    user_properties: Vec<(String, String)>,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde calls it")]
fn is_false(flag: &bool) -> bool {
    !flag
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde calls it")]
fn is_zero(number: &u16) -> bool {
    *number == 0
}

/// Why a line is not one.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LineError {
    /// It is not JSON, or not of this form.
    #[error(transparent)]
    Json(#[from] serde_json::Error),
    /// Base64 that is none.
    #[error(transparent)]
    Base64(#[from] base64::DecodeError),
    /// A QoS above 2.
    #[error("there is no QoS {0}")]
    Qos(u8),
    /// Lines of a newer release.
    #[error("version {0} of the lines is not known")]
    Version(u32),
    /// It does not begin as a copy of a store does.
    #[error("this is no copy of a store")]
    Beginning,
    /// It has no last line, or one that says another number.
    #[error("the copy is cut off")]
    CutOff,
    /// The copy says why it was not finished.
    #[error("the copy was not finished: {0}")]
    Failed(String),
}

/// Writes lines.
#[derive(Debug)]
pub struct Writer<W: Write> {
    out: W,
    lines: u64,
}

impl<W: Write> Writer<W> {
    /// Begins with the first line.
    ///
    /// # Errors
    /// What `out` says, as with the others.
    pub fn new(out: W) -> io::Result<Self> {
        let mut writer = Self { out, lines: 0 };
        writer.line(&Line::DunlinStore { version: VERSION })?;
        writer.lines = 0;
        Ok(writer)
    }

    /// Writes what an operation says.
    ///
    /// # Errors
    /// The operation takes something away.
    pub fn write(&mut self, op: &StoreOp) -> io::Result<()> {
        let line = to_line(op).ok_or_else(|| io::Error::other("not the content of a store"))?;
        self.line(&line)
    }

    /// Lines so far.
    #[must_use]
    pub const fn lines(&self) -> u64 {
        self.lines
    }

    /// Ends a copy of everything but `lost` rows.
    ///
    /// # Errors
    /// As with the others.
    pub fn end(mut self, lost: u64) -> io::Result<()> {
        let lines = self.lines;
        self.line(&Line::End { lines, lost })?;
        self.out.flush()
    }

    /// Ends a copy that cannot be finished.
    ///
    /// # Errors
    /// As with the others.
    pub fn fail(mut self, error: String) -> io::Result<()> {
        self.line(&Line::Failed { error })?;
        self.out.flush()
    }

    fn line(&mut self, line: &Line) -> io::Result<()> {
        serde_json::to_writer(&mut self.out, line)?;
        self.lines += 1;
        self.out.write_all(b"\n")
    }
}

/// Reads lines to the last; how many rows the copy lacks.
///
/// # Errors
/// What is wrong and in which line; what `each` fails with.
pub fn read(
    input: &mut dyn BufRead,
    each: &mut dyn FnMut(StoreOp) -> io::Result<()>,
) -> io::Result<u64> {
    let mut number = 0;
    let mut text = Vec::new();
    let wrong = |number: u64, error: LineError| {
        io::Error::new(
            io::ErrorKind::InvalidData,
            format!("line {number}: {error}"),
        )
    };
    loop {
        text.clear();
        number += 1;
        if input.read_until(b'\n', &mut text)? == 0 {
            let error = match number {
                1 => LineError::Beginning,
                _ => LineError::CutOff,
            };
            return Err(wrong(number, error));
        }
        match read_line(&text, number).map_err(|error| wrong(number, error))? {
            Read::Op(op) => each(*op)?,
            Read::Begin => {}
            Read::End { lost } => return Ok(lost),
        }
    }
}

enum Read {
    Begin,
    Op(Box<StoreOp>),
    End { lost: u64 },
}

fn read_line(text: &[u8], number: u64) -> Result<Read, LineError> {
    let line = match serde_json::from_slice(text) {
        Err(_) if number == 1 => return Err(LineError::Beginning),
        line => line?,
    };
    match (number, line) {
        (1, Line::DunlinStore { version: VERSION }) => Ok(Read::Begin),
        (1, Line::DunlinStore { version }) => Err(LineError::Version(version)),
        (1, _) | (_, Line::DunlinStore { .. }) => Err(LineError::Beginning),
        (_, Line::Failed { error }) => Err(LineError::Failed(error)),
        (_, Line::End { lines, lost }) if lines + 2 == number => Ok(Read::End { lost }),
        (_, Line::End { .. }) => Err(LineError::CutOff),
        (_, line) => Ok(Read::Op(Box::new(to_op(line)?))),
    }
}

fn to_line(op: &StoreOp) -> Option<Line> {
    Some(match op {
        StoreOp::PutSession { key, record } => Line::Session {
            session: key.0,
            client_id: record.client_id.to_string(),
            protocol_level: record.version,
            expiry_secs: record.expiry_interval_secs,
            disconnected_at_micros: record.disconnected_at.map(Instant::as_micros),
            user_name: record.user_name.as_ref().map(ToString::to_string),
            owner: record.owner.to_string(),
            options_base64: BASE64.encode(&record.options),
            will: record.will.as_ref().map(|will| WillLine {
                delay_secs: will.delay_secs,
                message_expiry_secs: will.message_expiry_secs,
                message: message_line(&will.message),
            }),
        },
        StoreOp::PutSubscription {
            key,
            filter,
            options,
            identifier,
        } => Line::Subscription {
            session: key.0,
            filter: filter.to_string(),
            options: *options,
            identifier: *identifier,
        },
        StoreOp::PutInflight {
            session,
            packet_id,
            seq,
            state,
        } => Line::Inflight {
            session: session.0,
            packet_id: *packet_id,
            seq: seq.0,
            released: *state == InflightState::Released,
        },
        StoreOp::PutInbound { session, packet_id } => Line::Inbound {
            session: session.0,
            packet_id: *packet_id,
        },
        StoreOp::Enqueue {
            seq,
            message,
            targets,
        } => Line::Queued {
            seq: seq.0,
            targets: targets.iter().map(target_line).collect(),
            message: message_line(message),
        },
        StoreOp::PutRetained { message } => Line::Retained {
            message: message_line(message),
        },
        StoreOp::PutMeta { key, value } => Line::Value {
            name: key.to_string(),
            base64: BASE64.encode(value),
        },
        _ => return None,
    })
}

fn target_line(target: &Target) -> TargetLine {
    TargetLine {
        session: target.session.0,
        qos: target.qos as u8,
        retain: target.retain,
        identifiers: target.identifiers.clone(),
        shared: target.shared.as_ref().map(ToString::to_string),
        failed: target.failed,
        priority: target.priority,
        not_before_micros: target.not_before.map(Instant::as_micros),
        added_base64: target.added.as_ref().map(|added| BASE64.encode(added)),
    }
}

fn message_line(message: &Message) -> MessageLine {
    let (payload, payload_base64) = match core::str::from_utf8(&message.payload) {
        Ok(text) => (Some(text.to_owned()), None),
        Err(_) => (None, Some(BASE64.encode(&message.payload))),
    };
    MessageLine {
        topic: message.topic.to_string(),
        qos: message.qos as u8,
        retain: message.retain,
        expires_at_micros: message.expires.map(Instant::as_micros),
        properties: message.properties.as_deref().map(|of| PropertiesLine {
            payload_is_utf8: of.payload_is_utf8,
            content_type: of.content_type.as_ref().map(ToString::to_string),
            response_topic: of.response_topic.as_ref().map(ToString::to_string),
            correlation_data_base64: of.correlation_data.as_ref().map(|data| BASE64.encode(data)),
            user_properties: of
                .user_properties
                .iter()
                .map(|(name, value)| (name.to_string(), value.to_string()))
                .collect(),
        }),
        extra: message.extra.as_deref().map(|of| ExtraLine {
            priority: of.priority,
            created_at_millis: of.created_ms,
            amqp_base64: of.encoded.as_ref().map(|it| BASE64.encode(&it.bytes)),
        }),
        payload,
        payload_base64,
    }
}

fn to_op(line: Line) -> Result<StoreOp, LineError> {
    Ok(match line {
        Line::Session {
            session,
            client_id,
            protocol_level,
            expiry_secs,
            disconnected_at_micros,
            user_name,
            owner,
            options_base64,
            will,
        } => StoreOp::PutSession {
            key: SessionKey(session),
            record: SessionRecord {
                client_id: Text::from(client_id),
                version: protocol_level,
                expiry_interval_secs: expiry_secs,
                disconnected_at: disconnected_at_micros.map(Instant::from_micros),
                will: will.map(will_of).transpose()?,
                user_name: user_name.map(Text::from),
                owner: Text::from(owner),
                options: BASE64.decode(options_base64)?.into(),
            },
        },
        Line::Subscription {
            session,
            filter,
            options,
            identifier,
        } => StoreOp::PutSubscription {
            key: SessionKey(session),
            filter: Text::from(filter),
            options,
            identifier,
        },
        Line::Inflight {
            session,
            packet_id,
            seq,
            released,
        } => StoreOp::PutInflight {
            session: SessionKey(session),
            packet_id,
            seq: Seq(seq),
            state: state_of(released),
        },
        Line::Inbound { session, packet_id } => StoreOp::PutInbound {
            session: SessionKey(session),
            packet_id,
        },
        Line::Queued {
            seq,
            targets,
            message,
        } => StoreOp::Enqueue {
            seq: Seq(seq),
            message: Arc::new(message_of(message)?),
            targets: targets
                .into_iter()
                .map(target_of)
                .collect::<Result<_, _>>()?,
        },
        Line::Retained { message } => StoreOp::PutRetained {
            message: Arc::new(message_of(message)?),
        },
        Line::Value { name, base64 } => value_of(name, &base64)?,
        _ => return Err(LineError::Beginning),
    })
}

fn value_of(name: String, base64: &str) -> Result<StoreOp, LineError> {
    Ok(StoreOp::PutMeta {
        key: Text::from(name),
        value: Bytes::from(BASE64.decode(base64)?),
    })
}

const fn state_of(released: bool) -> InflightState {
    match released {
        true => InflightState::Released,
        false => InflightState::Published,
    }
}

fn will_of(line: WillLine) -> Result<StoredWill, LineError> {
    Ok(StoredWill {
        message: message_of(line.message)?,
        delay_secs: line.delay_secs,
        message_expiry_secs: line.message_expiry_secs,
    })
}

fn qos_of(number: u8) -> Result<QoS, LineError> {
    QoS::from_u8(number).ok_or(LineError::Qos(number))
}

fn target_of(line: TargetLine) -> Result<Target, LineError> {
    let added = line.added_base64.map(|data| BASE64.decode(data));
    Ok(Target {
        session: SessionKey(line.session),
        qos: qos_of(line.qos)?,
        retain: line.retain,
        identifiers: line.identifiers,
        shared: line.shared.map(Text::from),
        failed: line.failed,
        priority: line.priority,
        not_before: line.not_before_micros.map(Instant::from_micros),
        added: added.transpose()?.map(Arc::from),
    })
}

fn message_of(line: MessageLine) -> Result<Message, LineError> {
    let payload = match (line.payload, line.payload_base64) {
        (Some(text), _) => text.into_bytes(),
        (None, Some(base64)) => BASE64.decode(base64)?,
        (None, None) => Vec::new(),
    };
    let properties = line.properties.map(properties_of).transpose()?;
    Ok(Message {
        topic: Text::from(line.topic),
        payload: Bytes::from(payload),
        qos: qos_of(line.qos)?,
        retain: line.retain,
        expires: line.expires_at_micros.map(Instant::from_micros),
        properties: properties.map(Box::new),
        extra: line.extra.map(extra_of).transpose()?,
    })
}

fn extra_of(line: ExtraLine) -> Result<Box<MessageExtra>, LineError> {
    let bytes = line.amqp_base64.map(|data| BASE64.decode(data));
    Ok(Box::new(MessageExtra {
        priority: line.priority,
        created_ms: line.created_at_millis,
        deliver_at: None,
        encoded: bytes.transpose()?.map(|bytes| Encoded {
            form: Form::Amqp,
            bytes: Bytes::from(bytes),
        }),
    }))
}

fn properties_of(line: PropertiesLine) -> Result<MessageProperties, LineError> {
    let correlation_data = line.correlation_data_base64.map(|data| BASE64.decode(data));
    let texts = |(name, value): (String, String)| (Text::from(name), Text::from(value));
    Ok(MessageProperties {
        payload_is_utf8: line.payload_is_utf8,
        content_type: line.content_type.map(Text::from),
        response_topic: line.response_topic.map(Text::from),
        correlation_data: correlation_data.transpose()?.map(Bytes::from),
        user_properties: line.user_properties.into_iter().map(texts).collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ops() -> Vec<StoreOp> {
        let message = Message {
            topic: Text::from("a/\u{e9}"),
            payload: Bytes::from_static(b"\xff\0"),
            qos: QoS::ExactlyOnce,
            retain: true,
            expires: Some(Instant::from_micros(u64::MAX)),
            properties: Some(Box::new(MessageProperties {
                payload_is_utf8: Some(false),
                content_type: Some(Text::from("t")),
                response_topic: Some(Text::from("r")),
                correlation_data: Some(Bytes::from_static(b"\xfe")),
                user_properties: vec![(Text::from("k"), Text::from("\n\"\u{2028}"))],
            })),
            extra: Some(Box::new(MessageExtra {
                priority: Some(9),
                created_ms: Some(-1),
                deliver_at: None,
                encoded: Some(Encoded {
                    form: Form::Amqp,
                    bytes: Bytes::from_static(b"\x00Su\xa0\x02\xff\0"),
                }),
            })),
        };
        let key = SessionKey(u64::MAX);
        vec![
            StoreOp::PutSession {
                key,
                record: SessionRecord {
                    client_id: Text::from("c"),
                    version: 5,
                    expiry_interval_secs: u32::MAX,
                    disconnected_at: Some(Instant::from_micros(9)),
                    will: Some(StoredWill {
                        message: message.clone(),
                        delay_secs: 2,
                        message_expiry_secs: Some(3),
                    }),
                    user_name: Some(Text::new()),
                    owner: Text::from("o"),
                    options: b"\x01\xff"[..].into(),
                },
            },
            StoreOp::PutSession {
                key: SessionKey(0),
                record: SessionRecord::default(),
            },
            StoreOp::PutSubscription {
                key,
                filter: Text::from("$share/g/#"),
                options: 255,
                identifier: Some(1),
            },
            StoreOp::PutInflight {
                session: key,
                packet_id: u16::MAX,
                seq: Seq(u64::MAX),
                state: InflightState::Released,
            },
            StoreOp::PutInbound {
                session: key,
                packet_id: 1,
            },
            StoreOp::Enqueue {
                seq: Seq(1),
                message: Arc::new(Message::default()),
                targets: vec![Target {
                    session: key,
                    qos: QoS::AtLeastOnce,
                    retain: true,
                    identifiers: vec![1, 2],
                    shared: Some(Text::from("$share/g/#")),
                    failed: 2,
                    priority: Some(9),
                    not_before: Some(Instant::from_micros(5)),
                    added: Some(Arc::from(&b"\xff"[..])),
                }],
            },
            StoreOp::PutRetained {
                message: Arc::new(message),
            },
            StoreOp::PutMeta {
                key: Text::from("tickets"),
                value: Bytes::from_static(b"\0\xff"),
            },
        ]
    }

    fn written() -> Vec<u8> {
        let mut out = Vec::new();
        let mut writer = Writer::new(&mut out).expect("written");
        for op in ops() {
            writer.write(&op).expect("written");
        }
        writer.end(3).expect("written");
        out
    }

    fn read_all(mut bytes: &[u8]) -> io::Result<(Vec<StoreOp>, u64)> {
        let mut found = Vec::new();
        let lost = read(&mut bytes, &mut |op| {
            found.push(op);
            Ok(())
        })?;
        Ok((found, lost))
    }

    #[test]
    fn everything_comes_back() {
        assert_eq!(read_all(&written()).expect("read"), (ops(), 3));
    }

    #[test]
    fn what_is_cut_off_or_changed_is_refused() {
        let all = written();
        for len in 0..all.len() - 1 {
            read_all(&all[..len]).expect_err("cut off");
        }
        let text = String::from_utf8(all).expect("JSON");
        let without = |n: usize| -> String {
            let lines = text.lines().enumerate();
            let others = lines.filter(|(at, _)| *at != n);
            others.map(|(_, line)| format!("{line}\n")).collect()
        };
        for line in 0..text.lines().count() {
            read_all(without(line).as_bytes()).expect_err("a line less");
        }
        let error = read_all(b"{\"kind\":\"dunlin_store\",\"version\":9}\n");
        let error = error.expect_err("newer").to_string();
        assert_eq!(error, "line 1: version 9 of the lines is not known");
        let failed =
            b"{\"kind\":\"dunlin_store\",\"version\":1}\n{\"kind\":\"failed\",\"error\":\"x\"}\n";
        let error = read_all(failed).expect_err("failed").to_string();
        assert_eq!(error, "line 2: the copy was not finished: x");
    }
}
