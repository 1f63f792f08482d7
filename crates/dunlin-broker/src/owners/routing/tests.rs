//! Who gets a message, and what other shards hear of subscriptions.

use alloc::sync::Arc;
use alloc::vec::Vec;

use dunlin_base::{Message, ShardId, StreamId, Text};
use dunlin_store::SessionKey;

use super::hits::NO_LOCAL;
use super::*;

/// Options byte: QoS, No Local, Retain As Published.
fn value(options: u8, identifier: u32) -> Subscribed {
    Subscribed {
        options,
        restricted: false,
        identifier,
        stream: StreamId::CONTROL,
    }
}

const READY: Member = Member {
    available: true,
    durable: false,
};

fn find(routing: &mut Routing, origin: Option<usize>) -> Matches {
    routing.find("a/b", origin, None, Way::default(), |_| READY, |_| true)
}

#[test]
fn overlapping_subscriptions_of_a_session_are_one_hit() {
    let mut routing = Routing::new(1);
    routing.insert(0, "a/b", value(0, 7));
    routing.insert(0, "a/#", value(0b1010, 8));
    routing.insert(0, "+/b", value(0b0100, 7));
    routing.insert(1, "a/b", value(1, 0));
    let found = find(&mut routing, None);
    let hits: Vec<_> = found
        .hits
        .iter()
        .map(|hit| (hit.session, hit.options))
        .collect();
    assert_eq!(hits.len(), 2);
    let merged = found.hits.iter().find(|hit| hit.session == 0);
    let merged = merged.expect("a hit");
    assert_eq!(merged.options, 0b1010);
    let mut identifiers = merged.identifiers.to_vec();
    identifiers.sort_unstable();
    assert_eq!(identifiers, [7, 8]);
    // The next message begins with none.
    assert_eq!(find(&mut routing, None).hits.len(), 2);
}

#[test]
fn no_local_keeps_a_message_from_its_publisher_only() {
    let mut routing = Routing::new(1);
    routing.insert(0, "a/b", value(NO_LOCAL, 0));
    assert!(find(&mut routing, Some(0)).hits.is_empty());
    assert_eq!(find(&mut routing, Some(1)).hits.len(), 1);
}

#[test]
fn another_shard_is_one_forward_however_many_filters_match() {
    let mut routing = Routing::new(1);
    for filter in ["a/b", "a/+"] {
        let change = InterestChange::Add(Text::from(filter));
        routing.handle_interest(ShardId(1), &change);
    }
    let share = Text::from_static("$share/g/a/#");
    routing.handle_interest(ShardId(1), &InterestChange::Share(share.clone(), 2));
    let found = find(&mut routing, None);
    assert_eq!((found.hits.len(), found.forwards.len()), (0, 1));
    let (to, wanted) = &found.forwards[0];
    assert_eq!((to.0, wanted.plain, wanted.shares.len()), (1, true, 1));
    // A message from there goes to sessions of this shard only.
    let scope = Scope {
        plain: true,
        shares: core::slice::from_ref(&share),
    };
    let found = routing.find(
        "a/b",
        None,
        Some(&scope),
        Way::default(),
        |_| READY,
        |_| true,
    );
    assert!(found.hits.is_empty() && found.forwards.is_empty());
    assert_eq!(found.missed, [share]);
    routing.handle_interest(ShardId(1), &InterestChange::Remove(Text::from("a/b")));
    routing.handle_interest(ShardId(1), &InterestChange::Remove(Text::from("a/+")));
    assert!(!find(&mut routing, None).forwards[0].1.plain);
}

#[test]
fn interest_changes_at_the_first_and_the_last_subscriber() {
    let mut routing = Routing::new(1);
    let text = "a/b";
    let add = Some(InterestChange::Add(Text::from(text)));
    let subscribe = |routing: &mut Routing, s| routing.insert(s, text, value(0, 0));
    assert_eq!(subscribe(&mut routing, 0), add);
    assert_eq!(subscribe(&mut routing, 0), None);
    assert_eq!(subscribe(&mut routing, 1), None);
    assert_eq!(routing.remove(0, text), None);
    let gone = Some(InterestChange::Remove(Text::from(text)));
    assert_eq!(routing.remove(1, text), gone);
    assert!(!routing.is_wanted(text));
}

