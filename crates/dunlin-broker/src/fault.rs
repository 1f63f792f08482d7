//! Why a connection (or one of its streams) ends: as the engine says it.

pub(crate) use dunlin_mqtt::server::Fault;
