//! Why a connection or one of its streams ends, as the engine says it.

pub(crate) use dunlin_mqtt::server::Fault;

use dunlin_mqtt::codec::ReasonCode;

use crate::fault::NoRoom;

impl From<NoRoom> for Fault {
    fn from(reason: NoRoom) -> Self {
        Self::new(ReasonCode::QuotaExceeded, reason.text)
    }
}
