//! The chat over QUIC.

use dunlin_socket::{Listener, Stream};

#[path = "program.rs"]
mod program;

pub(crate) use program::{serve, talk};
