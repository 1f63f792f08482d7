//! `[topics]`, `[[rewrite]]`, `[[subscribe]]`, mount points: what becomes of the topics of
//! clients of MQTT.

use dunlin_base::{QoS, Text};
use dunlin_broker as broker;
use dunlin_broker::{Automatic, Delays, RewriteOf, TOPIC_RULES_MAX, TopicRuleError};
use serde::{Deserialize, Serialize};

use super::error::Wrong;
use super::listener::{Listener, Protocol};
use super::units::{Size, Span};

/// `[topics]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct Topics {
    /// Most messages that wait for their time; 0: delays are not known.
    pub max_delayed_messages: usize,
    /// Most bytes of them.
    pub max_delayed_bytes: Size,
    /// How much of both one client may have, in percent.
    pub max_delayed_share: u8,
    /// Longest delay.
    pub max_delay: Span,
    /// Whether births of Sparkplug are retained as certificates.
    pub sparkplug: bool,
}

impl Default for Topics {
    fn default() -> Self {
        Self {
            max_delayed_messages: 0,
            max_delayed_bytes: Size::mib(64),
            max_delayed_share: 25,
            max_delay: Span::secs(30 * 24 * 3600),
            sparkplug: false,
        }
    }
}

/// What a `[[rewrite]]` is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Action {
    /// Topics of messages and wills.
    Publish,
    /// Filters of subscriptions.
    Subscribe,
    /// Both.
    #[default]
    All,
}

/// One `[[rewrite]]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Rewrite {
    /// What it is for.
    #[serde(default)]
    pub action: Action,
    /// A topic filter.
    pub from: String,
    /// What stands for what matches it.
    pub to: String,
}

/// One `[[subscribe]]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Subscribe {
    /// Client identifiers; all when absent.
    pub client: Option<String>,
    /// User names; all clients, with or without, when absent.
    pub user: Option<String>,
    /// Topic filter, with `%c` and `%u`.
    pub filter: String,
    /// Highest QoS.
    #[serde(default)]
    pub qos: u8,
    /// Not what the client publishes itself.
    #[serde(default)]
    pub no_local: bool,
    /// Messages keep their RETAIN flag.
    #[serde(default)]
    pub retain_as_published: bool,
    /// With what is retained already.
    #[serde(default = "yes")]
    pub retained: bool,
}

const fn yes() -> bool {
    true
}

impl Rewrite {
    fn rule(&self) -> Result<broker::Rewrite, TopicRuleError> {
        let of = match self.action {
            Action::Publish => RewriteOf::Publish,
            Action::Subscribe => RewriteOf::Subscribe,
            Action::All => RewriteOf::All,
        };
        broker::Rewrite::new(of, &self.from, &self.to)
    }
}

impl Subscribe {
    fn rule(&self) -> Result<Automatic, TopicRuleError> {
        let qos = QoS::from_u8(self.qos).unwrap_or_default();
        let text = |it: &Option<String>| it.as_deref().map(Text::from);
        let mut rule = Automatic::new(&self.filter, qos)?;
        rule = rule.of(text(&self.client), text(&self.user));
        if self.no_local {
            rule = rule.no_local();
        }
        if self.retain_as_published {
            rule = rule.retain_as_published();
        }
        if !self.retained {
            rule = rule.without_retained();
        }
        Ok(rule)
    }
}

/// The rules as one of so many shards takes them. They were checked.
pub(crate) fn topics(config: &super::Config, shards: u16) -> broker::Topics {
    let shards = usize::from(shards);
    let delayed = &config.topics;
    let percent = usize::from(delayed.max_delayed_share);
    let share = |all: usize| (all / 100 * percent + all % 100 * percent / 100).max(1);
    let mut mounts: Vec<Text> = Vec::new();
    if config.listener.iter().any(|it| it.mount.is_some()) {
        let all = config.listener.iter().map(|it| it.mount.as_deref());
        mounts.extend(all.map(|mount| Text::from(mount.unwrap_or_default())));
    }
    broker::Topics {
        mounts,
        rewrites: config
            .rules
            .rewrite
            .iter()
            .flat_map(Rewrite::rule)
            .collect(),
        automatic: config
            .rules
            .subscribe
            .iter()
            .flat_map(Subscribe::rule)
            .collect(),
        delays: Delays {
            messages_max: delayed.max_delayed_messages.div_ceil(shards),
            bytes_max: delayed.max_delayed_bytes.as_usize().div_ceil(shards),
            client_messages_max: share(delayed.max_delayed_messages.div_ceil(shards)),
            client_bytes_max: share(delayed.max_delayed_bytes.as_usize().div_ceil(shards)),
            delay_max: delayed.max_delay.0,
        },
        sparkplug: delayed.sparkplug,
    }
}

impl Topics {
    /// What is wrong with them.
    pub(super) fn check(&self) -> Result<(), Wrong> {
        match self.max_delayed_share {
            1..=100 => Ok(()),
            _ => Err(("max_delayed_share", "1 to 100 percent".into())),
        }
    }
}

