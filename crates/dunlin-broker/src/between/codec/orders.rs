//! What clients want done with queues, and what comes of it.

use super::wire::{fixed, growing, variants};
use crate::queues::orders::{Answer, Ask, Asked, Asker, Changes, Order, Problem, View};

fixed! {
    Asked { shard, link, number }
}

growing! {
    Ask { asked, asker, order }
    Asker {
        user,
        client_id,
        standing,
        rules,
    }
    Changes {
        messages_max,
        bytes_max,
        overflow,
        ttl,
        levels,
        deliveries_max,
        dead_letter,
        durable,
        topics,
    }
    View {
        address,
        options,
        topics,
        configured,
        messages,
        unsettled,
        bytes,
        consumers,
        first_created_ms,
    }
}

variants! {
    Order {
        1 = Create(address, changes),
        2 = Read(address),
        3 = Update(address, changes),
        4 = Delete(address),
        5 = Purge(address, messages),
        6 = List { rows },
    }
    Answer {
        1 = Created(view),
        2 = Queue(view),
        3 = Deleted,
        4 = Purged(messages),
        5 = List(views),
        6 = Refused(problem),
    }
    Problem {
        1 = NotFound,
        2 = Exists,
        3 = Configured,
        4 = Busy,
        5 = Durable,
        6 = NoRoom,
        7 = Store,
    }
}
