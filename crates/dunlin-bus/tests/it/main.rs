//! Members and links over real servers of NATS. Without one, each test says so and passes.

mod links;
mod members;
mod node;
#[expect(dead_code, reason = "tests of the store use more of it")]
#[path = "../../../dunlin-store-nats/tests/it/server.rs"]
mod server;
mod strangers;
