//! mosquitto's `-D COMMAND NAME VALUE`: which property goes where.

use core::iter::Peekable;
use core::num::NonZeroU32;
use core::str::FromStr;
use core::time::Duration;

use anyhow::{Context as _, Result, bail};
use dunlin_client::{Builder, Publish};

/// All properties of a command line, by the packet they go into.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Properties {
    pub(super) connect: ConnectProperties,
    pub(super) publish: PublishProperties,
    pub(super) will: PublishProperties,
    pub(super) will_delay: Duration,
    pub(super) subscription_id: Option<NonZeroU32>,
    pub(super) disconnect_expiry: Option<Duration>,
}

impl Properties {
    /// Whether the session is to outlive the connection.
    pub(super) fn keep_session(&self) -> bool {
        self.connect.session_expiry.is_some() || self.disconnect_expiry.is_some()
    }

    /// Whether there is one for the will.
    pub(super) fn has_will(&self) -> bool {
        self.will != PublishProperties::default() || !self.will_delay.is_zero()
    }
}

/// Properties of CONNECT.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ConnectProperties {
    session_expiry: Option<Duration>,
    receive_maximum: Option<u16>,
    maximum_packet_size: Option<u32>,
    topic_alias_maximum: Option<u16>,
    user: Vec<(String, String)>,
}

impl ConnectProperties {
    pub(super) fn apply(&self, mut builder: Builder) -> Builder {
        if let Some(expiry) = self.session_expiry {
            builder = builder.session_expiry(expiry);
        }
        if let Some(maximum) = self.receive_maximum {
            builder = builder.receive_maximum(maximum);
        }
        if let Some(size) = self.maximum_packet_size {
            builder = builder.maximum_packet_size(size);
        }
        if let Some(aliases) = self.topic_alias_maximum {
            builder = builder.topic_aliases(aliases);
        }
        for (name, value) in &self.user {
            builder = builder.user_property(name, value);
        }
        builder
    }
}

/// Properties of a message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct PublishProperties {
    expiry: Option<Duration>,
    content_type: Option<String>,
    response_topic: Option<String>,
    correlation_data: Option<String>,
    payload_is_utf8: Option<bool>,
    user: Vec<(String, String)>,
}

impl PublishProperties {
    pub(super) fn apply(&self, mut publish: Publish) -> Publish {
        if let Some(expiry) = self.expiry {
            publish = publish.expires_in(expiry);
        }
        if let Some(text) = &self.content_type {
            publish = publish.content_type(text);
        }
        if let Some(text) = &self.response_topic {
            publish = publish.response_topic(text);
        }
        if let Some(data) = &self.correlation_data {
            publish = publish.correlation_data(data.as_str());
        }
        if let Some(utf8) = self.payload_is_utf8 {
            publish = publish.payload_is_utf8(utf8);
        }
        for (name, value) in &self.user {
            publish = publish.user_property(name, value);
        }
        publish
    }

    /// Response Topic.
    pub(super) fn response_topic(&self) -> Option<&str> {
        self.response_topic.as_deref()
    }

    /// Correlation Data.
    pub(super) fn correlation_data(&self) -> Option<&str> {
        self.correlation_data.as_deref()
    }

    /// Tells whether there is such a property.
    fn set(&mut self, name: &str, value: &str) -> Result<bool> {
        match name {
            "message-expiry-interval" => self.expiry = Some(seconds(value)?),
            "content-type" => self.content_type = Some(value.into()),
            "response-topic" => self.response_topic = Some(value.into()),
            "correlation-data" => self.correlation_data = Some(value.into()),
            "payload-format-indicator" => self.payload_is_utf8 = Some(flag(value)?),
            "topic-alias" => bail!("the client chooses topic aliases by itself"),
            _ => return Ok(false),
        }
        Ok(true)
    }
}

