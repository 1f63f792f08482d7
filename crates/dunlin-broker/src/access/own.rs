//! Rules of one client, which its token or another server brought: lines as in an
//! access list, for this client alone.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::levels::{Name, Names};
use super::{Access, Acl, AclErrorKind, Action, Decision, Extent, Question, Rule, Rules, quote};

/// Most rules that a client brings.
pub const OWN_RULES_MAX: usize = 64;

/// Most bytes of them, as text.
pub const OWN_RULES_BYTES_MAX: usize = 8 * 1024;

/// Most groups that a client is in by what vouches for it.
pub const OWN_GROUPS_MAX: usize = 16;

/// What a client may do, by what vouches for it, which groups it is in and how much it may
/// send and have. In filters `%u` is its user name and
/// `%c` its client identifier.
#[derive(Clone, Debug, Default)]
pub struct OwnRules {
    text: Box<str>,
    rules: Rules,
    /// There are no rules, which is not the same as none that allow something.
    is_open: bool,
    groups: Vec<Box<str>>,
    limits: Option<Box<OwnLimits>>,
}

/// What one client may send and have, by what vouches for it: what is given counts in place
/// of its quota.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct OwnLimits {
    pub(crate) messages: Option<u64>,
    pub(crate) bytes: Option<u64>,
    pub(crate) burst: Option<u64>,
    pub(crate) debt: Option<u64>,
    pub(crate) packet_size: Option<u64>,
    pub(crate) queue_messages: Option<u64>,
    pub(crate) queue_bytes: Option<u64>,
    pub(crate) sessions: Option<u64>,
}

impl OwnLimits {
    /// Reads a limit: its name and a number, of milliseconds for a time.
    fn read(&mut self, text: &str) -> Option<()> {
        let (name, number) = text.split_once(' ')?;
        let limit = match name {
            "messages" => &mut self.messages,
            "bytes" => &mut self.bytes,
            "burst" => &mut self.burst,
            "debt" => &mut self.debt,
            "packet_size" => &mut self.packet_size,
            "queue_messages" => &mut self.queue_messages,
            "queue_bytes" => &mut self.queue_bytes,
            "sessions" => &mut self.sessions,
            _ => return None,
        };
        *limit = Some(number.parse().ok()?);
        Some(())
    }
}

// Rules are what their text says.
impl PartialEq for OwnRules {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for OwnRules {}

impl OwnRules {
    /// Reads lines such as `write devices/%c/state` or `deny a/#`: what follows `topic`
    /// in an access list. Before them may stand `open`, where there are no rules,
    /// `group NAME`, and limits such as `limit messages 10`.
    ///
    /// # Errors
    /// A line has no topic filter, or there are too many.
    pub fn parse(text: &str) -> Result<Self, AclErrorKind> {
        if text.len() > OWN_RULES_BYTES_MAX {
            return Err(AclErrorKind::TooManyOwn);
        }
        let mut own = Self {
            text: text.into(),
            ..Self::default()
        };
        let mut rules = 0;
        for (line, number) in text.lines().zip(1..) {
            if line == "open" {
                own.is_open = true;
            } else if let Some(group) = line.strip_prefix("group ") {
                own.groups.push(group.into());
            } else if let Some(limit) = line.strip_prefix("limit ") {
                let limits = own.limits.get_or_insert_default();
                limits
                    .read(limit)
                    .ok_or_else(|| AclErrorKind::Limit(quote(limit)))?;
            } else {
                rules += 1;
                own.rules.push(Rule::parse(line, true, number)?);
            }
        }
        match rules > OWN_RULES_MAX || own.groups.len() > OWN_GROUPS_MAX {
            true => Err(AclErrorKind::TooManyOwn),
            false => Ok(own),
        }
    }

    /// How much the client may send and have.
    pub(crate) fn limits(&self) -> Option<&OwnLimits> {
        self.limits.as_deref()
    }

    /// Whether the client is in a group by what vouches for it.
    pub(crate) fn is_in(&self, group: &str) -> bool {
        self.groups.iter().any(|it| **it == *group)
    }

    /// What [`OwnRules::parse`] reads.
    #[must_use]
    pub const fn text(&self) -> &str {
        &self.text
    }

    /// A line of the text, by its number.
    fn line(&self, number: u32) -> &str {
        let index = usize::try_from(number).unwrap_or(0).saturating_sub(1);
        self.text.lines().nth(index).unwrap_or_default()
    }

