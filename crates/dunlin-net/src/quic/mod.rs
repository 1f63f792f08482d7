//! QUIC: one UDP socket per listener or local address, many connections on
//! it. The protocol itself is quinn-proto's; this drives it.

mod acks;
mod cid;
mod conn;
mod datagrams;
mod early;
mod endpoint;
mod flight;
mod isolate;
mod keys;
mod lb;
mod lean;
mod moves;
mod port;
mod repeat;
mod silence;
mod stats;
mod streams;
mod validation;
mod window;

pub use cid::CidCodec;
pub(crate) use cid::shard_of_datagram;
pub(crate) use conn::{NewQuic, QuicConn};
pub use datagrams::DatagramError;
pub(crate) use early::carries_early_data;
pub(crate) use endpoint::{QuicSettings, UdpEndpoint, logged_transport};
pub use lb::{LbConfig, LbError, LbId};
pub(crate) use lean::LeanConfig;
pub(crate) use moves::{Due, is_forbidden as moving_is_forbidden};
pub(crate) use port::{UdpPort, bind};
pub(crate) use window::Floored;
