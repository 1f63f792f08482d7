//! One message's way: publish, routing, queues of the receivers, the store, and
//! what follows when it is stored.

pub(crate) mod deliver;
pub(crate) mod finding;
pub(crate) mod loans;
pub(crate) mod posts;
pub(crate) mod publish;
pub(crate) mod retained;
pub(crate) mod settle;
pub(crate) mod shared;
pub(crate) mod source;
pub(crate) mod stored;
pub(crate) mod taking;
pub(crate) mod throttle;
pub(crate) mod walk;
pub(crate) mod written;
