//! What one home posts to another, each owner by itself.

use super::outgoing::{CROWD_BYTES_MAX, CROWD_MAX, Entry, GIVEN_MAX};
use super::purpose::VERSION;
use super::*;
use bytes::Bytes;
use dunlin_base::QoS;
use dunlin_store::Target;

const A: ShardId = ShardId(0);
const B: ShardId = ShardId(1);
const QUEUE: SessionKey = SessionKey(7);

/// All that may be loaded at a time.
const ALL: (usize, usize) = (usize::MAX, usize::MAX);

fn message(topic: &str) -> Arc<Message> {
    Arc::new(Message {
        topic: Text::from(topic),
        qos: QoS::AtLeastOnce,
        ..Message::default()
    })
}

fn purpose() -> Purpose {
    Purpose {
        plain: true,
        ..Purpose::default()
    }
}

/// Posts of A for B, which has taken those up to `up_to`.
fn posts(up_to: u64) -> Posts {
    let mut posts = Posts::new(0);
    posts.add_queue(B, QUEUE);
    posts.handle_taken(B, up_to, true);
    posts
}

/// A publish of one message for B: its number and operations.
fn publish(posts: &mut Posts, spare: u64) -> (u64, Vec<StoreOp>) {
    let (mut new, mut ops) = (Vec::new(), Vec::new());
    add(&mut new, B, &message("t"), purpose());
    posts.write(A, &mut new[0], &mut ops, Seq(spare));
    (new[0].number, ops)
}

/// What is given now: the number before it, and its own.
fn given(posts: &mut Posts, durable: bool) -> Option<(u64, Vec<u64>)> {
    match posts.next(B, durable, ALL) {
        Next::Give { after, posts } => {
            Some((after, posts.iter().map(|post| post.number).collect()))
        }
        _ => None,
    }
}

fn post(number: u64) -> Post {
    let entry = Entry {
        number,
        seq: Seq(number),
        purpose: purpose(),
        message: None,
        cost: 0,
        stored: true,
    };
    entry.post(message("t"))
}

#[test]
fn purposes_come_back() {
    for plain in [false, true] {
        let purpose = Purpose {
            plain,
            shares: alloc::vec![Text::from("$share/g/t"), Text::new()],
            retain: !plain,
        };
        let bytes = purpose.encode(9);
        assert_eq!(Purpose::decode(&bytes), Some((9, purpose)));
        for len in 0..bytes.len() {
            assert_eq!(Purpose::decode(&bytes[..len]), None);
        }
    }
    let mut newer = purpose().encode(9).to_vec();
    newer[0] = VERSION + 1;
    assert_eq!(Purpose::decode(&newer), None);
}

#[test]
fn a_message_is_stored_once_with_who_it_is_for() {
    let mut posts = posts(0);
    let (it, mut new) = (message("t"), Vec::new());
    add(&mut new, B, &it, purpose());
    let shares = alloc::vec![Text::from("$share/g/t")];
    let share = Purpose {
        shares: shares.clone(),
        ..Purpose::default()
    };
    add(&mut new, B, &it, share);
    assert_eq!(new.len(), 1, "one post for a home");
    let here = Target::new(SessionKey(3), QoS::AtLeastOnce);
    let mut ops = alloc::vec![StoreOp::Enqueue {
        seq: Seq(5),
        message: Arc::clone(&it),
        targets: alloc::vec![here],
    }];
    posts.write(A, &mut new[0], &mut ops, Seq(6));
    let [
        StoreOp::PutSession { key: QUEUE, record },
        StoreOp::Enqueue { seq, targets, .. },
    ] = &ops[..]
    else {
        panic!("{ops:?}");
    };
    assert_eq!(
        (record.version, record.client_id.as_str()),
        (PROTOCOL, "0/1")
    );
    assert_eq!(
        (*seq, targets.len(), targets[1].session),
        (Seq(5), 2, QUEUE)
    );
    let both = Purpose {
        shares,
        ..purpose()
    };
    let added = targets[1].added.as_deref().expect("a purpose");
    assert_eq!(Purpose::decode(added), Some((1, both)));
    posts.settle(B, 1, true);
    let (_, ops) = publish(&mut posts, 8);
    assert!(
        matches!(ops[..], [StoreOp::Enqueue { seq: Seq(8), .. }]),
        "{ops:?}"
    );
}

