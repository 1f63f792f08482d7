//! The suite that every back end runs: it cannot be told from the reference.
