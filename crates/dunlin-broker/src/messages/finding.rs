//! Who gets a message, as the rules have it and as members of groups can take it.

use dunlin_base::QoS;

use crate::access::Action;
use crate::ids::SessionIdx;
use crate::messages::shared;
use crate::messages::source::Source;
use crate::owners::Owners;
use crate::owners::routing::{Matches, Scope, Way};

/// Who gets a message.
pub(crate) fn find(
    own: &mut Owners,
    source: &Source<'_>,
    origin: Option<SessionIdx>,
    scope: Option<&Scope<'_>>,
) -> Matches {
    let topic = source.topic();
    // An edge has the home of a group choose who gets what is to be kept.
    let asks = own.members.is_edge() && scope.is_none() && source.is_answered();
    let way = Way {
        exact: source.qos() == QoS::ExactlyOnce,
        homes: asks.then(|| own.members.homes()),
    };
    let (sessions, conns) = (&own.sessions, &own.conns);
    let access = &own.access;
    let may_receive = |s| {
        let session = sessions.get(s);
        session.is_some_and(|session| session.may(access, Action::Receive, topic))
    };
    let member = |s| shared::member(sessions, conns, s);
    own.routing
        .find(topic, origin, scope, way, member, may_receive)
}