#[test]
fn posts_are_given_in_order_when_all_before_them_are_stored() {
    let mut posts = posts(4);
    let numbers = [1, 2, 3].map(|spare| publish(&mut posts, spare).0);
    assert_eq!(numbers, [5, 6, 7], "above what was taken");
    posts.settle(B, 6, true);
    assert_eq!(given(&mut posts, true), None);
    assert_eq!(posts.settle(B, 5, false), Some((QUEUE, Seq(1))));
    assert_eq!(given(&mut posts, true), Some((4, alloc::vec![6])));
    posts.settle(B, 7, true);
    assert_eq!(given(&mut posts, true), Some((6, alloc::vec![7])));
    assert_eq!(
        posts.handle_taken(B, 6, false),
        Some((QUEUE, alloc::vec![Seq(2)]))
    );
    assert_eq!(posts.len(), 1);
    assert_eq!(
        posts.handle_taken(B, 7, false),
        Some((QUEUE, alloc::vec![Seq(3)]))
    );
    assert_eq!(posts.len(), 0);
    assert_eq!((posts.to[&B].bytes, posts.memory()), (0, 0));
}

#[test]
fn what_is_not_known_to_be_taken_is_given_again_from_the_store() {
    let mut posts = posts(0);
    for spare in [11, 12, 13] {
        let (number, _) = publish(&mut posts, spare);
        posts.settle(B, number, true);
    }
    assert_eq!(given(&mut posts, true), Some((0, alloc::vec![1, 2, 3])));
    posts.lose(B);
    assert_eq!(given(&mut posts, true), None, "it is gone");
    let taken = posts.handle_taken(B, 1, true);
    assert_eq!(taken, Some((QUEUE, alloc::vec![Seq(11)])));
    let Next::Load(seqs) = posts.next(B, true, ALL) else {
        panic!("they are in the store");
    };
    assert_eq!(seqs, [Seq(12), Seq(13)]);
    assert!(
        matches!(posts.next(B, true, ALL), Next::Nothing),
        "one request"
    );
    // One of them was damaged.
    let lost = posts.handle_loaded(&[(12, None), (13, Some(message("t")))]);
    assert_eq!(lost, 1);
    assert_eq!(
        (posts.held().count(), posts.memory()),
        (1, posts.count_memory())
    );
    assert_eq!(given(&mut posts, true), Some((1, alloc::vec![3])));
    assert_eq!(
        (posts.held().count(), posts.memory()),
        (0, posts.count_memory())
    );
    // Without a store they stay in memory.
    let mut posts = self::posts(0);
    let (number, _) = publish(&mut posts, 11);
    posts.settle(B, number, true);
    assert_eq!(given(&mut posts, false), Some((0, alloc::vec![1])));
    posts.handle_taken(B, 0, true);
    assert_eq!(given(&mut posts, false), Some((0, alloc::vec![1])));
}

#[test]
fn messages_that_cannot_be_given_do_not_stay_in_memory() {
    let mut posts = posts(0);
    posts.lose(B);
    for spare in 1..=3 {
        let (number, _) = publish(&mut posts, spare);
        posts.settle(B, number, true);
        assert_eq!(given(&mut posts, true), None);
    }
    assert_eq!(posts.held().count(), 0);
    assert_eq!(posts.memory(), 3 * size_of::<Entry>());
    assert_eq!(posts.memory(), posts.count_memory());
    let mut limits = PostLimits {
        messages_max: 3,
        bytes_max: usize::MAX,
    };
    assert!(!posts.has_room(B, 1, &limits));
    limits.messages_max = 4;
    posts.reserve(B, 1);
    assert!(!posts.has_room(B, 1, &limits), "the last one is kept");
    let mut new = Vec::new();
    add(&mut new, B, &message("t"), purpose());
    posts.unreserve(&new[0]);
    assert!(posts.has_room(B, 1, &limits));
    limits.bytes_max = posts.to[&B].bytes;
    assert!(!posts.has_room(B, 1, &limits) && posts.has_room(B, 0, &limits));
    assert!(posts.has_room(A, usize::MAX, &limits), "one always has");
}

