//! Drives the microcontroller's QUIC client over the sockets of a host, and
//! speaks the little MQTT that a device needs.

pub mod mqtt;
pub mod udp;
