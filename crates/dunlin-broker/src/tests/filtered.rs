//! Receivers of AMQP at topics of which the rules allow a part.

use alloc::sync::Arc;
use alloc::vec::Vec;

use super::amqp::{Client, NOW, OPEN, World, conn, message, receiver};
use crate::access::{Access, Acl};
use crate::auth::{AuthPolicy, Partial};

#[test]
fn a_receiver_gets_what_it_may_of_a_filter() {
    let filtered = AuthPolicy {
        partial: Partial::Filtered,
        ..OPEN
    };
    for (policy, accepted) in [(OPEN, false), (filtered, true)] {
        let mut world = World::new(2, policy);
        let acl = Acl::parse("topic write #\ntopic read plant/1/#").expect("rules");
        let access = Access {
            acl: Some(Arc::new(acl)),
            ..Access::default()
        };
        for shard in &mut world.shards {
            shard.set_access(NOW, access.clone());
        }
        world.run();
        let mut to = Client::new(&mut world, conn(0, 1), None);
        let refused = Some("amqp:unauthorized-access");
        // Nothing of it is allowed, and members of a group take from each other.
        for address in ["other/#", "$share/g/plant/#"] {
            to.attach(&mut world, &receiver(address));
            assert_eq!(to.refusal().as_deref(), refused, "{address}");
        }
        let link = to.attach(&mut world, &receiver("plant/#"));
        assert_eq!(to.refusal().as_deref(), refused.filter(|_| !accepted));
        if !accepted {
            continue;
        }
        to.give_credit(&mut world, link, 9);
        for (topic, payload) in [("plant/2/x", b"1"), ("plant/1/x", b"2"), ("plant/3", b"3")] {
            let (mut from, sender) =
                Client::sending(&mut world, conn(1, u64::from(payload[0])), topic);
            from.send(&mut world, sender, false, message(true, payload));
        }
        to.exchange(&mut world);
        let got: Vec<_> = core::iter::from_fn(|| to.message()).collect();
        let last: Vec<_> = got.iter().map(|(_, _, bytes)| bytes.last()).collect();
        assert_eq!(last, [Some(&b'2')]);
    }
}
