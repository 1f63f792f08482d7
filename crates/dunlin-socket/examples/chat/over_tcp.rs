//! The chat over TCP.

use std::net::{TcpListener as Listener, TcpStream as Stream};

#[path = "program.rs"]
mod program;

pub(crate) use program::{serve, talk};
