//! Messages and who gets them: subscriptions, receivers of a topic, retained messages,
//! publishing.

use std::collections::BTreeMap;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use core::time::Duration;
use dunlin_base::message::MessageProperties;
use dunlin_base::{Message as Neutral, QoS, ShardId, Text, topic};
use dunlin_broker::access::is_reserved;
use dunlin_broker::control::values as shard;

use super::plane::{Outcome, Plane, checked, silent};
use super::values::{
    Code, Failure, Message, Page, PageOf, Receiver, Reply, RetainedTopic, Subscription,
};

/// Bytes that a message has besides its topic and payload.
const MESSAGE_BYTES: u64 = 32;

/// Longest content type that an operator gives a message: what receivers are sent has
/// room for it.
const CONTENT_TYPE_BYTES_MAX: usize = 1024;

/// Whether a receiver would take a text for damage.
pub(super) fn has_control(text: &str) -> bool {
    text.chars().any(char::is_control)
}

/// Subscriptions of one client.
pub(super) fn subscriptions(plane: &Plane, client_id: &str, page: &PageOf) -> Outcome {
    let request = shard::Request::Subscriptions {
        client_id: Text::from(client_id),
        after: page.after.as_deref().map(Text::from),
        limit: checked(page)?,
    };
    let mut silence = false;
    for (_, reply) in plane.shards.control_all(&request) {
        match reply {
            Some(shard::Reply::Subscriptions(Some((rows, next)))) => {
                let rows = rows.into_iter().map(subscription).collect();
                let next = next.map(|filter| filter.to_string());
                return Ok(Reply::Subscriptions(Page { rows, next }));
            }
            Some(_) => {}
            None => silence = true,
        }
    }
    match silence {
        true => Err(silent()),
        false => Err(super::clients::unknown(client_id)),
    }
}

fn subscription(view: shard::SubscriptionView) -> Subscription {
    Subscription {
        filter: view.filter.to_string(),
        qos: view.qos as u8,
        no_local: view.no_local,
        retain_as_published: view.retain_as_published,
        identifier: view.identifier,
    }
}

/// Who would get a message of this topic.
pub(super) fn receivers(plane: &Plane, name: &str, limit: usize) -> Outcome {
    let topic = valid_topic(name)?;
    let page = PageOf { after: None, limit };
    let request = shard::Request::Receivers {
        topic,
        limit: checked(&page)?,
    };
    let (mut rows, mut count, mut groups_left_out) = (Vec::new(), 0, 0);
    for (_, reply) in plane.shards.control_all(&request) {
        let Some(shard::Reply::Receivers {
            rows: of_shard,
            count: more,
            groups_left_out: left_out,
        }) = reply
        else {
            return Err(silent());
        };
        count += more as u64;
        // Each shard knows all of them, those without members there too.
        groups_left_out = groups_left_out.max(left_out as u64);
        rows.extend(of_shard.into_iter().map(receiver));
    }
    rows.truncate(limit);
    Ok(Reply::Receivers {
        rows,
        count,
        groups_left_out,
    })
}

fn receiver(view: shard::ReceiverView) -> Receiver {
    Receiver {
        client_id: view.client_id.to_string(),
        qos: view.qos as u8,
        share: view.share.map(|share| share.to_string()),
        allowed: view.allowed,
        connected: view.connected,
    }
}

/// Retained messages, without their payloads.
pub(super) fn retained(plane: &Plane, filter: &str, page: &PageOf) -> Outcome {
    let (found, next) = retained_page(plane, filter, page)?;
    let rows = found.iter().map(|message| RetainedTopic {
        topic: message.topic.to_string(),
        qos: message.qos as u8,
        bytes: message.payload.len(),
    });
    let rows = rows.collect();
    Ok(Reply::Retained(Page { rows, next }))
}

fn retained_page(
    plane: &Plane,
    filter: &str,
    page: &PageOf,
) -> Result<(Vec<Arc<Neutral>>, Option<String>), Failure> {
    let limit = checked(page)?;
    topic::validate_filter(filter).map_err(|error| bad(error.to_string()))?;
    // Every shard has all of them.
    let request = shard::Request::Retained {
        filter: Text::from(filter),
        after: page.after.as_deref().map(Text::from),
        limit,
    };
    match plane.shards.control(plane.shards.first(), request) {
        Some(shard::Reply::Retained(found, next)) => Ok((found, next.map(|it| it.to_string()))),
        _ => Err(silent()),
    }
}

/// One retained message.
pub(super) fn retained_message(plane: &Plane, name: &str) -> Outcome {
    let topic = valid_topic(name)?;
    let page = PageOf::default();
    let (found, _) = retained_page(plane, &topic, &page)?;
    match found.first() {
        Some(message) => Ok(Reply::Message(Box::new(shown(message)))),
        None => {
            let text = format!("there is no retained message of {name:?}");
            Err(Failure::new(Code::NotFound, text))
        }
    }
}

