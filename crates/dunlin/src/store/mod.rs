//! Copies of a store as lines of JSON: written by `dunlin store export` and, from
//! a running broker, by `dunlin ctl backup`; read by `dunlin store import`.

pub mod json;