#[test]
fn a_group_takes_turns_and_prefers_who_is_available() {
    let mut routing = Routing::new(1);
    for s in 0..3 {
        routing.insert(s, "$share/g/a/b", value(1, 0));
    }
    let mut turns = |available: fn(usize) -> bool| -> Vec<usize> {
        let member = |s| Member {
            available: available(s),
            ..READY
        };
        let mut next = || routing.find("a/b", None, None, Way::default(), member, |_| true);
        (0..3).map(|_| next().hits[0].session).collect()
    };
    let mut all = turns(|_| true);
    all.sort_unstable();
    assert_eq!(all, [0, 1, 2]);
    assert_eq!(turns(|s| s == 1), [1, 1, 1]);
    // Some member gets it even if none is available.
    assert_eq!(turns(|_| false).len(), 3);
}

#[test]
fn exactly_once_is_for_durable_members_where_there_are_some() {
    let mut routing = Routing::new(1);
    for s in 0..3 {
        routing.insert(s, "$share/g/a/b", value(2, 0));
    }
    // The durable one cannot take it now.
    let member = |s| Member {
        available: s != 1,
        durable: s == 1,
    };
    let share = Text::from_static("$share/g/a/b");
    let take = |routing: &mut Routing, exact| -> Vec<(usize, bool)> {
        let way = Way { exact, homes: None };
        let mut next = || routing.find("a/b", None, None, way, member, |_| true);
        (0..4)
            .map(|_| next().hits.remove(0))
            .map(|hit| (hit.session, hit.queue.is_some()))
            .collect()
    };
    assert!(!take(&mut routing, true).contains(&(1, false)));
    routing.groups.set(&share, ShardId(0), Some(SessionKey(9)));
    assert_eq!(take(&mut routing, true), [(1, true); 4]);
    assert!(!take(&mut routing, false).contains(&(1, true)));
    let members: Vec<_> = routing.members(&share).collect();
    assert_eq!(members, [0, 1, 2]);
}

#[test]
fn only_the_last_change_of_a_retained_message_counts() {
    let mut routing = Routing::new(1);
    let topic = Text::from_static("t");
    let retained = &mut routing.retained;
    let (first, second) = (
        retained.begin_change(&topic, true),
        retained.begin_change(&topic, true),
    );
    assert_eq!(retained.changing(), 1);
    let mut end = |order| retained.end_change(&topic, order, true, false);
    assert_eq!(end(first), Some(Ended::Again));
    assert_eq!(end(second), Some(Ended::Nothing));
    assert_eq!(end(second), None);
    assert_eq!(routing.retained.changing(), 0);
}

#[test]
fn changes_of_a_retained_message_that_are_off_do_not_come_back() {
    let topic = Text::from_static("t");
    let message = |payload: &'static str| {
        Arc::new(Message {
            topic: topic.clone(),
            payload: payload.into(),
            ..Message::default()
        })
    };
    let back = |payload, writes| {
        let previous = Some(message(payload));
        Some(Ended::Back { previous, writes })
    };
    // Which is off first, the earlier or the later one.
    for is_first in [true, false] {
        let mut routing = Routing::new(1);
        let retained = &mut routing.retained;
        retained.set(&message("kept"));
        let [one, two] = ["one", "two"].map(|payload| {
            let order = retained.begin_change(&topic, true);
            retained.set(&message(payload));
            order
        });
        if is_first {
            let ended = retained.end_change(&topic, one, false, true);
            assert_eq!(ended, Some(Ended::Nothing));
            // The store was not asked for this one, and may have the other.
            let ended = retained.end_change(&topic, two, false, false);
            assert_eq!(ended, back("kept", true));
        } else {
            let ended = retained.end_change(&topic, two, false, false);
            assert_eq!(ended, back("one", false));
            retained.set(&message("one"));
            let ended = retained.end_change(&topic, one, false, true);
            assert_eq!(ended, back("kept", true));
        }
        assert_eq!(retained.changing(), 0);
    }
    // One that did not wait in between is what comes back.
    let mut routing = Routing::new(1);
    let retained = &mut routing.retained;
    let one = retained.begin_change(&topic, true);
    retained.begin_change(&topic, false);
    retained.set(&message("fixed"));
    let two = retained.begin_change(&topic, true);
    retained.set(&message("two"));
    let ended = retained.end_change(&topic, one, false, true);
    assert_eq!(ended, Some(Ended::Nothing));
    let ended = retained.end_change(&topic, two, false, true);
    assert_eq!(ended, back("fixed", true));
}