/// Tries posts of A, of which there is no room for `untaken`: those that the store is asked
/// for now, if it is.
fn take(posts: &mut Posts, again: bool, untaken: &[u64]) -> Option<Vec<u64>> {
    let Trial {
        posts: all, tried, ..
    } = posts.begin_taking(A, again)?;
    let is_untaken = |post: &Post| untaken.contains(&post.number);
    let (left, taken): (Vec<Post>, Vec<Post>) = all.into_iter().partition(is_untaken);
    posts.leave((B, A), tried, left)?;
    Some(taken.iter().map(|it| it.number).collect())
}

#[test]
fn a_post_is_taken_once_and_none_is_left_out() {
    let mut posts = Posts::new(0);
    let take = |posts: &mut Posts| take(posts, false, &[]);
    posts.accept(A, 0, alloc::vec![post(1), post(3)]);
    assert_eq!(take(&mut posts), Some(alloc::vec![1, 3]));
    assert_eq!(posts.taken(A), 0);
    posts.accept(A, 0, alloc::vec![post(1), post(3), post(4)]);
    assert_eq!(take(&mut posts), None, "others are being stored");
    posts.end_taking(A, true);
    assert_eq!(
        (posts.taken(A), take(&mut posts)),
        (3, Some(alloc::vec![4]))
    );
    posts.end_taking(A, true);
    // The fifth was lost on the way.
    posts.accept(A, 5, alloc::vec![post(6)]);
    assert_eq!(take(&mut posts), None);
    // The store refuses one: all that came after it is given again.
    posts.accept(A, 4, alloc::vec![post(5), post(6)]);
    assert_eq!(take(&mut posts), Some(alloc::vec![5, 6]));
    posts.accept(A, 6, alloc::vec![post(7)]);
    posts.end_taking(A, false);
    posts.accept(A, 7, alloc::vec![post(8)]);
    assert_eq!((posts.taken(A), take(&mut posts)), (4, None));
    posts.end_refusing(A);
    posts.accept(A, 8, alloc::vec![post(9)]);
    assert_eq!(take(&mut posts), None, "it was sent before that");
    posts.accept(A, 4, alloc::vec![post(5), post(6)]);
    assert_eq!(take(&mut posts), Some(alloc::vec![5]), "fewer at once");
    // Its sender begins again while they are being stored.
    posts.lose(A);
    posts.accept(A, 4, alloc::vec![post(5), post(6)]);
    posts.end_taking(A, true);
    assert_eq!(take(&mut posts), Some(alloc::vec![6]));
}

/// What is refused before the store is asked takes nothing out of it.
#[test]
fn what_is_stored_stays_when_later_posts_are_refused() {
    let mut posts = posts(0);
    posts.accept(A, 0, alloc::vec![post(1)]);
    assert_eq!(take(&mut posts, false, &[]), Some(alloc::vec![1]));
    let stored = StoreOp::Enqueue {
        seq: Seq(1),
        message: message("t"),
        targets: alloc::vec![Target::new(SessionKey(3), QoS::AtLeastOnce)],
    };
    posts.note_attempt(A, &[stored]);
    posts.end_taking(A, true);
    posts.accept(A, 1, alloc::vec![post(2)]);
    assert_eq!(take(&mut posts, false, &[]), Some(alloc::vec![2]));
    posts.end_taking(A, false);
    let undone = posts.undo(B, A);
    assert!(
        matches!(&undone[..], [StoreOp::PutMeta { .. }]),
        "{undone:?}"
    );
}

/// A home whose store has an earlier state, from a backup: what it lacks is gone here, and
/// what comes now is given behind what it has.
#[test]
fn a_home_that_has_gone_back_is_given_what_follows() {
    let mut posts = posts(0);
    let (number, _) = publish(&mut posts, 1);
    posts.settle(B, number, true);
    assert_eq!(given(&mut posts, true), Some((0, alloc::vec![number])));
    posts.handle_taken(B, number, false);
    let (next, _) = publish(&mut posts, 2);
    posts.settle(B, next, true);
    posts.handle_taken(B, 0, true);
    assert_eq!(given(&mut posts, true), Some((0, alloc::vec![next])));
}

