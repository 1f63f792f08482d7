//! Sessions as a whole: without a connection, after a restart, and changes of
//! their subscriptions.

pub(crate) mod lifecycle;
pub(crate) mod restore;
pub(crate) mod subscriptions;
