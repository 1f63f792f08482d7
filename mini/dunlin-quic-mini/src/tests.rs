//! The client against a server of this crate's own parts that does what a
//! test wants: what must be refused, and with which error.

mod corpus;
mod frames;
mod handshake;
mod hostile;
mod strict;
#[cfg(feature = "chacha20-poly1305")]
mod suites;
