//! Groups of users in an access list: lines that several users share.

use alloc::boxed::Box;
use alloc::vec::Vec;

use hashbrown::HashMap;

use super::{Rule, Rules};

/// All groups of a list.
// Only looked up, never iterated; the keys are the administrator's.
#[derive(Clone, Debug, Default)]
pub(super) struct Groups {
    numbers: HashMap<Box<str>, usize>,
    rules: Vec<Rules>,
    /// The groups of each user.
    members: HashMap<Box<str>, Vec<usize>>,
}

impl Groups {
    fn number(&mut self, group: &str) -> usize {
        if let Some(number) = self.numbers.get(group) {
            return *number;
        }
        let number = self.rules.len();
        self.numbers.insert(group.into(), number);
        self.rules.push(Rules::default());
        number
    }

    /// Adds a line to a group.
    pub(super) fn push(&mut self, group: &str, rule: Rule) {
        let number = self.number(group);
        if let Some(rules) = self.rules.get_mut(number) {
            rules.push(rule);
        }
    }

    /// A user is in a group.
    pub(super) fn add(&mut self, group: &str, user: &str) {
        let number = self.number(group);
        let groups = self.members.entry(user.into()).or_default();
        if !groups.contains(&number) {
            groups.push(number);
        }
    }

    /// Lines of all groups of a user, and of those that it has besides.
    pub(super) fn of<'a>(
        &'a self,
        user: Option<&str>,
        more: &'a [Box<str>],
    ) -> impl Iterator<Item = &'a Rules> + Clone {
        let groups = user.and_then(|user| self.members.get(user));
        let more = more.iter().filter_map(|group| self.numbers.get(group));
        let numbers = groups.into_iter().flatten().chain(more);
        numbers.filter_map(|number| self.rules.get(*number))
    }

    /// Whether a user is in a group.
    pub(super) fn has(&self, group: &str, user: &str) -> bool {
        let (number, groups) = (self.numbers.get(group), self.members.get(user));
        number.is_some_and(|number| groups.is_some_and(|groups| groups.contains(number)))
    }
}
