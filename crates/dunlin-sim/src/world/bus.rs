//! What shards say to each other: as bytes, unless they are those of one process.

use dunlin_base::ShardId;
use dunlin_broker::bus::{self, Addressed, Batch};
use dunlin_broker::{BusMessage, Input};

use super::World;
use crate::agenda::Crossing;

/// What a shard says to another, as it is sent.
pub(super) fn cross(world: &World, from: ShardId, to: ShardId, message: BusMessage) -> Crossing {
    match world.setup.bus_of_bytes {
        true => {
            let (mut batch, sent) = (Vec::new(), world.agenda.now);
            bus::begin(sent, &mut batch);
            bus::encode(from, to, &message, &mut batch).expect("within limits");
            Crossing::Bytes(batch.into(), sent)
        }
        false => Crossing::Value(Addressed { from, to, message }),
    }
}

/// What a shard said has arrived at the one of this place. All have one clock.
pub(super) fn crossed(world: &mut World, place: usize, crossing: Crossing) {
    match crossing {
        Crossing::Value(addressed) => heard(world, place, addressed),
        Crossing::Bytes(batch, sent) => {
            for addressed in Batch::open(batch, sent).expect("a batch") {
                heard(world, place, addressed.expect("a message"));
            }
        }
    }
}

fn heard(world: &mut World, place: usize, addressed: Addressed) {
    let Addressed { from, to, message } = addressed;
    assert_eq!(world.cluster.number(place), to, "it is for this shard");
    world.input(place, Input::Bus { from, message });
}
