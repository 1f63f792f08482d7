//! CONNECT: where the session lives, and who the client is.

use alloc::format;

use bytes::Bytes;
use dunlin_base::{ShardId, Text};
use dunlin_mqtt::codec::{Connect, ReasonCode, Version};
use dunlin_mqtt::server::session::Lifetime;

use crate::access;
use crate::config::Config;
use crate::fault::Fault;
use crate::ids::ConnIdx;
use crate::mqtt::{authenticate, ending};
use crate::owners::Owners;
use crate::owners::conn::PendingConnect;
use crate::random::home_shard;

/// What to do after a packet.
pub(crate) enum Flow {
    /// Go on with the next one.
    Continue,
    /// The session lives on another shard: give it this packet and the rest.
    HandOver(ShardId),
}

/// A CONNECT that decoded well.
pub(crate) fn handle_connect(
    own: &mut Owners,
    c: ConnIdx,
    packet: &[u8],
    connect: &Connect<'_>,
) -> Result<Flow, Fault> {
    if let Some(conn) = own.conns.get_mut(c) {
        conn.link.terms.version = connect.version;
    }
    let will = connect.will.as_ref();
    if will.is_some_and(|will| access::is_reserved(will.topic)) {
        ending::refuse(own, c, ReasonCode::NotAuthorized);
        return Ok(Flow::Continue);
    }
    let mut assigned = None;
    if connect.client_id.is_empty() {
        //= mqtt5#[MQTT-3.1.3-6]
        if connect.version == Version::V311 && !connect.clean_start {
            ending::refuse(own, c, ReasonCode::ClientIdentifierNotValid);
            return Ok(Flow::Continue);
        }
        assigned = Some(assign_client_id(own));
    } else if own.config.shards > 1 {
        let home = ShardId(home_shard(connect.client_id, own.config.shards));
        if home != own.config.shard && !lives_with_connection(&own.config, connect) {
            return Ok(Flow::HandOver(home));
        }
    }
    let pending = PendingConnect {
        packet: Bytes::copy_from_slice(packet),
        assigned,
    };
    authenticate::authenticate(own, c, connect, pending);
    Ok(Flow::Continue)
}

/// Whether the session begins empty and ends with its connection, so that it
/// lives where the connection is. CONNECT decides: an expiry of zero cannot be
/// made longer later (MQTT 5.0, section 3.14.2.2.2).
fn lives_with_connection(config: &Config, connect: &Connect<'_>) -> bool {
    connect.clean_start && Lifetime::asked(connect, config.session_expiry_secs_max) == 0
}

/// An identifier that belongs to this shard.
fn assign_client_id(own: &mut Owners) -> Text {
    loop {
        let id = format!("auto-{:016x}", own.random.next() as u64);
        if home_shard(&id, own.config.shards) == own.config.shard.0
            && own.sessions.find(&id).is_none()
            && own.sessions.elsewhere(&id).is_none()
        {
            return Text::from(id);
        }
    }
}