/// Reads one property: three words, four for a user property.
pub(super) fn parse_property<'a>(
    words: &mut Peekable<impl Iterator<Item = &'a str>>,
    properties: &mut Properties,
) -> Result<()> {
    let mut next = || words.next().context("a property is COMMAND NAME VALUE");
    let (command, name, value) = (next()?, next()?, next()?);
    if name == "user-property" {
        let pair = (value.to_owned(), next()?.to_owned());
        match command {
            "connect" => properties.connect.user.push(pair),
            "publish" => properties.publish.user.push(pair),
            "will" => properties.will.user.push(pair),
            _ => bail!("-D {command} user-property is not supported"),
        }
        return Ok(());
    }
    set(command, name, value, properties).with_context(|| format!("-D {command} {name} {value}"))
}

fn set(command: &str, name: &str, value: &str, properties: &mut Properties) -> Result<()> {
    let known = match command {
        "connect" => {
            let connect = &mut properties.connect;
            match name {
                "session-expiry-interval" => connect.session_expiry = Some(seconds(value)?),
                "receive-maximum" => connect.receive_maximum = Some(number(value)?),
                "maximum-packet-size" => connect.maximum_packet_size = Some(number(value)?),
                "topic-alias-maximum" => connect.topic_alias_maximum = Some(number(value)?),
                _ => return no_such_property(),
            }
            true
        }
        "publish" => properties.publish.set(name, value)?,
        "will" if name == "will-delay-interval" => {
            properties.will_delay = seconds(value)?;
            true
        }
        "will" => properties.will.set(name, value)?,
        "subscribe" if name == "subscription-identifier" => {
            properties.subscription_id = Some(number(value)?);
            true
        }
        "disconnect" if name == "session-expiry-interval" => {
            properties.disconnect_expiry = Some(seconds(value)?);
            true
        }
        "auth" | "connack" | "disconnect" | "puback" | "subscribe" | "unsubscribe" => false,
        _ => bail!("the command is connect, publish, will, subscribe or disconnect"),
    };
    if known { Ok(()) } else { no_such_property() }
}

fn no_such_property() -> Result<()> {
    bail!("there is no such property, or it cannot be set here")
}

fn seconds(value: &str) -> Result<Duration> {
    match number::<u32>(value)? {
        u32::MAX => Ok(Duration::MAX),
        seconds => Ok(Duration::from_secs(seconds.into())),
    }
}

fn flag(value: &str) -> Result<bool> {
    match value {
        "0" => Ok(false),
        "1" => Ok(true),
        _ => bail!("the value is 0 or 1"),
    }
}

fn number<T: FromStr>(value: &str) -> Result<T> {
    match value.parse() {
        Ok(number) => Ok(number),
        Err(_) => bail!("the value is not a number in its range"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Properties> {
        let mut properties = Properties::default();
        let mut words = text.split(' ').peekable();
        while words.peek().is_some() {
            parse_property(&mut words, &mut properties)?;
        }
        Ok(properties)
    }

    #[test]
    fn properties_go_where_they_belong() {
        let text = "publish user-property k v connect receive-maximum 7 will content-type t \
                    publish payload-format-indicator 1 subscribe subscription-identifier 5 \
                    will will-delay-interval 9 publish user-property k w";
        let got = parse(text).expect("properties");
        assert_eq!(
            got.publish.user,
            [("k".into(), "v".into()), ("k".into(), "w".into())]
        );
        assert_eq!(got.publish.payload_is_utf8, Some(true));
        assert_eq!(got.connect.receive_maximum, Some(7));
        assert_eq!(got.will.content_type.as_deref(), Some("t"));
        assert_eq!(got.will_delay, Duration::from_secs(9));
        assert_eq!(got.subscription_id, NonZeroU32::new(5));
    }

    #[test]
    fn wrong_properties_are_refused() {
        for text in [
            "publish",
            "publish content-type",
            "publish user-property k",
            "publish nonsense x",
            "nonsense content-type x",
            "connect receive-maximum 65536",
            "publish payload-format-indicator 2",
            "puback user-property k v",
            "subscribe subscription-identifier 0",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
