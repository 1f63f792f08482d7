//! The link without a server: two ends in virtual time, with loss, repetition, other orders,
//! strangers and restarts.

mod links;
mod world;
