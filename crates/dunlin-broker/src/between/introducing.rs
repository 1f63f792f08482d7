//! What a shard is given that has joined: what the sessions here want, what holders have
//! here, and the retained messages of topics whose home is here. It comes in steps, each
//! when the one before has arrived, to one newcomer after the other; what changes meanwhile
//! is sent as to all others.

use alloc::boxed::Box;
use alloc::format;
use alloc::vec::Vec;

use dunlin_base::{ShardId, Text};

use crate::between::apart;
use crate::io::{BusMessage, InterestChange, Output};
use crate::owners::Owners;
use crate::owners::pending::{Chapter, Introduction, Pending};

/// Filters in one step.
const FILTERS_MAX: usize = 512;

/// Users and addresses in one message.
const HOLDERS_MAX: usize = 1024;

/// A shard has joined.
pub(crate) fn begin(own: &mut Owners, to: ShardId) {
    let holders = own.budget.holders.introduce();
    for some in holders.chunks(HOLDERS_MAX) {
        own.outbox.bus(to, BusMessage::Holders(some.to_vec()));
    }
    // What is under way to all newcomers has a bound.
    if own.members.introduce(to) {
        begin_turn(own, to);
    }
}

fn begin_turn(own: &mut Owners, to: ShardId) {
    let next = Chapter::Filters(None);
    go_on(own, Introduction { to, next });
}

/// All is said to a shard, or it is gone: the next one has its turn.
fn end(own: &mut Owners, to: ShardId) {
    if let Some(next) = own.members.introduced(to) {
        begin_turn(own, next);
    }
}

/// A shard has said everything that this one has to know.
pub(crate) fn handle_introduced(own: &mut Owners, from: ShardId) {
    if own.members.is_apart(from) {
        apart::introduced(own, from);
    }
    if own.members.hear(from) {
        apart::heard(own);
        own.outbox.push(Output::Ready);
    }
}

/// The next step, unless the shard is gone.
pub(crate) fn go_on(own: &mut Owners, mut introduction: Introduction) {
    let to = introduction.to;
    if !own.members.has(to) {
        return end(own, to);
    }
    let (changes, next) = match introduction.next {
        Chapter::Filters(after) => filters(own, after),
        Chapter::Groups(after) => groups(own, after),
        Chapter::Retained(after) => {
            let members = &own.members;
            let is_here = |topic: &str| members.is_home_of(topic);
            let (page, next) = own.routing.retained.page_of_all(after.as_deref(), is_here);
            for message in page {
                own.outbox.bus(to, BusMessage::Retained { message });
            }
            let Some(next) = next else {
                own.outbox.bus(to, BusMessage::Introduced);
                return end(own, to);
            };
            (Vec::new(), Chapter::Retained(Some(next)))
        }
    };
    introduction.next = next;
    let token = own.commits.token();
    own.outbox.bus(to, BusMessage::Interest { token, changes });
    own.members.expect(to, token);
    let introduction = Pending::Introduction(Box::new(introduction));
    own.commits.wait(token, introduction);
}

type Step = (Vec<InterestChange>, Chapter);

fn filters(own: &Owners, after: Option<Text>) -> Step {
    let filters = own.routing.wanted_after(after.as_deref(), FILTERS_MAX);
    let next = match filters.last() {
        Some(last) if filters.len() >= FILTERS_MAX => Chapter::Filters(Some(last.clone())),
        _ => Chapter::Groups(None),
    };
    (filters.into_iter().map(InterestChange::Add).collect(), next)
}

fn groups(own: &Owners, after: Option<(Text, Text)>) -> Step {
    let after = after.as_ref().map(|(group, filter)| (&**group, &**filter));
    let groups = own.routing.groups_after(after, FILTERS_MAX);
    let next = match groups.last() {
        Some((group, filter, _)) if groups.len() >= FILTERS_MAX => {
            Chapter::Groups(Some((group.clone(), filter.clone())))
        }
        _ => Chapter::Retained(None),
    };
    let groups = groups.into_iter().map(|(group, filter, members)| {
        let share = Text::from(format!("$share/{group}/{filter}"));
        InterestChange::Share(share, members)
    });
    (groups.collect(), next)
}
