//! Rules of one client, which its token or another server brought: lines as in an
//! access list, for this client alone.

use alloc::boxed::Box;

use super::levels::{Name, Names};
use super::{Access, Acl, AclErrorKind, Action, Decision, Rule, Rules, named};

/// Most rules that a client brings.
pub const OWN_RULES_MAX: usize = 64;

/// Most bytes of them, as text.
pub const OWN_RULES_BYTES_MAX: usize = 8 * 1024;

/// What a client may do, by what vouches for it. In filters `%u` is its user name and
/// `%c` its client identifier.
#[derive(Clone, Debug, Default)]
pub struct OwnRules {
    text: Box<str>,
    rules: Rules,
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
    /// in an access list.
    ///
    /// # Errors
    /// A line has no topic filter, or there are too many.
    pub fn parse(text: &str) -> Result<Self, AclErrorKind> {
        if text.len() > OWN_RULES_BYTES_MAX || text.lines().count() > OWN_RULES_MAX {
            return Err(AclErrorKind::TooManyOwn);
        }
        let mut rules = Rules::default();
        for line in text.lines() {
            rules.push(Rule::parse(line, true, 0)?);
        }
        Ok(Self {
            text: text.into(),
            rules,
        })
    }

    /// What [`OwnRules::parse`] reads.
    #[must_use]
    pub const fn text(&self) -> &str {
        &self.text
    }

    fn decide(
        &self,
        user: Option<&str>,
        client_id: &str,
        action: Action,
        topic: &str,
    ) -> Result<u32, Option<u32>> {
        let names = Names {
            user: user.map_or(Name::Absent, Name::new),
            client_id: Name::new(client_id),
        };
        let topic = named(action, topic);
        let denied = self.rules.denies(action, topic, names);
        if denied.is_some() {
            return Err(denied);
        }
        self.rules.allows(action, topic, names).ok_or(None)
    }
}

/// Who wants to do something.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Actor<'a> {
    pub(crate) user: Option<&'a str>,
    pub(crate) client_id: &'a str,
    pub(crate) rules: Option<&'a OwnRules>,
}

impl Access {
    /// Whether the rules alone let a client do this.
    pub(crate) fn allows(&self, who: Actor<'_>, action: Action, topic: &str) -> bool {
        self.decide(who, action, topic) == Decision::Allowed
    }

    /// What the rules say of this. Rules of a client count as lines of the access list
    /// that only it has. Where a server is asked it decides on what no line is about.
    pub(crate) fn decide(&self, who: Actor<'_>, action: Action, topic: &str) -> Decision {
        let listed = |acl: &Acl| acl.decide(who.user, who.client_id, action, topic);
        let owned = |own: &OwnRules| own.decide(who.user, who.client_id, action, topic);
        match (self.acl.as_deref().map(listed), who.rules.map(owned)) {
            (Some(Err(Some(_))), _) | (_, Some(Err(Some(_)))) => Decision::Denied,
            (Some(Ok(_)), _) | (_, Some(Ok(_))) => Decision::Allowed,
            _ if self.asks.is_some() => Decision::Open,
            (None, None) => Decision::Allowed,
            _ => Decision::Denied,
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
        // Nothing at all is allowed by no rule.
        let none = OwnRules::parse("").expect("valid");
        assert!(!free.allows(who(Some(&none)), Action::Publish, "d/c"));
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
