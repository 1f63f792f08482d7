//! The access list: which topics a client may publish, subscribe to and
//! receive. The format is that of mosquitto's `acl_file`:
//!
//! ```text
//! # Clients without a verified user name.
//! topic read public/#
//!
//! user alice
//! topic readwrite home/alice/#
//! topic deny home/alice/vault/#
//!
//! # An extension: lines that several users share.
//! group operators = alice, bob
//! group operators
//! topic readwrite plant/#
//!
//! # An extension: by client identifier, for any user.
//! client pump-7
//! topic write plant/pump-7/+
//!
//! # Everybody; %u is the user name, %c the client identifier.
//! pattern write devices/%c/state
//! ```
//!
//! What no line allows is forbidden, and `deny` wins over everything. A
//! subscription is allowed when one line allows all that it can match and no
//! `deny` touches it: unlike mosquitto, which takes every subscription and
//! drops what must not be delivered, so that clients learn of their mistake.
//! [`Acl::allows_part`] asks for what comes near to mosquitto.
//!
//! Pure and without state: reading files is up to the caller.

mod decided;
mod groups;
mod levels;
mod own;
#[cfg(test)]
mod tests;

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use dunlin_base::Text;
use dunlin_base::topic::{self, TopicError};
use groups::Groups;
use hashbrown::HashMap;
use levels::{Levels, Name, Names};

pub use decided::{DECIDED_BYTES_MAX, DECIDED_MAX, WhenDown};
pub(crate) use decided::{Decided, Decision};
pub(crate) use own::{Actor, OwnLimits};
pub use own::{Grounds, OWN_GROUPS_MAX, OWN_RULES_BYTES_MAX, OWN_RULES_MAX, OwnRules};

/// Most `topic` and `pattern` lines of one list.
pub const RULES_MAX: usize = 1_000_000;

/// Longest piece of a wrong line that is repeated in an error.
const QUOTE_CHARS_MAX: usize = 40;

/// A line of an access list is wrong.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {kind}")]
pub struct AclError {
    /// Line, from 1.
    pub line: usize,
    /// What is wrong with it.
    pub kind: AclErrorKind,
}

/// What is wrong with a line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AclErrorKind {
    /// It begins with something else than a keyword.
    #[error("`{0}` is not `user`, `group`, `client`, `topic` or `pattern`")]
    Keyword(String),
    /// The keyword stands alone.
    #[error("`{0}` needs something after it")]
    Missing(&'static str),
    /// The filter breaks a rule of MQTT.
    #[error("`{filter}` is not a topic filter: {source}")]
    Filter {
        /// As written.
        filter: String,
        /// The rule.
        source: TopicError,
    },
    /// There are more than [`RULES_MAX`], with the members of groups.
    #[error("there are more than {RULES_MAX} lines with topics and members of groups")]
    TooMany,
    /// It is no limit of a client.
    #[error("`{0}` is no limit")]
    Limit(String),
    /// A client brings more than [`OWN_RULES_MAX`], or too long ones.
    #[error("there are more than {OWN_RULES_MAX} rules of a client, or too long ones")]
    TooManyOwn,
}

/// What a client wants to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// Publish to a topic.
    Publish,
    /// Subscribe to a filter.
    Subscribe,
    /// Be sent a message of a topic.
    Receive,
}

/// How much of what is named must be allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Extent {
    /// The topic; of a filter, all that it can match.
    Whole,
    /// Something that a filter can match.
    Part,
    /// All that a filter can match, but for what a line denies.
    Rest,
}

/// What is asked of the lines.
#[derive(Clone, Copy, Debug)]
struct Question<'a> {
    action: Action,
    extent: Extent,
    topic: &'a str,
}

impl<'a> Question<'a> {
    fn new(action: Action, topic: &'a str) -> Self {
        Self {
            action,
            extent: Extent::Whole,
            topic: named(action, topic),
        }
    }

    /// Of a subscription, of which less must be allowed.
    fn of_filter(extent: Extent, filter: &'a str) -> Self {
        Self {
            extent,
            ..Self::new(Action::Subscribe, filter)
        }
    }
}

/// What a line says about its topics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Effect {
    Read,
    Write,
    ReadWrite,
    Deny,
}

impl Effect {
    const fn allows(self, action: Action) -> bool {
        match self {
            Self::Read => matches!(action, Action::Subscribe | Action::Receive),
            Self::Write => matches!(action, Action::Publish),
            Self::ReadWrite => true,
            Self::Deny => false,
        }
    }
}

/// One `topic` or `pattern` line.
#[derive(Clone, Debug)]
struct Rule {
    effect: Effect,
    levels: Levels,
    /// From 1; 0: of the broker itself.
    line: u32,
}

/// Rules of one section; what denies comes first.
#[derive(Clone, Debug, Default)]
struct Rules {
    deny: Vec<Rule>,
    allow: Vec<Rule>,
}

impl Rules {
    fn push(&mut self, rule: Rule) {
        match rule.effect {
            Effect::Deny => self.deny.push(rule),
            _ => self.allow.push(rule),
        }
    }

