//! What the event loop lends a client while it runs.

use std::collections::HashMap;

use dunlin_base::{ConnId, Instant};
use dunlin_net::Net;

use super::resolver::Resolver;
use crate::command::Key;

/// The parts of the loop that a client needs.
pub(super) struct Context<'a> {
    pub(super) net: &'a mut Net,
    pub(super) conns: &'a mut HashMap<ConnId, Key>,
    pub(super) resolver: &'a mut Resolver,
    pub(super) now: Instant,
}