#[test]
fn posts_come_back_from_the_store() {
    use dunlin_store::{Batch, MemoryStore};
    let (mut store, mut posts) = (MemoryStore::new(), posts(0));
    let mut ops = Vec::new();
    for spare in [12, 11] {
        ops.extend(publish(&mut posts, spare).1);
    }
    let stored = Progress {
        up_to: 99,
        untaken: [90, 92].into(),
    };
    ops.push(taken_op(A, B, &stored));
    store.apply(&Batch { token: 1, ops });
    let recovered = store.recover();
    let mut posts = Posts::new(1);
    for session in &recovered.sessions {
        assert_eq!(posts.restore(B, false, session), 0);
        assert!(!posts.has_queue(B), "of another shard");
        assert_eq!(posts.restore(A, true, session), 0);
    }
    for (name, value) in &recovered.meta {
        assert_eq!(posts.restore_taken(B, false, name, value), 0);
        assert_eq!(posts.taken(B), 0, "of another shard");
        assert_eq!(posts.restore_taken(A, true, name, value), 0);
    }
    assert_eq!((posts.taken(B), posts.len()), (99, 2));
    let untaken = posts.untaken(B, true);
    assert_eq!(untaken, Some((alloc::vec![90, 92], Vec::new())));
    posts.handle_taken(B, 0, true);
    // In the order of their numbers, not of their places.
    let Next::Load(seqs) = posts.next(B, true, ALL) else {
        panic!("they are in the store");
    };
    assert_eq!(seqs, [Seq(12), Seq(11)]);
    let (number, _) = publish(&mut posts, 13);
    assert_eq!(number, (1 << INCARNATION_BITS) + 1);
}

#[test]
fn posts_that_cannot_be_read_are_counted_and_left_out() {
    use dunlin_store::{Batch, MemoryStore};
    const OTHER: SessionKey = SessionKey(8);
    let (mut store, mut posts) = (MemoryStore::new(), posts(0));
    let mut ops = Vec::new();
    for spare in [11, 12, 13] {
        ops.extend(publish(&mut posts, spare).1);
    }
    for op in &mut ops {
        if let StoreOp::Enqueue { seq, targets, .. } = op
            && *seq == Seq(12)
        {
            // A later release wrote it.
            targets[0].added = Some([VERSION + 1].into());
        }
    }
    // It cannot be said whose these are.
    let names = SessionRecord {
        client_id: Text::from("0"),
        version: PROTOCOL,
        ..SessionRecord::default()
    };
    let meta = |key: &'static str, value: &'static [u8]| StoreOp::PutMeta {
        key: Text::from(key),
        value: Bytes::from_static(value),
    };
    ops.extend([
        StoreOp::PutSession {
            key: OTHER,
            record: names,
        },
        StoreOp::Enqueue {
            seq: Seq(14),
            message: message("t"),
            targets: alloc::vec![Target::new(OTHER, QoS::AtLeastOnce)],
        },
        meta("posts/0/?", &[0; 8]),
        // Too short.
        meta("posts/0/1", &[0; 7]),
        meta("of something else", &[0; 7]),
    ]);
    store.apply(&Batch { token: 1, ops });
    let recovered = store.recover();
    for (here, first, wanted) in [(B, false, 0), (A, true, 4)] {
        let mut posts = Posts::new(1);
        let mut count = 0;
        for session in &recovered.sessions {
            count += posts.restore(here, first, session);
        }
        for (name, value) in &recovered.meta {
            count += posts.restore_taken(here, first, name, value);
        }
        assert_eq!(count, wanted);
        if here == A {
            assert_eq!(posts.taken(B), 0);
            posts.handle_taken(B, 0, true);
            let Next::Load(seqs) = posts.next(B, true, ALL) else {
                panic!("they are in the store");
            };
            assert_eq!(seqs, [Seq(11), Seq(13)], "those behind it are given");
        }
    }
}

