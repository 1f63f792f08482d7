//! What the event loop lends a link while it runs.

use std::collections::HashMap;

use dunlin_base::{ConnId, Instant};
use dunlin_net::Net;

use crate::resolver::{Key, Resolver};

/// The parts of the loop that a link needs.
pub struct Context<'a> {
    /// The sockets.
    pub net: &'a mut Net,
    /// Which link a connection belongs to.
    pub conns: &'a mut HashMap<ConnId, Key>,
    /// Looks up names.
    pub resolver: &'a mut Resolver,
    /// The time.
    pub now: Instant,
}
