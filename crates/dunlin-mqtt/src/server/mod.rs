//! The server session engine.
