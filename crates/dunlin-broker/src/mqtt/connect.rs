//! CONNECT: where the session lives, and who the client is.

use alloc::boxed::Box;
use alloc::format;

use bytes::Bytes;
use dunlin_base::{ShardId, Text};
use dunlin_mqtt::codec::{Connect, ReasonCode, Version};
use dunlin_mqtt::server::connect;

use crate::ids::ConnIdx;
use crate::mqtt::conn::PendingConnect;
use crate::mqtt::fault::Fault;
use crate::mqtt::{authenticate, ending};
use crate::owners::Owners;
use crate::owners::common::Who;
use crate::{access, bridges};

/// What to do after a packet.
pub(crate) enum Flow {
    /// Go on with the next one.
    Continue,
    /// The session lives on another shard: give it this packet and the rest.
    HandOver(ShardId),
    /// Keep the packet and the rest until a server has answered.
    Hold,
}

/// A CONNECT that decoded well.
pub(crate) fn handle_connect(
    own: &mut Owners,
    c: ConnIdx,
    packet: &[u8],
    connect: &Connect<'_>,
) -> Result<Flow, Fault> {
    if let Some(conn) = own.conns.mqtt_mut(c) {
        conn.link.terms.version = connect.version;
        conn.who = Some(Box::new(Who {
            client_id: Text::from(connect.client_id),
            user: connect.username.map(Text::from),
        }));
    }
    let is_own = own
        .conns
        .mqtt(c)
        .is_some_and(|conn| own.config.bridges.is_own(&conn.peer));
    // Before it costs more: its user is looked at when that is known.
    if own.is_banned(c, connect.client_id, None) {
        ending::refuse_banned(own, c);
        return Ok(Flow::Continue);
    }
    if let Some(reference) = own.config.redirect.mqtt.clone().filter(|_| !is_own) {
        ending::redirect(own, c, &reference);
        return Ok(Flow::Continue);
    }
    if bridges::is_bridge_name(connect.client_id) && !is_own {
        let cause = "a client identifier of the broker's own bridges";
        let fault = Fault::new(ReasonCode::ClientIdentifierNotValid, cause);
        ending::refuse(own, c, fault);
        return Ok(Flow::Continue);
    }
    // In 3.1.1 it is dropped, as a PUBLISH there is: mosquitto's bridges have one.
    let will = connect
        .will
        .as_ref()
        .filter(|_| connect.version == Version::V5);
    if will.is_some_and(|will| is_reserved(own, c, will.topic)) {
        let fault = Fault::new(
            ReasonCode::NotAuthorized,
            "a will for a topic of the server",
        );
        ending::refuse(own, c, fault);
        return Ok(Flow::Continue);
    }
    let lacks_id = match connect::lacks_client_id(connect) {
        Ok(lacks) => lacks,
        Err(reason) => {
            ending::refuse(own, c, Fault::new(reason, "no client identifier"));
            return Ok(Flow::Continue);
        }
    };
    if let Some(flow) = leads_away(own, c, connect, lacks_id) {
        return Ok(flow);
    }
    let assigned = lacks_id.then(|| assign_client_id(own));
    let pending = PendingConnect {
        packet: Bytes::copy_from_slice(packet),
        assigned,
    };
    authenticate::authenticate(own, c, connect, pending);
    Ok(Flow::Continue)
}

/// What follows if the session is not to be here, or not now.
fn leads_away(own: &mut Owners, c: ConnIdx, connect: &Connect<'_>, lacks_id: bool) -> Option<Flow> {
    let cause = match elsewhere(own, connect, lacks_id) {
        Some(home) if own.members.has(home) => return Some(Flow::HandOver(home)),
        Some(_) => "the shard of the session is away",
        // A home of another store may have given it here.
        None if own.members.is_waiting() && !own.members.is_edge() => {
            "the shard does not know yet what others want"
        }
        None => return None,
    };
    let fault = Fault::new(ReasonCode::ServerUnavailable, cause);
    ending::refuse(own, c, fault);
    Some(Flow::Continue)
}

/// Where the session lives, if that is not here.
fn elsewhere(own: &mut Owners, connect: &Connect<'_>, lacks_id: bool) -> Option<ShardId> {
    let max = own.config.sessions.session_expiry_secs_max;
    // A will outlives an edge: the session is where the store has it.
    let stays = connect::ends_with_connection(connect, max)
        && (connect.will.is_none() || !own.members.is_edge());
    if stays || (lacks_id && !own.members.is_edge()) {
        return None;
    }
    let home = match lacks_id {
        true => own.members.home(&format!("{:032x}", own.random.next())),
        false => own.members.home(connect.client_id),
    };
    (home != own.config.shard).then_some(home)
}

/// Whether a will is for a topic that clients of its listener do not publish to.
fn is_reserved(own: &Owners, c: ConnIdx, topic: &str) -> bool {
    let listener = own.conns.mqtt(c).map(|conn| conn.peer.listener);
    let mount = own.config.topics.mount(listener.unwrap_or_default());
    access::is_reserved(topic) || (!mount.is_empty() && topic.starts_with('$'))
}

/// An identifier that belongs to this shard, if any does.
fn assign_client_id(own: &mut Owners) -> Text {
    loop {
        let id = format!("auto-{:016x}", own.random.next() as u64);
        if (own.members.is_edge() || own.members.is_home_of(&id))
            && own.sessions.find(&id).is_none()
            && own.sessions.elsewhere(&id).is_none()
        {
            return Text::from(id);
        }
    }
}
