//! Tests of a whole shard that need to look inside it. What can be seen from
//! outside is tested in the simulator.

#[cfg(feature = "amqp")]
mod amqp;
#[cfg(feature = "amqp")]
mod dead;
#[cfg(feature = "amqp")]
mod delaying;
#[cfg(feature = "amqp")]
mod manage;
#[cfg(feature = "amqp")]
mod queues;
#[cfg(feature = "mqtt")]
mod searches;
#[cfg(feature = "amqp")]
mod selecting;
#[cfg(feature = "amqp")]
mod spread;
#[cfg(all(feature = "amqp", feature = "mqtt"))]
mod transactions;
#[cfg(feature = "amqp")]
mod waiting;
