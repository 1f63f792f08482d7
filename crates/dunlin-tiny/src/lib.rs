//! Drives the microcontroller's QUIC client over the sockets of a host. Knows
//! no MQTT.