#[test]
fn publishes_wait_for_room_and_not_too_many() {
    let limits = PostLimits {
        messages_max: 1,
        bytes_max: usize::MAX,
    };
    let waiting = |token| Waiting {
        token,
        message: message("t"),
        purpose: purpose(),
    };
    let mut posts = posts(0);
    assert!(!posts.wait(A, waiting(0)), "there is always room for it");
    let (number, _) = publish(&mut posts, 1);
    posts.settle(B, number, true);
    for token in 0..CROWD_MAX as u64 {
        assert!(posts.wait(B, waiting(token)));
    }
    assert!(!posts.wait(B, waiting(0)));
    assert_eq!(posts.held().count(), CROWD_MAX + 1);
    assert_eq!(posts.memory(), posts.count_memory());
    assert!(posts.next_waiting(B, &limits).is_none());
    posts.handle_taken(B, number, false);
    let first = posts.next_waiting(B, &limits);
    assert_eq!(first.map(|it| it.token), Some(0));
    assert_eq!(posts.memory(), posts.count_memory());
    // Of large messages fewer wait.
    let large = || {
        let message = Message {
            payload: Bytes::from(alloc::vec![0; CROWD_BYTES_MAX]),
            ..Message::default()
        };
        Waiting {
            message: Arc::new(message),
            ..waiting(0)
        }
    };
    let mut posts = self::posts(0);
    assert!(posts.wait(B, large()) && !posts.wait(B, large()));
}

/// Posts for which there is no room stay with who has posted them, and are given again; the
/// others go past them.
#[test]
fn what_there_is_no_room_for_waits_and_others_go_past() {
    let mut posts = Posts::new(0);
    posts.accept(A, 0, alloc::vec![post(1), post(2), post(3)]);
    assert_eq!(take(&mut posts, false, &[2]), Some(alloc::vec![1, 3]));
    posts.end_taking(A, true);
    assert_eq!(posts.taken(A), 3);
    let untaken = Some((alloc::vec![2], alloc::vec![Text::from("t")]));
    assert_eq!(posts.untaken(A, false), untaken);
    assert_eq!(posts.memory(), posts.count_memory());
    assert!(posts.remind(A) && !posts.remind(A));
    // Not tried before it is time; others of its topic are not either.
    assert_eq!(take(&mut posts, false, &[]), None);
    posts.accept(A, 3, alloc::vec![post(4)]);
    let trial = posts.begin_taking(A, false).expect("one");
    assert!(trial.closed.is_before(&post(4)));
    let op = posts.leave((B, A), trial.tried, trial.posts);
    let Some(StoreOp::PutMeta { value, .. }) = op else {
        panic!("{op:?}");
    };
    let stored = Progress {
        up_to: 4,
        untaken: [2, 4].into(),
    };
    assert_eq!(read_taken(&value), Some(stored));
    posts.end_taking(A, true);
    // No news, and nothing for the store.
    assert_eq!(take(&mut posts, true, &[2, 4]), None);
    assert_eq!(take(&mut posts, true, &[4]), Some(alloc::vec![2]));
    // The store refuses it: all of them come again.
    posts.end_taking(A, false);
    posts.end_refusing(A);
    assert_eq!((posts.taken(A), posts.len(), posts.memory()), (4, 0, 0));
    posts.accept(A, 4, alloc::vec![post(2), post(3), post(4)]);
    for number in [2, 4] {
        let taken = take(&mut posts, true, &[]);
        assert_eq!(taken, Some(alloc::vec![number]), "fewer at once");
        posts.end_taking(A, true);
    }
    posts.accept(A, 4, alloc::vec![post(5)]);
    assert_eq!(take(&mut posts, false, &[]), Some(alloc::vec![5]));
    posts.end_taking(A, true);
    let none = Some((Vec::new(), Vec::new()));
    assert_eq!(
        (posts.untaken(A, false), posts.untaken(A, false)),
        (none, None)
    );
    assert_eq!((posts.taken(A), posts.len(), posts.memory()), (5, 0, 0));
    // There is an end to it: what comes then waits for all.
    let mut posts = Posts::new(0);
    let all: Vec<u64> = (1..=2 * UNTAKEN_MAX as u64).collect();
    posts.accept(A, 0, all.iter().copied().map(post).collect());
    assert_eq!(take(&mut posts, false, &all), Some(Vec::new()));
    posts.end_taking(A, true);
    assert_eq!(take(&mut posts, false, &[]), None);
    assert_eq!(posts.taken(A), UNTAKEN_MAX as u64);
}

