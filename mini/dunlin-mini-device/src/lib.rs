//! What a microcontroller needs around the QUIC client and MQTT to be a
//! device: a driver of an Ethernet controller, ARP, IPv4 and UDP, pages that
//! outlive sleep, a generator of random bytes, and the application that wakes,
//! reports, takes commands and sleeps.
//!
//! All of it is portable: a port to another board is a [`Board`]. The network is
//! a [`Network`]: the own one, [`Interface`], or with the feature `smoltcp` also
//! `Smol`, which can ask for an address.
//!
//! Layer 3: composes the QUIC client and MQTT; knows no register address, no
//! interrupt and no processor.

#![no_std]
#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::indexing_slicing
    )
)]

#[cfg(test)]
extern crate std;

mod board;
mod device;
mod ip;
mod lan9118;
mod page;
mod random;
mod settings;

pub use board::{Board, Mac, Note};
pub use device::{Device, Failure, OVERTIME_MS};
pub use ip::{ARP, Address, FRAME, Frame, HEADER, Input, Interface, Network};
#[cfg(feature = "smoltcp")]
pub use ip::{Queues, Smol, Sockets};
pub use lan9118::{Lan9118, Registers};
pub use page::{FRONT, open, seal};
pub use random::{Copies, Generator, NoEntropy};
pub use settings::Settings;
