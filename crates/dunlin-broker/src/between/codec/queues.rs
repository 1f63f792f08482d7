//! What links and the nodes that they are attached to say to each other.

use dunlin_base::Text;
use dunlin_queue::Outcome;
use dunlin_store::codec::Reader;

use super::DecodeError;
use super::wire::{Wire, Writer, fixed, growing, variants};
use crate::access::OwnRules;
use crate::ids::SessionRef;
use crate::io::QueueCall;
use crate::owners::common::Standing;
use crate::queues::calls::{
    Attach, Call, Create, Expiring, Found, Keep, Left, Place, Refusal, Use,
};
use crate::queues::options::{Kept, Life, Overflow, QueueOptions};
use crate::wants::Wants;

impl Wire for QueueCall {
    fn put(&self, w: &mut Writer<'_>) {
        let Self(call) = self;
        call.put(w);
    }

    fn take(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Wire::take(r).map(Self)
    }
}

/// As the text that they are read from.
impl Wire for OwnRules {
    fn put(&self, w: &mut Writer<'_>) {
        w.text(self.text());
    }

    fn take(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let text = Text::take(r)?;
        Self::parse(&text).map_err(|_| DecodeError::Rules)
    }
}

/// As the filters that they are read from.
impl Wire for Wants {
    fn put(&self, w: &mut Writer<'_>) {
        let (kept, not_of) = self.parts();
        w.nested(|w| {
            u8::put_all(kept, w);
            not_of.put(w);
        });
    }

    fn take(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let r = &mut r.nested()?;
        let (kept, not_of) = (r.blob()?, Wire::take(r)?);
        Self::parse(kept, not_of).ok_or(DecodeError::Filter)
    }
}

fixed! {
    SessionRef { key, at }
    Place { node, end, link }
}

growing! {
    Attach {
        link,
        address,
        wants,
        create,
        user,
        keep,
        search,
    }
    Keep {
        name,
        secs,
        durable,
        serial,
    }
    Found {
        filter,
        last_key,
        limit,
        unsettled,
    }
    Create {
        kept,
        filter,
        standing,
        rules,
    }
    Left {
        outcomes,
        secs,
        durable,
        expires,
    }
    Kept {
        options,
        life,
        exclusive,
        client_id,
        filter,
    }
    QueueOptions {
        messages_max,
        bytes_max,
        overflow,
        ttl,
        levels,
        deliveries_max,
        dead_letter,
        durable,
    }
}

variants! {
    Call {
        1 = Attach(attach),
        2 = Make { address, user, token },
        3 = Credit { place, limit, drain },
        4 = Want { place, sent },
        5 = Outcome { place, key, outcome, annotations, answer },
        6 = Retire { place, token, outcomes },
        7 = Leave { place, sent, closed, keeps, expires },
        8 = Expire(expiring),
        9 = Again { place, keys },
        10 = Claim { link, name, keeps },
        11 = Release { link, name, left },
        12 = Granted { link, serial, outcomes },
        13 = Gone { link },
        14 = Stolen { link },
        15 = Attached { place, found },
        16 = Refused { link, why },
        17 = Allow { link, limit },
        18 = Deliver { link, key, message, failed, again, resumed },
        19 = Drained { link },
        20 = Settled { link, key },
        21 = Ask(ask),
        22 = Answered { link, number, answer },
    }
    Use {
        1 = Send,
        2 = Take { settled },
        3 = Browse,
    }
    Expiring {
        1 = Node(place),
        2 = Terminus { name, link },
    }
    Refusal {
        1 = NotFound,
        2 = NoRoom,
        3 = NotYours,
        4 = InUse,
        5 = Stolen,
        6 = Deleted,
    }
    Outcome {
        1 = Accepted,
        2 = Rejected,
        3 = Released,
        4 = Modified { failed, undeliverable_here },
    }
    Standing {
        1 = Open,
        2 = Listed,
        3 = Gone,
        4 = Server,
        5 = Unproved,
    }
    Life {
        1 = Kept,
        2 = Close,
        3 = NoLinks,
        4 = NoMessages,
        5 = NoLinksOrMessages,
        6 = Detached(secs),
    }
    Overflow {
        1 = Reject,
        2 = DropNewest,
        3 = DropOldest,
    }
}
