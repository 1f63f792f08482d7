//! Drives the microcontroller's QUIC client over the sockets of a host.

pub mod udp;