/// What is wrong with a rule, by its number.
pub(super) fn check_rewrites(rules: &[Rewrite]) -> Result<(), (usize, Wrong)> {
    for (index, rule) in rules.iter().enumerate() {
        let wrong = |key, why: String| Err((index, (key, why)));
        if index >= TOPIC_RULES_MAX {
            return wrong(
                "from",
                format!("there are more than {TOPIC_RULES_MAX} rules"),
            );
        }
        match rule.rule() {
            Ok(_) => {}
            Err(error @ (TopicRuleError::Filter(_) | TopicRuleError::Captures)) => {
                return wrong("from", format!("'{}': {error}", rule.from));
            }
            Err(error @ TopicRuleError::Share) if rule.from.starts_with('$') => {
                return wrong("from", format!("'{}': {error}", rule.from));
            }
            Err(error) => return wrong("to", format!("'{}': {error}", rule.to)),
        }
    }
    Ok(())
}

/// Likewise.
pub(super) fn check_subscribes(rules: &[Subscribe]) -> Result<(), (usize, Wrong)> {
    for (index, rule) in rules.iter().enumerate() {
        let wrong = |key, why: String| Err((index, (key, why)));
        if index >= TOPIC_RULES_MAX {
            let why = format!("there are more than {TOPIC_RULES_MAX} rules");
            return wrong("filter", why);
        }
        for (key, pattern) in [("client", &rule.client), ("user", &rule.user)] {
            if let Err(why) = check_pattern(pattern.as_deref()) {
                return wrong(key, why);
            }
        }
        if QoS::from_u8(rule.qos).is_none() {
            return wrong("qos", format!("{} is not 0, 1 or 2", rule.qos));
        }
        if rule.no_local && rule.filter.starts_with("$share/") {
            return wrong("no_local", "not for a shared subscription".into());
        }
        if let Err(error) = rule.rule() {
            return wrong("filter", format!("'{}': {error}", rule.filter));
        }
    }
    Ok(())
}

/// What is wrong with a pattern of names.
pub(super) fn check_pattern(pattern: Option<&str>) -> Result<(), String> {
    let Some(pattern) = pattern else {
        return Ok(());
    };
    let begin = pattern.strip_suffix('*').unwrap_or(pattern);
    match pattern.is_empty() || begin.contains('*') {
        true => Err(format!(
            "'{pattern}' is not a name, or the beginning of one and `*`"
        )),
        false => Ok(()),
    }
}

/// What is wrong with the mount point of a listener.
pub(super) fn check_mount(listener: &Listener) -> Result<(), Wrong> {
    let Some(mount) = &listener.mount else {
        return Ok(());
    };
    if let Err(error) = broker::validate_mount(mount) {
        return Err(("mount", format!("'{mount}': {error}")));
    }
    if listener.protocols() != [Protocol::Mqtt] {
        let why = "needs `protocols = [\"mqtt\"]`: topics of AMQP are not below it";
        return Err(("mount", why.into()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rewrite(from: &str, to: &str) -> Rewrite {
        Rewrite {
            action: Action::All,
            from: from.into(),
            to: to.into(),
        }
    }

    fn subscribe(filter: &str) -> Subscribe {
        Subscribe {
            client: None,
            user: None,
            filter: filter.into(),
            qos: 0,
            no_local: false,
            retain_as_published: false,
            retained: true,
        }
    }

    #[test]
    fn wrong_rules_are_named_by_their_key() {
        assert!(check_rewrites(&[rewrite("a/+/#", "b/$1/%c/$2")]).is_ok());
        for (bad, key) in [
            (rewrite("a/#/b", "x"), "from"),
            (rewrite("$share/g/a", "x"), "from"),
            (rewrite("a", "b/$1"), "to"),
            (rewrite("a", "b/#"), "to"),
            (rewrite("a", "$share/g/b"), "to"),
            (rewrite("a", ""), "to"),
        ] {
            let found = check_rewrites(&[rewrite("a", "b"), bad]);
            assert_eq!(
                found.map_err(|(index, (key, _))| (index, key)),
                Err((1, key))
            );
        }
        let many = vec![rewrite("a", "b"); TOPIC_RULES_MAX + 1];
        assert!(check_rewrites(&many).is_err());
        assert!(check_subscribes(&[subscribe("$share/g/to/%c/#")]).is_ok());
        for (bad, key) in [
            (subscribe("a/#/b"), "filter"),
            (subscribe(""), "filter"),
            (
                Subscribe {
                    qos: 3,
                    ..subscribe("a")
                },
                "qos",
            ),
            (
                Subscribe {
                    client: Some("a*b".into()),
                    ..subscribe("a")
                },
                "client",
            ),
            (
                Subscribe {
                    user: Some(String::new()),
                    ..subscribe("a")
                },
                "user",
            ),
            (
                Subscribe {
                    no_local: true,
                    ..subscribe("$share/g/a")
                },
                "no_local",
            ),
        ] {
            let found = check_subscribes(&[bad]);
            assert_eq!(
                found.map_err(|(index, (key, _))| (index, key)),
                Err((0, key))
            );
        }
    }

    #[test]
    fn what_is_mounted_speaks_mqtt() {
        let listener = |mount: &str, protocols: Option<Vec<Protocol>>| {
            let mut listener = Listener::new(super::super::listener::Kind::Tcp);
            listener.mount = Some(mount.into());
            listener.protocols = protocols;
            check_mount(&listener).is_ok()
        };
        let mqtt = || Some(vec![Protocol::Mqtt]);
        assert!(listener("site7/", mqtt()));
        assert!(!listener("site7", mqtt()));
        assert!(!listener("site7/", None));
        assert!(!listener(
            "site7/",
            Some(vec![Protocol::Mqtt, Protocol::Amqp])
        ));
    }
}