/// Another home with the store may have no room for the member of a group: that is heard
/// when the post is tried.
#[test]
fn one_that_is_refused_alone_waits_and_others_go_past() {
    let mut posts = Posts::new(0);
    posts.accept(A, 0, alloc::vec![post(1), post(2)]);
    assert_eq!(take(&mut posts, false, &[]), Some(alloc::vec![1, 2]));
    assert!(posts.set_aside(A).is_none(), "it may be either");
    posts.end_taking(A, false);
    posts.end_refusing(A);
    let given = || alloc::vec![post(1), post(2), post(3), post(4)];
    posts.accept(A, 0, given());
    assert_eq!(take(&mut posts, false, &[]), Some(alloc::vec![1]));
    let set_aside = |posts: &mut Posts| {
        let (tried, post) = posts.set_aside(A).expect("it is alone");
        posts.leave((B, A), tried, alloc::vec![post]).is_some()
    };
    assert!(set_aside(&mut posts));
    posts.end_taking(A, true);
    let untaken = Some((alloc::vec![1], alloc::vec![Text::from("t")]));
    assert_eq!(posts.untaken(A, false), untaken);
    assert_eq!((posts.taken(A), posts.memory()), (1, posts.count_memory()));
    // Tried again it is alone, though others wait; without room nothing changes.
    assert_eq!(take(&mut posts, true, &[]), Some(alloc::vec![1]));
    assert!(!set_aside(&mut posts));
    assert_eq!(take(&mut posts, false, &[2, 4]), Some(alloc::vec![3]));
    posts.end_taking(A, true);
    assert_eq!((posts.taken(A), posts.memory()), (4, posts.count_memory()));
    // The store refuses them: they are tried one by one, each in its turn.
    assert_eq!(take(&mut posts, true, &[]), Some(alloc::vec![1, 2, 4]));
    posts.end_taking(A, false);
    posts.end_refusing(A);
    posts.accept(A, 0, given());
    let Trial { closed, tried, .. } = posts.begin_taking(A, true).expect("one");
    // Of the same topic one waits before it; those behind it are no matter.
    assert!(closed.is_before(&post(2)) && !closed.is_before(&post(1)));
    assert!(posts.leave((B, A), tried, alloc::vec![post(2)]).is_none());
    let next = take(&mut posts, true, &[]);
    assert_eq!(next, Some(alloc::vec![1, 4]), "others have their turn");
}

#[test]
fn posts_that_are_not_taken_stay_and_are_given_again() {
    let mut posts = posts(0);
    for spare in 1..=3 {
        let (number, _) = publish(&mut posts, spare);
        posts.settle(B, number, true);
    }
    assert_eq!(given(&mut posts, true), Some((0, alloc::vec![1, 2, 3])));
    posts.handle_untaken(B, alloc::vec![2], alloc::vec![Text::from("t")]);
    assert!(posts.is_closed(B, "t") && !posts.is_closed(B, "other"));
    let taken = posts.handle_taken(B, 3, false);
    assert_eq!(taken, Some((QUEUE, alloc::vec![Seq(1), Seq(3)])));
    assert_eq!((posts.len(), posts.memory()), (1, posts.count_memory()));
    let (number, _) = publish(&mut posts, 4);
    posts.settle(B, number, true);
    assert_eq!(given(&mut posts, true), Some((2, alloc::vec![4])));
    // It begins again, and is given both.
    posts.lose(B);
    assert!(!posts.is_closed(B, "t"));
    posts.handle_untaken(B, alloc::vec![2], Vec::new());
    posts.handle_taken(B, 3, true);
    let Next::Load(seqs) = posts.next(B, true, ALL) else {
        panic!("they are in the store");
    };
    assert_eq!(seqs, [Seq(2), Seq(4)]);
    posts.handle_loaded(&[(2, Some(message("t"))), (4, Some(message("t")))]);
    assert_eq!(given(&mut posts, true), Some((3, alloc::vec![2, 4])));
    posts.handle_untaken(B, Vec::new(), Vec::new());
    posts.handle_taken(B, 4, false);
    assert_eq!((posts.len(), posts.memory()), (0, 0));
}