    /// The line that forbids it.
    fn denies(&self, asked: Question<'_>, names: Names<'_>) -> Option<u32> {
        let denies = |rule: &&Rule| match (rule.levels.fill(names), asked.extent) {
            // Who hides behind a name that fits no topic gets nothing where
            // that name decides what is forbidden.
            (Err(name), _) => name == Name::Unusable,
            (Ok(filled), _) if asked.action != Action::Subscribe => filled.matches(asked.topic),
            (Ok(filled), Extent::Whole) => filled.touches(asked.topic),
            (Ok(filled), Extent::Part | Extent::Rest) => filled.covers(asked.topic),
        };
        self.deny.iter().find(denies).map(|rule| rule.line)
    }

    /// The line that allows it.
    fn allows(&self, asked: Question<'_>, names: Names<'_>) -> Option<u32> {
        let topic = asked.topic;
        let allows = |rule: &&Rule| {
            rule.effect.allows(asked.action)
                && match (rule.levels.fill(names), asked.extent) {
                    (Err(_), _) => false,
                    (Ok(filled), _) if asked.action != Action::Subscribe => filled.matches(topic),
                    (Ok(filled), Extent::Whole | Extent::Rest) => filled.covers(topic),
                    (Ok(filled), Extent::Part) => filled.touches(topic),
                }
        };
        self.allow.iter().find(allows).map(|rule| rule.line)
    }
}

/// What the files about users and topics say, as read at one time.
#[derive(Clone, Debug, Default)]
pub struct Access {
    /// The access list; without one everything is allowed.
    pub acl: Option<Arc<Acl>>,
    /// The users of the password file, each with a number that changes with
    /// the password; `None`: there is no such file.
    pub users: Option<Arc<BTreeMap<Text, u64>>>,
    /// A server is asked about topics that no line is about, and what is done where it
    /// does not answer.
    pub asks: Option<WhenDown>,
}

impl Access {
    /// What the password file has for a user.
    pub(crate) fn password_of(&self, user: &str) -> Option<u64> {
        let users = self.users.as_ref()?;
        users.get(user.as_bytes()).copied()
    }

    /// Whether another has the same rules, of the file and of a server; users aside.
    pub(crate) fn has_rules_of(&self, other: &Self) -> bool {
        let same = match (&self.acl, &other.acl) {
            (Some(a), Some(b)) => Arc::ptr_eq(a, b),
            (a, b) => a.is_none() && b.is_none(),
        };
        same && self.asks == other.asks
    }
}

/// An access list, ready to be asked.
#[derive(Clone, Debug, Default)]
pub struct Acl {
    anonymous: Rules,
    // Only looked up, never iterated; the keys are the administrator's.
    users: HashMap<Box<str>, Rules>,
    clients: HashMap<Box<str>, Rules>,
    groups: Groups,
    patterns: Rules,
}