    fn decide(
        &self,
        user: Option<&str>,
        client_id: &str,
        asked: Question<'_>,
    ) -> Result<u32, Option<u32>> {
        let names = Names {
            user: user.map_or(Name::Absent, Name::new),
            client_id: Name::new(client_id),
        };
        let denied = self.rules.denies(asked, names);
        if denied.is_some() {
            return Err(denied);
        }
        self.rules.allows(asked, names).ok_or(None)
    }
}

/// What decides whether a client may do something.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Grounds {
    /// Only the server publishes there.
    Reserved,
    /// This line of the access list.
    Line(u32),
    /// This rule, which what vouches for the client brought.
    Own(Box<str>),
    /// A server, which was asked.
    Asked,
    /// A server that is yet to be asked.
    Unasked,
    /// A part of the filter is allowed, and each message is checked.
    Part,
    /// No line and no rule is about it.
    Nothing,
    /// It is the server's own, or its user is gone or not proved yet.
    Standing,
}

/// The line that decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Deciding {
    Listed(u32),
    Own(u32),
}

/// Who wants to do something.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Actor<'a> {
    pub(crate) user: Option<&'a str>,
    pub(crate) client_id: &'a str,
    pub(crate) rules: Option<&'a OwnRules>,
}

impl Access {
    /// Whether a client without rules of its own may do everything.
    pub(crate) const fn is_free(&self) -> bool {
        self.acl.is_none() && self.asks.is_none()
    }

    /// Whether the rules alone let a client do this.
    pub(crate) fn allows(&self, who: Actor<'_>, action: Action, topic: &str) -> bool {
        self.decide(who, action, topic) == Decision::Allowed
    }

    /// What the rules say of this. Rules of a client count as lines of the access list
    /// that only it has. Where a server is asked it decides on what no line is about.
    pub(crate) fn decide(&self, who: Actor<'_>, action: Action, topic: &str) -> Decision {
        self.weigh(who, Question::new(action, topic)).0
    }

    /// What the rules say of a subscription whose messages are checked one by one: they
    /// allow a part of it, or none. Where a server is asked, that decides on the filter,
    /// and a part is what no line denies.
    pub(crate) fn decide_part(&self, who: Actor<'_>, filter: &str) -> Decision {
        let extent = match self.asks {
            Some(_) => Extent::Rest,
            None => Extent::Part,
        };
        self.weigh(who, Question::of_filter(extent, filter)).0
    }

    /// As [`Access::decide`], with what decides.
    pub(crate) fn explain(
        &self,
        who: Actor<'_>,
        action: Action,
        topic: &str,
    ) -> (Decision, Grounds) {
        let (decision, by) = self.weigh(who, Question::new(action, topic));
        let grounds = match (by, who.rules) {
            (Some(Deciding::Listed(line)), _) => Grounds::Line(line),
            (Some(Deciding::Own(line)), Some(own)) => Grounds::Own(own.line(line).into()),
            _ => Grounds::Nothing,
        };
        (decision, grounds)
    }

