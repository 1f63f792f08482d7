//! Which messages a bridge carries one way, under which topic, and which it must not
//! carry: those that came this way before, or through too many bridges. Knows no
//! connection.

use dunlin_base::{Text, topic};
use dunlin_client::{Message, Publish, QoS, RetainHandling, Subscribe};

use crate::config::bridge::{Bridge, Topic};

/// The user property that names the bridges that a message has come through, once for
/// each of them.
pub const VIA: &str = "dunlin-via";

/// Which way messages go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// From the other broker.
    In,
    /// To the other broker.
    Out,
}

impl Way {
    pub(crate) const ALL: [Self; 2] = [Self::In, Self::Out];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::In => "in",
            Self::Out => "out",
        }
    }
}

/// Why a message goes no further.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dropped {
    /// QoS 0, while its receiver was away.
    Away,
    /// QoS 0, while too many were on their way.
    Slow,
    /// It has come through this bridge before.
    Loop,
    /// It has come through too many bridges.
    Hops,
    /// No topic of the bridge matches any more, or what it becomes is no topic.
    Topic,
    /// Its receiver refused it, or can never take it.
    Refused,
}

impl Dropped {
    pub(crate) const ALL: [Self; 6] = [
        Self::Away,
        Self::Slow,
        Self::Loop,
        Self::Hops,
        Self::Topic,
        Self::Refused,
    ];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Away => "away",
            Self::Slow => "slow",
            Self::Loop => "loop",
            Self::Hops => "hops",
            Self::Topic => "topic",
            Self::Refused => "refused",
        }
    }
}

/// Topics that begin with one prefix at the source and with another at the target.
#[derive(Debug)]
struct Rule {
    filter: String,
    qos: QoS,
    from: String,
    to: String,
    /// Topics of a server are meant, those that begin with `$`.
    of_server: bool,
}

impl Rule {
    fn new(topic: &Topic, way: Way) -> Self {
        let (local, remote) = (topic.local_prefix.clone(), topic.remote_prefix.clone());
        let (filter, target, from, to) = match way {
            Way::In => (topic.remote_filter(), topic.local_filter(), remote, local),
            Way::Out => (topic.local_filter(), topic.remote_filter(), local, remote),
        };
        Self {
            filter,
            qos: topic.qos(),
            from,
            to,
            of_server: target.starts_with('$'),
        }
    }

    /// What a topic is called at the target, if it is one of these.
    fn map(&self, name: &str) -> Option<String> {
        if !topic::matches(&self.filter, name) {
            return None;
        }
        let rest = name.strip_prefix(&self.from)?;
        let name = format!("{}{rest}", self.to);
        // `#` does not mean `$SYS`, also where a prefix stood before it.
        (self.of_server || !name.starts_with('$')).then_some(name)
    }
}

/// What a bridge carries one way.
#[derive(Debug)]
pub(super) struct Route {
    pub(super) way: Way,
    rules: Vec<Rule>,
    /// The name of the bridge among all bridges of all brokers.
    via: Text,
    hops_max: usize,
}

impl Route {
    pub(super) fn new(bridge: &Bridge, way: Way, via: &Text) -> Self {
        let topics = bridge.topic.iter().filter(|topic| match way {
            Way::In => topic.is_in(),
            Way::Out => topic.is_out(),
        });
        Self {
            way,
            rules: topics.map(|topic| Rule::new(topic, way)).collect(),
            via: via.clone(),
            hops_max: usize::from(bridge.max_hops),
        }
    }

    /// Subscriptions at the source.
    pub(super) fn subscriptions(&self) -> Vec<(String, Subscribe)> {
        let one = |rule: &Rule| {
            let how = Subscribe::new(rule.qos)
                .no_local(true)
                .retain_as_published(true)
                .retain_handling(RetainHandling::SendIfNew);
            (rule.filter.clone(), how)
        };
        self.rules.iter().map(one).collect()
    }

    /// The message as it goes to the target, and its QoS. The first rule that matches decides.
    pub(super) fn map(&self, message: &Message) -> Result<(Publish, QoS), Dropped> {
        let mut rules = self.rules.iter();
        let (topic, qos) = rules
            .find_map(|rule| Some((rule.map(&message.topic)?, message.qos.min(rule.qos))))
            .filter(|(topic, _)| topic::validate_name(topic).is_ok())
            .ok_or(Dropped::Topic)?;
        let mut properties = message.properties.as_deref().cloned().unwrap_or_default();
        let came_by = |of: &[(Text, Text)]| {
            let names = of.iter().filter(|(name, _)| name.as_str() == VIA);
            let own = names.clone().any(|(_, value)| *value == self.via);
            (own, names.count())
        };
        match came_by(&properties.user_properties) {
            (true, _) => return Err(Dropped::Loop),
            (false, hops) if hops >= self.hops_max => return Err(Dropped::Hops),
            _ => {}
        }
        let via = (Text::from_static(VIA), self.via.clone());
        properties.user_properties.push(via);
        let publish = Publish::new(topic, message.payload.clone())
            .qos(qos)
            .retain(message.retain)
            .properties(properties);
        let publish = match message.expires_in {
            Some(left) => publish.expires_in(left),
            None => publish,
        };
        Ok((publish, qos))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(toml: &str) -> Vec<Topic> {
        let text = format!("name = 'b'\nurl = 'mqtt://h'\n{toml}");
        toml::from_str::<Bridge>(&text).expect("parsed").topic
    }

    #[test]
    fn a_prefix_is_replaced_by_the_other() {
        let topics = rules(
            "[[topic]]\npattern = 'sensors/#'\ndirection = 'both'\nlocal_prefix = 'plant/'\n\
             remote_prefix = 'site7/plant/'\n\
             [[topic]]\ndirection = 'in'\nlocal_prefix = 'clock'\nremote_prefix = 'time/utc'\n",
        );
        let out = Rule::new(&topics[0], Way::Out);
        let mapped = out.map("plant/sensors/1/x");
        assert_eq!(mapped.as_deref(), Some("site7/plant/sensors/1/x"));
        assert_eq!(out.map("plant/other"), None);
        assert_eq!(out.map("sensors/1"), None);
        let back = Rule::new(&topics[0], Way::In);
        assert_eq!(
            back.map("site7/plant/sensors").as_deref(),
            Some("plant/sensors")
        );
        let one = Rule::new(&topics[1], Way::In);
        assert_eq!(one.map("time/utc").as_deref(), Some("clock"));
        assert_eq!(one.map("time/utc/x"), None);
    }

    #[test]
    fn a_prefix_that_goes_makes_no_topic_of_a_server() {
        let topics = rules(
            "[[topic]]\npattern = '#'\ndirection = 'both'\nremote_prefix = 'site7/'\n\
             [[topic]]\npattern = '$SYS/#'\ndirection = 'out'\nremote_prefix = 'site7/'\n\
             [[topic]]\npattern = '$aws/#'\ndirection = 'both'\n",
        );
        let back = Rule::new(&topics[0], Way::In);
        assert_eq!(back.map("site7/$SYS/x"), None);
        assert_eq!(back.map("site7/x/$y").as_deref(), Some("x/$y"));
        let out = Rule::new(&topics[1], Way::Out);
        assert_eq!(out.map("$SYS/x").as_deref(), Some("site7/$SYS/x"));
        for way in Way::ALL {
            let same = Rule::new(&topics[2], way);
            assert_eq!(same.map("$aws/x").as_deref(), Some("$aws/x"));
        }
    }
}
