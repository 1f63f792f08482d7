//! Copies of a store as lines of JSON: written by `dunlin store export` and, from
//! a running broker, by `dunlin store backup`; read by `dunlin store import`.

#[cfg(unix)]
pub mod control;
pub mod json;
