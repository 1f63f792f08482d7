//! Lifetime policies of dynamic nodes, whose consumers are on another shard.

use alloc::string::String;
use alloc::vec::Vec;

use dunlin_amqp::codec::LifetimePolicy::{
    self, DeleteOnClose, DeleteOnNoLinks, DeleteOnNoLinksOrMessages, DeleteOnNoMessages,
};
use dunlin_amqp::codec::{AnyTarget, DeliveryState, Map, Target, Value, capability};
use dunlin_amqp::{Delivery, Event, LinkId};

use super::amqp::{Client, OPEN, World, conn, message, sender};
use super::queues::queued;

const ALL: [LifetimePolicy; 4] = [
    DeleteOnClose,
    DeleteOnNoLinks,
    DeleteOnNoMessages,
    DeleteOnNoLinksOrMessages,
];

/// A node with two messages, made by a sender on its shard, and a consumer of them on
/// the other one.
struct Node {
    world: World,
    maker: Client,
    making: Option<LinkId>,
    consumer: Client,
    taking: Option<LinkId>,
    address: String,
}

impl Node {
    fn new(policy: LifetimePolicy) -> Self {
        let mut world = World::configured(2, OPEN, |config| config.queues.auto_create = false);
        let mut maker = Client::new(&mut world, conn(0, 1), None);
        let properties = [(Value::Symbol(capability::LIFETIME_POLICY), policy.value())];
        let target = Target {
            dynamic: true,
            dynamic_node_properties: Some(Map::new(&properties)),
            ..Target::default()
        };
        let making = maker.attach(&mut world, &sender(target));
        let address = maker.events.drain(..).find_map(|event| match event {
            Event::Attached { attach, .. } => match attach.attach()?.target {
                Some(AnyTarget::Target(target)) => target.address.map(String::from),
                _ => None,
            },
            _ => None,
        });
        for byte in [b'1', b'2'] {
            maker.send(&mut world, making, false, message(false, &[byte]));
        }
        let consumer = Client::new(&mut world, conn(1, 2), None);
        let mut node = Self {
            world,
            maker,
            making: Some(making),
            consumer,
            taking: None,
            address: address.expect("an address"),
        };
        node.consume(10);
        node
    }

    /// A link that takes from it.
    fn consume(&mut self, credit: u32) {
        let world = &mut self.world;
        self.taking = Some(self.consumer.receiver(world, &self.address, credit));
    }

    /// Whether it is there, beside the link that made it.
    fn is_there(&mut self) -> bool {
        self.maker.exchange(&mut self.world);
        self.consumer.exchange(&mut self.world);
        let sessions = self.world.shards[0].census().sessions;
        sessions > usize::from(self.making.is_some())
    }

    /// The consumer has one more message, and accepts it.
    fn accept(&mut self, messages: &mut Vec<Delivery>) {
        let of = messages.remove(0);
        self.consumer
            .settle(&mut self.world, of, &DeliveryState::ACCEPTED);
    }

    fn messages(&mut self) -> Vec<Delivery> {
        let got = self.consumer.taken();
        got.into_iter().map(|(of, ..)| of).collect()
    }

    fn leave(&mut self) {
        if let Some(link) = self.taking.take() {
            self.consumer.detach(&mut self.world, link, true);
        }
    }

    /// The link that made it is closed.
    fn close(&mut self) {
        if let Some(link) = self.making.take() {
            self.maker.detach(&mut self.world, link, true);
        }
    }

    /// It has ended: its links have heard of it, and nothing is left.
    fn check_end(&mut self) {
        let deleted = Some("amqp:resource-deleted");
        if self.taking.is_some() {
            assert_eq!(self.consumer.refusal().as_deref(), deleted);
        }
        if self.making.take().is_some() {
            assert_eq!(self.maker.refusal().as_deref(), deleted);
        }
        let world = &self.world;
        for shard in &world.shards {
            let census = shard.census();
            assert_eq!((census.sessions, census.queued), (0, 0));
        }
        world.check();
        assert_eq!(queued(world), 0);
    }
}

#[test]
fn a_node_ends_when_its_messages_or_its_links_are_gone() {
    for policy in ALL {
        let mut node = Node::new(policy);
        let mut messages = node.messages();
        assert_eq!(messages.len(), 2);
        node.accept(&mut messages);
        assert!(node.is_there(), "{policy:?}");
        node.accept(&mut messages);
        assert_eq!(node.is_there(), policy != DeleteOnNoMessages, "{policy:?}");
        if policy == DeleteOnNoMessages {
            node.check_end();
            continue;
        }
        node.close();
        assert_eq!(node.is_there(), policy != DeleteOnClose, "{policy:?}");
        if policy != DeleteOnClose {
            node.leave();
            assert!(!node.is_there(), "{policy:?}");
        }
        node.check_end();
    }
}

#[test]
fn a_node_without_links_stays_for_its_messages_if_its_policy_says_so() {
    for policy in ALL {
        let mut node = Node::new(policy);
        assert_eq!(node.messages().len(), 2);
        node.leave();
        assert!(node.is_there(), "{policy:?}: the link that made it");
        node.close();
        let stays = matches!(policy, DeleteOnNoMessages | DeleteOnNoLinksOrMessages);
        assert_eq!(node.is_there(), stays, "{policy:?}");
        if !stays {
            node.check_end();
            continue;
        }
        // What the consumer left comes again, and the last of it is the end.
        node.consume(10);
        let mut messages = node.messages();
        assert_eq!(messages.len(), 2);
        node.accept(&mut messages);
        assert!(node.is_there(), "{policy:?}");
        node.accept(&mut messages);
        assert_eq!(node.is_there(), policy != DeleteOnNoMessages, "{policy:?}");
        if policy == DeleteOnNoLinksOrMessages {
            node.leave();
            assert!(!node.is_there(), "{policy:?}");
        }
        node.check_end();
    }
}
