//! Tests of the codec through its public API. The cases are data: see
//! `tests/data/README.md` for their form.

// `allow-unwrap-in-tests` does not reach helpers outside of `#[test]`.
#![allow(clippy::unwrap_used)]

mod corpus;
mod errors;
mod frames;
mod messages;
mod notation;
mod performatives;
mod random;
mod robustness;
mod serial;
mod values;