/// Whom `topic` lines apply to.
enum Section<'a> {
    Anonymous,
    User(&'a str),
    Client(&'a str),
    Group(&'a str),
}

impl Acl {
    /// Reads the text of a list.
    ///
    /// # Errors
    /// The first line that is wrong.
    pub fn parse(text: &str) -> Result<Self, AclError> {
        let mut acl = Self::default();
        let mut section = Section::Anonymous;
        let mut rules = 0;
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        for (index, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let at = |kind| AclError {
                line: index + 1,
                kind,
            };
            let number = u32::try_from(index + 1).unwrap_or(u32::MAX);
            let (keyword, rest) = split_word(line);
            let rest = |keyword| match rest {
                "" => Err(at(AclErrorKind::Missing(keyword))),
                rest => Ok(rest),
            };
            match keyword {
                "user" => section = Section::User(rest("user")?),
                "group" => match rest("group")?.split_once('=') {
                    Some((group, users)) => {
                        rules += acl.add_members(group.trim(), users).map_err(at)?;
                    }
                    None => section = Section::Group(rest("group")?),
                },
                "client" => section = Section::Client(rest("client")?),
                "topic" => {
                    let rule = Rule::parse(rest("topic")?, false, number).map_err(at)?;
                    acl.push(&section, rule);
                    rules += 1;
                }
                "pattern" => {
                    let rule = Rule::parse(rest("pattern")?, true, number).map_err(at)?;
                    acl.patterns.push(rule);
                    rules += 1;
                }
                other => return Err(at(AclErrorKind::Keyword(quote(other)))),
            }
            if rules > RULES_MAX {
                return Err(at(AclErrorKind::TooMany));
            }
        }
        Ok(acl)
    }

    /// Adds a line for a user: topics to publish to, or to subscribe to and receive.
    /// `filter` is valid.
    pub fn allow(&mut self, user: &str, action: Action, filter: &str) {
        let effect = match action {
            Action::Publish => Effect::Write,
            Action::Subscribe | Action::Receive => Effect::Read,
        };
        let levels = Levels::parse(filter, false);
        // It is in no file.
        let line = 0;
        let rule = Rule {
            effect,
            levels,
            line,
        };
        self.push(&Section::User(user), rule);
    }

    fn push(&mut self, section: &Section<'_>, rule: Rule) {
        let rules = match *section {
            Section::Anonymous => &mut self.anonymous,
            Section::User(name) => self.users.entry(name.into()).or_default(),
            Section::Client(id) => self.clients.entry(id.into()).or_default(),
            Section::Group(name) => return self.groups.push(name, rule),
        };
        rules.push(rule);
    }

    /// Adds users, with commas between them, to a group; how many there are.
    fn add_members(&mut self, group: &str, users: &str) -> Result<usize, AclErrorKind> {
        let mut members = 0;
        for user in users.split(',').map(str::trim) {
            if group.is_empty() || user.is_empty() {
                return Err(AclErrorKind::Missing("group"));
            }
            self.groups.add(group, user);
            members += 1;
        }
        Ok(members)
    }

    /// Whether a client may do this. `user` is its verified name; `topic` is a
    /// valid name, or for [`Action::Subscribe`] a valid filter, with its
    /// `$share/NAME/` prefix or without.
    ///
    /// Allocates nothing; costs a look-up by user, one by client identifier
    /// and a comparison for each of their lines and each pattern.
    #[must_use]
    pub fn allows(&self, user: Option<&str>, client_id: &str, action: Action, topic: &str) -> bool {
        self.decide(user, client_id, action, topic).is_ok()
    }

    /// As [`Acl::allows`], with the line that decides.
    ///
    /// # Errors
    /// It is forbidden: by this line, or because no line allows it.
    pub fn decide(
        &self,
        user: Option<&str>,
        client_id: &str,
        action: Action,
        topic: &str,
    ) -> Result<u32, Option<u32>> {
        self.decide_in(user, client_id, &[], Question::new(action, topic))
    }

    /// Whether a client may receive something of what a filter can match: some line allows
    /// a part of it, and no `deny` all of it.
    #[must_use]
    pub fn allows_part(&self, user: Option<&str>, client_id: &str, filter: &str) -> bool {
        let asked = Question::of_filter(Extent::Part, filter);
        self.decide_in(user, client_id, &[], asked).is_ok()
    }

    /// Whether the list has a user in a group.
    pub(crate) fn is_in(&self, group: &str, user: &str) -> bool {
        self.groups.has(group, user)
    }

    /// As [`Acl::decide`], for a client that is in these groups, too.
    fn decide_in(
        &self,
        user: Option<&str>,
        client_id: &str,
        groups: &[Box<str>],
        asked: Question<'_>,
    ) -> Result<u32, Option<u32>> {
        let names = Names {
            user: user.map_or(Name::Absent, Name::new),
            client_id: Name::new(client_id),
        };
        let by_user = match user {
            None => Some(&self.anonymous),
            Some(name) => self.users.get(name),
        };
        let sections = [by_user, self.clients.get(client_id), Some(&self.patterns)];
        let groups = self.groups.of(user, groups);
        let mut rules = sections.into_iter().flatten().chain(groups);
        let denied = rules.clone().find_map(|rules| rules.denies(asked, names));
        if denied.is_some() {
            return Err(denied);
        }
        rules
            .find_map(|rules| rules.allows(asked, names))
            .ok_or(None)
    }
}

impl Rule {
    fn parse(text: &str, is_pattern: bool, line: u32) -> Result<Self, AclErrorKind> {
        let (word, rest) = split_word(text);
        let (effect, filter) = match (word, rest) {
            // A lone word is the filter, even if it looks like an effect.
            (_, "") => (Effect::ReadWrite, text),
            ("read", rest) => (Effect::Read, rest),
            ("write", rest) => (Effect::Write, rest),
            ("readwrite", rest) => (Effect::ReadWrite, rest),
            ("deny", rest) => (Effect::Deny, rest),
            _ => (Effect::ReadWrite, text),
        };
        topic::validate_filter(filter).map_err(|source| AclErrorKind::Filter {
            filter: quote(filter),
            source,
        })?;
        Ok(Self {
            effect,
            levels: Levels::parse(filter, is_pattern),
            line,
        })
    }
}

/// Whether only the server publishes to a topic: `$SYS` and what is below it.
#[must_use]
pub fn is_reserved(topic: &str) -> bool {
    topic
        .strip_prefix("$SYS")
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// What lines are compared with.
fn named(action: Action, topic: &str) -> &str {
    match action {
        Action::Subscribe => without_share(topic),
        Action::Publish | Action::Receive => topic,
    }
}

fn without_share(filter: &str) -> &str {
    filter
        .strip_prefix("$share/")
        .and_then(|rest| rest.split_once('/'))
        .map_or(filter, |(_, filter)| filter)
}

fn split_word(line: &str) -> (&str, &str) {
    match line.split_once([' ', '\t']) {
        Some((word, rest)) => (word, rest.trim_start()),
        None => (line, ""),
    }
}

fn quote(text: &str) -> String {
    text.chars().take(QUOTE_CHARS_MAX).collect()
}
