//! Tests of a whole shard that need to look inside it. What can be seen from
//! outside is tested in the simulator.

#[cfg(feature = "amqp")]
mod amqp;
#[cfg(all(feature = "amqp", feature = "mqtt"))]
mod concluding;
#[cfg(all(feature = "amqp", feature = "mqtt"))]
mod control;
#[cfg(all(feature = "amqp", feature = "mqtt"))]
mod counting;
#[cfg(feature = "amqp")]
mod dead;
#[cfg(feature = "amqp")]
mod delaying;
#[cfg(feature = "amqp")]
mod filling;
#[cfg(feature = "amqp")]
mod filtered;
#[cfg(feature = "amqp")]
mod kept;
#[cfg(all(feature = "amqp", feature = "mqtt"))]
mod leaving;
#[cfg(feature = "amqp")]
mod lifetimes;
#[cfg(feature = "amqp")]
mod manage;
#[cfg(all(feature = "amqp", feature = "mqtt"))]
mod members;
mod missing;
#[cfg(feature = "amqp")]
mod own;
#[cfg(feature = "amqp")]
mod queues;
#[cfg(feature = "amqp")]
mod quotas;
#[cfg(all(feature = "amqp", feature = "mqtt"))]
mod redirecting;
#[cfg(all(feature = "amqp", feature = "mqtt"))]
mod relay;
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
