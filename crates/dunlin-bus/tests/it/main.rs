//! Members and links over real servers of NATS. Without one, each test says so and passes.

mod links;
mod members;
mod node;
mod servers;
mod strangers;
