//! Tests of the codec through its public API. The cases are data: see
//! `tests/data/README.md` for their form.

// `allow-unwrap-in-tests` does not reach helpers outside of `#[test]`.
#![allow(clippy::unwrap_used)]

mod corpus;
mod encoding;
mod framing;
mod lists;
mod model;
mod notation;
mod robustness;
mod tables;
mod vectors;
