//! What shards say to each other: as bytes, unless they are those of one process.

use dunlin_base::ShardId;
use dunlin_broker::bus::{self, Addressed, Batch};
use dunlin_broker::{BusMessage, Input};

use super::World;
use crate::agenda::{Crossing, Happening};

/// A shard says something to another.
pub(super) fn cross(world: &mut World, from: usize, to: ShardId, message: BusMessage) {
    let at = world.agenda.soon(world.setup.pace.bus);
    let inbox = &mut world.inbox[usize::from(to.0)];
    let at = at.max(*inbox);
    *inbox = at;
    let from = ShardId(from as u16);
    let crossing = match world.setup.bus_of_bytes {
        true => {
            let (mut batch, sent) = (Vec::new(), world.agenda.now);
            bus::begin(sent, &mut batch);
            bus::encode(from, to, &message, &mut batch).expect("within limits");
            Crossing::Bytes(batch.into(), sent)
        }
        false => Crossing::Value(Addressed { from, to, message }),
    };
    world.agenda.at(at, Happening::Bus(crossing));
}

/// What a shard said has arrived at another. All have one clock.
pub(super) fn crossed(world: &mut World, crossing: Crossing) {
    match crossing {
        Crossing::Value(addressed) => heard(world, addressed),
        Crossing::Bytes(batch, sent) => {
            for addressed in Batch::open(batch, sent).expect("a batch") {
                heard(world, addressed.expect("a message"));
            }
        }
    }
}

fn heard(world: &mut World, addressed: Addressed) {
    let Addressed { from, to, message } = addressed;
    world.trace.note(world.agenda.now, 3, to.0.into(), &[]);
    world.input(usize::from(to.0), Input::Bus { from, message });
}
