//! Shared subscriptions: who of a group can take a message, and what happens
//! to messages whose member has left.

use alloc::sync::Arc;

use dunlin_base::{Message, QoS, Text};
use dunlin_queue::{Content, Delivery};
use dunlin_store::{Seq, StoreOp};

use crate::ids::{SessionIdx, SessionRef};
use crate::io::{BusMessage, Forward, Missed};
use crate::messages::source::Source;
use crate::messages::{deliver, settle};
use crate::owners::Owners;
use crate::owners::connections::Connections;
use crate::owners::pending::{Back, PendingPublish};
use crate::owners::routing::{Hit, Member, Subscribed, Subscriber};
use crate::owners::session::Session;
use crate::owners::sessions::Sessions;
use crate::receivers;

/// Gives a message of one shared subscription to another member than `old`,
/// which had it: one that can take it now or, when `old` will not be back,
/// any. `false` when there is none.
pub(crate) fn redeliver(
    own: &mut Owners,
    delivery: &Delivery,
    old: SessionRef,
    ends: bool,
) -> bool {
    let (Some(share), Content::Held(message)) = (&delivery.share, &delivery.content) else {
        return false;
    };
    let (sessions, conns) = (&own.sessions, &own.conns);
    let keepers = &own.routing.keepers;
    let exact = delivery.qos == QoS::ExactlyOnce && keepers.any(share).is_some();
    let other = |key: Subscriber| {
        let fits = match key {
            Subscriber::Session(s) => !exact || member(sessions, conns, s as usize).durable,
            Subscriber::Shard(to) => !exact || keepers.of(share, to).is_some(),
        };
        fits && key != Subscriber::Session(old.at as u32)
    };
    let prefers = |key| other(key) && is_available(sessions, conns, key);
    let chosen = own.routing.choose(share, prefers, |key| ends && other(key));
    let Some(member) = chosen else {
        return false;
    };
    let message = Arc::clone(message);
    let share = Text::from(&**share);
    let mut publish = PendingPublish::default();
    let stored = delivery.seq.map(Seq);
    let stored = stored.map(|seq| (seq, own.commits.keeper(old.key, seq)));
    if let Some((seq, session)) = stored {
        publish
            .rest_mut()
            .work
            .ops
            .push(StoreOp::Dequeue { seq, session });
    }
    publish.rest_mut().back = Some(Back {
        old,
        delivery: delivery.clone(),
        keeper: stored.map_or(old.key, |(_, keeper)| keeper),
    });
    let token = own.commits.token();
    if !give(own, &message, share, member, token, &mut publish) {
        if let Some((seq, keeper)) = stored.filter(|(_, keeper)| *keeper != old.key) {
            own.commits.keep(old.key, seq, keeper);
        }
        return false;
    }
    settle::go_on(own, token, publish);
    true
}

/// As [`redeliver`], when `old` has released the message. What no other takes is
/// over, or that of `old` again.
pub(crate) fn take_back(own: &mut Owners, delivery: Delivery, old: SessionRef, over: bool) {
    if redeliver(own, &delivery, old, false) {
        return;
    }
    if over {
        return own.dequeue(old.key, delivery.seq);
    }
    if let Some(session) = own.sessions.resolve_mut(old) {
        session.queue_mut().push(delivery);
        receivers::pump(own, old.at);
    }
}

/// As [`redeliver`], when `old` has ended. What no other takes now is that of its
/// keeper after a restart.
pub(crate) fn give_again(own: &mut Owners, delivery: &Delivery, old: SessionRef) {
    if !redeliver(own, delivery, old, true)
        && let Some(seq) = delivery.seq
    {
        own.commits.keeper(old.key, Seq(seq));
    }
}

/// A shard that was chosen for shared subscriptions had no member left: its
/// interest has changed before it said so, and another member is chosen now.
pub(crate) fn choose_again(
    own: &mut Owners,
    missed: &Missed,
    token: u64,
    publish: &mut PendingPublish,
) {
    for share in &missed.shares {
        let (sessions, conns) = (&own.sessions, &own.conns);
        let prefers = |key| is_available(sessions, conns, key);
        let chosen = own.routing.choose(share, prefers, |_| true);
        if let Some(member) = chosen {
            let share = share.clone();
            let given = give(own, &missed.message, share, member, token, publish);
            publish.refused |= !given && !publish.lossy;
        }
    }
}

/// Gives a message to one member of a shared subscription. `false`, and
/// nothing done, when it has no room.
fn give(
    own: &mut Owners,
    message: &Arc<Message>,
    share: Text,
    (key, value): (Subscriber, Subscribed),
    token: u64,
    publish: &mut PendingPublish,
) -> bool {
    match key {
        Subscriber::Session(s) => {
            let mut source = Source::of(message, own.now);
            let memory = own.has_memory(message.cost());
            if !deliver::has_room(own, s as usize, &mut source, 1, memory) {
                return false;
            }
            let keeper = own.routing.keepers.any(&share);
            let hit = Hit::new(s as usize, &value, Some(&share));
            let mut hits = alloc::vec![Hit { keeper, ..hit }];
            let work = &mut publish.rest_mut().work;
            deliver::deliver_hits(own, &mut source, &mut hits, work)
        }
        Subscriber::Shard(to) => {
            publish.preparing += 1;
            let forward = Forward {
                message: Arc::clone(message),
                plain: false,
                shares: alloc::vec![share],
                retain: false,
                queue: false,
                lossy: publish.lossy,
            };
            let token = Some(token);
            own.outbox.bus(to, BusMessage::Forward { forward, token });
            true
        }
    }
}

/// Messages that an online member of a shared subscription may have waiting
/// before others are preferred.
const SHARED_QUEUE_MAX: usize = 64;

/// What a session is like as a member of a shared subscription.
pub(crate) fn member(sessions: &Sessions, conns: &Connections, s: SessionIdx) -> Member {
    let session = sessions.get(s);
    let available = session.is_some_and(|session| {
        session.queue().len() < SHARED_QUEUE_MAX
            && session
                .conn
                .and_then(|c| conns.get(c))
                .is_some_and(|conn| !conn.blocked)
    });
    Member {
        available,
        durable: session.is_some_and(Session::is_persistent),
    }
}

fn is_available(sessions: &Sessions, conns: &Connections, key: Subscriber) -> bool {
    match key {
        Subscriber::Session(s) => member(sessions, conns, s as usize).available,
        Subscriber::Shard(_) => true,
    }
}
