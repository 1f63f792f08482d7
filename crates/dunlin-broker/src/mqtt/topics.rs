//! Topics of clients below mount points, rewritten, and with a delay: what they stand
//! for, on the way in and on the way out.

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::num::NonZeroU64;
use core::time::Duration;

use dunlin_base::{Instant, Message};
use dunlin_mqtt::codec::{Publish, ReasonCode, Subscribe, SubscribeFilter, Unsubscribe, Will};
use dunlin_mqtt::server::session::Will as Kept;

use crate::ids::{ConnIdx, SessionIdx};
use crate::owners::Owners;
use crate::topics::{Client, Meant, Wrong, below};

/// What each filter of a packet stands for.
pub(crate) type Filters = Vec<Result<Option<String>, Wrong>>;

/// The reason code for a topic that stands for nothing.
pub(crate) const fn reason(wrong: Wrong) -> ReasonCode {
    match wrong {
        Wrong::Name => ReasonCode::TopicNameInvalid,
        Wrong::Late => ReasonCode::QuotaExceeded,
        Wrong::Reserved => ReasonCode::NotAuthorized,
    }
}

/// As the log has it.
pub(crate) const fn cause(wrong: Wrong) -> &'static str {
    match wrong {
        Wrong::Name => "not a topic",
        Wrong::Late => "too long a delay",
        Wrong::Reserved => "no `$` topics below a mount point",
    }
}

/// Whether topics of the clients of a listener may stand for others: not those of the
/// broker's own bridges, which have a map of their own.
fn alters(own: &Owners, listener: u16) -> bool {
    own.config.topics.alters() && own.config.bridges.listener != Some(listener)
}

/// A PUBLISH as it is meant, with its delay. Its response topic is below the mount point
/// as well.
pub(crate) struct Altered {
    topic: Option<String>,
    response: Option<String>,
    mounted: bool,
    pub(crate) delay: Option<Duration>,
}

impl Altered {
    /// Whether the packet is another one now.
    pub(crate) const fn is_altered(&self) -> bool {
        self.topic.is_some() || self.mounted
    }

    /// The packet as it is meant.
    pub(crate) fn apply<'a>(&'a self, packet: &Publish<'a>) -> Publish<'a> {
        let mut packet = packet.clone();
        if let Some(topic) = &self.topic {
            packet.topic = topic;
        }
        if self.mounted {
            packet.properties.response_topic = self.response.as_deref();
        }
        packet
    }
}

/// What a PUBLISH of a session stands for.
pub(crate) fn publish(
    own: &Owners,
    s: SessionIdx,
    listener: u16,
    packet: &Publish<'_>,
) -> Result<Altered, Wrong> {
    let same = Altered {
        topic: None,
        response: None,
        mounted: false,
        delay: None,
    };
    let Some(session) = own.sessions.get(s).filter(|_| alters(own, listener)) else {
        return Ok(same);
    };
    let client = Client {
        id: &session.client_id,
        user: session.user.as_deref(),
    };
    let topics = &own.config.topics;
    let Meant { topic, delay } = topics.published(packet.topic, listener, client)?;
    let mount = topics.mount(listener);
    Ok(Altered {
        topic,
        response: mounted_response(mount, packet.properties.response_topic),
        mounted: !mount.is_empty(),
        delay,
    })
}

fn mounted_response(mount: &str, response: Option<&str>) -> Option<String> {
    let response = response.filter(|it| !mount.is_empty() && !it.starts_with('$'))?;
    let whole = [mount, response].concat();
    dunlin_base::topic::validate_name(&whole).ok()?;
    Some(whole)
}

/// The message of a will as it is meant; `None`: it is for no topic.
pub(crate) fn will(
    own: &Owners,
    listener: u16,
    client: Client<'_>,
    will: &Will<'_>,
) -> Option<Kept> {
    if !alters(own, listener) {
        return Some(Kept::of(will));
    }
    let topics = &own.config.topics;
    let topic = topics.willed(will.topic, listener, client).ok()?;
    let mount = topics.mount(listener);
    let response = mounted_response(mount, will.properties.response_topic);
    let mut will = will.clone();
    if let Some(topic) = &topic {
        will.topic = topic;
    }
    if !mount.is_empty() {
        will.properties.response_topic = response.as_deref();
    }
    Some(Kept::of(&will))
}

/// What the filters of a client stand for; `None`: each itself.
fn filters<'f>(
    own: &Owners,
    (c, s): (ConnIdx, SessionIdx),
    filters: impl Iterator<Item = &'f str>,
) -> Option<Filters> {
    if !own.config.topics.alters() {
        return None;
    }
    let listener = own.conns.mqtt(c)?.peer.listener;
    let session = own.sessions.get(s).filter(|_| alters(own, listener))?;
    let client = Client {
        id: &session.client_id,
        user: session.user.as_deref(),
    };
    let topics = &own.config.topics;
    let all = filters.map(|filter| topics.filtered(filter, listener, client));
    Some(all.collect())
}

/// What those of a SUBSCRIBE stand for.
pub(crate) fn subscribe(
    own: &Owners,
    client: (ConnIdx, SessionIdx),
    subscribe: &Subscribe<'_>,
) -> Option<Filters> {
    filters(own, client, subscribe.filters.iter().map(|it| it.filter))
}

/// What those of an UNSUBSCRIBE stand for.
pub(crate) fn unsubscribe(
    own: &Owners,
    client: (ConnIdx, SessionIdx),
    unsubscribe: &Unsubscribe<'_>,
) -> Option<Filters> {
    filters(own, client, unsubscribe.filters.iter())
}

/// A request with the filter that it stands for.
pub(crate) fn requested<'a>(
    (request, meant): (SubscribeFilter<'a>, &'a Result<Option<String>, Wrong>),
) -> SubscribeFilter<'a> {
    SubscribeFilter {
        filter: filter((request.filter, meant)),
        ..request
    }
}

/// The filter that one stands for; one that stands for nothing stays.
pub(crate) fn filter<'a>((text, meant): (&'a str, &'a Result<Option<String>, Wrong>)) -> &'a str {
    match meant {
        Ok(Some(meant)) => meant,
        Ok(None) | Err(_) => text,
    }
}

/// A message for a client below a mount point as that sees it; `false`: it does not.
pub(crate) fn relative(publish: &mut Publish<'_>, mount: &str) -> bool {
    let Some(topic) = below(mount, publish.topic) else {
        return false;
    };
    publish.topic = topic;
    let response = publish.properties.response_topic;
    publish.properties.response_topic = response.and_then(|it| below(mount, it));
    true
}

/// A message that is published later: its time begins then.
pub(crate) fn later(
    message: Message,
    sender: Option<NonZeroU64>,
    delay: Duration,
    now: Instant,
) -> Arc<Message> {
    let mut extra = message.extra.clone().unwrap_or_default();
    extra.sender = sender;
    extra.deliver_at = Some(now + delay);
    Arc::new(Message {
        expires: message.expires.map(|at| at + delay),
        extra: Some(extra),
        ..message
    })
}
