//! The kinds of messages between shards.

use dunlin_store::codec::Reader;

use super::DecodeError;
use super::wire::{Wire, Writer, growing, variants};
use crate::io::{BusMessage, ShardFigures};
use crate::owners::figures::Counts;
use crate::owners::holders::{Holder, Holding};

variants! {
    BusMessage {
        1 = Handover { conn, peer, data },
        2 = Net(event),
        3 = Command(command),
        4 = Claim { token, client_id, user },
        5 = Denied { token },
        6 = Granted { token, client_id },
        7 = Evict { token, client_id },
        8 = Left { token, client_id },
        9 = Interest { token, changes },
        10 = InterestNoted { token },
        11 = Forward { forward, token },
        12 = Messages(messages),
        13 = Received(tokens),
        14 = Prepared { token, answer },
        15 = Settled { token, committed },
        16 = Retained { message },
        17 = Queue(call),
        18 = PassedOn(passed),
        19 = Holders(changes),
        20 = Figures(figures),
        21 = Introduced,
        22 = Returned { token, over },
        23 = Posts { after, posts },
        24 = Taken { up_to, again },
        25 = Untaken { numbers, topics },
    }
    Holder {
        1 = User(user),
        2 = Address(address),
    }
}

growing! {
    Holding { sessions, bytes }
    Counts {
        sessions,
        connected,
        subscriptions,
        queued,
        queued_bytes,
        connections,
        clients,
        received,
        sent,
        dropped,
        bytes_received,
        bytes_sent,
    }
}

impl Wire for ShardFigures {
    fn put(&self, w: &mut Writer<'_>) {
        let Self(counts) = self;
        counts.put(w);
    }

    fn take(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Wire::take(r).map(Self)
    }
}
