//! Named queues, durable subscriptions and dynamic nodes: sessions of their own,
//! at the shard that their address hashes to, which links of any shard attach to.
//!
//! A link and its node say [`calls::Call`]s to each other, within a shard as
//! between shards: attach, credit, delivery, outcome, detach. The link's side is
//! `amqp/nodes.rs` and `amqp/taking.rs`. What a client sends to a queue, and what topics
//! that are bound
//! to it bring, comes as any message does: see `messages/`.

pub(crate) mod addresses;
pub(crate) mod answers;
pub(crate) mod calls;
pub(crate) mod credit;
pub(crate) mod dead;
pub(crate) mod delivering;
pub(crate) mod dispatch;
pub(crate) mod keeping;
pub(crate) mod making;
pub(crate) mod manage;
pub(crate) mod moving;
pub(crate) mod nodes;
pub(crate) mod options;
pub(crate) mod orders;
pub(crate) mod restoring;
pub(crate) mod retiring;
pub(crate) mod termini;
pub(crate) mod waiting;