/// A home takes posts behind one for which it has no room, of which it was given that one
/// only since it is to be given them again.
#[test]
fn what_stays_in_front_is_not_what_was_given() {
    let mut posts = posts(0);
    for spare in 1..=4 {
        let (number, _) = publish(&mut posts, spare);
        posts.settle(B, number, true);
    }
    assert_eq!(given(&mut posts, true), Some((0, alloc::vec![1, 2, 3, 4])));
    posts.handle_taken(B, 0, true);
    let load = |posts: &mut Posts, wanted: u64| {
        let Next::Load(seqs) = posts.next(B, true, (1, 0)) else {
            panic!("it is in the store");
        };
        assert_eq!(seqs, [Seq(wanted)]);
        posts.handle_loaded(&[(wanted, Some(message("t")))]);
    };
    load(&mut posts, 1);
    assert_eq!(given(&mut posts, true), Some((0, alloc::vec![1])));
    posts.handle_untaken(B, alloc::vec![1], Vec::new());
    posts.handle_taken(B, 3, false);
    load(&mut posts, 4);
    assert_eq!(given(&mut posts, true), Some((1, alloc::vec![4])));
}

/// Those that wait for room at a home do not keep others from it, however many they are.
#[test]
fn what_waits_for_room_does_not_count_as_given() {
    let mut posts = posts(0);
    for spare in 1..=2 * GIVEN_MAX as u64 {
        let (number, _) = publish(&mut posts, spare);
        posts.settle(B, number, true);
    }
    let all = |posts: &mut Posts| {
        let given = core::iter::from_fn(|| given(posts, false));
        given.map(|(_, numbers)| numbers.len()).sum::<usize>()
    };
    assert_eq!(all(&mut posts), GIVEN_MAX);
    posts.handle_untaken(B, alloc::vec![1, 3, 4], Vec::new());
    assert_eq!(all(&mut posts), 3);
    posts.handle_taken(B, 5, false);
    assert_eq!(all(&mut posts), 2);
    // There is room for one of them, which is taken.
    posts.handle_untaken(B, alloc::vec![1, 4], Vec::new());
    posts.handle_taken(B, 5, false);
    assert_eq!(all(&mut posts), 0);
    posts.handle_taken(B, 6, false);
    assert_eq!(all(&mut posts), 1);
    // It begins again, and says so again.
    posts.lose(B);
    posts.handle_untaken(B, alloc::vec![1, 4], Vec::new());
    posts.handle_taken(B, 6, true);
    assert_eq!(all(&mut posts), GIVEN_MAX + 2);
}

/// What is loaded counts from the moment at which it is asked for.
#[test]
fn posts_are_loaded_as_far_as_there_is_memory() {
    for (loads, wanted) in [(ALL, 3), ((1, 0), 1), ((2, usize::MAX), 2), ((0, 0), 1)] {
        let mut posts = posts(0);
        posts.lose(B);
        for spare in 1..=3 {
            let (number, _) = publish(&mut posts, spare);
            posts.settle(B, number, true);
        }
        posts.handle_taken(B, 0, true);
        assert_eq!(given(&mut posts, true), Some((0, alloc::vec![1, 2, 3])));
        posts.lose(B);
        posts.handle_taken(B, 0, true);
        let before = posts.memory();
        let Next::Load(seqs) = posts.next(B, true, loads) else {
            panic!("they are in the store");
        };
        assert_eq!(seqs.len(), wanted, "{loads:?}");
        let cost = message("t").cost();
        assert_eq!(posts.memory(), before + wanted * cost);
        assert_eq!(posts.memory(), posts.count_memory());
        posts.load_again();
        assert_eq!(posts.memory(), before);
    }
}