fn shown(message: &Neutral) -> Message {
    let (payload, payload_base64) = match core::str::from_utf8(&message.payload) {
        Ok(text) => (Some(text.to_owned()), None),
        Err(_) => (None, Some(BASE64.encode(&message.payload))),
    };
    let properties = message.properties.as_deref();
    Message {
        topic: message.topic.to_string(),
        payload,
        payload_base64,
        qos: message.qos as u8,
        retain: message.retain,
        content_type: properties
            .and_then(|properties| properties.content_type.as_deref())
            .map(str::to_owned),
        expiry_seconds: None,
    }
}

/// Removes retained messages that match, one page of them.
pub(super) fn clear_retained(plane: &Plane, filter: &str, page: &PageOf) -> Outcome {
    plane.check_home()?;
    let (found, next) = retained_page(plane, filter, page)?;
    let count = found.len() as u64;
    let mut of_shard: BTreeMap<ShardId, Vec<Text>> = BTreeMap::new();
    for message in found {
        let owner = plane.shards.home(&message.topic);
        of_shard
            .entry(owner)
            .or_default()
            .push(message.topic.clone());
    }
    for (owner, topics) in of_shard {
        let request = shard::Request::Forget(topics);
        stored(plane.shards.control(owner, request))?;
    }
    Ok(Reply::Done { count, next })
}

/// What the store was to do is done.
pub(super) fn stored(reply: Option<shard::Reply>) -> Result<(), Failure> {
    match reply {
        Some(shard::Reply::Stored(true)) => Ok(()),
        Some(shard::Reply::Stored(false)) => {
            let text = "the store refuses it; the log says why";
            Err(Failure::new(Code::Unavailable, text))
        }
        _ => Err(silent()),
    }
}

/// Publishes a message of the server.
pub(super) fn publish(plane: &Plane, message: &Message) -> Outcome {
    let topic = valid_topic(&message.topic)?;
    if is_reserved(&topic) {
        return Err(bad("what is below $SYS is the broker's own to publish"));
    }
    let payload = payload(message)?;
    if MESSAGE_BYTES + (topic.len() + payload.len()) as u64 > plane.packet_bytes_max() {
        return Err(bad("the message is larger than limits.max_packet_size"));
    }
    let qos = QoS::from_u8(message.qos).ok_or_else(|| bad("`qos` is 0, 1 or 2"))?;
    let content_type = message.content_type.as_deref();
    if content_type.is_some_and(|it| it.len() > CONTENT_TYPE_BYTES_MAX || has_control(it)) {
        let max = CONTENT_TYPE_BYTES_MAX;
        let text = format!("`content_type` has at most {max} bytes and no control characters");
        return Err(bad(text));
    }
    let content_type = content_type.map(Text::from);
    let properties = MessageProperties {
        content_type,
        ..MessageProperties::default()
    };
    let lifetime = message
        .expiry_seconds
        .map(u64::from)
        .map(Duration::from_secs);
    let neutral = Neutral {
        topic: topic.clone(),
        payload,
        qos,
        retain: message.retain,
        expires: lifetime.map(|lifetime| plane.now() + lifetime),
        properties: (!properties.is_empty()).then(|| Box::new(properties)),
        extra: None,
    };
    let at = plane.shards.home(&topic);
    let request = shard::Request::Publish(Arc::new(neutral));
    match plane.shards.control(at, request) {
        Some(shard::Reply::Published {
            stored: true,
            matched,
        }) => Ok(Reply::Published { matched }),
        Some(_) => {
            let text = "a queue is full, or the store refuses the message";
            Err(Failure::new(Code::Unavailable, text))
        }
        None => Err(silent()),
    }
}

fn payload(message: &Message) -> Result<Bytes, Failure> {
    match (&message.payload, &message.payload_base64) {
        (Some(text), None) => Ok(Bytes::from(text.clone().into_bytes())),
        (None, Some(text)) => {
            let bytes = BASE64.decode(text);
            let bytes = bytes.map_err(|_| bad("`payload_base64` is not Base64"))?;
            Ok(Bytes::from(bytes))
        }
        (None, None) => Ok(Bytes::new()),
        (Some(_), Some(_)) => Err(bad("either `payload` or `payload_base64`")),
    }
}

fn valid_topic(name: &str) -> Result<Text, Failure> {
    match topic::validate_name(name) {
        Ok(()) => Ok(Text::from(name)),
        Err(error) => Err(bad(format!("{name:?} is no topic: {error}"))),
    }
}

pub(super) fn bad(text: impl Into<String>) -> Failure {
    Failure::new(Code::BadRequest, text)
}