    fn weigh(&self, who: Actor<'_>, asked: Question<'_>) -> (Decision, Option<Deciding>) {
        use Deciding::{Listed, Own};
        let groups = who.rules.map_or(&[][..], |own| &own.groups);
        let listed = |acl: &Acl| acl.decide_in(who.user, who.client_id, groups, asked);
        let owned = |own: &OwnRules| own.decide(who.user, who.client_id, asked);
        let rules = who.rules.filter(|own| !own.is_open);
        match (self.acl.as_deref().map(listed), rules.map(owned)) {
            (Some(Err(Some(line))), _) => (Decision::Denied, Some(Listed(line))),
            (_, Some(Err(Some(line)))) => (Decision::Denied, Some(Own(line))),
            (Some(Ok(line)), _) => (Decision::Allowed, Some(Listed(line))),
            (_, Some(Ok(line))) => (Decision::Allowed, Some(Own(line))),
            _ if self.asks.is_some() => (Decision::Open, None),
            (None, None) => (Decision::Allowed, None),
            _ => (Decision::Denied, None),
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::format;
    use alloc::sync::Arc;

    use super::*;

    #[test]
    fn rules_of_a_client_are_lines_of_the_list_for_it() {
        let own = OwnRules::parse("write d/%c\nread d/#\ndeny d/x").expect("valid");
        let acl = Acl::parse("user u\ntopic readwrite mine\ntopic deny d/secret").expect("valid");
        let with = |acl: Option<Acl>| Access {
            acl: acl.map(Arc::new),
            ..Access::default()
        };
        let (free, listed) = (with(None), with(Some(acl)));
        let who = |rules| Actor {
            user: Some("u"),
            client_id: "c",
            rules,
        };
        for (action, topic, alone, both) in [
            (Action::Publish, "d/c", true, true),
            (Action::Publish, "d/other", false, false),
            (Action::Publish, "mine", false, true),
            (Action::Receive, "d/secret", true, false),
            (Action::Receive, "d/x", false, false),
            (Action::Subscribe, "$share/g/d/y", true, true),
            (Action::Subscribe, "d/#", false, false),
        ] {
            assert_eq!(
                free.allows(who(Some(&own)), action, topic),
                alone,
                "{topic}"
            );
            assert_eq!(
                listed.allows(who(Some(&own)), action, topic),
                both,
                "{topic}"
            );
            assert!(free.allows(who(None), action, topic));
        }
        let why = |topic| listed.explain(who(Some(&own)), Action::Receive, topic);
        let rule = |text: &str| Grounds::Own(text.into());
        assert_eq!(why("d/secret"), (Decision::Denied, Grounds::Line(3)));
        assert_eq!(why("d/x"), (Decision::Denied, rule("deny d/x")));
        assert_eq!(why("d/y"), (Decision::Allowed, rule("read d/#")));
        assert_eq!(why("mine"), (Decision::Allowed, Grounds::Line(2)));
        assert_eq!(why("other"), (Decision::Denied, Grounds::Nothing));
        // Nothing at all is allowed by no rule.
        let none = OwnRules::parse("").expect("valid");
        assert!(!free.allows(who(Some(&none)), Action::Publish, "d/c"));
    }

    #[test]
    fn a_client_is_in_groups_by_what_vouches_for_it() {
        let acl = "group ops = bob\ngroup ops\ntopic read ops/#\ngroup other\ntopic read o";
        let acl = Acl::parse(acl).expect("valid");
        assert!(acl.is_in("ops", "bob") && !acl.is_in("other", "bob") && !acl.is_in("x", "bob"));
        let access = Access {
            acl: Some(Arc::new(acl)),
            ..Access::default()
        };
        let own =
            OwnRules::parse("open\ngroup ops\ngroup unknown\nlimit messages 5").expect("valid");
        assert!(own.is_in("ops") && !own.is_in("other"));
        let may = |user, rules, topic| {
            let who = Actor {
                user,
                client_id: "c",
                rules,
            };
            access.allows(who, Action::Subscribe, topic)
        };
        assert!(may(Some("u"), Some(&own), "ops/1") && may(None, Some(&own), "ops/1"));
        assert!(!may(Some("u"), None, "ops/1") && !may(Some("u"), Some(&own), "o"));
        // Without a list, and without rules, nothing is forbidden.
        let who = Actor {
            user: None,
            client_id: "c",
            rules: Some(&own),
        };
        assert!(Access::default().allows(who, Action::Publish, "x"));
        let many = "group g\n".repeat(OWN_GROUPS_MAX + 1);
        assert_eq!(OwnRules::parse(&many), Err(AclErrorKind::TooManyOwn));
        for wrong in ["limit", "limit x 1", "limit messages", "limit messages -1"] {
            let parsed = OwnRules::parse(wrong);
            assert!(
                !matches!(parsed, Ok(own) if own.limits().is_some()),
                "{wrong}"
            );
        }
    }

    #[test]
    fn rules_of_a_client_are_bounded() {
        let lines = |count: usize| "read a\n".repeat(count);
        assert!(OwnRules::parse(&lines(OWN_RULES_MAX)).is_ok());
        let many = OwnRules::parse(&lines(OWN_RULES_MAX + 1));
        assert_eq!(many, Err(AclErrorKind::TooManyOwn));
        let long = format!("read {}", "a".repeat(OWN_RULES_BYTES_MAX));
        assert_eq!(OwnRules::parse(&long), Err(AclErrorKind::TooManyOwn));
        let wrong = OwnRules::parse("read a/#/b");
        assert!(matches!(wrong, Err(AclErrorKind::Filter { .. })));
    }
}
