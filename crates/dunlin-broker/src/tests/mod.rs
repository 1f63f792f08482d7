//! Tests of a whole shard that need to look inside it. What can be seen from
//! outside is tested in the simulator.

mod amqp;
mod queues;
mod searches;
