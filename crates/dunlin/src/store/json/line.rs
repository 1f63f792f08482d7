//! A line of JSON: what an operation of the store says, and back.

use core::num::NonZeroU64;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use dunlin_base::{Encoded, Form, Instant, Message, MessageExtra, MessageProperties, QoS, Text};
use dunlin_store::{InflightState, Seq, SessionKey, SessionRecord, StoreOp, StoredWill, Target};
use serde::{Deserialize, Serialize};

use super::LineError;

/// One line.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum Line {
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
pub(super) struct WillLine {
    delay_secs: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    message_expiry_secs: Option<u32>,
    message: MessageLine,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TargetLine {
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
pub(super) struct MessageLine {
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
    sender: Option<NonZeroU64>,
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

impl Line {
    /// As it is written; `None`: the operation takes something away.
    pub(super) fn of(op: &StoreOp) -> Option<Self> {
        Some(match op {
            StoreOp::PutSession { key, record } => Self::Session {
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
            } => Self::Subscription {
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
            } => Self::Inflight {
                session: session.0,
                packet_id: *packet_id,
                seq: seq.0,
                released: *state == InflightState::Released,
            },
            StoreOp::PutInbound { session, packet_id } => Self::Inbound {
                session: session.0,
                packet_id: *packet_id,
            },
            StoreOp::Enqueue {
                seq,
                message,
                targets,
            } => Self::Queued {
                seq: seq.0,
                targets: targets.iter().map(target_line).collect(),
                message: message_line(message),
            },
            StoreOp::PutRetained { message } => Self::Retained {
                message: message_line(message),
            },
            StoreOp::PutMeta { key, value } => Self::Value {
                name: key.to_string(),
                base64: BASE64.encode(value),
            },
            _ => return None,
        })
    }

    /// As it is read.
    pub(super) fn into_op(self) -> Result<StoreOp, LineError> {
        Ok(match self {
            Self::Session {
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
            Self::Subscription {
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
            Self::Inflight {
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
            Self::Inbound { session, packet_id } => StoreOp::PutInbound {
                session: SessionKey(session),
                packet_id,
            },
            Self::Queued {
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
            Self::Retained { message } => StoreOp::PutRetained {
                message: Arc::new(message_of(message)?),
            },
            Self::Value { name, base64 } => value_of(name, &base64)?,
            _ => return Err(LineError::Beginning),
        })
    }
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
            sender: of.sender,
            amqp_base64: of.encoded.as_ref().map(|it| BASE64.encode(&it.bytes)),
        }),
        payload,
        payload_base64,
    }
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
        sender: line.sender,
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
