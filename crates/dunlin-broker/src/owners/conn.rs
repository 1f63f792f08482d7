//! A network connection with the front of its protocol. Another protocol is a
//! variant here and a room beside `mqtt` and `amqp`.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ops::{Deref, DerefMut};

use dunlin_base::transport::NetCommandKind;
use dunlin_base::{ConnId, ShardId, Text};

#[cfg(feature = "amqp")]
use crate::amqp::carrier::Carrier;
#[cfg(feature = "amqp")]
use crate::amqp::state::AmqpConn;
use crate::ids::SessionIdx;
#[cfg(feature = "mqtt")]
use crate::mqtt::conn::MqttConn;
use crate::owners::common::{ConnCore, Who};
use crate::owners::kind::{ConnKind as _, Proof};

/// What a shard keeps of a network connection. A connection without traffic owns
/// no buffers.
#[derive(Debug)]
#[allow(
    clippy::large_enum_variant,
    reason = "most are of MQTT, and are found without another step"
)]
pub(crate) enum Conn {
    /// MQTT, any version; or nothing has been said yet.
    #[cfg(feature = "mqtt")]
    Mqtt(MqttConn),
    /// AMQP 1.0.
    #[cfg(feature = "amqp")]
    Amqp(Box<AmqpConn>),
    /// A QUIC connection whose streams are connections of AMQP.
    #[cfg(feature = "amqp")]
    Carrier(Box<Carrier>),
}

/// Asks the front of a connection.
macro_rules! ask {
    ($conn:expr, $it:ident => $do:expr) => {
        match $conn {
            #[cfg(feature = "mqtt")]
            Conn::Mqtt($it) => $do,
            #[cfg(feature = "amqp")]
            Conn::Amqp($it) => $do,
            #[cfg(feature = "amqp")]
            Conn::Carrier($it) => $do,
        }
    };
}

impl Deref for Conn {
    type Target = ConnCore;

    fn deref(&self) -> &ConnCore {
        ask!(self, it => it)
    }
}

impl DerefMut for Conn {
    fn deref_mut(&mut self) -> &mut ConnCore {
        ask!(self, it => it)
    }
}

/// As [`ConnKind`] says.
impl Conn {
    pub(crate) fn session(&self) -> Option<SessionIdx> {
        ask!(self, it => it.session())
    }

    pub(crate) fn links(&self) -> Option<Vec<SessionIdx>> {
        ask!(self, it => it.links())
    }

    pub(crate) fn handed_over(&self) -> Option<ShardId> {
        ask!(self, it => it.handed_over())
    }

    pub(crate) fn backlog(&self) -> usize {
        ask!(self, it => it.backlog())
    }

    pub(crate) fn unfinished(&self) -> usize {
        ask!(self, it => it.unfinished())
    }

    pub(crate) fn parked_bytes(&self) -> usize {
        ask!(self, it => it.parked_bytes())
    }

    pub(crate) fn begun_bytes(&self) -> usize {
        ask!(self, it => it.begun_bytes())
    }

    pub(crate) fn is_open(&self) -> bool {
        ask!(self, it => it.is_open())
    }

    pub(crate) fn is_carried(&self) -> bool {
        ask!(self, it => it.is_carried())
    }

    pub(crate) fn reading(&self, paused: bool) -> (ConnId, NetCommandKind) {
        ask!(self, it => it.reading(paused))
    }

    pub(crate) fn user(&self) -> Option<Text> {
        ask!(self, it => it.user())
    }

    pub(crate) fn who(&self) -> Option<&Who> {
        ask!(self, it => it.who())
    }

    pub(crate) fn proof(&self) -> Proof<'_> {
        ask!(self, it => it.proof())
    }
}
