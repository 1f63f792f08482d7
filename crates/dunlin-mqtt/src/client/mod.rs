//! The client session engine.
