//! The HTTP door: the control plane as resources below `/api/v1`, with an OpenAPI
//! document made from the types, and the broker's page. Bearer tokens say who asks. It
//! has a thread of its own, and asks the plane from few more.

mod answer;
mod backup;
mod gate;
mod input;
mod open;
mod openapi;
mod orders;
mod page;
mod problem;
mod routes;
mod server;
mod steady;
pub(crate) mod tls;

pub(crate) use server::{Server, Settings};
