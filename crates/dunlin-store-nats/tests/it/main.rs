//! The log against real servers of NATS. Without one, each test says so and passes.

mod conformance;
mod damage;
mod import;
mod lease;
mod opening;
mod owners;
mod replicas;
mod server;
mod silence;
mod standby;
mod support;
mod valve;
