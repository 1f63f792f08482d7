//! What must be there and is not: the shard goes on, counts it and says so.

use alloc::vec::Vec;

use dunlin_base::{Instant, ShardId, Text};
use dunlin_store::StoreDone;

use crate::config::Config;
use crate::io::{BusMessage, Event, Input, InterestChange, Output, Preparation};
use crate::shard::Shard;

const NOW: Instant = Instant::from_micros(1);

fn reported(shard: &mut Shard) -> Vec<u64> {
    let outputs = core::iter::from_fn(|| shard.poll_output());
    let events = outputs.filter_map(|output| match output {
        Output::Event(Event::InternalError(missing)) => Some(missing),
        _ => None,
    });
    events.collect()
}

#[test]
fn an_answer_to_nothing_is_counted() {
    let config = Config {
        shards: 2,
        ..Config::default()
    };
    let mut shard = Shard::new(config, NOW);
    let token = 77;
    let mut answers = alloc::vec![
        BusMessage::InterestNoted { token },
        BusMessage::Received([token].into()),
        BusMessage::Prepared {
            token,
            answer: Preparation::default(),
        },
        BusMessage::Settled {
            token,
            committed: true,
        },
    ];
    #[cfg(feature = "mqtt")]
    {
        let client_id = Text::from_static("a");
        answers.push(BusMessage::Denied { token });
        let id = client_id.clone();
        answers.push(BusMessage::Granted {
            token,
            client_id: id,
        });
        answers.push(BusMessage::Left { token, client_id });
    }
    for message in answers {
        let from = ShardId(1);
        shard.handle(NOW, Input::Bus { from, message });
        assert_eq!(reported(&mut shard), [1]);
    }
}

#[test]
fn what_cannot_be_missing_is_counted_and_said() {
    let mut shard = Shard::new(Config::default(), NOW);
    // Answers of the store to nothing that it was asked.
    let token = 77;
    shard.handle(NOW, Input::Store(StoreDone::Committed { token }));
    let messages = Vec::new();
    shard.handle(NOW, Input::Store(StoreDone::Loaded { token, messages }));
    assert_eq!(reported(&mut shard), [1, 1]);
    // A group of another shard that is none.
    let message = BusMessage::Interest {
        token: 0,
        changes: [InterestChange::Share(Text::from_static("t/#"), 1)].into(),
    };
    let from = ShardId(0);
    shard.handle(NOW, Input::Bus { from, message });
    assert_eq!(reported(&mut shard), [1]);
    assert_eq!(shard.stats().internal_errors, 3);
}
