//! Sessions as a whole: without a connection, after a restart, changes of
//! their subscriptions and of the rules for them.

pub(crate) mod groups;
pub(crate) mod leaving;
pub(crate) mod lifecycle;
pub(crate) mod records;
pub(crate) mod restore;
pub(crate) mod rights;
pub(crate) mod rules;
pub(crate) mod subscriptions;
